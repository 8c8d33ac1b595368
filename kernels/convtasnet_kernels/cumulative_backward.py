"""Backward of the cumulative norm in Triton, built like ``cumulative.py`` in reverse time."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative import _activate, _tile, tile_sizes


@triton.jit(do_not_specialize=["B"])
def _gradient_sums_kernel(
    dy_ptr,  # (B, C, T) gradient of the output
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    sums_ptr,  # out: (2, B, T) float32, sums over channels of g and of g·xhat, g = dy·weight
    partial_ptr,  # out: (2, programs, C) float32, sums over frames of dy·xhat and dy; or None
    B,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    pid = tl.program_id(0)
    item, base, t, offsets = _tile(pid, T, C, BLOCK_C, BLOCK_T)
    pivot = _activate(tl.load(x_ptr + base).to(tl.float32), prelu_ptr)
    frame = item * T + t
    items = tl.cast(B, tl.int64) * T
    mean = tl.load(stats_ptr + frame, mask=t < T, other=0.0)[None, :]
    rstd = tl.load(stats_ptr + items + frame, mask=t < T, other=0.0)[None, :]
    lane = tl.arange(0, BLOCK_C)
    g_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    gx_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in range(0, C, BLOCK_C):
        row = c + lane < C
        mask = (t < T)[None, :] & row[:, None]
        start = base + tl.cast(c, tl.int64) * T
        u = tl.load(x_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_last")
        g = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_last")
        g = g.to(tl.float32)  # zero in masked lanes, and with it all that is summed
        xhat = (_activate(u.to(tl.float32), prelu_ptr) - pivot - mean) * rstd
        gx = g * xhat
        if partial_ptr is not None:
            partial = partial_ptr + pid.to(tl.int64) * C + c + lane
            tl.store(partial, tl.sum(gx, axis=1), mask=row)
            partial += tl.num_programs(0).to(tl.int64) * C
            tl.store(partial, tl.sum(g, axis=1), mask=row)
        if weight_ptr is not None:
            w = tl.load(weight_ptr + c + lane, mask=row, other=0.0).to(tl.float32)[:, None]
            g *= w
            gx *= w
        g_sum += g
        gx_sum += gx
    tl.store(sums_ptr + frame, tl.sum(g_sum, axis=0), mask=t < T)
    tl.store(sums_ptr + items + frame, tl.sum(gx_sum, axis=0), mask=t < T)


@triton.jit(do_not_specialize=["B"])
def _reverse_scan_kernel(
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    sums_ptr,  # (2, B, T) float32, sums over channels of g and g·xhat
    terms_ptr,  # out: (3, B, T) float32: own, later, slope in
    # dx = rstd·(g - own + later - slope·xhat)
    B,
    T,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
):
    items = tl.cast(B, tl.int64) * T
    base = tl.program_id(0).to(tl.int64) * T
    stats_ptr += base
    sums_ptr += base
    terms_ptr += base
    a_carry = tl.zeros((1,), tl.float64)
    b_carry = tl.zeros((1,), tl.float64)
    start = ((T - 1) // BLOCK + tl.zeros((), tl.int32)) * BLOCK
    while start >= 0:  # not range(): the interpreter of triton 3.6 cannot read T under numpy 2.4
        t = start + tl.arange(0, BLOCK)
        # What frame s = t + 1 sends to all frames before it.
        s, mask = t + 1, t + 1 < T
        mean = tl.load(stats_ptr + s, mask=mask, other=0.0).to(tl.float64)
        rstd = tl.load(stats_ptr + items + s, mask=mask, other=0.0).to(tl.float64)
        n = (s + 1).to(tl.float64) * C
        dmean = -rstd * tl.load(sums_ptr + s, mask=mask, other=0.0).to(tl.float64) / n
        gx = tl.load(sums_ptr + items + s, mask=mask, other=0.0).to(tl.float64)
        dvar = -rstd * rstd * gx / n
        dmean -= dvar * mean
        a = a_carry + tl.cumsum(dmean, axis=0, reverse=True)
        b = b_carry + tl.cumsum(dvar, axis=0, reverse=True)
        a_carry += tl.sum(dmean, axis=0)
        b_carry += tl.sum(dvar, axis=0)
        # What frame t receives: its own part apart, as at C = 1 it cancels g and leaves little.
        mask = t < T
        mean = tl.load(stats_ptr + t, mask=mask, other=0.0).to(tl.float64)
        std = 1.0 / tl.load(stats_ptr + items + t, mask=mask, other=1.0).to(tl.float64)
        n = s.to(tl.float64) * C
        own = tl.load(sums_ptr + t, mask=mask, other=0.0).to(tl.float64) / n
        slope = tl.load(sums_ptr + items + t, mask=mask, other=0.0).to(tl.float64) / n
        tl.store(terms_ptr + t, own.to(tl.float32), mask=mask)
        tl.store(terms_ptr + items + t, ((a + mean * b) * std).to(tl.float32), mask=mask)
        slope -= b * std * std
        tl.store(terms_ptr + 2 * items + t, slope.to(tl.float32), mask=mask)
        start -= BLOCK


@triton.jit(do_not_specialize=["B"])
def _input_gradient_kernel(
    dy_ptr,  # (B, C, T) gradient of the output
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    terms_ptr,  # (3, B, T) float32, from the reverse scan
    dx_ptr,  # out: (B, C, T)
    partial_ptr,  # out: (programs,) float32, the slope's gradient; or None
    B,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    # Backwards: the tiles that the first kernel read last are still in the L2.
    pid = tl.num_programs(0) - 1 - tl.program_id(0)
    item, base, t, offsets = _tile(pid, T, C, BLOCK_C, BLOCK_T)
    pivot = _activate(tl.load(x_ptr + base).to(tl.float32), prelu_ptr)
    frame = item * T + t
    items = tl.cast(B, tl.int64) * T
    mean = tl.load(stats_ptr + frame, mask=t < T, other=0.0)[None, :]
    rstd = tl.load(stats_ptr + items + frame, mask=t < T, other=0.0)[None, :]
    own = tl.load(terms_ptr + frame, mask=t < T, other=0.0)[None, :]
    later = tl.load(terms_ptr + items + frame, mask=t < T, other=0.0)[None, :]
    slope = tl.load(terms_ptr + 2 * items + frame, mask=t < T, other=0.0)[None, :]
    lane = tl.arange(0, BLOCK_C)[:, None]
    da = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in range(0, C, BLOCK_C):
        row = c + lane < C
        mask = (t < T)[None, :] & row
        start = base + tl.cast(c, tl.int64) * T
        u = tl.load(x_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        g = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        u, g = u.to(tl.float32), g.to(tl.float32)
        if weight_ptr is not None:
            g *= tl.load(weight_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        xhat = (_activate(u, prelu_ptr) - pivot - mean) * rstd
        dx = ((g - own) + later - slope * xhat) * rstd
        if partial_ptr is not None:
            da += tl.where(u > 0, 0.0, dx * u)  # masked lanes hold u = 0
        if prelu_ptr is not None:
            dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
        tl.store(dx_ptr + start + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if partial_ptr is not None:
        tl.store(partial_ptr + pid, tl.sum(tl.sum(da, axis=1), axis=0))


TILES = {2: (64, 64, 8), 4: (64, 32, 8)}  # as in cumulative.py
SCAN_BLOCK, SCAN_WARPS = 2048, 8


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``cumulative.forward``; as ``cumulative_torch.backward``."""
    dy, x, stats = dy.contiguous(), x.contiguous(), stats.contiguous()
    weight, prelu = (p if p is None else p.contiguous() for p in (weight, prelu))
    B, C, T = x.shape
    dx = torch.empty_like(x)
    if x.numel() == 0:
        return (
            dx,
            stats.new_zeros((2, C) if needs_params else (0,)),
            stats.new_zeros(1 if needs_prelu else 0),
        )
    # At C = 1 dx is what is left of g - own; fma(dy, weight, -own) would leave a rounding more.
    tile = {**tile_sizes(x, TILES), "enable_fp_fusion": False}
    programs = B * triton.cdiv(T, tile["BLOCK_T"])
    sums, terms = stats.new_empty((2, B, T)), stats.new_empty((3, B, T))
    params = stats.new_empty((2, programs, C)) if needs_params else None
    slopes = stats.new_empty((programs,)) if needs_prelu else None
    with torch.cuda.device_of(x):
        _gradient_sums_kernel[(programs,)](dy, x, weight, prelu, stats, sums, params, B, T, **tile)
        _reverse_scan_kernel[(B,)](
            stats, sums, terms, B, T, C=C, BLOCK=SCAN_BLOCK, num_warps=SCAN_WARPS
        )
        _input_gradient_kernel[(programs,)](
            dy, x, weight, prelu, stats, terms, dx, slopes, B, T, **tile
        )
    dparams = stats.new_empty((0,)) if params is None else params.sum(1)
    dprelu = stats.new_empty((0,)) if slopes is None else slopes.sum(0, keepdim=True)
    return dx, dparams, dprelu
