"""The layer norm in Triton for rows that registers cannot hold: a walk over their columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["M"])
def _forward_kernel(
    x_ptr,  # (M, N) input
    weight_ptr,  # (N,) or None
    bias_ptr,  # (N,) or None
    y_ptr,  # out: (M, N)
    stats_ptr,  # out: (3, M) float32: mean, what its rounding left, rstd
    eps,
    M,
    N,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * N
    y_ptr += row * N
    n = tl.cast(N, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    start = tl.zeros((), tl.int32)
    while start < N:  # not range(): the interpreter of triton 3.6 cannot read N under numpy 2.4
        column = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + column, mask=column < N, other=0.0).to(tl.float32)
        start += BLOCK
    mean = tl.div_rn(tl.sum(total, axis=0), n)
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    start = tl.zeros((), tl.int32)
    while start < N:
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < N, other=0.0).to(tl.float32)
        d = tl.where(column < N, x - mean, 0.0)
        first += d
        second = tl.fma(d, d, second)
        start += BLOCK
    rest = tl.div_rn(tl.sum(first, axis=0), n)
    var = tl.div_rn(tl.sum(second, axis=0), n) - rest * rest
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    rstd = tl.div_rn(1.0, tl.sqrt_rn(var + eps))
    items = tl.cast(M, tl.int64)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + items + row, rest)
    tl.store(stats_ptr + 2 * items + row, rstd)
    start = tl.zeros((), tl.int32)
    while start < N:
        column = start + tl.arange(0, BLOCK)
        mask = column < N
        x = tl.load(x_ptr + column, mask=mask, other=0.0).to(tl.float32)
        y = ((x - mean) - rest) * rstd
        if weight_ptr is not None:
            y = y * tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y = y + tl.load(bias_ptr + column, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + column, y.to(y_ptr.dtype.element_ty), mask=mask)
        start += BLOCK


@triton.jit(do_not_specialize=["M"])
def _gradient_sums_kernel(
    dy_ptr,  # (M, N) gradient of the output
    x_ptr,  # (M, N) input
    weight_ptr,  # (N,) or None
    stats_ptr,  # (3, M) float32: mean, what its rounding left, rstd
    means_ptr,  # out: (2, M) float32, means over columns of g and of g·xhat, g = dy·weight
    M,
    N,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    items = tl.cast(M, tl.int64)
    mean = tl.load(stats_ptr + row)
    rest = tl.load(stats_ptr + items + row)
    rstd = tl.load(stats_ptr + 2 * items + row)
    g_sum = tl.zeros((BLOCK,), tl.float32)
    gx_sum = tl.zeros((BLOCK,), tl.float32)
    start = tl.zeros((), tl.int32)
    while start < N:
        column = start + tl.arange(0, BLOCK)
        mask = column < N
        g = tl.load(dy_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g = g * tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        g_sum += g
        gx_sum = tl.fma(g, ((x - mean) - rest) * rstd, gx_sum)
        start += BLOCK
    n = tl.cast(N, tl.float32)
    tl.store(means_ptr + row, tl.div_rn(tl.sum(g_sum, axis=0), n))
    tl.store(means_ptr + items + row, tl.div_rn(tl.sum(gx_sum, axis=0), n))


@triton.jit(do_not_specialize=["M", "rows"])
def _input_gradient_kernel(
    dy_ptr,  # (M, N) gradient of the output
    x_ptr,  # (M, N) input
    weight_ptr,  # (N,) or None
    stats_ptr,  # (3, M) float32: mean, what its rounding left, rstd
    means_ptr,  # (2, M) float32, from the kernel before
    dx_ptr,  # out: (M, N)
    partial_ptr,  # out: (groups, 2, N) float32, sums over rows of dy·xhat and dy; or None
    M,
    N,
    rows,  # of a group
    BLOCK: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < N
    items = tl.cast(M, tl.int64)
    row = tl.program_id(1).to(tl.int64) * rows
    stop = tl.minimum(row + rows, M)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    while row < stop:
        mean = tl.load(stats_ptr + row)
        rest = tl.load(stats_ptr + items + row)
        rstd = tl.load(stats_ptr + 2 * items + row)
        g = tl.load(dy_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
        xhat = ((x - mean) - rest) * rstd
        if partial_ptr is not None:
            dw = tl.fma(g, xhat, dw)
            db += g
        if weight_ptr is not None:
            g = g * tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        dx = (g - tl.load(means_ptr + row)) - xhat * tl.load(means_ptr + items + row)
        tl.store(dx_ptr + row * N + column, (dx * rstd).to(dx_ptr.dtype.element_ty), mask=mask)
        row += 1
    if partial_ptr is not None:
        out = partial_ptr + tl.program_id(1).to(tl.int64) * 2 * N + column
        tl.store(out, dw, mask=mask)
        tl.store(out + N, db, mask=mask)


BLOCK, WARPS = 4096, 8  # of the walks along a row
COLUMNS, PROGRAMS = 1024, 1024  # of the last kernel: a block's columns, programs it aims at


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, y: Tensor, stats: Tensor, eps: float
) -> None:
    """Fills y (M, N) and stats (3, M) for contiguous x (M, N)."""
    M, N = x.shape
    _forward_kernel[(M,)](
        x, weight, bias, y, stats, eps, M, N, BLOCK=BLOCK, num_warps=WARPS, enable_fp_fusion=False
    )


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, stats: Tensor, dx: Tensor, needs_params: bool
) -> Tensor | None:
    """Fills dx (M, N); float32 rows (groups, 2·N) whose sum is dweight and dbias, if needed."""
    M, N = x.shape
    means = stats.new_empty((2, M))
    blocks = triton.cdiv(N, COLUMNS)
    rows = triton.cdiv(M, max(1, PROGRAMS // blocks))
    groups = triton.cdiv(M, rows)
    partial = stats.new_empty((groups, 2 * N)) if needs_params else None
    options = {"num_warps": WARPS, "enable_fp_fusion": False}
    with torch.cuda.device_of(x):
        _gradient_sums_kernel[(M,)](dy, x, weight, stats, means, M, N, BLOCK=BLOCK, **options)
        _input_gradient_kernel[(blocks, groups)](
            dy, x, weight, stats, means, dx, partial, M, N, rows, BLOCK=COLUMNS, **options
        )
    return partial
