"""Rows of maps (B, C, T) in vectors of 16 bytes, for kernels whose programs work along time.

A program takes ``BLOCK`` vectors in the row of one item and channel. Each vector is held as V
columns (BLOCK,), one a frame of it: a tap that begins inside a vector takes the end of one and the
start of the next, which renames registers and moves nothing. Rows that begin inside a vector (T no
multiple of 8, or of 4 in float32) share their outer vectors with their neighbors; what a neighbor
owns is set to zero when loaded and left alone when stored. Every offset is 64 bits wide.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def split_vectors(block, V: tl.constexpr):
    """(BLOCK, V) -> its V columns (BLOCK,), V a power of two from 2 to 32."""
    BLOCK: tl.constexpr = block.shape[0]
    columns = tl.split(tl.reshape(block, (BLOCK, V // 2, 2)))
    for level in tl.static_range(1, 5):
        if 2**level < V:
            even = columns[:0]
            odd = columns[:0]
            for i in tl.static_range(2**level):
                pairs = tl.reshape(columns[i], (BLOCK, V // 2 ** (level + 1), 2))
                first, second = tl.split(pairs)
                even += (first,)
                odd += (second,)
            columns = even + odd
    result = columns[:0]
    for i in tl.static_range(V):
        result += (tl.reshape(columns[i], (BLOCK,)),)
    return result


@triton.jit
def join_vectors(columns, V: tl.constexpr):
    """V columns (BLOCK,) -> (BLOCK, V), V a power of two from 2 to 32."""
    BLOCK: tl.constexpr = columns[0].shape[0]
    for level in tl.static_range(5):
        if 2**level < V:
            joined = columns[:0]
            for i in tl.static_range(V // 2 ** (level + 1)):
                joined += (tl.join(columns[i], columns[i + V // 2 ** (level + 1)]),)
            columns = joined
    return tl.reshape(columns[0], (BLOCK, V))


@triton.jit
def row_tile(tiles, T, ROWS: tl.constexpr, BLOCK: tl.constexpr, V: tl.constexpr):
    """Row and tile of the program, the row's first vector, its offset in it, vectors (BLOCK,)."""
    row = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    begin = row.to(tl.int64) * T
    first = begin // V * V
    inside = 0 if ROWS else (begin % V).to(tl.int32)
    return row, tile, first, inside, tile * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def load_row(row_ptr, vector, inside, T, ROWS: tl.constexpr, WHOLE: tl.constexpr, V: tl.constexpr):
    """V columns (BLOCK,) float32 of vectors (BLOCK,) of a row, zero outside of it."""
    t = vector * V - inside
    offsets = vector[:, None] * V + tl.arange(0, V)[None, :]
    if ROWS:
        mask = ((vector >= 0) & (t < T))[:, None]
    elif WHOLE:
        mask = ((t > -V) & (t < T))[:, None]
    else:
        frame = t[:, None] + tl.arange(0, V)[None, :]
        mask = (frame >= 0) & (frame < T)
    columns = split_vectors(tl.load(row_ptr + offsets, mask=mask, other=0.0).to(tl.float32), V)
    if ROWS or not WHOLE:
        return columns
    else:
        own = columns[:0]
        for i in tl.static_range(V):
            own += (tl.where((t + i >= 0) & (t + i < T), columns[i], 0.0),)
        return own


@triton.jit
def store_row(row_ptr, columns, vector, inside, T, ROWS: tl.constexpr, V: tl.constexpr):
    """Stores V columns (BLOCK,) as vectors (BLOCK,) of a row, only where they are in the row."""
    t = vector * V - inside
    pointers = row_ptr + vector[:, None] * V + tl.arange(0, V)[None, :]
    block = join_vectors(columns, V).to(row_ptr.dtype.element_ty)
    tl.store(pointers, block, mask=((t >= 0) & (t <= T - V))[:, None])
    if not ROWS:
        frame = t[:, None] + tl.arange(0, V)[None, :]
        shared = ((t < 0) | (t > T - V))[:, None]
        tl.store(pointers, block, mask=shared & (frame >= 0) & (frame < T))


