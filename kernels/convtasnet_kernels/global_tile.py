"""What the global norm's kernels share: tiles of rows, sums that one launch leaves the next.

A tile is ``BLOCK_C`` channels by ``R`` vectors of ``V`` elements, 16 bytes, flat: (BLOCK_C·R, V).
A row that begins inside a vector (T no multiple of V) takes that vector whole and shares it with
the row before: what a neighbour owns is masked when summed and left alone when stored.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.persistent import INTERPRETED
from convtasnet_kernels.tile_parts import both_sums

LANES = tl.constexpr(128)  # sums of an item that each program of the second launch adds up


@triton.jit
def load_slope(prelu_ptr):
    """The PReLU's slope in float32; 1 if there is no PReLU."""
    slope = 1.0
    if prelu_ptr is not None:
        slope = tl.load(prelu_ptr).to(tl.float32)
    return slope


@triton.jit
def activate(u, prelu_ptr, slope):
    """float32 u through the PReLU, if there is one."""
    if prelu_ptr is not None:
        u = tl.where(u > 0, u, u * slope)
    return u


@triton.jit
def item_length(lengths_ptr, item, T):
    """Valid frames of an item, clamped to 0..T."""
    length = T
    if lengths_ptr is not None:
        given = tl.load(lengths_ptr + item).to(tl.int64)
        length = tl.minimum(tl.maximum(given, 0), T).to(tl.int32)
    return length


@triton.jit
def item_pivot(x_ptr, prelu_ptr, slope, item, length, C, T):
    """The first sample of an item, after the PReLU, float64; zero where no sample is valid."""
    u = tl.load(x_ptr + item * C * T).to(tl.float32)
    return tl.where(length > 0, activate(u, prelu_ptr, slope), 0.0).to(tl.float64)


@triton.jit
def split_center(center):
    """A float64 as a float32 and what that leaves: v - high - low costs v no digit."""
    high = center.to(tl.float32)
    return high, (center - high.to(tl.float64)).to(tl.float32)


