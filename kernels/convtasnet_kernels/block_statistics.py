"""The statistics of a fused block's norms from sums of chunks: small kernels between large ones.

One launch adds up the chunks of each frame, and what else enters its statistics: nothing of the
channelwise norm, the frames before it of the cumulative one, whose tiles tell each other their sums
(``lookback.py``). The global norm needs a second, as no tile may wait for those behind it. Sums of
frames are float64. Import this module only where Triton is wanted.
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
LANES = 256  # sums of tiles added up at a time
WARPS = 4
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
def _store_statistics(stats_ptr, item, items, F, t, total, square, share, valid, eps):
    """Writes mean - K and 1/sqrt(var + eps) of frames t from float64 sums over 1/share elements."""
    mean = total * share
    var = square * share - mean * mean
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    rstd = tl.rsqrt(var + eps)
    stats_ptr += item * F + t
    tl.store(stats_ptr, tl.where(valid, mean, 0.0).to(tl.float32), mask=t < F)
    stats_ptr += tl.cast(items, tl.int64) * F
    tl.store(stats_ptr, tl.where(valid, rstd, 0.0).to(tl.float32), mask=t < F)


@triton.jit(do_not_specialize=["B", "vectors", "tiles"])
def _frames_kernel(
    partial_ptr,  # (3, B, chunks, F) float32, sums of v - p and (v - p)² over a chunk, and p
    lengths_ptr,  # (B,) integers, valid frames, or None
    workspace_ptr,  # of ``workspaces`` if cumulative, else None
    tiles_ptr,  # out: (2, B, tiles) float64, sums over each tile, if global, else None
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd, unless global
    eps,
    B,
    vectors,  # F / VECTOR
    tiles,
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    KIND: tl.constexpr,
    CHUNKS: tl.constexpr,
    FRAMES: tl.constexpr,
    GROUP: tl.constexpr,
):
    F = vectors * VECTOR
    program = tl.program_id(0)
    if KIND == "cumulative":
        program = lookback.take_ticket(workspace_ptr)
    item = (program // tiles).to(tl.int64)
    tile = program % tiles
    t = tile * FRAMES + tl.arange(0, FRAMES)
    valid = t < item_length(lengths_ptr, item, F)
    total, square = _frame_sums(partial_ptr, item, t, B, F, H, STEPS, CHUNKS)
    total = tl.where(valid, total, 0.0)
    square = tl.where(valid, square, 0.0)
    if KIND == "channelwise":
        share = 1.0 / tl.full((), H, tl.float64)
        _store_statistics(stats_ptr, item, B, F, t, total, square, share, valid, eps)
    else:
        tile_total, tile_square = both_sums(total, square)
        if KIND == "global":
            tl.store(tiles_ptr + program, tile_total)
            tl.store(tiles_ptr + tl.num_programs(0) + program, tile_square)
        else:
            lookback.publish_sums(workspace_ptr, item, B, tiles, tile, tile_total, tile_square)
            share = 1.0 / ((t + 1).to(tl.float64) * H)
            total, square = both_running_sums(total, square)
            before, square_before = lookback.published_before(
                workspace_ptr, item, B, tiles, tile, tile_total, tile_square, GROUP
            )
            total += before
            square += square_before
            _store_statistics(stats_ptr, item, B, F, t, total, square, share, valid, eps)


@triton.jit
def sum_tiles(tiles_ptr, items, tiles, item, LANES: tl.constexpr):
    """Two float64 sums over the tiles of an item, in one fixed order, from (2, items, tiles)."""
    tiles_ptr += item * tiles
    a = tl.zeros((LANES,), tl.float64)
    b = tl.zeros((LANES,), tl.float64)
    first = tiles * 0
    while first < tiles:
        i = first + tl.arange(0, LANES)
        a += tl.load(tiles_ptr + i, mask=i < tiles, other=0.0)
        b += tl.load(tiles_ptr + tl.cast(items, tl.int64) * tiles + i, mask=i < tiles, other=0.0)
        first += LANES
    return both_sums(a, b)


@triton.jit(do_not_specialize=["B", "F", "tiles"])
def _global_kernel(
    tiles_ptr,  # (2, B, tiles) float64, sums of v - K and its square over each tile
    lengths_ptr,  # (B,) integers, valid frames, or None
    stats_ptr,  # out: (2, B, F) float32, mean - K and rstd
    eps,
    B,
    F,
    tiles,
    H: tl.constexpr,
    FRAMES: tl.constexpr,
    LANES: tl.constexpr,
):
    item = (tl.program_id(0) // tiles).to(tl.int64)
    t = tl.program_id(0) % tiles * FRAMES + tl.arange(0, FRAMES)
    length = item_length(lengths_ptr, item, F)
    share = 1.0 / (tl.maximum(length, 1).to(tl.float64) * H)
    total, square = sum_tiles(tiles_ptr, B, tiles, item, LANES)
    _store_statistics(stats_ptr, item, B, F, t, total, square, share, t < length, eps)


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
    workspace, sums = tile_memory(partial, kind, workspace)
    with torch.cuda.device_of(partial):
        _frames_kernel[(B * tiles,)](
            partial, lengths, workspace, sums, stats, eps, B, F // VECTOR.value, tiles,
            H=channels, STEPS=chunk_channels(channels, chunks), KIND=kind, FRAMES=FRAMES,
            CHUNKS=min(CHUNKS, triton.next_power_of_2(chunks)), GROUP=lookback.GROUP,
            num_warps=WARPS,
        )  # fmt: skip
        if sums is not None:
            _global_kernel[(B * tiles,)](
                sums, lengths, stats, eps, B, F, tiles, H=channels, FRAMES=FRAMES, LANES=LANES,
                num_warps=WARPS,
            )  # fmt: skip
    return stats


def tile_memory(
    partial: Tensor, kind: str, workspace: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """How the tiles of partial (…, B, chunks, F) tell each other their sums, backward as well.

    Returns:
        The workspace that the cumulative norm takes, a new one if there is none yet; and (2, B,
        tiles) float64 for the global norm. None where it takes neither.
    """
    B, _, F = partial.shape[1:]
    sums = None
    if kind == "cumulative" and workspace is None:
        (workspace,) = workspaces(partial, kind, 1)
    elif kind == "global":
        sums = partial.new_empty((2, B, triton.cdiv(F, FRAMES)), dtype=torch.float64)
    return workspace, sums


def workspaces(x: Tensor, kind: str, count: int) -> list[Tensor] | list[None]:
    """As many as there are statistics of maps of x's items and frames (B, …, F): zeroed at once,
    as it would cost each of them a launch.
    """
    if kind != "cumulative":
        return [None] * count
    words = lookback.pair_words(len(x), triton.cdiv(x.shape[-1], FRAMES), lookback.GROUP)
    return lookback.workspaces(x, words, count)
