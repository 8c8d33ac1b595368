"""The last step of the fused block's backward: one launch adds up what the others left in rows.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_columns(
    rows_ptr, out_ptr, R, stride, K, block, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Writes the sums over R rows of a block of the first K columns."""
    k = block * BLOCK_K + tl.arange(0, BLOCK_K)
    lane = tl.arange(0, BLOCK_R)
    total = tl.zeros((BLOCK_R, BLOCK_K), tl.float32)
    r = tl.zeros((), tl.int32)
    while r < R:
        mask = (r + lane < R)[:, None] & (k < K)[None, :]
        offsets = (r + lane).to(tl.int64)[:, None] * stride + k[None, :]
        total += tl.load(rows_ptr + offsets, mask=mask, other=0.0)
        r += BLOCK_R
    tl.store(out_ptr + k, tl.sum(total, axis=0), mask=k < K)


@triton.jit
def _add_all(rows_ptr, out_ptr, R, stride, K, BLOCK: tl.constexpr):
    """Writes the sum over R rows of K columns."""
    total = tl.zeros((BLOCK,), tl.float32)
    done = tl.zeros((), tl.int64)
    while done < tl.cast(R, tl.int64) * K:
        i = done + tl.arange(0, BLOCK)
        total += tl.load(rows_ptr + i // K * stride + i % K, mask=i // K < R, other=0.0)
        done += BLOCK
    tl.store(out_ptr, tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["R_1", "R_TAPS", "R_2"])
def _parameters_kernel(
    norm_1_ptr,  # (R_1, 4, C) float32
    taps_ptr,  # (R_TAPS, C·P) float32
    norm_2_ptr,  # (R_2, 4, C) float32
    out_ptr,  # out: (6·C + C·P + 2,) float32
    R_1,
    R_TAPS,
    R_2,
    C: tl.constexpr,
    P: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    N: tl.constexpr = (3 * C + BLOCK_K - 1) // BLOCK_K
    TAPS: tl.constexpr = (C * P + BLOCK_K - 1) // BLOCK_K
    END: tl.constexpr = 6 * C + C * P
    i = tl.program_id(0)
    if i < N:
        _add_columns(norm_1_ptr, out_ptr, R_1, 4 * C, 3 * C, i, BLOCK_R, BLOCK_K)
    elif i < 2 * N:
        _add_columns(norm_2_ptr, out_ptr + 3 * C, R_2, 4 * C, 3 * C, i - N, BLOCK_R, BLOCK_K)
    elif i < 2 * N + TAPS:
        taps = out_ptr + 6 * C
        _add_columns(taps_ptr, taps, R_TAPS, C * P, C * P, i - 2 * N, BLOCK_R, BLOCK_K)
    elif i == 2 * N + TAPS:
        _add_all(norm_1_ptr + 3 * C, out_ptr + END, R_1, 4 * C, C, BLOCK_R * BLOCK_K)
    else:
        _add_all(norm_2_ptr + 3 * C, out_ptr + END + 1, R_2, 4 * C, C, BLOCK_R * BLOCK_K)


TILE = (64, 32, 4)  # rows and columns read at a time, warps


def parameter_gradients(norm_1: Tensor, taps: Tensor, norm_2: Tensor) -> Tensor:
    """As ``block_backward_torch.parameter_gradients``, in an order that the shapes decide on."""
    channels = norm_1.shape[1] // 4
    block_r, block_k, warps = TILE
    columns = (3 * channels, 3 * channels, taps.shape[1])
    out = norm_1.new_empty((sum(columns) + 2,))
    programs = sum(triton.cdiv(n, block_k) for n in columns) + 2
    with torch.cuda.device_of(out):
        _parameters_kernel[(programs,)](
            norm_1, taps, norm_2, out, *(len(rows) for rows in (norm_1, taps, norm_2)),
            C=channels, P=taps.shape[1] // channels, BLOCK_R=block_r, BLOCK_K=block_k,
            num_warps=warps,
        )  # fmt: skip
    return out
