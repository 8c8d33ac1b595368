"""The statistics of a fused block's norms from sums of chunks: small kernels between large ones.

One launch adds up the chunks of each frame, and what else enters its statistics: nothing of the
channelwise norm; the frames before it of the cumulative one, whose tiles tell each other their sums
(``lookback.py``); all frames of the global one. As no tile may wait for those behind it, the item's
last one to come writes the global statistics of all frames, unless they are so many that a second
launch is faster. Sums of frames are float64. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import lookback
from convtasnet_kernels.block_tile import chunk_channels, no_tiles
from convtasnet_kernels.global_tile import item_length
from convtasnet_kernels.tile_parts import both_running_sums, both_sums

FRAMES = 128  # of a tile
CHUNKS = 16  # read at a time
WARPS = 4
FILL = 1024  # frames written at a time where all have the same statistics
ALONE = 2**15  # frames of an item that one program writes
VECTOR = tl.constexpr(4)  # float32 of 16 bytes: rows of frames are whole vectors


@triton.jit
def _frame_sums(
    partial_ptr, item, t, items, F, H: tl.constexpr, STEPS: tl.constexpr, CHUNKS: tl.constexpr
):
    """float64 sums of v - K and of its square over the channels of frames t; see the kernel."""
    chunks: tl.constexpr = (H + STEPS - 1) // STEPS
    plane = tl.cast(items, tl.int64) * chunks * F
    partial_ptr += item * chunks * F
    pivot = tl.load(partial_ptr + 2 * plane)
    partial_ptr += t
    # Around the frame's first channel, which is one of the H: its squares exceed H·(H + 1)
    # variances never, and what cancels is at most H float32 roundings.
    near = tl.load(partial_ptr + 2 * plane, mask=t < F, other=0.0)
    total = tl.zeros((t.shape[0],), tl.float32)
    square = tl.zeros((t.shape[0],), tl.float32)
    # A thread adds up its own frames; as a tile of chunks and frames it would get a few frames of
    # each row, which begins anywhere, to be read one at a time.
    for start in tl.range(0, chunks, CHUNKS, num_stages=1):
        totals, squares, firsts = no_tiles(), no_tiles(), no_tiles()
        for i in tl.static_range(CHUNKS):
            mask = (t < F) & (start + i < chunks)
            row_ptr = partial_ptr + tl.cast(start + i, tl.int64) * F
            totals += (tl.load(row_ptr, mask=mask, other=0.0),)
            squares += (tl.load(row_ptr + plane, mask=mask, other=0.0),)
            firsts += (tl.load(row_ptr + 2 * plane, mask=mask, other=0.0),)
        for i in tl.static_range(CHUNKS):
            shift = tl.where(start + i < chunks, firsts[i] - near, 0.0)
            shifts = tl.minimum(H - (start + i) * STEPS, STEPS).to(tl.float32) * shift
            square += squares[i] + shift * (2.0 * totals[i] + shifts)
            total += totals[i] + shifts
    total = total.to(tl.float64)
    away = (near - pivot).to(tl.float64)
    return total + H * away, square.to(tl.float64) + away * (2.0 * total + H * away)


@triton.jit
def _moments(total, square, share, eps):
    """Mean - K and 1/sqrt(var + eps) from float64 sums over 1/share elements."""
    mean = total * share
    var = square * share - mean * mean
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    return mean, tl.rsqrt(var + eps)


@triton.jit
def store_frames(row_ptr, values, t, valid, F):
    """Writes values of frames t into a row (F,) of float32, zero unless valid."""
    tl.store(row_ptr + t, tl.where(valid, values, 0.0).to(tl.float32), mask=t < F)


@triton.jit
def _store_statistics(stats_ptr, item, items, F, t, mean, rstd, valid):
    """Writes both of frames t."""
    store_frames(stats_ptr + item * F, mean, t, valid, F)
    store_frames(stats_ptr + (tl.cast(items, tl.int64) + item) * F, rstd, t, valid, F)


@triton.jit
def _store_global(
    stats_ptr,
    workspace_ptr,
    item,
    items,
    tiles,
    F,
    length,
    start,
    end,
    eps,
    H: tl.constexpr,
    FILL: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Writes the statistics over an item's valid frames for its frames from start to end."""
    total, square = lookback.sums_of_all(workspace_ptr, item, items, tiles, GROUP)
    share = 1.0 / (tl.maximum(length, 1).to(tl.float64) * H)
    mean, rstd = _moments(total, square, share, eps)
    while start < end:
        t = start + tl.arange(0, FILL)
        _store_statistics(stats_ptr, item, items, F, t, mean, rstd, t < length)
        start += FILL


