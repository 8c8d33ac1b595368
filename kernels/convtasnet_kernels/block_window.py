"""What the taps of a depthwise convolution see of a row, in whole vectors.

A window are the vectors of a row that the taps of one vector see, tiles (BLOCK, V) each. Where all
taps are whole vectors away, each sees one. Others see parts of two that stand side by side, and the
window holds each vector once, or, where that would be many, a pair for each tap.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from convtasnet_kernels.block_tile import no_tiles
from convtasnet_kernels.rows import join_vectors, load_tile, split_vectors


@triton.jit
def window_vector(
    vector,
    k: tl.constexpr,  # 0..WINDOW - 1
    dilation,  # and so all that follows, as ``window_arguments`` gives it
    left,
    DILATION: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    PAIRS: tl.constexpr,
    V: tl.constexpr,
):
    """The vectors (BLOCK,) of a row that stand in the k-th tile of a window."""
    if DILATION == 0:
        return vector + (k * dilation - left)
    elif PAIRS:
        return vector + ((k // 2 * DILATION - LEFT) // V + k % 2)
    else:
        return vector + (FIRST + k)


@triton.jit
def load_window(
    row_ptr,
    vector,
    vectors,
    dilation,
    left,
    DILATION: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    WINDOW: tl.constexpr,
    PAIRS: tl.constexpr,
    V: tl.constexpr,
):
    """The tiles of a window into a row of so many vectors, as stored; zero outside of it."""
    tiles = no_tiles()
    for k in tl.static_range(WINDOW):
        seen = window_vector(vector, k, dilation, left, DILATION, LEFT, FIRST, PAIRS, V)
        tiles += (load_tile(row_ptr, seen, vectors, V),)
    return tiles


@triton.jit
def tap_of(
    tiles,
    p: tl.constexpr,
    DILATION: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    PAIRS: tl.constexpr,
    V: tl.constexpr,
):
    """What tap p sees of a window's tiles, (BLOCK, V)."""
    if DILATION == 0:
        return tiles[p]
    else:
        shift: tl.constexpr = p * DILATION - LEFT
        low: tl.constexpr = 2 * p if PAIRS else shift // V - FIRST
        if shift % V == 0:
            return tiles[low]
        else:
            columns = split_vectors(tiles[low], V)[shift % V :]
            return join_vectors(columns + split_vectors(tiles[low + 1], V)[: shift % V], V)


def window_arguments(taps: int, dilation: int, causal: bool, V: int) -> dict[str, Any]:
    """Where the taps are, for kernels over vectors of V frames.

    Shifts by whole vectors are arguments, so that the dilations 8, 16, … share a binary; others say
    which registers to take.

    Returns:
        ``dilation`` and ``left``, in vectors, between two taps and before a vector, if whole;
        else 0, and ``DILATION`` and ``LEFT`` are these in frames, the window begins ``FIRST``
        vectors from a vector and has one for each tap or a pair (``PAIRS``). It has ``WINDOW``.
    """
    reach = (taps - 1) * dilation
    left = reach if causal else reach // 2
    found: dict[str, Any] = dict.fromkeys(("dilation", "left", "DILATION", "LEFT", "FIRST"), 0)
    found |= {"WINDOW": taps, "PAIRS": False, "P": taps}
    if taps == 1 or (dilation % V == 0 and left % V == 0):
        return {**found, "dilation": dilation // V, "left": left // V}
    first, last = -left // V, -((left - reach) // V)
    size = last - first + 1
    found |= {"DILATION": dilation, "LEFT": left, "FIRST": first, "PAIRS": size > 2 * taps}
    return {**found, "WINDOW": min(size, 2 * taps)}
