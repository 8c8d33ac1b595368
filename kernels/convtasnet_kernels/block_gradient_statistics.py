"""The fused block's backward, 2: from sums over channels to each frame's part of the gradient.

The norm's gradient is dv = rstd·g·gamma + shift + xhat·scale; shift and scale, of each frame, hold
what its statistics send back. The launches are those of ``block_statistics.py``, but that a frame
of the cumulative norm needs the frames behind it. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import block_statistics, lookback
from convtasnet_kernels.block_statistics import VECTOR, is_short, store_frames, workspaces
from convtasnet_kernels.block_tile import no_tiles
from convtasnet_kernels.cumulative_scan import FEW_CHANNELS
from convtasnet_kernels.global_tile import item_length
from convtasnet_kernels.tile_parts import both_running_sums, both_sums


@triton.jit
def _frame_sums(partial_ptr, item, t, items, T, CHUNKS: tl.constexpr, GROUP: tl.constexpr):
    """float32 sums over the chunks of frames t; see the kernel."""
    partial_ptr += item * CHUNKS * T + t
    first = tl.zeros((t.shape[0],), tl.float32)
    second = tl.zeros((t.shape[0],), tl.float32)
    for start in tl.range(0, CHUNKS, GROUP, num_stages=1):  # by frames, as block_statistics does it
        firsts, seconds = no_tiles(), no_tiles()
        for i in tl.static_range(GROUP):
            mask = (t < T) & (start + i < CHUNKS)
            row = tl.cast(start + i, tl.int64) * T
            firsts += (tl.load(partial_ptr + row, mask=mask, other=0.0),)
            seconds += (tl.load(partial_ptr + items * CHUNKS * T + row, mask=mask, other=0.0),)
        for i in tl.static_range(GROUP):
            first += firsts[i]
            second += seconds[i]
    return first, second


@triton.jit
def _terms(first, second, mean, rstd, share):
    """float64: what a frame sends to itself and all frames before it, as a shift around K and a
    scale of v - K; first and second are its sums of g·gamma and g·gamma·xhat, float64.
    """
    scale = -rstd * rstd * second * share
    return -rstd * first * share - mean * scale, scale


@triton.jit
def _store_coefficients(coeff_ptr, item, items, T, t, shift, scale, own, valid, OWN: tl.constexpr):
    """Writes shift, scale and, if OWN, the own mean gradient of frames t."""
    coeff_ptr += item * T
    store_frames(coeff_ptr, shift, t, valid, T)
    store_frames(coeff_ptr + items * T, scale, t, valid, T)
    if OWN:
        store_frames(coeff_ptr + 2 * items * T, own, t, valid, T)


@triton.jit
def _store_global(
    coeff_ptr,
    stats_ptr,
    workspace_ptr,
    item,
    items,
    tiles,
    T,
    length,
    start,
    end,
    C: tl.constexpr,
    OWN: tl.constexpr,
    FILL: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Writes the coefficients of an item's frames from start to end; its rstd is that of each."""
    rstd = tl.load(stats_ptr + (items + item) * T).to(tl.float64)
    a, b = lookback.sums_of_all(workspace_ptr, item, items, tiles, GROUP)
    count = tl.maximum(length, 1).to(tl.float64) * C
    own = a / count
    shift = 0.0 * rstd if OWN else -rstd * own
    scale = -rstd * (b / count)
    while start < end:
        t = start + tl.arange(0, FILL)
        _store_coefficients(coeff_ptr, item, items, T, t, shift, scale, own, t < length, OWN)
        start += FILL


