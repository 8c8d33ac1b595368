"""The cumulative norm in Triton for rows that no vectors of 16 bytes divide, in three launches.

The first adds up the channels of each frame (chunks of them: ``phase_rows.py``), the second scans
over time, the third normalizes, in reverse order, so that it finds in the L2 what the first read
last. ``cumulative.py`` says when they run. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative_scan import running_statistics, tile_sums
from convtasnet_kernels.lookback import GROUP, clear, pair_words, sums_before, take_ticket
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


@triton.jit(do_not_specialize=["T", "tiles", "chunks", "words"])
@no_type_check
def _frame_sums_kernel(
    x_ptr,  # (B, C, T) input
    prelu_ptr,  # (1,) slope or None
    sums_ptr,  # out: (B, chunks, 2, T) float32: mean - K, and squares around the mean
    workspace_ptr,  # out: 1 + words zeros
    words,
    T,
    tiles,  # of a row
    chunks,  # of an item
    C: tl.constexpr,
    V: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STEP: tl.constexpr,
):
    """Sums around each frame's first channel of the chunk.

    That channel is one of the n samples, so the squares exceed n·(n + 1) variances never: what
    cancels is at most n float32 roundings, and of the order of one unless it is an outlier.
    """
    clear(workspace_ptr, words, 64)
    program = tl.program_id(0)
    chunk = program % chunks
    tile = program // chunks % tiles
    item = (program // chunks // tiles).to(tl.int64)
    channel, count = chunk_channels(chunk, C, V, BLOCK_C)
    begin, lead = chunk_place(item, channel, T, C, V)
    j, t, valid, vector = tile_frames(tile, lead, T, V, BLOCK_T)
    pivot = activate(tl.load(x_ptr + item * C * T), prelu_ptr)
    x_ptr += begin
    row = tl.arange(0, STEP)
    mask = load_mask(valid, vector, T, WHOLE)
    us = ()
    for i in tl.static_range(0, BLOCK_C, STEP):
        exists = rows_mask(i + row, count, C, V, BLOCK_C)
        us += (
            tl.load(x_ptr + row_offsets(i + row, j, T, V), mask=mask[None, :] & exists, other=0.0),
        )
    first = tl.load(x_ptr + j, mask=mask & (count > 0), other=0.0)
    first = activate(first, prelu_ptr)
    total = tl.zeros((STEP, BLOCK_T), tl.float32)
    square = tl.zeros((STEP, BLOCK_T), tl.float32)
    for i in tl.static_range(0, BLOCK_C, STEP):
        d = activate(us[i // STEP], prelu_ptr) - first[None, :]
        if C % (V * BLOCK_C) != 0:
            d = tl.where(rows_mask(i + row, count, C, V, BLOCK_C), d, 0.0)
        total += d
        square += d * d
    total, square = both_sums(total, square)
    rest = total / tl.maximum(count, 1).to(tl.float32)
    square = square - total * rest
    square = tl.where(square < 0, 0.0, square)  # rounding; a maximum would swallow NaN
    sums_ptr += (item * chunks + chunk) * 2 * T + t
    tl.store(sums_ptr, (first - pivot) + rest, mask=valid)
    tl.store(sums_ptr + T, square, mask=valid)


@triton.jit
def _frame_statistics(
    sums_ptr,
    valid,
    T,
    C: tl.constexpr,
    V: tl.constexpr,
    BLOCK_C: tl.constexpr,
    CHUNKS: tl.constexpr,
    LOADS: tl.constexpr,
):
    """Mean - K and variance of each frame by itself (BLOCK_T,), of sums (CHUNKS, 2, T), by sums
    around the first chunk's mean.
    """
    BLOCK_T: tl.constexpr = valid.shape[0]
    j = tl.arange(0, BLOCK_T)
    near = tl.load(sums_ptr + j, mask=valid, other=0.0)
    total = tl.zeros((LOADS, BLOCK_T), tl.float32)
    square = tl.zeros((LOADS, BLOCK_T), tl.float32)
    for k in tl.range(0, CHUNKS, LOADS):
        _, count = chunk_channels(k + tl.arange(0, LOADS), C, V, BLOCK_C)
        exists = (count > 0)[:, None]
        n = count.to(tl.float32)[:, None]
        sums = sums_ptr + (k + tl.arange(0, LOADS)).to(tl.int64)[:, None] * 2 * T + j[None, :]
        mean = tl.load(sums, mask=valid[None, :] & exists, other=0.0)
        e = tl.where(exists, mean - near[None, :], 0.0)
        total += n * e
        square += n * e * e + tl.load(sums + T, mask=valid[None, :] & exists, other=0.0)
    total, square = both_sums(total, square)
    rest = total * (1.0 / C)
    var = square * (1.0 / C) - rest * rest
    return near + rest, tl.where(var < 0, 0.0, var)


@triton.jit(do_not_specialize=["B", "T"])
def _scan_kernel(
    sums_ptr,  # (B, CHUNKS, 2, T) float32, of the first launch
    stats_ptr,  # out: (2, B, T) float32, mean - K and rstd
    workspace_ptr,  # pair_words(B, tiles) words
    eps,
    B,
    T,
    C: tl.constexpr,
    V: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels of a chunk
    CHUNKS: tl.constexpr,
    LOADS: tl.constexpr,  # chunks read at a time
    BLOCK_T: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles = tl.cdiv(T, BLOCK_T)
    ticket = take_ticket(workspace_ptr)
    item = (ticket // tiles).to(tl.int64)
    tile = ticket % tiles
    start = tile * BLOCK_T
    valid = start + tl.arange(0, BLOCK_T) < T
    sums_ptr += item * CHUNKS * 2 * T + start
    mean, var = _frame_statistics(sums_ptr, valid, T, C, V, BLOCK_C, CHUNKS, LOADS)
    first, second = tile_sums(mean, var, valid, tl.minimum(T - start, BLOCK_T))
    first, second = sums_before(workspace_ptr, item, B, tiles, tile, first, second, GROUP)
    mean, rstd = running_statistics(mean, var, first, second, start, eps, C)
    stats_ptr += item * T + start + tl.arange(0, BLOCK_T)
    tl.store(stats_ptr, mean, mask=valid)
    tl.store(stats_ptr + tl.cast(B, tl.int64) * T, rstd, mask=valid)


@triton.jit(do_not_specialize=["B", "T", "tiles", "chunks"])
def _normalize_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    y_ptr,  # out: (B, C, T), of a dtype of its own
    B,
    T,
    tiles,  # of a row
    chunks,  # of an item
    C: tl.constexpr,
    V: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
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
    pivot = activate(tl.load(x_ptr + item * C * T), prelu_ptr)
    stats_ptr += item * T + t
    mean = tl.load(stats_ptr, mask=valid, other=0.0)
    rstd = tl.load(stats_ptr + tl.cast(B, tl.int64) * T, mask=valid, other=0.0)
    x = activate(u, prelu_ptr)
    if u.dtype.primitive_bitwidth == 16:
        # What 16 bits hold may take one multiply and add around zero.
        y = x * rstd[None, :] - ((pivot + mean) * rstd)[None, :]
    else:
        y = (x - pivot - mean[None, :]) * rstd[None, :]
    c = channel + row * V
    if weight_ptr is not None:
        y *= tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
    if bias_ptr is not None:
        y += tl.load(bias_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
    store_rows(y_ptr + begin, offsets, y, tile, exists, valid, vector, T, V)


# By bytes an element.
SUMS_TILES = {2: Tile(64, 8, 1, 4), 4: Tile(64, 8, 1, 4)}
MAP_TILES = {2: Tile(16, 32, 4), 4: Tile(16, 32, 4)}
SCAN_FRAMES, SCAN_CHUNKS, SCAN_WARPS = 128, 8, 4


def scan_constants(sums: Tensor, fixed: dict[str, Any]) -> dict[str, Any]:
    """The constants of a scan over sums (B, chunks, 2, T) of chunks as in ``fixed``."""
    return {
        **{name: fixed[name] for name in ("C", "V", "BLOCK_C")},
        "CHUNKS": sums.shape[1],
        "LOADS": min(SCAN_CHUNKS, fixed["V"]),
        "BLOCK_T": SCAN_FRAMES,
        "GROUP": GROUP,
        "num_warps": SCAN_WARPS,
    }


def frame_sums(x: Tensor, fixed: dict[str, Any]) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Memory for two sums of the frames of each chunk, the scan's workspace, tiles and chunks."""
    B, _, T = x.shape
    tiles, chunks = grid_sizes(x, fixed)
    words = pair_words(B, triton.cdiv(T, SCAN_FRAMES), GROUP)
    return (
        x.new_empty((B, chunks, 2, T), dtype=torch.float32),
        x.new_empty((1 + words,), dtype=torch.int64),
        (tiles, chunks),
    )


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    y: Tensor,
    stats: Tensor,
    eps: float,
) -> None:
    """Fills y (B, C, T) and stats (2, B, T) for contiguous x (B, C, T) on the current device."""
    B, _, T = x.shape
    fixed = row_constants(x, SUMS_TILES[x.element_size()])
    sums, workspace, grid = frame_sums(x, fixed)
    _frame_sums_kernel[(B * grid[0] * grid[1],)](
        x, prelu, sums, workspace, workspace.numel() - 1, T, *grid, **fixed
    )
    _scan_kernel[(B * triton.cdiv(T, SCAN_FRAMES),)](
        sums, stats, workspace, eps, B, T, **scan_constants(sums, fixed)
    )
    fixed = row_constants(x, MAP_TILES[x.element_size()])
    grid = grid_sizes(x, fixed)
    _normalize_kernel[(B * grid[0] * grid[1],)](
        x, weight, bias, prelu, stats, y, B, T, *grid, **fixed
    )