@triton.jit
def place(program, C, tiles, BLOCK_C: tl.constexpr):
    """Item (int64), first channel, and tile in its rows, of a program; ``tiles`` are in a row."""
    rows, tile = program // tiles, program % tiles
    groups = tl.cdiv(C, BLOCK_C)
    return (rows // groups).to(tl.int64), rows % groups * BLOCK_C, tile


@triton.jit
def row_begin(item, channel, i, C, T, V: tl.constexpr, ROWS: tl.constexpr):
    """The first vector (int64) in the map of each row channel + i, where in it the row begins."""
    row = item * C + channel
    if ROWS:
        return row * (T // V) + i.to(tl.int64) * (T // V), tl.zeros(i.shape, tl.int32)
    else:
        begin = row * T + i.to(tl.int64) * T
        return begin // V, (begin % V).to(tl.int32)


@triton.jit
def valid_elements(c, t, length, C, V: tl.constexpr):
    """(vectors, V): in a channel, and in 0..length - 1."""
    frame = t[:, None] + tl.arange(0, V)[None, :]
    return (c < C)[:, None] & (frame.to(tl.uint32) < length.to(tl.uint32))  # negative: a large one


@triton.jit
def load_mask(c, t, length, C, V: tl.constexpr, WHOLE: tl.constexpr):
    """What to load of vectors that begin at frames t: they, whole, or elements."""
    if WHOLE:
        return ((c < C) & (t < length))[:, None]
    else:
        return valid_elements(c, t, length, C, V)


@triton.jit
def load_channels(ptr, c, C, absent: tl.constexpr):
    """Parameters (C,) of the channels c in float32; ``absent`` if there are none."""
    if ptr is None:
        return tl.full(c.shape, absent, tl.float32)
    else:
        return tl.load(ptr + c, mask=c < C, other=0.0).to(tl.float32)


@triton.jit
def store_tile(pointers, values, c, t, C, T, V: tl.constexpr, ROWS: tl.constexpr):
    """Stores vectors that begin at frames t, and of those shared with other rows the row's part."""
    values = values.to(pointers.dtype.element_ty)
    inside = (c < C) & (t >= 0) & (t <= T - V)
    tl.store(pointers, values, mask=inside[:, None])
    if not ROWS:
        tl.store(pointers, values, mask=~inside[:, None] & valid_elements(c, t, T, C, V))


@triton.jit
def item_sums(sums_ptr, item, items, count):
    """The two sums of an item, float64, of ``count`` each, at most ``LANES``.

    All that the program loads before it begins before it waits: the compiler would move it behind.
    """
    i = tl.arange(0, LANES)
    sums_ptr += item * count + i
    first = tl.load(sums_ptr, mask=i < count, other=0.0)
    second = tl.load(sums_ptr + items * count, mask=i < count, other=0.0)
    tl.debug_barrier()
    return both_sums(first, second)


@triton.jit(do_not_specialize=["count"])
def _combine_kernel(
    sums_ptr,  # (rows, count) float64
    out_ptr,  # out: (rows,) float64
    count,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    sums_ptr += row.to(tl.int64) * count
    total = tl.zeros((BLOCK,), tl.float64)
    done = tl.zeros((), tl.int32)
    while done < count:
        i = done + tl.arange(0, BLOCK)
        total += tl.load(sums_ptr + i, mask=i < count, other=0.0)
        done += BLOCK
    tl.store(out_ptr + row, tl.sum(total, axis=0))


def combined(sums: Tensor) -> Tensor:
    """(2, B, n) float64 sums, added up to (2, B, 1) where n is too large for ``item_sums``."""
    if sums.shape[2] <= LANES.value:
        return sums
    out = sums.new_empty((*sums.shape[:2], 1))
    _combine_kernel[(out.numel(),)](sums, out, sums.shape[2], BLOCK=4096, num_warps=8)
    return out


def constants(x: Tensor, tile: tuple[int, int, int]) -> dict[str, int | bool]:
    """The constants of a kernel for x (B, C, T), and its warps.

    Args:
        x: its shape and dtype count.
        tile: channels and frames of a tile, powers of two, and warps.
    """
    _, C, T = x.shape
    block_c, block_t, warps = tile
    v = 16 // x.element_size()
    channels = min(block_c, triton.next_power_of_2(C))
    return {
        "V": v,
        "ROWS": T % v == 0,  # every row begins with a vector
        "WHOLE": x.numel() % v == 0,  # the map is a whole number of vectors
        "BLOCK_C": channels,
        "R": block_c * block_t // (channels * v),
        "num_warps": warps,
    }


def row_vectors(T: int, fixed: dict[str, int | bool]) -> int:
    """Vectors that a row of T frames may touch."""
    return triton.cdiv(T if fixed["ROWS"] else T + fixed["V"] - 1, fixed["V"])


def spans(T: int, fixed: dict[str, int | bool], longest: int) -> tuple[int, Any]:
    """How to cut a row into equal spans of at most about ``longest`` frames.

    Returns:
        spans of a row, and tiles of a span, for a loop ``tl.range(0, steps)``.
    """
    tiles = triton.cdiv(row_vectors(T, fixed), fixed["R"])
    most = max(1, longest // (fixed["R"] * fixed["V"]))
    steps = triton.cdiv(tiles, triton.cdiv(tiles, most))
    # The interpreter of triton 3.6 cannot count to a runtime number under numpy 2.4.
    return triton.cdiv(tiles, steps), tl.constexpr(steps) if INTERPRETED else steps


def packed(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors, contiguous."""
    return [p if p is None else p.contiguous() for p in tensors]


def empty_sums(x: Tensor, count: int) -> Tensor:
    """(2, B, count) float64 for what the first launch leaves the second."""
    return x.new_empty((2, x.shape[0], count), dtype=torch.float64)
