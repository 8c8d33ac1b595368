"""Tiles of channels whose rows begin at the same place of a 16-byte vector.

Where V elements, a vector, do not divide T, the rows of neighboring channels begin at different
places of a vector, but those of channels c, c + V, c + 2·V, … at one and the same. A chunk is
``BLOCK_C`` such channels: a vector holds the same frames in all of them, and sums over channels
stay in the thread that loaded it. Vectors at the ends of a row are shared with the rows before and
after it: what a neighbor owns is masked when summed over frames and left alone when stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def chunk_channels(chunk, C: tl.constexpr, V: tl.constexpr, BLOCK_C: tl.constexpr):
    """First channel of a chunk, and how many it has: 0..BLOCK_C."""
    channel = chunk % V + chunk // V * (V * BLOCK_C)
    count = tl.cdiv(tl.maximum(C - channel, 0), V)
    return channel, tl.minimum(count, BLOCK_C)


@triton.jit
def chunk_place(item, channel, T, C: tl.constexpr, V: tl.constexpr):
    """Offset (int64) of the vector in which the row of a channel begins, and the place in it."""
    begin = (item * C + channel) * T
    return begin // V * V, (begin % V).to(tl.int32)


@triton.jit
def tile_frames(tile, lead, T, V: tl.constexpr, BLOCK_T: tl.constexpr):
    """Of each element of a row's tile (BLOCK_T,): its offset, its frame, whether that is in 0..T-1,
    and the frame of its vector's first element.
    """
    j = tile * BLOCK_T + tl.arange(0, BLOCK_T)
    t = j - lead
    return j, t, (t >= 0) & (t < T), j // V * V - lead


@triton.jit
def rows_mask(row, count, C: tl.constexpr, V: tl.constexpr, BLOCK_C: tl.constexpr):
    """Which of the chunk's rows (n,) exist, (n, 1)."""
    if C % (V * BLOCK_C) == 0:
        return (row >= 0)[:, None]
    else:
        return (row < count)[:, None]


@triton.jit
def load_mask(valid, vector, T, WHOLE: tl.constexpr):
    """What to load of a row's tile (BLOCK_T,): whole vectors, or elements."""
    if WHOLE:
        return vector < T
    else:
        return valid


@triton.jit
def row_offsets(row, j, T, V: tl.constexpr):
    """Offsets of elements j (BLOCK_T,) of the chunk's rows (n,): (n, BLOCK_T)."""
    return row.to(tl.int64)[:, None] * T * V + j[None, :]


@triton.jit
def store_rows(ptr, offsets, values, tile, row, valid, vector, T, V: tl.constexpr):
    """Stores a tile of a chunk; of vectors that are shared with other rows the row's part.

    Args:
        ptr: where the chunk's first row begins, at a vector.
        offsets: (n, BLOCK_T) of ``row_offsets``.
        values: (n, BLOCK_T).
        tile: of the row.
        row: (n, 1), whether the row exists.
        valid: (BLOCK_T,) whether an element is the row's.
        vector: (BLOCK_T,) frame of the first element of each vector.
        T: frames of a row.
        V: elements of a vector.
    """
    BLOCK_T: tl.constexpr = valid.shape[0]
    values = values.to(ptr.dtype.element_ty)
    inside = (vector >= 0) & (vector <= T - V)
    tl.store(ptr + offsets, values, mask=inside[None, :] & row)
    if (tile == 0) | ((tile + 1) * BLOCK_T > T):  # else no vector is shared
        tl.store(ptr + offsets, values, mask=(valid & ~inside)[None, :] & row)


class Tile(NamedTuple):
    """How a launch is cut.

    Args:
        channels: of a chunk, at most.
        vectors: of 16 bytes in a row.
        warps: of a program.
        step: channels loaded at a time.
    """

    channels: int
    vectors: int
    warps: int
    step: int = 0


def row_constants(x: Tensor, tile: Tile) -> dict[str, Any]:
    """The constants of a kernel over x (B, C, T), and its warps."""
    C = x.shape[1]
    v = 16 // x.element_size()
    rows = triton.next_power_of_2(triton.cdiv(C, v))
    block_c = min(tile.channels, rows)
    fixed = {
        "C": C,
        "V": v,
        "WHOLE": x.numel() % v == 0,  # the map is a whole number of vectors
        "BLOCK_C": block_c,
        "BLOCK_T": tile.vectors * v,
        "num_warps": max(1, min(tile.warps, block_c * tile.vectors // 32)),
    }
    return fixed if not tile.step else {**fixed, "STEP": min(tile.step, block_c)}


def grid_sizes(x: Tensor, fixed: dict[str, Any]) -> tuple[int, int]:
    """Tiles of a row and chunks of an item."""
    _, C, T = x.shape
    v = fixed["V"]
    tiles = triton.cdiv(T + v - 1, fixed["BLOCK_T"])  # a row may begin with a vector's last element
    return tiles, v * triton.cdiv(C, v * fixed["BLOCK_C"])
