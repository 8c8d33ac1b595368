"""Backward of the global norm in Triton: sums, then dx, in two launches built like ``global_.py``.

The sums of each channel, which are the gradients of weight and bias, give those of the item.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.global_tile import (
    activate,
    combined,
    constants,
    empty_sums,
    item_length,
    item_pivot,
    item_sums,
    load_channels,
    load_mask,
    load_slope,
    packed,
    place,
    row_begin,
    row_vectors,
    spans,
    split_center,
    store_tile,
    valid_elements,
)
from convtasnet_kernels.partials import sum_partials
from convtasnet_kernels.tile_parts import both_sums


@triton.jit
def _item_statistics(x_ptr, prelu_ptr, slope, stats_ptr, item, length, B, C, T):
    """The mean, as ``split_center`` gives it, and rstd of an item.

    One element is its own mean and gets no gradient: rstd 0 says so, exactly.
    """
    pivot = item_pivot(x_ptr, prelu_ptr, slope, item, length, C, T)
    high, low = split_center(pivot + tl.load(stats_ptr + item).to(tl.float64))
    rstd = tl.load(stats_ptr + B + item)
    return high, low, tl.where((length > 0) & ((length > 1) | (C > 1)), rstd, 0.0)


@triton.jit(do_not_specialize=["B", "C", "T", "chunks", "steps"])
def _gradient_sums_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # (2, B) float32, mean - pivot and rstd
    sums_ptr,  # out: (2, B, programs an item) float64, g = dy·weight and g·(v - mean), over n
    partial_ptr,  # out: (B·chunks, 2, C) float32, sums over frames of dy·xhat and dy; or None
    B,
    C,
    T,
    chunks,  # spans of a row
    steps,  # tiles of a span
    V: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    R: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0)
    item, channel, chunk = place(program, C, chunks, BLOCK_C)
    length = item_length(lengths_ptr, item, T)
    slope = load_slope(prelu_ptr)
    high, low, rstd = _item_statistics(x_ptr, prelu_ptr, slope, stats_ptr, item, length, B, C, T)
    row = channel + tl.arange(0, BLOCK_C)
    weight = load_channels(weight_ptr, row, C, 1.0)

    n = tl.arange(0, BLOCK_C * R)
    c = channel + n // R
    first, lead = row_begin(item, channel, n // R, C, T, V, ROWS)
    g_sum = tl.zeros((BLOCK_C * R,), tl.float32)
    gx_sum = tl.zeros((BLOCK_C * R,), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        j = (chunk * steps + step) * R + n % R
        t = j * V - lead
        offsets = ((first + j) * V)[:, None] + tl.arange(0, V)[None, :]
        mask = load_mask(c, t, length, C, V, WHOLE)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        d = activate(u, prelu_ptr, slope) - high
        if lengths_ptr is not None or not ROWS:
            valid = valid_elements(c, t, length, C, V)
            g = tl.where(valid, g, 0.0)
            d = tl.where(valid, d, 0.0)
        g_sum += tl.sum(g, axis=1)
        gx_sum += tl.sum(g * d, axis=1)

    g = tl.sum(tl.reshape(g_sum, (BLOCK_C, R)), axis=1)
    gx = tl.sum(tl.reshape(gx_sum, (BLOCK_C, R)), axis=1) - low * g
    if partial_ptr is not None:
        partial = partial_ptr + (item * chunks + chunk) * (2 * C) + row
        tl.store(partial, gx * rstd, mask=row < C)
        tl.store(partial + C, g, mask=row < C)
    g, gx = both_sums((g * weight).to(tl.float64), (gx * weight).to(tl.float64))
    scale = 1.0 / tl.maximum(length.to(tl.float64) * C, 1.0)
    tl.store(sums_ptr + program, g * scale)
    tl.store(sums_ptr + tl.num_programs(0) + program, gx * scale)


@triton.jit(do_not_specialize=["B", "C", "T", "tiles", "count"])
def _input_gradient_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # (2, B) float32, mean - pivot and rstd
    sums_ptr,  # (2, B, count) float64, of the first launch
    dx_ptr,  # out: (B, C, T)
    slopes_ptr,  # out: (programs,) float32, the slope's gradient; or None
    B,
    C,
    T,
    tiles,  # of a row
    count,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    R: tl.constexpr,
):
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    item, channel, tile = place(program, C, tiles, BLOCK_C)
    length = item_length(lengths_ptr, item, T)
    n = tl.arange(0, BLOCK_C * R)
    c = channel + n // R
    first, lead = row_begin(item, channel, n // R, C, T, V, ROWS)
    j = tile * R + n % R
    t = j * V - lead
    offsets = ((first + j) * V)[:, None] + tl.arange(0, V)[None, :]
    mask = load_mask(c, t, length, C, V, WHOLE)
    u = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    slope = load_slope(prelu_ptr)
    high, low, rstd = _item_statistics(x_ptr, prelu_ptr, slope, stats_ptr, item, length, B, C, T)
    scale = rstd * load_channels(weight_ptr, c, C, 1.0)

    # dx = rstd·(g - own - xhat·Σg·xhat/n), own = Σg/n, xhat = rstd·(v - high - low)
    #    = rstd·g + shift - factor·(v - high)
    own, factor = item_sums(sums_ptr, item, B, count)
    factor = rstd * rstd * rstd * factor.to(tl.float32)
    shift = factor * low - rstd * own.to(tl.float32)
    u = u.to(tl.float32)
    d = activate(u, prelu_ptr, slope) - high
    dx = dy.to(tl.float32) * scale[:, None] + (shift - factor * d)
    if lengths_ptr is not None or not ROWS:
        valid = valid_elements(c, t, length, C, V)
        dx = tl.where(valid, dx, 0.0)
    if slopes_ptr is not None:
        terms = dx * tl.minimum(u, 0.0)  # what is not loaded holds u = 0
        if lengths_ptr is not None or not ROWS:
            terms = tl.where(valid, terms, 0.0)
        tl.store(slopes_ptr + program, tl.sum(tl.sum(terms, axis=1), axis=0))
    if prelu_ptr is not None:
        dx = tl.where(u > 0, dx, dx * slope)
    store_tile(dx_ptr + offsets, dx, c, t, C, T, V, ROWS)


# As in ``global_.py``.
SUMS_TILES = {2: (8, 256, 4), 4: (8, 128, 4)}
APPLY_TILES = {2: (8, 512, 4), 4: (16, 128, 4)}
SPAN = 4096
STAGES = 3


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    lengths: Tensor | None,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``global_.forward``; arguments and results as ``global_torch.backward``."""
    dy, x, stats = dy.contiguous(), x.contiguous(), stats.contiguous()
    weight, prelu, lengths = packed(weight, prelu, lengths)
    B, C, T = x.shape
    dx = torch.empty_like(x)
    if x.numel() == 0:
        return (
            dx,
            stats.new_zeros((2, C) if needs_params else (0,)),
            stats.new_zeros(1 if needs_prelu else 0),
        )
    fixed = constants(x, SUMS_TILES[x.element_size()])
    chunks, steps = spans(T, fixed, SPAN)
    sums = empty_sums(x, triton.cdiv(C, fixed["BLOCK_C"]) * chunks)
    partial = stats.new_empty((B * chunks, 2 * C)) if needs_params else None
    with torch.cuda.device_of(x):
        _gradient_sums_kernel[(sums.numel() // 2,)](
            dy, x, weight, prelu, lengths, stats, sums, partial, B, C, T, chunks, steps,
            **fixed, STAGES=STAGES,
        )  # fmt: skip
        sums = combined(sums)
        fixed = constants(x, APPLY_TILES[x.element_size()])
        tiles = triton.cdiv(row_vectors(T, fixed), fixed["R"])
        programs = B * triton.cdiv(C, fixed["BLOCK_C"]) * tiles
        slopes = stats.new_empty((programs, 1)) if needs_prelu else None
        _input_gradient_kernel[(programs,)](
            dy, x, weight, prelu, lengths, stats, sums, dx, slopes, B, C, T, tiles,
            sums.shape[2], **fixed,
        )  # fmt: skip
    dparams, dprelu = sum_partials(partial, slopes, stats)
    return dx, dparams, dprelu
