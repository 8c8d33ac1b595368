"""Sums what the programs of one launch leave behind, a row each, in one fixed order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_rows(rows_ptr, start, stop, k, K, stride, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr):
    """Sums of the rows from start to stop in the columns k (BLOCK_K,) of K."""
    total = tl.zeros((BLOCK_R, BLOCK_K), tl.float32)
    while start < stop:  # not range(): the interpreter of triton 3.6 cannot read R under numpy 2.4
        r = start + tl.arange(0, BLOCK_R)
        mask = (r < stop)[:, None] & (k < K)[None, :]
        offsets = r.to(tl.int64)[:, None] * stride + k[None, :]
        total += tl.load(rows_ptr + offsets, mask=mask, other=0.0)
        start += BLOCK_R
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["R"])
def _sum_rows_kernel(
    rows_ptr,  # (R, K) float32
    out_ptr,  # out: (splits, K), sums of SPLIT rows each
    R,
    K,
    stride,  # elements from one row to the next
    SPLIT: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    start = tl.program_id(1) * SPLIT
    stop = tl.minimum(start + SPLIT, R)
    total = _add_rows(rows_ptr, start, stop, k, K, stride, BLOCK_R, BLOCK_K)
    out = out_ptr + tl.program_id(1).to(tl.int64) * K + k
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=k < K)


@triton.jit(do_not_specialize=["R", "N"])
def _sum_partials_kernel(
    rows_ptr,  # (R, K) float32 or None
    numbers_ptr,  # (N,) float32 or None
    sums_ptr,  # out: (K,) float32
    sum_ptr,  # out: (1,) float32
    R,
    N,
    K: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The last program adds up the numbers, the others the rows."""
    PROGRAMS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    program = tl.program_id(0)
    if program == PROGRAMS:
        if numbers_ptr is not None:
            BLOCK: tl.constexpr = BLOCK_R * BLOCK_K
            parts = tl.zeros((BLOCK,), tl.float32)
            done = tl.zeros((), tl.int32)
            while done < N:
                i = done + tl.arange(0, BLOCK)
                parts += tl.load(numbers_ptr + i, mask=i < N, other=0.0)
                done += BLOCK
            tl.store(sum_ptr, tl.sum(parts, axis=0))
    else:
        if rows_ptr is not None:
            k = program * BLOCK_K + tl.arange(0, BLOCK_K)
            start = tl.zeros((), tl.int32)
            total = _add_rows(rows_ptr, start, R, k, K, K, BLOCK_R, BLOCK_K)
            tl.store(sums_ptr + k, total, mask=k < K)


# (columns from which it serves, BLOCK_R, BLOCK_K): few columns are shared out among many programs.
TILES = ((4096, 256, 32), (0, 1024, 8))
WARPS = 8
STEPS = 4  # tiles that one program adds up before another takes over


def sum_rows(rows: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Adds the rows up, in float32 and in an order that depends on the shape alone.

    Args:
        rows: (R, K) float32 on a CUDA device (or for the interpreter), columns side by side; the
            rows may lie further apart.
        dtype: of the result.

    Returns:
        (K,) sums; zeros where R is 0.

    Raises:
        ValueError: rows of another dtype or with strided columns.
    """
    if rows.dtype != torch.float32 or (rows.shape[1] > 1 and rows.stride(1) != 1):
        raise ValueError(
            "rows must be float32 with columns side by side, "
            f"got {rows.dtype} with strides {rows.stride()}"
        )
    K = rows.shape[1]
    if rows.numel() == 0:
        return rows.new_zeros((K,), dtype=dtype)
    while _splits(rows) > 1:
        rows = _sum_splits(rows, torch.float32)
    return _sum_splits(rows, dtype)[0]


def _tile(K: int) -> tuple[int, int]:
    """BLOCK_R and BLOCK_K for rows of K columns."""
    return next((r, k) for columns, r, k in TILES if columns <= K)


def _splits(rows: Tensor) -> int:
    """Programs that share a column."""
    return triton.cdiv(rows.shape[0], STEPS * _tile(rows.shape[1])[0])


def _sum_splits(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """(splits, K) sums of the rows that each program takes."""
    R, K = rows.shape
    block_r, block_k = _tile(K)
    sums = rows.new_empty((_splits(rows), K), dtype=dtype)
    with torch.cuda.device_of(rows):
        _sum_rows_kernel[(triton.cdiv(K, block_k), sums.shape[0])](
            rows,
            sums,
            R,
            K,
            rows.stride(0),
            SPLIT=STEPS * block_r,
            BLOCK_R=block_r,
            BLOCK_K=block_k,
            num_warps=WARPS,
        )
    return sums


def sum_partials(
    params: Tensor | None, slopes: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds up what a backward pass leaves, in one launch where the rows are few, in a fixed order.

    Args:
        params: (R, 2·C) float32, contiguous, or None: parts of the gradients of weight and bias.
        slopes: float32 of any shape, contiguous, or None: parts of the slope's gradient.
        like: a float32 tensor on the device.

    Returns:
        (2, C) and (1,) float32; empty where there is None.
    """
    while params is not None and _splits(params) > 1:
        params = _sum_splits(params, torch.float32)
    columns = 0 if params is None else params.shape[1]
    sums = like.new_empty((2, columns // 2) if params is not None else (0,))
    slope = like.new_empty((0 if slopes is None else 1,))
    if params is not None or slopes is not None:
        block_r, block_k = _tile(columns)
        with torch.cuda.device_of(like):
            _sum_partials_kernel[(triton.cdiv(columns, block_k) + 1,)](
                params,
                slopes,
                sums,
                slope,
                0 if params is None else params.shape[0],
                0 if slopes is None else slopes.numel(),
                K=columns,
                BLOCK_R=block_r,
                BLOCK_K=block_k,
                num_warps=WARPS,
            )
    return sums, slope
