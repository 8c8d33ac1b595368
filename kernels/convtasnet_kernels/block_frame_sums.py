"""The fused block's forward, 1: what a norm's statistics need of each frame, summed over channels.

Who reads a new map first, or writes it, leaves the sums of its frames behind. Import this module
only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import (
    Tile,
    biased,
    empty_partial,
    load_channel,
    no_tiles,
    place,
    prelu,
    row_vectors,
    store_tile,
    tile_constants,
)
from convtasnet_kernels.rows import load_tile


@triton.jit
def add_frame(v, first, total, square, exists, EVEN: tl.constexpr):
    """Adds a channel's (BLOCK, V) to the sums around the chunk's first channel."""
    d = v - first
    if not EVEN:
        d = tl.where(exists, d, 0.0)
    return total + d, square + d * d


@triton.jit
def store_sums(partial_ptr, total, square, first, item, chunk, B, chunks, vector, vectors, V):
    """Writes the sums of a chunk, and what they are around, into partial (3, B, chunks, F)."""
    partial_ptr += (item * chunks + chunk) * vectors * V
    store_tile(partial_ptr, total, vector, vectors, V)
    partial_ptr += tl.cast(B, tl.int64) * chunks * vectors * V
    store_tile(partial_ptr, square, vector, vectors, V)
    partial_ptr += tl.cast(B, tl.int64) * chunks * vectors * V
    store_tile(partial_ptr, first, vector, vectors, V)


@triton.jit(do_not_specialize=["B", "tiles", "vectors"])
def _sums_kernel(
    u_ptr,  # (B, H, F) map without its bias
    bias_ptr,  # (H,) or None
    slope_ptr,  # (1,) of the PReLU behind it
    partial_ptr,  # out: (3, B, chunks, F) float32
    B,
    tiles,  # of a row
    vectors,  # of a row
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    GROUP: tl.constexpr,  # of which so many are loaded together
    EVEN: tl.constexpr,  # all chunks have them
    BLOCK: tl.constexpr,  # vectors of a tile
    V: tl.constexpr,  # elements of a vector
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    chunks = tl.cdiv(H, STEPS)
    item, chunk, vector = place(chunks, tiles, BLOCK)
    slope = tl.load(slope_ptr).to(tl.float32)
    channel = chunk * STEPS
    u_ptr += (item * H + channel) * vectors * V
    total = tl.zeros((BLOCK, V), tl.float32)
    square = tl.zeros((BLOCK, V), tl.float32)
    first = total
    for step in tl.range(0, STEPS, GROUP, num_stages=1):
        us, biases = no_tiles(), no_tiles()
        for i in tl.static_range(GROUP):
            c = channel + step + i
            us += (load_tile(u_ptr, vector, row_vectors(c, H, vectors, EVEN), V),)
            biases += (load_channel(bias_ptr, c, H, EVEN),)
            u_ptr += vectors * V
        for i in tl.static_range(GROUP):
            v = prelu(biased(us[i], bias_ptr, biases[i]), slope, FOLD)
            if i == 0:
                first = tl.where(step == 0, v, first)
            exists = channel + step + i < H
            total, square = add_frame(v, first, total, square, exists, EVEN)
    store_sums(partial_ptr, total, square, first, item, chunk, B, chunks, vector, vectors, V)


TILES = {2: Tile(32, 8, 128, 4, None), 4: Tile(32, 4, 128, 4, None)}  # by bytes an element


def frame_sums(u: Tensor, slope: Tensor, bias: Tensor | None = None) -> Tensor:
    """Sums over chunks of channels, frame by frame.

    Args:
        u: (B, H, F).
        slope: (1,) of the PReLU that follows.
        bias: (H,) still to be added to u, or None.

    Returns:
        (3, B, chunks, F) float32: for each chunk of ``chunk_channels`` sums of v - p and of
        (v - p)², and p; v = prelu(u + bias), p that of the chunk's first channel.
    """
    tile = TILES[u.element_size()]
    partial = empty_partial(u, tile.channels)
    programs, rest = tile_constants(u, tile)
    with torch.cuda.device_of(u):
        _sums_kernel[(programs,)](u, bias, slope, partial, len(u), **rest)
    return partial
