"""Backward of the global norm in Triton, one launch and small sums; built like ``global_.py``.

A sum unit takes some whole channels over some frames, as the gradients of weight and bias want
sums of each channel; the flat tiles of ``global_tile.py`` then take dx.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.global_tile import (
    activate,
    alignment,
    apply_index,
    by_channel,
    item_length,
    item_pivot,
    item_result,
    item_sums,
    packed,
    publish_result,
    schedule,
    share,
    split_center,
    step_offsets,
    step_rows,
    tile_start,
    touched,
    valid_elements,
)
from convtasnet_kernels.lookback import take_ticket
from convtasnet_kernels.partials import sum_rows


@triton.jit
def _item_statistics(x_ptr, prelu_ptr, stats_ptr, item, length, B, C):
    """The mean, as ``split_center`` gives it, and rstd of the item at x_ptr.

    One element is its own mean and gets no gradient: rstd 0 says so, exactly.
    """
    pivot = item_pivot(x_ptr, prelu_ptr, length).to(tl.float64)
    high, low = split_center(pivot + tl.load(stats_ptr + item).to(tl.float64))
    rstd = tl.load(stats_ptr + B + item)
    return high, low, tl.where((length > 0) & ((length > 1) | (C > 1)), rstd, 0.0)


@triton.jit
def _sum_unit(
    dy_ptr,
    x_ptr,
    weight_ptr,
    prelu_ptr,
    lengths_ptr,
    stats_ptr,
    words_ptr,
    partial_ptr,
    ticket,
    units,
    chunks,
    group,
    B,
    C,
    T,
    N,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    ITEMS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Publishes the unit's sums of g and g·(v - high), g = dy·weight; stores those of channels."""
    item = ticket // units
    unit = ticket - item * units
    chunk = unit % chunks
    item = item.to(tl.int64)
    x_ptr += item * N
    dy_ptr += item * N
    length = item_length(lengths_ptr, item, T)
    high, low, rstd = _item_statistics(x_ptr, prelu_ptr, stats_ptr, item, length, B, C)
    c = (unit // chunks) * BLOCK_C + tl.arange(0, BLOCK_C)
    row = c.to(tl.int64) * T
    lead = tl.zeros((BLOCK_C,), tl.int32)
    if ITEMS and not ROWS:
        lead = (row % V).to(tl.int32)
    limit = tl.where(c < C, length + lead, 0)
    if ITEMS:
        # From the multiple of V before each channel, so that every load has 16 bytes: what
        # belongs to the channels beside it is masked later.
        row = row // V * V
        limit = (limit + V - 1) // V * V
    limit = limit[:, None]
    g_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    gx_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for k in range(0, CHUNK, BLOCK_T):
        j = chunk * CHUNK + k + tl.arange(0, BLOCK_T)[None, :]
        offsets = row[:, None] + j
        u = tl.load(x_ptr + offsets, mask=j < limit, other=0.0, eviction_policy="evict_last")
        g = tl.load(dy_ptr + offsets, mask=j < limit, other=0.0, eviction_policy="evict_last")
        g = g.to(tl.float32)
        gx = g * (activate(u.to(tl.float32), prelu_ptr) - high)
        if lengths_ptr is not None or not ROWS:
            t = j - lead[:, None]
            valid = (j < limit) & (t >= 0) & (t < length)
            g = tl.where(valid, g, 0.0)
            gx = tl.where(valid, gx, 0.0)
        g_sum += g
        gx_sum += gx
    g = tl.sum(g_sum, axis=1)
    gx = tl.sum(gx_sum, axis=1)
    if partial_ptr is not None:
        partial = partial_ptr + (item * chunks + chunk) * (2 * C) + c
        tl.store(partial, (gx - low * g) * rstd, mask=c < C)
        tl.store(partial + C, g, mask=c < C)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)
        g *= weight
        gx *= weight
    first = tl.sum(g.to(tl.float64), axis=0)
    second = tl.sum(gx.to(tl.float64), axis=0)
    share(words_ptr, ticket, first, second, unit, units, group, B)
    if unit == units - 1:
        first, second = item_sums(words_ptr, item, units, group, B)
        # dx = rstd·(g - own - xhat·Σg·xhat/n), own = Σg/n, xhat = rstd·(v - high - low)
        #    = rstd·g + shift - slope·(v - high)
        n = tl.maximum(length.to(tl.float64) * C, 1.0)
        scale = rstd.to(tl.float64)
        slope = scale * scale * scale * (second - low * first) / n
        publish_result(words_ptr, item, slope, slope * low - scale * first / n, B)


