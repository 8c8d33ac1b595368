"""Backward of the cumulative norm in Triton, built like ``cumulative.py`` in reverse time.

``cumulative_item_backward.py`` takes small items, ``cumulative_rows_backward.py`` rows that vectors
of 16 bytes do not divide.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import cumulative_item, cumulative_item_backward, cumulative_rows_backward
from convtasnet_kernels.cumulative import (
    Tile,
    chunk_mask,
    is_aligned,
    load_channels,
    tile_constants,
    tile_offsets,
)
from convtasnet_kernels.cumulative_gradient import gradient_terms, may_fuse, normalized, summands
from convtasnet_kernels.cumulative_scan import FEW_CHANNELS
from convtasnet_kernels.lookback import pair_words, take_ticket, workspace
from convtasnet_kernels.partials import sum_partials
from convtasnet_kernels.tile_parts import activate


@triton.jit
def _gradient_sums(
    dy_ptr,
    x_ptr,
    weight_ptr,
    prelu_ptr,
    partial_ptr,
    pivot,
    mean,
    rstd,
    valid,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STAGES: tl.constexpr,
    WIDE: tl.constexpr,
    FOLD: tl.constexpr,
):
    """Sums over the channels of g and g·xhat for each frame (BLOCK_T,), g = dy·weight; and over the
    tile's frames of dy·xhat and dy for each channel, into partial (2, C) unless it is None.
    """
    offsets = tile_offsets(T, BLOCK_C, BLOCK_T, WIDE)
    g_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    gx_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in tl.range(0, C, BLOCK_C, num_stages=STAGES):
        mask = chunk_mask(valid, c, C, BLOCK_C)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        g = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)  # 0 where masked
        gx, own = summands(g, activate(u, prelu_ptr), pivot, mean, rstd, FOLD, C)
        if partial_ptr is not None:
            lane = c + tl.arange(0, BLOCK_C)
            tl.store(partial_ptr + lane, tl.sum(gx, axis=1), mask=lane < C)
            tl.store(partial_ptr + C + lane, tl.sum(own, axis=1), mask=lane < C)
        gx = gx.to(tl.float32)
        if weight_ptr is not None:
            w = load_channels(weight_ptr, c, C, BLOCK_C)
            g_sum += g * w
            gx_sum += gx * w
        else:
            g_sum += g
            gx_sum += gx
        x_ptr += tl.cast(T, tl.int64) * BLOCK_C
        dy_ptr += tl.cast(T, tl.int64) * BLOCK_C
    return tl.sum(g_sum, axis=0), tl.sum(gx_sum, axis=0)


@triton.jit(do_not_specialize=["B", "vectors"])
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    dx_ptr,  # out: (B, C, T)
    partial_ptr,  # out: (programs, 2, C) float32, sums over frames of dy·xhat and dy; or None
    slope_ptr,  # out: (programs,) float32, the slope's gradient; or None
    workspace_ptr,  # pair_words(B, tiles) words
    B,
    vectors,  # T / VECTOR
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels read at a time
    BLOCK_T: tl.constexpr,  # frames of a tile
    VECTOR: tl.constexpr,  # elements of x in 16 bytes
    STAGES: tl.constexpr,  # chunks on their way
    WIDE: tl.constexpr,  # 64-bit offsets inside a chunk
    GROUP: tl.constexpr,
):
    # xhat and dx by fewer, fused operations
    FOLD: tl.constexpr = x_ptr.dtype.element_ty.primitive_bitwidth == 16 and C >= FEW_CHANNELS
    T = vectors * VECTOR
    tiles = tl.cdiv(T, BLOCK_T)
    ticket = take_ticket(workspace_ptr)
    item = (ticket // tiles).to(tl.int64)
    order = ticket % tiles  # the last frames come first
    start = (tiles - 1 - order) * BLOCK_T
    j = tl.arange(0, BLOCK_T)
    valid = start + j < T
    base = item * C * T
    pivot = activate(tl.load(x_ptr + base), prelu_ptr)
    x_ptr += base + start
    dy_ptr += base + start
    dx_ptr += base + start
    stats_ptr += item * T + start
    mean = tl.load(stats_ptr + j, mask=valid, other=0.0)
    rstd = tl.load(stats_ptr + tl.cast(B, tl.int64) * T + j, mask=valid, other=1.0)
    if partial_ptr is not None:
        partial_ptr += ticket.to(tl.int64) * (2 * C)
    g_sum, gx_sum = _gradient_sums(
        dy_ptr, x_ptr, weight_ptr, prelu_ptr, partial_ptr, pivot, mean, rstd, valid, T,
        C, BLOCK_C, BLOCK_T, STAGES, WIDE, FOLD,
    )  # fmt: skip
    places = (workspace_ptr, item, B, tiles, order)
    own, later, slope = gradient_terms(g_sum, gx_sum, mean, rstd, valid, start, places, GROUP, C)
    offsets = tile_offsets(T, BLOCK_C, BLOCK_T, WIDE)
    # dx = rstd·g + fixed - scale·x, the same with what a frame's channels share taken together
    fixed = ((later - own) + slope * ((pivot + mean) * rstd)) * rstd
    scale = slope * rstd * rstd
    da = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in tl.range(0, C, BLOCK_C, num_stages=STAGES):
        mask = chunk_mask(valid, c, C, BLOCK_C)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g *= load_channels(weight_ptr, c, C, BLOCK_C)
        x = activate(u, prelu_ptr)
        if FOLD:
            dx = g * rstd[None, :] + fixed[None, :] - x * scale[None, :]
        else:
            xhat = normalized(x, pivot, mean, rstd, FOLD)
            dx = ((g - own[None, :]) + later[None, :] - slope[None, :] * xhat) * rstd[None, :]
        if slope_ptr is not None:
            da += dx * tl.where(u > 0, 0.0, u)  # masked lanes hold u = 0
        if prelu_ptr is not None:
            dx *= tl.where(u > 0, 1.0, tl.load(prelu_ptr).to(tl.float32))
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        x_ptr += tl.cast(T, tl.int64) * BLOCK_C
        dy_ptr += tl.cast(T, tl.int64) * BLOCK_C
        dx_ptr += tl.cast(T, tl.int64) * BLOCK_C
    if slope_ptr is not None:
        tl.store(slope_ptr + ticket, tl.sum(tl.sum(da, axis=1), axis=0))


# By bytes an element.
TILES = {2: Tile(32, 64, 4, 128, 3), 4: Tile(32, 32, 4, 128, 3)}


def backward_tile(x: Tensor) -> dict[str, Any]:
    """The constants of the backward kernel over x (B, C, T)."""
    return {**tile_constants(x, TILES[x.element_size()]), "enable_fp_fusion": may_fuse(x)}


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``cumulative.forward``; as ``cumulative_torch.backward``."""
    dy, x, stats = dy.contiguous(), x.contiguous(), stats.contiguous()
    weight, prelu = (p if p is None else p.contiguous() for p in (weight, prelu))
    dx = torch.empty_like(x)
    if x.numel() == 0:
        dparams = stats.new_zeros((2, x.shape[1]) if needs_params else (0,))
        return dx, dparams, stats.new_zeros((1,) if needs_prelu else (0,))
    with torch.cuda.device_of(x):
        if cumulative_item.is_small(x):
            launch = cumulative_item_backward.backward
        else:
            launch = _launch if is_aligned(x) else cumulative_rows_backward.backward
        params, slopes = launch(dy, x, weight, prelu, stats, dx, needs_params, needs_prelu)
    dparams, dprelu = sum_partials(params, slopes, stats)
    return dx, dparams, dprelu


def _launch(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    dx: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Fills dx; partial sums of the parameters' gradients (programs, 2·C) and (programs,)."""
    B, C, T = x.shape
    constants = backward_tile(x)
    tiles = triton.cdiv(T, constants["BLOCK_T"])
    programs = B * tiles
    params = stats.new_empty((programs, 2 * C)) if needs_params else None
    slopes = stats.new_empty((programs,)) if needs_prelu else None
    words = workspace(x, pair_words(B, tiles, constants["GROUP"]))
    _backward_kernel[(programs,)](
        dy, x, weight, prelu, stats, dx, params, slopes, words,
        B, T // constants["VECTOR"], **constants,
    )  # fmt: skip
    return params, slopes
