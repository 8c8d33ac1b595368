"""The first channels of the map beside the blocks as a map of their own, in Triton.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import place, store_tile
from convtasnet_kernels.rows import load_tile


@triton.jit(do_not_specialize=["C", "R", "tiles", "vectors"])
def _first_rows_kernel(
    total_ptr,  # (B, C, F)
    out_ptr,  # out: (B, R, F)
    C,
    R,
    tiles,  # of a row
    vectors,  # of a row
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    item, channel, vector = place(R, tiles, BLOCK)
    frames = vectors * V
    values = load_tile(total_ptr + (item * C + channel) * frames, vector, vectors, V)
    store_tile(out_ptr + (item * R + channel) * frames, values, vector, vectors, V)


TILE = (512, 4)  # vectors of a tile, warps


def first_rows(total: Tensor, rows: int) -> Tensor:
    """As ``block_torch.first_rows``; a strided copy of PyTorch's reads one element at a time."""
    B, C, F = total.shape
    out = total.new_empty((B, rows, F))
    V = 16 // total.element_size()
    block, warps = TILE
    tiles = triton.cdiv(F // V, block)
    with torch.cuda.device_of(total):
        _first_rows_kernel[(B * rows * tiles,)](
            total, out, C, rows, tiles, F // V, BLOCK=block, V=V, num_warps=warps
        )
    return out
