"""The statistics of a fused block's norms from sums of chunks: small kernels between large ones.

The first adds up the chunks of each frame. What enters a frame's statistics beside the frame
itself, nothing (channelwise), the frames before it (cumulative) or all (global), a second adds up
from sums of tiles, in float64. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import chunk_channels, no_tiles
from convtasnet_kernels.global_tile import item_length
from convtasnet_kernels.tile_parts import both_sums

FRAMES = 128  # of a tile
CHUNKS = 16  # read at a time
LANES = 256  # sums of tiles added up at a time
WARPS = 4


@triton.jit
def store_statistics(stats_ptr, item, items, F, t, total, square, share, valid, eps):
    """Writes mean - K and 1/sqrt(var + eps) of frames t from float64 sums over 1/share elements."""
    mean = total * share
    var = square * share - mean * mean
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    rstd = tl.rsqrt(var + eps)
    stats_ptr += item * F + t
    tl.store(stats_ptr, tl.where(valid, mean, 0.0).to(tl.float32), mask=t < F)
    stats_ptr += tl.cast(items, tl.int64) * F
    tl.store(stats_ptr, tl.where(valid, rstd, 0.0).to(tl.float32), mask=t < F)


@triton.jit(do_not_specialize=["B", "F", "tiles"])
def _frames_kernel(
    partial_ptr,  # (3, B, chunks, F) float32, sums of v - p and (v - p)² over a chunk, and p
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd, if channelwise
    frames_ptr,  # out: (2, B, F) float64, sums of v - K and its square, else
    tiles_ptr,  # out: (2, B, tiles) float64, their sums over each tile, else
    eps,
    B,
    F,
    tiles,
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    CHANNELWISE: tl.constexpr,
    CHUNKS: tl.constexpr,
    FRAMES: tl.constexpr,
):
    item = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    t = tile * FRAMES + tl.arange(0, FRAMES)
    valid = t < item_length(lengths_ptr, item, F)
    chunks: tl.constexpr = (H + STEPS - 1) // STEPS
    plane = tl.cast(B, tl.int64) * chunks * F
    partial_ptr += item * chunks * F
    pivot = tl.load(partial_ptr + 2 * plane)
    partial_ptr += t
    # Around the frame's first channel, which is one of the H: its squares exceed H·(H + 1)
    # variances never, and what cancels is at most H float32 roundings.
    near = tl.load(partial_ptr + 2 * plane, mask=valid, other=0.0)
    total = tl.zeros((FRAMES,), tl.float32)
    square = tl.zeros((FRAMES,), tl.float32)
    # A thread adds up its own frame; as a tile of chunks and frames it would get a few frames of
    # each row, which begins anywhere, to be read one at a time.
    for start in tl.range(0, chunks, CHUNKS, num_stages=1):
        totals, squares, firsts = no_tiles(), no_tiles(), no_tiles()
        for i in tl.static_range(CHUNKS):
            mask = valid & (start + i < chunks)
            row_ptr = partial_ptr + tl.cast(start + i, tl.int64) * F
            totals += (tl.load(row_ptr, mask=mask, other=0.0),)
            squares += (tl.load(row_ptr + plane, mask=mask, other=0.0),)
            firsts += (tl.load(row_ptr + 2 * plane, mask=mask, other=0.0),)
        for i in tl.static_range(CHUNKS):
            shift = tl.where(valid & (start + i < chunks), firsts[i] - near, 0.0)
            shifts = tl.minimum(H - (start + i) * STEPS, STEPS).to(tl.float32) * shift
            square += squares[i] + shift * (2.0 * totals[i] + shifts)
            total += totals[i] + shifts
    total = total.to(tl.float64)
    square = square.to(tl.float64)
    away = tl.where(valid, near - pivot, 0.0).to(tl.float64)
    square += away * (2.0 * total + H * away)
    total += H * away
    if CHANNELWISE:
        share = 1.0 / tl.full((), H, tl.float64)
        store_statistics(stats_ptr, item, B, F, t, total, square, share, valid, eps)
    else:
        frames_ptr += item * F + t
        tl.store(frames_ptr, total, mask=t < F)
        tl.store(frames_ptr + tl.cast(B, tl.int64) * F, square, mask=t < F)
        total, square = both_sums(total, square)
        tl.store(tiles_ptr + tl.program_id(0), total)
        tl.store(tiles_ptr + tl.num_programs(0) + tl.program_id(0), square)


@triton.jit
def sum_tiles(tiles_ptr, items, tiles, item, first, last, LANES: tl.constexpr):
    """Two float64 sums over the tiles first..last - 1 of an item, in one fixed order."""
    tiles_ptr += item * tiles
    a = tl.zeros((LANES,), tl.float64)
    b = tl.zeros((LANES,), tl.float64)
    while first < last:
        i = first + tl.arange(0, LANES)
        a += tl.load(tiles_ptr + i, mask=i < last, other=0.0)
        b += tl.load(tiles_ptr + tl.cast(items, tl.int64) * tiles + i, mask=i < last, other=0.0)
        first += LANES
    return both_sums(a, b)


@triton.jit(do_not_specialize=["B", "F", "tiles"])
def _statistics_kernel(
    frames_ptr,  # (2, B, F) float64, sums of v - K and its square over the channels
    tiles_ptr,  # (2, B, tiles) float64, their sums over each tile
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd
    eps,
    B,
    F,
    tiles,
    H: tl.constexpr,
    CUMULATIVE: tl.constexpr,  # over the frames so far, else over all
    FRAMES: tl.constexpr,
    LANES: tl.constexpr,
):
    item = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    t = tile * FRAMES + tl.arange(0, FRAMES)
    length = item_length(lengths_ptr, item, F)
    if CUMULATIVE:
        share = 1.0 / ((t + 1).to(tl.float64) * H)
        last = tile
    else:
        share = 1.0 / (tl.maximum(length, 1).to(tl.float64) * H)
        last = tiles
    total, square = sum_tiles(tiles_ptr, B, tiles, item, tile * 0, last, LANES)
    if CUMULATIVE:
        frames_ptr += item * F + t
        total += tl.cumsum(tl.load(frames_ptr, mask=t < F, other=0.0), axis=0)
        frames_ptr += tl.cast(B, tl.int64) * F
        square += tl.cumsum(tl.load(frames_ptr, mask=t < F, other=0.0), axis=0)
    store_statistics(stats_ptr, item, B, F, t, total, square, share, t < length, eps)


def statistics(
    partial: Tensor, channels: int, kind: str, lengths: Tensor | None, eps: float
) -> Tensor:
    """As ``block_torch.statistics``; partial (3, B, chunks, F) of chunks of ``chunk_channels``."""
    _, B, chunks, F = partial.shape
    stats = partial.new_empty((2, B, F))
    tiles = triton.cdiv(F, FRAMES)
    channelwise = kind == "channelwise"
    frames = sums = None
    if not channelwise:
        frames = partial.new_empty((2, B, F), dtype=torch.float64)
        sums = partial.new_empty((2, B, tiles), dtype=torch.float64)
    with torch.cuda.device_of(partial):
        _frames_kernel[(B * tiles,)](
            partial, lengths, stats, frames, sums, eps, B, F, tiles,
            H=channels, STEPS=chunk_channels(channels, chunks), CHANNELWISE=channelwise,
            FRAMES=FRAMES, CHUNKS=min(CHUNKS, triton.next_power_of_2(chunks)),
            num_warps=WARPS,
        )  # fmt: skip
        if not channelwise:
            _statistics_kernel[(B * tiles,)](
                frames, sums, lengths, stats, eps, B, F, tiles,
                H=channels, CUMULATIVE=kind == "cumulative", FRAMES=FRAMES, LANES=LANES,
                num_warps=WARPS,
            )  # fmt: skip
    return stats