@triton.jit
def load_tap(
    row_ptr,
    vector,
    inside,
    T,
    p: tl.constexpr,  # index of the tap
    SIGN: tl.constexpr,  # 1: what the tap sees at the tile's frames; -1: who sees them through it
    dilation,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """V columns (BLOCK,): the map at frames t + SIGN·(p·dilation - left)."""
    SIDES: tl.constexpr = 1 if CAUSAL else 2
    if DILATION == 0:
        taps: tl.constexpr = SIGN * (p - (P - 1) // SIDES)
        return load_row(row_ptr, vector + taps * dilation, inside, T, ROWS, WHOLE, V)
    else:
        shift: tl.constexpr = SIGN * (p * DILATION - (P - 1) * DILATION // SIDES)
        low = load_row(row_ptr, vector + shift // V, inside, T, ROWS, WHOLE, V)
        if shift % V == 0:
            return low
        else:
            high = load_row(row_ptr, vector + (shift // V + 1), inside, T, ROWS, WHOLE, V)
            return low[shift % V :] + high[: shift % V]


@triton.jit
def load_tile(row_ptr, vector, vectors, V: tl.constexpr, LAST: tl.constexpr = False):
    """(BLOCK, V) as stored, of vectors (BLOCK,) of a row of so many; zero outside of it.

    LAST: nobody reads them again, so that the L2 may keep others.
    """
    offsets = vector[:, None] * V + tl.arange(0, V)[None, :]
    mask = ((vector >= 0) & (vector < vectors))[:, None]
    policy: tl.constexpr = "evict_first" if LAST else ""
    return tl.load(row_ptr + offsets, mask=mask, other=0.0, eviction_policy=policy)


@triton.jit
def load_tap_vectors(
    row_ptr,
    vector,
    vectors,
    p: tl.constexpr,
    SIGN: tl.constexpr,
    dilation,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """What ``tap_columns`` makes a tap of, one or two (BLOCK, V) as stored: half the registers."""
    SIDES: tl.constexpr = 1 if CAUSAL else 2
    if DILATION == 0:
        taps: tl.constexpr = SIGN * (p - (P - 1) // SIDES)
        return (load_tile(row_ptr, vector + taps * dilation, vectors, V),)
    else:
        shift: tl.constexpr = SIGN * (p * DILATION - (P - 1) * DILATION // SIDES)
        low = load_tile(row_ptr, vector + shift // V, vectors, V)
        if shift % V == 0:
            return (low,)
        else:
            return low, load_tile(row_ptr, vector + (shift // V + 1), vectors, V)


@triton.jit
def tap_columns(
    vectors,
    p: tl.constexpr,
    SIGN: tl.constexpr,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """V columns (BLOCK,) float32 of ``load_tap_vectors``, as ``load_tap`` gives them."""
    SIDES: tl.constexpr = 1 if CAUSAL else 2
    shift: tl.constexpr = SIGN * (p * DILATION - (P - 1) * DILATION // SIDES)
    low = split_vectors(vectors[0].to(tl.float32), V)
    if DILATION == 0 or shift % V == 0:
        return low
    else:
        high = split_vectors(vectors[1].to(tl.float32), V)
        return low[shift % V :] + high[: shift % V]


@triton.jit
def add_product(total, columns, factor, V: tl.constexpr):
    """V columns (BLOCK,) of each -> total + columns·factor."""
    result = total[:0]
    for i in tl.static_range(V):
        result += (total[i] + columns[i] * factor,)
    return result


@triton.jit
def vector_dot(a, b, V: tl.constexpr):
    """V columns (BLOCK,) of each -> (BLOCK,), the product summed over every vector."""
    total = a[0] * b[0]
    for i in tl.static_range(1, V):
        total += a[i] * b[i]
    return total


@triton.jit
def vector_sum(columns, V: tl.constexpr):
    """V columns (BLOCK,) -> (BLOCK,), the sum over every vector."""
    total = columns[0]
    for i in tl.static_range(1, V):
        total += columns[i]
    return total


def tap_arguments(taps: int, dilation: int, causal: bool, V: int) -> dict[str, Any]:
    """The arguments of a kernel that say where the taps are, for vectors of V elements."""
    # Shifts by whole vectors are arguments, so that the dilations 8, 16, … share a binary; others
    # say which registers to take. The half dilation of an even kernel is no vector.
    whole = taps == 1 or (dilation % V == 0 and (causal or taps % 2 == 1))
    return {
        "dilation": dilation // V if whole else 0,
        "DILATION": 0 if whole else dilation,
        "CAUSAL": causal,
        "P": taps,
    }