@triton.jit
def _apply_tile(
    dy_ptr,
    x_ptr,
    weight_ptr,
    prelu_ptr,
    lengths_ptr,
    stats_ptr,
    words_ptr,
    dx_ptr,
    slopes_ptr,
    index,
    tiles,
    B,
    C,
    T,
    N,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    ITEMS: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Stores dx of a tile and its part of the slope's gradient, once its item's sums are there."""
    item, tile = apply_index(index, tiles)
    x_ptr += item * N
    length = item_length(lengths_ptr, item, T)
    high, _, rstd = _item_statistics(x_ptr, prelu_ptr, stats_ptr, item, length, B, C)
    start, channel, frame = tile_start(tile, T, TILE)
    x_ptr += start
    dy_ptr += item * N + start
    dx_ptr += item * N + start
    slope, shift = item_result(words_ptr, item, B)
    slope, shift = slope.to(tl.float32), shift.to(tl.float32)
    exact: tl.constexpr = lengths_ptr is not None or not ITEMS
    da = tl.zeros((STEP // V,), tl.float32)
    for k in range(0, TILE, STEP):
        c, t = step_rows(k, channel, frame, T, V, STEP)
        mask = touched(c, t, length, C, T, V, ITEMS)
        offsets = step_offsets(k, V, STEP)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        scale = rstd
        if weight_ptr is not None:
            scale = rstd * by_channel(weight_ptr, c, t, C, T, V, ROWS)
        u = u.to(tl.float32)
        dx = dy.to(tl.float32) * scale + (shift - slope * (activate(u, prelu_ptr) - high))
        if exact:
            valid = valid_elements(c, t, length, C, T, V)
            dx = tl.where(valid, dx, 0.0)
        if prelu_ptr is not None:
            if slopes_ptr is not None:
                terms = tl.where(u > 0, 0.0, dx * u)  # rows that are not loaded hold u = 0
                if exact:
                    terms = tl.where(valid, terms, 0.0)
                da += tl.sum(terms, axis=1)
            dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
        mask = touched(c, t, T, C, T, V, ITEMS)
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if slopes_ptr is not None:
        tl.store(slopes_ptr + index, tl.sum(da, axis=0))


@triton.jit(do_not_specialize=["B", "C", "T", "lag", "group"])
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # (2, B) float32, mean - pivot and rstd
    workspace_ptr,  # of lookback.py, zeroed
    dx_ptr,  # out: (B, C, T)
    partial_ptr,  # out: (B·chunks, 2, C) float32, sums over frames of dy·xhat and dy; or None
    slopes_ptr,  # out: (B·tiles,) float32, the slope's gradient; or None
    B,
    C,
    T,
    lag,  # tile u is applied after sum unit u + lag
    group,  # sum units a group
    V: tl.constexpr,  # elements of a row of a tile, 16 bytes
    ROWS: tl.constexpr,  # whether T is a multiple of V
    ITEMS: tl.constexpr,  # whether C·T is
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    CHUNK: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
    ticket = take_ticket(workspace_ptr).to(tl.int32)
    words_ptr = workspace_ptr + 1
    N = tl.cast(C, tl.int64) * T
    tiles = tl.cdiv(N, TILE).to(tl.int32)
    chunks = tl.cdiv(T + (0 if ROWS else V - 1), CHUNK)
    units = tl.cdiv(C, BLOCK_C) * chunks
    if ITEMS:
        N = N // V * V  # tells the compiler
    if ticket < B * units:
        _sum_unit(
            dy_ptr, x_ptr, weight_ptr, prelu_ptr, lengths_ptr, stats_ptr, words_ptr, partial_ptr,
            ticket, units, chunks, group, B, C, T, N, V, ROWS, ITEMS, BLOCK_C, BLOCK_T, CHUNK,
        )  # fmt: skip
    index = ticket - lag
    if (index >= 0) & (index < B * tiles):
        _apply_tile(
            dy_ptr, x_ptr, weight_ptr, prelu_ptr, lengths_ptr, stats_ptr, words_ptr, dx_ptr,
            slopes_ptr, index, tiles, B, C, T, N, V, ROWS, ITEMS, STEP, TILE,
        )  # fmt: skip


# (BLOCK_C, BLOCK_T, CHUNK, STEP, TILE, warps) by bytes an element.
TILES = {2: (16, 128, 1024, 4096, 16384, 8), 4: (16, 128, 1024, 2048, 16384, 8)}


def tile_sizes(x: Tensor) -> dict[str, int | bool]:
    """The constants of the kernel for x (B, C, T), and its warps."""
    names = ("BLOCK_C", "BLOCK_T", "CHUNK", "STEP", "TILE", "num_warps")
    return {**alignment(x), **dict(zip(names, TILES[x.element_size()], strict=True))}


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
    constants = tile_sizes(x)
    tiles = triton.cdiv(C * T, constants["TILE"])
    lead = 0 if constants["ROWS"] else constants["V"] - 1
    chunks = triton.cdiv(T + lead, constants["CHUNK"])
    units = triton.cdiv(C, constants["BLOCK_C"]) * chunks
    lag, group, workspace = schedule(x, units, tiles)
    partial = stats.new_empty((B * chunks, 2 * C)) if needs_params else None
    slopes = stats.new_empty((B * tiles, 1)) if needs_prelu else None
    with torch.cuda.device_of(x):
        _backward_kernel[(max(B * units, B * tiles + lag),)](
            dy, x, weight, prelu, lengths, stats, workspace, dx, partial, slopes, B, C, T, lag,
            group, **constants,
        )  # fmt: skip
    dparams = stats.new_empty((0,)) if partial is None else sum_rows(partial).view(2, C)
    dprelu = stats.new_empty((0,)) if slopes is None else sum_rows(slopes)
    return dx, dparams, dprelu
