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

from convtasnet_kernels.block_tile import place, prelu, store_tile
from convtasnet_kernels.rows import load_tile


@triton.jit(do_not_specialize=["C", "start", "rows", "tiles", "vectors"])
def _take_kernel(
    total_ptr,  # (B, C, F)
    bias_ptr,  # (rows,) float32, or None
    slope_ptr,  # (1,) of a PReLU, or None
    out_ptr,  # out: (B, rows, F), channels from start on, with the bias, behind the PReLU
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
    if slope_ptr is not None:
        values = prelu(values, tl.load(slope_ptr).to(tl.float32), FOLD=False)
    store_tile(out_ptr + (item * rows + row) * frames, values, vector, vectors, V)


@triton.jit(do_not_specialize=["C", "rows", "active", "tiles", "vectors"])
def _join_kernel(
    first_ptr,  # (B, rows, F), or None for zeros
    second_ptr,  # (B, C - rows, F), or None for zeros
    u_ptr,  # (B, C, F) before a PReLU, of whose output these are the gradients; or None
    bias_ptr,  # (C,) float32 still to be added to u
    slope_ptr,  # (1,) of the PReLU
    total_ptr,  # out: (B, C, F)
    sums_ptr,  # out: (1 or 2, B, C, tiles) float32, sums over each tile: its own, the slope's
    C,
    rows,
    active,  # the first row behind the PReLU
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
    if u_ptr is not None:
        slope_sum = tl.zeros((), tl.float32)
        if row >= active:
            u = load_tile(u_ptr + (item * C + row) * frames, vector, vectors, V).to(tl.float32)
            u += tl.load(bias_ptr + row)
            dv = values.to(tl.float32)
            slope_sum = tl.sum(tl.sum(tl.where(u > 0, 0.0, dv * u), axis=1), axis=0)
            dv = tl.where(u > 0, dv, dv * tl.load(slope_ptr).to(tl.float32))
            values = dv.to(values.dtype)
        tl.store(sums_ptr + tl.num_programs(0) + tl.program_id(0), slope_sum)
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


def taken_rows(
    total: Tensor, start: int, rows: int, bias: Tensor | None = None, slope: Tensor | None = None
) -> Tensor:
    """As ``block_torch.taken_rows``."""
    out = total.new_empty((total.shape[0], rows, total.shape[2]))
    programs, rest = _launched(out)
    with torch.cuda.device_of(total):
        _take_kernel[(programs,)](total, bias, slope, out, total.shape[1], start, rows, **rest)
    return out


def joined_rows(first: Tensor | None, second: Tensor | None, like: Tensor, channels: int) -> Tensor:
    """As ``block_torch.joined_rows``."""
    return _joined(first, second, like, channels, 0)[0]


def joined_gradients(
    first: Tensor | None,
    second: Tensor | None,
    like: Tensor,
    channels: int,
    u: Tensor | None = None,
    bias: Tensor | None = None,
    slope: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``block_backward_torch.joined_gradients``; sums of their own would read the map again."""
    count = 1 if slope is None else 2
    total, sums = _joined(first, second, like, channels, count, u, bias, slope)
    sums = sums.sum((1, 3))
    return total, sums[0], sums[1:].sum(1)


def _joined(
    first: Tensor | None,
    second: Tensor | None,
    like: Tensor,
    channels: int,
    count: int,
    u: Tensor | None = None,
    bias: Tensor | None = None,
    slope: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The map (B, C, F), and so many of the sums (count, B, C, tiles) over each tile."""
    total, rows = like.new_empty((like.shape[0], channels, like.shape[2])), like.shape[1]
    first, second = (None if part is None else part.contiguous() for part in (first, second))
    programs, rest = _launched(total)
    sums = like.new_empty((count, *total.shape[:2], rest["tiles"]), dtype=torch.float32)
    active = rows if channels > rows else 0
    with torch.cuda.device_of(like):
        _join_kernel[(programs,)](
            first, second, u, bias, slope, total, sums if count else None,
            channels, rows, active, **rest,
        )  # fmt: skip
    return total, sums
