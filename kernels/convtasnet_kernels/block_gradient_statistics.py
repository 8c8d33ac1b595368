"""The fused block's backward, 2: from sums over channels to each frame's part of the gradient.

The norm's gradient is dv = rstd·g·gamma + shift + xhat·scale; shift and scale, of each frame, hold
what its statistics send back. For the channelwise norm they are the frame's own; for the others one
launch leaves sums of tiles of frames, which a second adds up, in float64 and in one fixed order.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_statistics import CHUNKS, FRAMES, LANES, WARPS, sum_tiles
from convtasnet_kernels.block_tile import no_tiles
from convtasnet_kernels.cumulative_scan import FEW_CHANNELS
from convtasnet_kernels.global_tile import item_length
from convtasnet_kernels.tile_parts import both_sums


@triton.jit
def _terms(first, second, mean, rstd, count):
    """float64: what a frame sends to itself and all frames before it, as a shift around K and a
    scale of v - K; first and second are its sums of g·gamma and g·gamma·xhat, float64.
    """
    scale = -rstd * rstd * second / count
    return -rstd * first / count - mean * scale, scale


@triton.jit(do_not_specialize=["B", "T", "tiles"])
def _frames_kernel(
    partial_ptr,  # (2, B, CHUNKS, T) float32, sums of g·gamma and g·gamma·xhat
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    lengths_ptr,  # (B,) integers, valid frames, or None
    coeff_ptr,  # out: (2 or 3, B, T) float32; the sums of all chunks unless KIND is channelwise
    totals_ptr,  # out: (2, B, tiles) float64, of the tile's frames; or None
    B,
    T,
    tiles,  # of a row
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    KIND: tl.constexpr,
    OWN: tl.constexpr,  # the frame's own shift, over -rstd, stands in a third row of coeff
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,  # chunks read at a time
):
    item = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    t = tile * BLOCK + tl.arange(0, BLOCK)
    length = item_length(lengths_ptr, item, T)
    items = tl.cast(B, tl.int64)
    partial_ptr += item * CHUNKS * T + t
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, CHUNKS, GROUP, num_stages=1):  # by frames, as block_statistics does it
        firsts, seconds = no_tiles(), no_tiles()
        for i in tl.static_range(GROUP):
            mask = (t < length) & (start + i < CHUNKS)
            row = tl.cast(start + i, tl.int64) * T
            firsts += (tl.load(partial_ptr + row, mask=mask, other=0.0),)
            seconds += (tl.load(partial_ptr + items * CHUNKS * T + row, mask=mask, other=0.0),)
        for i in tl.static_range(GROUP):
            first += firsts[i]
            second += seconds[i]
    frame_ptr = coeff_ptr + item * T + t
    if KIND == "channelwise":
        rstd = tl.load(stats_ptr + (items + item) * T + t, mask=t < length, other=0.0)
        first *= 1.0 / C
        shift = -rstd * first
        if OWN:
            tl.store(frame_ptr + 2 * items * T, first, mask=t < T)
            shift *= 0.0
        tl.store(frame_ptr, shift, mask=t < T)
        tl.store(frame_ptr + items * T, -rstd * second * (1.0 / C), mask=t < T)
    else:
        tl.store(frame_ptr, first, mask=t < T)
        tl.store(frame_ptr + items * T, second, mask=t < T)
        a = first.to(tl.float64)
        b = second.to(tl.float64)
        if KIND == "cumulative":
            stats_ptr += item * T + t
            mean = tl.load(stats_ptr, mask=t < length, other=0.0).to(tl.float64)
            rstd = tl.load(stats_ptr + items * T, mask=t < length, other=0.0).to(tl.float64)
            a, b = _terms(a, b, mean, rstd, (t + 1).to(tl.float64) * C)
            # What no frame holds is no number where mean or rstd is none.
            a = tl.where(t < length, a, 0.0)
            b = tl.where(t < length, b, 0.0)
        a, b = both_sums(a, b)
        totals_ptr += item * tiles + tile
        tl.store(totals_ptr, a)
        tl.store(totals_ptr + items * tiles, b)


@triton.jit(do_not_specialize=["B", "T", "tiles"])
def _coefficients_kernel(
    coeff_ptr,  # in: (2, B, T) float32, the first kernel's sums; out: shift and scale
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    lengths_ptr,  # (B,) integers, valid frames, or None
    totals_ptr,  # (2, B, tiles) float64, of the first kernel
    B,
    T,
    tiles,  # of a row
    C: tl.constexpr,
    KIND: tl.constexpr,
    OWN: tl.constexpr,
    BLOCK: tl.constexpr,
    LANES: tl.constexpr,  # totals read at a time
):
    item = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    t = tile * BLOCK + tl.arange(0, BLOCK)
    length = item_length(lengths_ptr, item, T)
    items = tl.cast(B, tl.int64)
    # Of the tiles behind this one, or of all.
    start = tile + 1 if KIND == "cumulative" else 0 * tile
    a, b = sum_tiles(totals_ptr, B, tiles, item, start, tiles, LANES)
    frame_ptr = coeff_ptr + item * T + t
    stats_ptr += item * T + t
    valid = t < length
    rstd = tl.load(stats_ptr + items * T, mask=valid, other=0.0).to(tl.float64)
    if KIND == "cumulative":
        first = tl.load(frame_ptr, mask=valid, other=0.0).to(tl.float64)
        second = tl.load(frame_ptr + items * T, mask=valid, other=0.0).to(tl.float64)
        mean = tl.load(stats_ptr, mask=valid, other=0.0).to(tl.float64)
        count = (t + 1).to(tl.float64) * C
        own_a, own_b = _terms(first, second, mean, rstd, count)
        own_a = tl.where(valid, own_a, 0.0)
        own_b = tl.where(valid, own_b, 0.0)
        a += tl.cumsum(own_a, axis=0, reverse=True)
        b += tl.cumsum(own_b, axis=0, reverse=True)
        shift = a + mean * b
        scale = b / tl.where(valid, rstd, 1.0)
        own = first / count
        if OWN:
            shift += rstd * own
    else:
        count = tl.maximum(length, 1).to(tl.float64) * C
        own = a / count
        shift = 0.0 * rstd if OWN else -rstd * own
        scale = -rstd * (b / count)
    if OWN:
        own = tl.where(valid, own, 0.0).to(tl.float32)
        tl.store(frame_ptr + 2 * items * T, own, mask=t < T)
    tl.store(frame_ptr, tl.where(valid, shift, 0.0).to(tl.float32), mask=t < T)
    tl.store(frame_ptr + items * T, tl.where(valid, scale, 0.0).to(tl.float32), mask=t < T)


def gradient_statistics(
    partial: Tensor, stats: Tensor, kind: str, lengths: Tensor | None, channels: int
) -> Tensor:
    """What the statistics of a norm send back to the frames that they are made of.

    Args:
        partial: (2, B, chunks, T) float32, of ``norm_gradient_sums``.
        stats: (2, B, T) float32, mean - K and 1/std of each frame.
        kind: "cumulative", "global" or "channelwise".
        lengths: (B,) valid frames, or None where all are.
        channels: C of the map.

    Returns:
        (2, B, T) float32, shift and scale of dv = rstd·g·gamma + shift + xhat·scale, zero beyond
        the valid frames. Of fewer than 16 channels (3, B, T): the frame's own mean gradient stands
        apart, dv = rstd·(g·gamma - own) + shift + xhat·scale, as it may cancel g·gamma.
    """
    _, B, chunks, T = partial.shape
    own = channels < FEW_CHANNELS.value
    coeff = stats.new_empty((3 if own else 2, B, T))
    if coeff.numel() == 0:
        return coeff
    tiles = triton.cdiv(T, FRAMES)
    totals = None
    if kind != "channelwise":
        totals = stats.new_empty((2, B, tiles), dtype=torch.float64)
    fixed = {"C": channels, "KIND": kind, "OWN": own, "BLOCK": FRAMES, "num_warps": WARPS}
    with torch.cuda.device_of(partial):
        _frames_kernel[(B * tiles,)](
            partial, stats, lengths, coeff, totals, B, T, tiles,
            CHUNKS=chunks, GROUP=min(CHUNKS, triton.next_power_of_2(chunks)), **fixed,
        )  # fmt: skip
        if totals is not None:
            _coefficients_kernel[(B * tiles,)](
                coeff, stats, lengths, totals, B, T, tiles, LANES=LANES, **fixed
            )
    return coeff