@triton.jit(do_not_specialize=["B", "vectors", "tiles"])
def _frames_kernel(
    partial_ptr,  # (2, B, CHUNKS, T) float32, sums of g·gamma and g·gamma·xhat
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    lengths_ptr,  # (B,) integers, valid frames, or None
    workspace_ptr,  # of ``workspaces``; None if channelwise
    coeff_ptr,  # out: (2 or 3, B, T) float32; unless global and not ALONE
    B,
    vectors,  # T / VECTOR
    tiles,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    KIND: tl.constexpr,
    OWN: tl.constexpr,  # the frame's own shift, over -rstd, stands in a third row of coeff
    BLOCK: tl.constexpr,
    CHUNK_GROUP: tl.constexpr,  # chunks read at a time
    FILL: tl.constexpr,  # as in block_statistics, and so to GROUP
    ALONE: tl.constexpr,
    GROUP: tl.constexpr,
):
    T = vectors * VECTOR
    program = tl.program_id(0)
    if KIND == "cumulative":
        program = lookback.take_ticket(workspace_ptr)
    item = (program // tiles).to(tl.int64)
    order = program % tiles
    tile = tiles - 1 - order if KIND == "cumulative" else order
    t = tile * BLOCK + tl.arange(0, BLOCK)
    items = tl.cast(B, tl.int64)
    length = item_length(lengths_ptr, item, T)
    valid = t < length
    if KIND != "global":
        mean = tl.load(stats_ptr + item * T + t, mask=t < T, other=0.0)
        rstd = tl.load(stats_ptr + (items + item) * T + t, mask=t < T, other=0.0)
    first, second = _frame_sums(partial_ptr, item, t, items, T, CHUNKS, CHUNK_GROUP)
    if KIND == "channelwise":
        own = first * (1.0 / C)
        shift = -rstd * own
        if OWN:
            shift *= 0.0
        scale = -rstd * second * (1.0 / C)
        _store_coefficients(coeff_ptr, item, items, T, t, shift, scale, own, valid, OWN)
    else:
        a = first.to(tl.float64)
        b = second.to(tl.float64)
        if KIND == "cumulative":
            mean = mean.to(tl.float64)
            rstd = rstd.to(tl.float64)
            share = 1.0 / ((t + 1).to(tl.float64) * C)
            own = a * share
            a, b = _terms(a, b, mean, rstd, share)
        # What no frame holds is no number where mean or rstd is none.
        a = tl.where(valid, a, 0.0)
        b = tl.where(valid, b, 0.0)
        tile_a, tile_b = both_sums(a, b)
        lookback.publish_sums(workspace_ptr, item, B, tiles, order, tile_a, tile_b)
        if KIND == "cumulative":
            std = 1.0 / tl.where(valid, rstd, 1.0)
            a, b = both_running_sums(a, b, reverse=True)
            behind_a, behind_b = lookback.published_before(
                workspace_ptr, item, B, tiles, order, tile_a, tile_b, GROUP
            )
            b += behind_b
            shift = a + behind_a + mean * b
            if OWN:
                shift += rstd * own
            _store_coefficients(coeff_ptr, item, items, T, t, shift, b * std, own, valid, OWN)
        elif ALONE:
            last = lookback.comes_last(workspace_ptr, item, B, tiles)
            if last:
                _store_global(
                    coeff_ptr, stats_ptr, workspace_ptr, item, items, tiles, T, length, 0 * T, T,
                    C, OWN, FILL, GROUP,
                )  # fmt: skip


@triton.jit(do_not_specialize=["B", "vectors", "tiles"])
def _global_kernel(
    workspace_ptr,  # with the sums of all tiles
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    lengths_ptr,  # (B,) integers, valid frames, or None
    coeff_ptr,  # out: (2 or 3, B, T) float32
    B,
    vectors,  # T / VECTOR
    tiles,
    C: tl.constexpr,
    OWN: tl.constexpr,
    FILL: tl.constexpr,  # frames of a program
    GROUP: tl.constexpr,
):
    T = vectors * VECTOR
    programs = tl.cdiv(T, FILL)
    item = (tl.program_id(0) // programs).to(tl.int64)
    start = tl.program_id(0) % programs * FILL
    length = item_length(lengths_ptr, item, T)
    items = tl.cast(B, tl.int64)
    _store_global(
        coeff_ptr, stats_ptr, workspace_ptr, item, items, tiles, T, length, start, start + 1,
        C, OWN, FILL, GROUP,
    )  # fmt: skip


def gradient_statistics(
    partial: Tensor,
    stats: Tensor,
    kind: str,
    lengths: Tensor | None,
    channels: int,
    workspace: Tensor | None = None,
) -> Tensor:
    """What the statistics of a norm send back to the frames that they are made of.

    Args:
        partial: (2, B, chunks, T) float32, of ``norm_gradient_sums``.
        stats: (2, B, T) float32, mean - K and 1/std of each frame.
        kind: "cumulative", "global" or "channelwise".
        lengths: (B,) valid frames, or None where all are.
        channels: C of the map.
        workspace: one of ``workspaces``, or None for one of its own.

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
    block, fill = block_statistics.FRAMES, block_statistics.FILL
    tiles = triton.cdiv(T, block)
    if workspace is None:
        (workspace,) = workspaces(partial[0], kind, 1)
    fixed = {"C": channels, "OWN": own, "FILL": fill, "GROUP": lookback.GROUP}
    fixed["num_warps"] = block_statistics.WARPS
    group = min(block_statistics.CHUNKS, triton.next_power_of_2(chunks))
    with torch.cuda.device_of(partial):
        _frames_kernel[(B * tiles,)](
            partial, stats, lengths, workspace, coeff, B, T // VECTOR.value, tiles,
            KIND=kind, CHUNKS=chunks, CHUNK_GROUP=group, BLOCK=block, ALONE=is_short(T), **fixed,
        )  # fmt: skip
        if kind == "global" and not is_short(T):
            _global_kernel[(B * triton.cdiv(T, fill),)](
                workspace, stats, lengths, coeff, B, T // VECTOR.value, tiles, **fixed
            )
    return coeff
