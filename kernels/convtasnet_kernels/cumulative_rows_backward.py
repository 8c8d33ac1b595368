"""Backward of the cumulative norm in Triton for rows that no vectors divide.

Built like ``cumulative_rows.py``: sums of the frames, a scan in reverse time, then dx, which goes
forward in time and finds in the L2 what the sums read last.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative_gradient import gradient_terms, may_fuse, normalized, summands
from convtasnet_kernels.cumulative_rows import SCAN_FRAMES, frame_sums, scan_constants
from convtasnet_kernels.lookback import clear, take_ticket
from convtasnet_kernels.phase_rows import (
    Tile,
    chunk_channels,
    chunk_place,
    grid_sizes,
    load_mask,
    row_constants,
    row_offsets,
    rows_mask,
    store_rows,
    tile_frames,
)
from convtasnet_kernels.tile_parts import activate, both_sums


@triton.jit(do_not_specialize=["B", "T", "tiles", "chunks", "words"])
@no_type_check
def _gradient_sums_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    sums_ptr,  # out: (B, chunks, 2, T) float32, over channels: g and g·xhat, g = dy·weight
    partial_ptr,  # out: (B·tiles, 2, C) float32, over frames: dy·xhat and dy; or None
    workspace_ptr,  # out: 1 + words zeros
    words,
    B,
    T,
    tiles,  # of a row
    chunks,  # of an item
    C: tl.constexpr,
    V: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STEP: tl.constexpr,
    UNROLL: tl.constexpr,  # steps loaded at once
    FOLD: tl.constexpr,
):
    clear(workspace_ptr, words, 64)
    program = tl.program_id(0)
    chunk = program % chunks
    tile = program // chunks % tiles
    item = (program // chunks // tiles).to(tl.int64)
    channel, count = chunk_channels(chunk, C, V, BLOCK_C)
    begin, lead = chunk_place(item, channel, T, C, V)
    j, t, valid, vector = tile_frames(tile, lead, T, V, BLOCK_T)
    mask = load_mask(valid, vector, T, WHOLE)[None, :]
    pivot = activate(tl.load(x_ptr + item * C * T), prelu_ptr)
    stats_ptr += item * T + t
    mean = tl.load(stats_ptr, mask=valid, other=0.0)
    rstd = tl.load(stats_ptr + tl.cast(B, tl.int64) * T, mask=valid, other=0.0)
    x_ptr += begin
    dy_ptr += begin
    if partial_ptr is not None:
        partial_ptr += (item * tiles + tile) * 2 * C
    g_sum = tl.zeros((STEP, BLOCK_T), tl.float32)
    gx_sum = tl.zeros((STEP, BLOCK_T), tl.float32)
    for start in tl.range(0, BLOCK_C, STEP * UNROLL):
        us, gs = (), ()
        for i in tl.static_range(UNROLL):
            row = start + i * STEP + tl.arange(0, STEP)
            existing = mask & rows_mask(row, count, C, V, BLOCK_C)
            offsets = row_offsets(row, j, T, V)
            us += (tl.load(x_ptr + offsets, mask=existing, other=0.0),)
            gs += (tl.load(dy_ptr + offsets, mask=existing, other=0.0),)
        for i in tl.static_range(UNROLL):
            row = start + i * STEP + tl.arange(0, STEP)
            c = channel + row * V
            g = tl.where(valid[None, :], gs[i], 0.0).to(tl.float32)
            gx, own = summands(g, activate(us[i], prelu_ptr), pivot, mean, rstd, FOLD, C)
            if partial_ptr is not None:
                slope, own = both_sums(gx, own, 1)
                tl.store(partial_ptr + c, slope, mask=row < count)
                tl.store(partial_ptr + C + c, own, mask=row < count)
            gx = gx.to(tl.float32)
            if weight_ptr is not None:
                w = tl.load(weight_ptr + c, mask=row < count, other=0.0).to(tl.float32)[:, None]
                g_sum += g * w
                gx_sum += gx * w
            else:
                g_sum += g
                gx_sum += gx
    g, gx = both_sums(g_sum, gx_sum)
    sums_ptr += (item * chunks + chunk) * 2 * T + t
    tl.store(sums_ptr, g, mask=valid)
    tl.store(sums_ptr + T, gx, mask=valid)


@triton.jit(do_not_specialize=["B", "T"])
def _terms_kernel(
    x_ptr,  # (B, C, T) input
    prelu_ptr,  # (1,) slope or None
    sums_ptr,  # (B, CHUNKS, 2, T) float32, of the first launch
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    terms_ptr,  # out: (3, B, T) float32: own, later and slope; with FOLD fixed and scale
    workspace_ptr,  # pair_words(B, tiles) words
    B,
    T,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    LOADS: tl.constexpr,  # chunks read at a time
    BLOCK_T: tl.constexpr,
    GROUP: tl.constexpr,
    FOLD: tl.constexpr,
):
    tiles = tl.cdiv(T, BLOCK_T)
    ticket = take_ticket(workspace_ptr)
    item = (ticket // tiles).to(tl.int64)
    order = ticket % tiles  # the last frames come first
    start = (tiles - 1 - order) * BLOCK_T
    j = tl.arange(0, BLOCK_T)
    valid = start + j < T
    items = tl.cast(B, tl.int64) * T
    place = item * T + start + j
    mean = tl.load(stats_ptr + place, mask=valid, other=0.0)
    rstd = tl.load(stats_ptr + items + place, mask=valid, other=1.0)
    sums_ptr += item * CHUNKS * 2 * T + start
    g = tl.zeros((LOADS, BLOCK_T), tl.float32)
    gx = tl.zeros((LOADS, BLOCK_T), tl.float32)
    for k in tl.range(0, CHUNKS, LOADS):
        chunk = (k + tl.arange(0, LOADS)).to(tl.int64)[:, None]
        sums = sums_ptr + chunk * 2 * T + j[None, :]
        g += tl.load(sums, mask=valid[None, :], other=0.0)
        gx += tl.load(sums + T, mask=valid[None, :], other=0.0)
    g, gx = both_sums(g, gx)
    places = (workspace_ptr, item, B, tiles, order)
    own, later, slope = gradient_terms(g, gx, mean, rstd, valid, start, places, GROUP, C)
    terms_ptr += place
    if FOLD:
        # dx = rstd·g + fixed - scale·x, the same with what a frame's channels share taken together
        pivot = activate(tl.load(x_ptr + item * C * T), prelu_ptr)
        fixed = ((later - own) + slope * ((pivot + mean) * rstd)) * rstd
        tl.store(terms_ptr, fixed, mask=valid)
        tl.store(terms_ptr + items, slope * rstd * rstd, mask=valid)
    else:
        tl.store(terms_ptr, own, mask=valid)
        tl.store(terms_ptr + items, later, mask=valid)
        tl.store(terms_ptr + 2 * items, slope, mask=valid)


@triton.jit(do_not_specialize=["B", "T", "tiles", "chunks"])
def _input_gradient_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    terms_ptr,  # (3, B, T) float32, of the second launch
    dx_ptr,  # out: (B, C, T)
    slopes_ptr,  # out: (programs,) float32, the slope's gradient; or None
    B,
    T,
    tiles,  # of a row
    chunks,  # of an item
    C: tl.constexpr,
    V: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    FOLD: tl.constexpr,
):
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    chunk = program % chunks
    tile = program // chunks % tiles
    item = (program // chunks // tiles).to(tl.int64)
    channel, count = chunk_channels(chunk, C, V, BLOCK_C)
    begin, lead = chunk_place(item, channel, T, C, V)
    j, t, valid, vector = tile_frames(tile, lead, T, V, BLOCK_T)
    row = tl.arange(0, BLOCK_C)
    exists = rows_mask(row, count, C, V, BLOCK_C)
    offsets = row_offsets(row, j, T, V)
    mask = load_mask(valid, vector, T, WHOLE)[None, :] & exists
    u = tl.load(x_ptr + begin + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    g = tl.load(dy_ptr + begin + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    items = tl.cast(B, tl.int64) * T
    frame = item * T + t
    rstd = tl.load(stats_ptr + items + frame, mask=valid, other=0.0)
    first = tl.load(terms_ptr + frame, mask=valid, other=0.0)[None, :]
    second = tl.load(terms_ptr + items + frame, mask=valid, other=0.0)[None, :]
    g = g.to(tl.float32)
    u = u.to(tl.float32)
    x = activate(u, prelu_ptr)
    if weight_ptr is not None:
        c = channel + row * V
        g *= tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
    if FOLD:
        dx = g * rstd[None, :] + first - x * second
    else:
        pivot = activate(tl.load(x_ptr + item * C * T), prelu_ptr)
        mean = tl.load(stats_ptr + frame, mask=valid, other=0.0)
        slope = tl.load(terms_ptr + 2 * items + frame, mask=valid, other=0.0)[None, :]
        xhat = normalized(x, pivot, mean, rstd, FOLD)
        dx = ((g - first) + second - slope * xhat) * rstd[None, :]
    if slopes_ptr is not None:
        da = tl.where(valid[None, :] & ~(u > 0), dx * u, 0.0)  # what is not loaded holds u = 0
        tl.store(slopes_ptr + program, tl.sum(tl.sum(da, axis=1), axis=0))
    if prelu_ptr is not None:
        dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
    store_rows(dx_ptr + begin, offsets, dx, tile, exists, valid, vector, T, V)


# By bytes an element.
SUMS_TILES = {2: Tile(64, 8, 1, 8), 4: Tile(32, 8, 1, 4)}
UNROLL = {2: 2, 4: 4}
MAP_TILES = {2: Tile(32, 16, 4), 4: Tile(32, 16, 4)}


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    dx: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Fills dx for contiguous x (B, C, T) on the current device.

    Returns:
        Partial sums of the parameters' gradients, (rows, 2·C) and (programs,), None where not
        needed.
    """
    B, C, T = x.shape
    size = x.element_size()
    common = {"FOLD": size == 2 and may_fuse(x), "enable_fp_fusion": may_fuse(x)}
    fixed = row_constants(x, SUMS_TILES[size])
    sums, workspace, grid = frame_sums(x, fixed)
    params = stats.new_empty((B * grid[0], 2 * C)) if needs_params else None
    _gradient_sums_kernel[(B * grid[0] * grid[1],)](
        dy, x, weight, prelu, stats, sums, params, workspace, workspace.numel() - 1, B, T,
        *grid, UNROLL=min(UNROLL[size], fixed["BLOCK_C"] // fixed["STEP"]), **fixed, **common,
    )  # fmt: skip
    terms = stats.new_empty((3, B, T))
    scan = scan_constants(sums, fixed)
    del scan["V"], scan["BLOCK_C"]
    _terms_kernel[(B * triton.cdiv(T, SCAN_FRAMES),)](
        x, prelu, sums, stats, terms, workspace, B, T, **scan, **common
    )
    fixed = row_constants(x, MAP_TILES[size])
    grid = grid_sizes(x, fixed)
    programs = B * grid[0] * grid[1]
    slopes = stats.new_empty((programs,)) if needs_prelu else None
    _input_gradient_kernel[(programs,)](
        dy, x, weight, prelu, stats, terms, dx, slopes, B, T, *grid, **fixed, **common
    )
    return params, slopes
