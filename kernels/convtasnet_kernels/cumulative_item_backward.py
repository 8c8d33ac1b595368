"""Backward of the cumulative norm in Triton for small items, built like ``cumulative_item.py``."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative_gradient import gradient_terms, may_fuse, normalized, summands
from convtasnet_kernels.cumulative_item import item_constants
from convtasnet_kernels.cumulative_scan import summed
from convtasnet_kernels.tile_parts import activate, both_sums


@triton.jit(do_not_specialize=["B", "vectors"])
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    dx_ptr,  # out: (B, C, T)
    partial_ptr,  # out: (B, 2, C) float32, sums over frames of dy·xhat and dy; or None
    slope_ptr,  # out: (B,) float32, the slope's gradient; or None
    B,
    vectors,  # T / VECTOR
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels read at a time
    BLOCK_T: tl.constexpr,  # at least T
    VECTOR: tl.constexpr,  # elements read at a time; rows are multiples of it
):
    T = vectors * VECTOR
    item = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK_T)
    valid = j < T
    x_ptr += item * C * T
    dy_ptr += item * C * T
    dx_ptr += item * C * T
    stats_ptr += item * T + j
    pivot = activate(tl.load(x_ptr), prelu_ptr)
    mean = tl.load(stats_ptr, mask=valid, other=0.0)
    rstd = tl.load(stats_ptr + tl.cast(B, tl.int64) * T, mask=valid, other=1.0)
    g_sum = summed(tl.zeros((BLOCK_T,), tl.float32), C)
    gx_sum = summed(tl.zeros((BLOCK_T,), tl.float32), C)
    for start in tl.range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        mask = (c < C)[:, None] & valid[None, :]
        offsets = c[:, None] * T + j[None, :]
        x = activate(tl.load(x_ptr + offsets, mask=mask, other=0.0), prelu_ptr)
        g = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)  # 0 where masked
        gx, own = summands(g, x, pivot, mean, rstd, False, C)
        if partial_ptr is not None:
            slope, own = both_sums(gx, own, 1)
            tl.store(partial_ptr + item * 2 * C + c, slope, mask=c < C)
            tl.store(partial_ptr + (item * 2 + 1) * C + c, own, mask=c < C)
        g = summed(g, C)
        if weight_ptr is not None:
            w = tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
            g *= w
            gx *= w
        g_sum += tl.sum(g, axis=0)
        gx_sum += tl.sum(gx, axis=0)
    places = (None, item, B, 1, 0)
    own, later, slope = gradient_terms(g_sum, gx_sum, mean, rstd, valid, 0, places, 1, C)
    da = summed(tl.zeros((BLOCK_T,), tl.float32), C)
    for start in tl.range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        mask = (c < C)[:, None] & valid[None, :]
        offsets = c[:, None] * T + j[None, :]
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        g = summed(tl.load(dy_ptr + offsets, mask=mask, other=0.0), C)
        if weight_ptr is not None:
            g *= tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
        xhat = normalized(summed(activate(u, prelu_ptr), C), pivot, mean, rstd, False)
        dx = ((g - own[None, :]) + later[None, :] - slope[None, :] * xhat) * rstd[None, :]
        if slope_ptr is not None:
            da += tl.sum(dx * tl.where(u > 0, 0.0, u), axis=0)  # masked lanes hold u = 0
        if prelu_ptr is not None:
            dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
        dx = dx.to(tl.float32)  # from float64 the interpreter rounds to 16 bits wrongly
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if slope_ptr is not None:
        tl.store(slope_ptr + item, tl.sum(da, axis=0))


WARPS = 8


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    dx: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Fills dx for contiguous x (B, C, T) on the current device.

    Returns:
        Partial sums of the parameters' gradients, (B, 2·C) and (B,), None where not needed.
    """
    B, C, T = x.shape
    fixed = item_constants(x, WARPS)
    params = stats.new_empty((B, 2 * C)) if needs_params else None
    slopes = stats.new_empty((B,)) if needs_prelu else None
    _backward_kernel[(B,)](
        dy, x, weight, prelu, stats, dx, params, slopes, B, T // fixed["VECTOR"],
        **fixed, enable_fp_fusion=may_fuse(x),
    )  # fmt: skip
    return params, slopes