@triton.jit(do_not_specialize=["B", "vectors", "tiles"])
def _frames_kernel(
    partial_ptr,  # (3, B, chunks, F) float32, sums of v - p and (v - p)² over a chunk, and p
    lengths_ptr,  # (B,) integers, valid frames, or None
    workspace_ptr,  # of ``workspaces``; None if channelwise
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd; unless global and not ALONE
    eps,
    B,
    vectors,  # F / VECTOR
    tiles,
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    KIND: tl.constexpr,
    CHUNKS: tl.constexpr,
    FRAMES: tl.constexpr,
    FILL: tl.constexpr,
    ALONE: tl.constexpr,  # the last tile to come writes the global statistics
    GROUP: tl.constexpr,
):
    F = vectors * VECTOR
    program = tl.program_id(0)
    if KIND == "cumulative":
        program = lookback.take_ticket(workspace_ptr)
    item = (program // tiles).to(tl.int64)
    tile = program % tiles
    t = tile * FRAMES + tl.arange(0, FRAMES)
    length = item_length(lengths_ptr, item, F)
    valid = t < length
    total, square = _frame_sums(partial_ptr, item, t, B, F, H, STEPS, CHUNKS)
    total = tl.where(valid, total, 0.0)
    square = tl.where(valid, square, 0.0)
    if KIND == "channelwise":
        mean, rstd = _moments(total, square, 1.0 / tl.full((), H, tl.float64), eps)
        _store_statistics(stats_ptr, item, B, F, t, mean, rstd, valid)
    else:
        tile_total, tile_square = both_sums(total, square)
        lookback.publish_sums(workspace_ptr, item, B, tiles, tile, tile_total, tile_square)
        if KIND == "cumulative":
            share = 1.0 / ((t + 1).to(tl.float64) * H)
            total, square = both_running_sums(total, square)
            before, square_before = lookback.published_before(
                workspace_ptr, item, B, tiles, tile, tile_total, tile_square, GROUP
            )
            mean, rstd = _moments(total + before, square + square_before, share, eps)
            _store_statistics(stats_ptr, item, B, F, t, mean, rstd, valid)
        elif ALONE:
            last = lookback.comes_last(workspace_ptr, item, B, tiles)
            if last:
                _store_global(
                    stats_ptr,
                    workspace_ptr,
                    item,
                    B,
                    tiles,
                    F,
                    length,
                    0 * F,
                    F,
                    eps,
                    H,
                    FILL,
                    GROUP,
                )


@triton.jit(do_not_specialize=["B", "vectors", "tiles"])
def _global_kernel(
    workspace_ptr,  # with the sums of all tiles
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd
    eps,
    B,
    vectors,  # F / VECTOR
    tiles,
    H: tl.constexpr,
    FILL: tl.constexpr,  # frames of a program
    GROUP: tl.constexpr,
):
    F = vectors * VECTOR
    programs = tl.cdiv(F, FILL)
    item = (tl.program_id(0) // programs).to(tl.int64)
    start = tl.program_id(0) % programs * FILL
    length = item_length(lengths_ptr, item, F)
    _store_global(
        stats_ptr, workspace_ptr, item, B, tiles, F, length, start, start + 1, eps, H, FILL, GROUP
    )


def statistics(
    partial: Tensor,
    channels: int,
    kind: str,
    lengths: Tensor | None,
    eps: float,
    workspace: Tensor | None = None,
) -> Tensor:
    """As ``block_torch.statistics``; partial (3, B, chunks, F) of chunks of ``chunk_channels``."""
    _, B, chunks, F = partial.shape
    stats = partial.new_empty((2, B, F))
    tiles = triton.cdiv(F, FRAMES)
    if workspace is None:
        (workspace,) = workspaces(partial[0], kind, 1)
    fixed = {"H": channels, "FILL": FILL, "GROUP": lookback.GROUP, "num_warps": WARPS}
    with torch.cuda.device_of(partial):
        _frames_kernel[(B * tiles,)](
            partial, lengths, workspace, stats, eps, B, F // VECTOR.value, tiles,
            STEPS=chunk_channels(channels, chunks), KIND=kind, FRAMES=FRAMES, ALONE=is_short(F),
            CHUNKS=min(CHUNKS, triton.next_power_of_2(chunks)), **fixed,
        )  # fmt: skip
        if kind == "global" and not is_short(F):
            _global_kernel[(B * triton.cdiv(F, FILL),)](
                workspace, lengths, stats, eps, B, F // VECTOR.value, tiles, **fixed
            )
    return stats


def is_short(frames: int) -> bool:
    """Whether one program writes the frames of an item sooner than a launch for it would begin."""
    return frames <= ALONE


def workspaces(x: Tensor, kind: str, count: int) -> list[Tensor] | list[None]:
    """As many as there are statistics of maps of x's items and frames (B, …, F), both directions:
    zeroed at once, as it would cost each of them a launch.
    """
    if kind == "channelwise":
        return [None] * count
    words = lookback.pair_words(len(x), triton.cdiv(x.shape[-1], FRAMES), lookback.GROUP)
    return lookback.workspaces(x, words, count)
