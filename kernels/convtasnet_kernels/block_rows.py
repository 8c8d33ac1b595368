"""Rows of the map beside the blocks, put together and taken out, in Triton.

PyTorch's copies of parts of a map go one element at a time. Import this module only where Triton is
wanted.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import place, store_tile
from convtasnet_kernels.rows import load_tile


@triton.jit(do_not_specialize=["C", "start", "rows", "tiles", "vectors"])
def _take_kernel(
    total_ptr,  # (B, C, F)
    bias_ptr,  # (rows,) float32, or None
    out_ptr,  # out: (B, rows, F), channels from start on, with the bias
    C,
    start,
    rows,
    tiles,  # of a row
    vectors,  # of a row
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    item, row, vector = place(rows, tiles, BLOCK)
    frames = vectors * V
    values = load_tile(total_ptr + (item * C + start + row) * frames, vector, vectors, V)
    if bias_ptr is not None:
        values = values.to(tl.float32) + tl.load(bias_ptr + row)
    store_tile(out_ptr + (item * rows + row) * frames, values, vector, vectors, V)


@triton.jit(do_not_specialize=["C", "rows", "tiles", "vectors"])
def _join_kernel(
    first_ptr,  # (B, rows, F), or None for zeros
    second_ptr,  # (B, C - rows, F), or None for zeros
    total_ptr,  # out: (B, C, F)
    sums_ptr,  # out: (B, C, tiles) float32, its sums over each tile; or None
    C,
    rows,
    tiles,  # of a row
    vectors,  # of a row
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    item, row, vector = place(C, tiles, BLOCK)
    frames = vectors * V
    values = tl.zeros((BLOCK, V), total_ptr.dtype.element_ty)
    if row < rows:
        if first_ptr is not None:
            row_ptr = first_ptr + (item * rows + row) * frames
            values = load_tile(row_ptr, vector, vectors, V)
    else:
        if second_ptr is not None:
            row_ptr = second_ptr + (item * (C - rows) + row - rows) * frames
            values = load_tile(row_ptr, vector, vectors, V)
    store_tile(total_ptr + (item * C + row) * frames, values, vector, vectors, V)
    if sums_ptr is not None:
        total = tl.sum(tl.sum(values.to(tl.float32), axis=1), axis=0)
        tl.store(sums_ptr + tl.program_id(0), total)


TILE = (512, 4)  # vectors of a tile, warps


def _launched(out: Tensor) -> tuple[int, dict[str, Any]]:
    """Programs over a map (B, C, F), and their arguments from ``tiles`` on."""
    B, C, F = out.shape
    block, warps = TILE
    V = 16 // out.element_size()
    tiles = triton.cdiv(F // V, block)
    fixed = {"tiles": tiles, "vectors": F // V, "BLOCK": block, "V": V, "num_warps": warps}
    return B * C * tiles, fixed


def taken_rows(total: Tensor, start: int, rows: int, bias: Tensor | None = None) -> Tensor:
    """As ``block_torch.taken_rows``."""
    out = total.new_empty((total.shape[0], rows, total.shape[2]))
    programs, rest = _launched(out)
    with torch.cuda.device_of(total):
        _take_kernel[(programs,)](total, bias, out, total.shape[1], start, rows, **rest)
    return out


def joined_rows(first: Tensor | None, second: Tensor | None, like: Tensor, channels: int) -> Tensor:
    """As ``block_torch.joined_rows``."""
    return _joined(first, second, like, channels, False)[0]


def joined_gradients(
    first: Tensor | None, second: Tensor | None, like: Tensor, channels: int
) -> tuple[Tensor, Tensor]:
    """As ``block_backward_torch.joined_gradients``; a sum of its own would read the map again."""
    total, sums = _joined(first, second, like, channels, True)
    return total, sums.sum((0, 2))


def _joined(
    first: Tensor | None, second: Tensor | None, like: Tensor, channels: int, adds: bool
) -> tuple[Tensor, Tensor]:
    """The map (B, C, F), and its sums (B, C, tiles) over each tile, or nothing."""
    total = like.new_empty((like.shape[0], channels, like.shape[2]))
    first, second = (None if part is None else part.contiguous() for part in (first, second))
    programs, rest = _launched(total)
    shape = (*total.shape[:2], rest["tiles"]) if adds else (0,)
    sums = like.new_empty(shape, dtype=torch.float32)
    with torch.cuda.device_of(like):
        _join_kernel[(programs,)](
            first, second, total, sums if adds else None, channels, like.shape[1], **rest
        )
    return total, sums
