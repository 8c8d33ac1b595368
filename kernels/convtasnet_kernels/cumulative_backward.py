"""Backward of the cumulative norm in Triton, built like ``cumulative.py`` in reverse time."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative import (
    FEW_CHANNELS,
    Tile,
    aligned,
    chunk_mask,
    inverse,
    load_channels,
    tile_constants,
    tile_offsets,
)
from convtasnet_kernels.lookback import pair_words, sums_before, take_ticket, workspace
from convtasnet_kernels.partials import sum_rows
from convtasnet_kernels.tile_parts import activate


@triton.jit
def _normalized(x, pivot, mean, rstd, FOLD: tl.constexpr):
    """Gives xhat of an activated chunk; FOLD: by one multiply and add, enough for 16 bits."""
    if FOLD:
        return x * rstd[None, :] - ((pivot + mean) * rstd)[None, :]
    else:
        return (x - pivot - mean[None, :]) * rstd[None, :]


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
        gx = g * _normalized(activate(u, prelu_ptr), pivot, mean, rstd, FOLD)
        if partial_ptr is not None:
            lane = c + tl.arange(0, BLOCK_C)
            tl.store(partial_ptr + lane, tl.sum(gx, axis=1), mask=lane < C)
            tl.store(partial_ptr + C + lane, tl.sum(g, axis=1), mask=lane < C)
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


@triton.jit
def _terms(
    g,
    gx,
    mean,
    rstd,
    valid,
    start,
    places,
    GROUP: tl.constexpr,
    C: tl.constexpr,
):
    """own, later and slope of each frame: dx = rstd·(g - own + later - slope·xhat).

    ``places`` is (workspace_ptr, item, items, tiles, order) of ``sums_before``. What frame s sends
    to all frames before it is a_s + (m_t - m)·b_s, where m is the mean of the tile's first frame:
    tiles tell each other the sums around m = 0 (K). The frame's own part stays apart: at C = 1 it
    cancels g and leaves little.
    """
    workspace_ptr, item, items, tiles, order = places
    j = tl.arange(0, mean.shape[0])
    near = tl.sum(tl.where(j == 0, mean, 0.0), axis=0)
    rise = mean - near
    share = inverse((start + j + 1).to(tl.float32) * C, C)
    own = g * share
    slope = gx * share
    b = tl.where(valid, -(rstd * rstd) * slope, 0.0)
    a = tl.where(valid, -rstd * own, 0.0) - b * rise
    if (
        C < FEW_CHANNELS
    ):  # the frame's own a, taken off again, may be 1/sqrt(eps) times what is left
        a, b = a.to(tl.float64), b.to(tl.float64)
    near = near.to(tl.float64)
    tile_b = tl.sum(b, axis=0).to(tl.float64)
    tile_a = tl.sum(a, axis=0).to(tl.float64) - near * tile_b
    later_a, later_b = sums_before(workspace_ptr, item, items, tiles, order, tile_a, tile_b, GROUP)
    later_a = (later_a + near * later_b).to(a.dtype)
    a = (later_a + (tl.cumsum(a, axis=0, reverse=True) - a)).to(tl.float32)
    b = (later_b.to(b.dtype) + (tl.cumsum(b, axis=0, reverse=True) - b)).to(tl.float32)
    std = inverse(rstd, C)
    return own, (a + rise * b) * std, slope - b * std * std


@triton.jit(do_not_specialize=["B", "vectors"])
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output
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
    VECTOR: tl.constexpr,  # elements read at a time; rows are multiples of it
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
    own, later, slope = _terms(g_sum, gx_sum, mean, rstd, valid, start, places, GROUP, C)
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
            xhat = _normalized(x, pivot, mean, rstd, FOLD)
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


# By bytes an element, and whether vectors of 16 bytes divide the rows.
TILES = {
    (2, True): Tile(32, 64, 4, 128, 3),
    (4, True): Tile(32, 32, 4, 128, 3),
    (2, False): Tile(32, 32, 8, None, 1),
    (4, False): Tile(32, 32, 8, None, 1),
}


def backward_tile(x: Tensor) -> dict[str, Any]:
    """The constants of the backward kernel over x (B, C, T)."""
    # Of few channels, dx is what is left of g - own, and fma(dy, weight, -own), which does not
    # round dy·weight as own did, would leave a rounding more.
    fuse = x.shape[1] >= FEW_CHANNELS.value
    return {**tile_constants(x, TILES[x.element_size(), aligned(x)]), "enable_fp_fusion": fuse}


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
    B, C, T = x.shape
    dx = torch.empty_like(x)
    if x.numel() == 0:
        dparams = stats.new_zeros((2, C) if needs_params else (0,))
        return dx, dparams, stats.new_zeros((1,) if needs_prelu else (0,))
    constants = backward_tile(x)
    tiles = triton.cdiv(T, constants["BLOCK_T"])
    programs = B * tiles
    params = stats.new_empty((programs, 2 * C)) if needs_params else None
    slopes = stats.new_empty((programs, 1)) if needs_prelu else None
    with torch.cuda.device_of(x):
        words = workspace(x, pair_words(B, tiles, constants["GROUP"]))
        _backward_kernel[(programs,)](
            dy, x, weight, prelu, stats, dx, params, slopes, words,
            B, T // constants["VECTOR"], **constants,
        )  # fmt: skip
    dparams = stats.new_empty((0,)) if params is None else sum_rows(params).view(2, C)
    dprelu = stats.new_empty((0,)) if slopes is None else sum_rows(slopes)
    return dx, dparams, dprelu
