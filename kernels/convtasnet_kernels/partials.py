"""Sums what the programs of one launch leave behind, a row each, in one fixed order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


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
    split = tl.program_id(1)
    total = tl.zeros((BLOCK_R, BLOCK_K), tl.float32)
    start = split * SPLIT
    stop = tl.minimum(start + SPLIT, R)
    while start < stop:  # not range(): the interpreter of triton 3.6 cannot read R under numpy 2.4
        r = start + tl.arange(0, BLOCK_R)
        mask = (r < stop)[:, None] & (k < K)[None, :]
        offsets = r.to(tl.int64)[:, None] * stride + k[None, :]
        total += tl.load(rows_ptr + offsets, mask=mask, other=0.0)
        start += BLOCK_R
    out = out_ptr + split.to(tl.int64) * K + k
    tl.store(out, tl.sum(total, axis=0).to(out_ptr.dtype.element_ty), mask=k < K)


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
    R, K = rows.shape
    if rows.numel() == 0:
        return rows.new_zeros((K,), dtype=dtype)
    block_r, block_k = next(tile for columns, *tile in TILES if columns <= K)
    splits = triton.cdiv(R, STEPS * block_r)
    sums = rows.new_empty((splits, K), dtype=dtype if splits == 1 else torch.float32)
    with torch.cuda.device_of(rows):
        _sum_rows_kernel[(triton.cdiv(K, block_k), splits)](
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
    return sums[0] if splits == 1 else sum_rows(sums, dtype)
