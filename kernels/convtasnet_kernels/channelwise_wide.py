"""The channelwise norm in Triton, for more channels than registers hold: a walk over them."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.channelwise_tile import _tile
from convtasnet_kernels.tile_parts import activate, both_sums


@triton.jit(do_not_specialize=["B"])
def _forward_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    y_ptr,  # out: (B, C, T), of a dtype of its own
    stats_ptr,  # out: (3, B, T) float32: mean, what its rounding left, rstd
    eps,
    B,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    item, t, offsets = _tile(tl.program_id(0), T, BLOCK_C, BLOCK_T)
    lane = tl.arange(0, BLOCK_C)[:, None]
    total = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in range(0, C, BLOCK_C):
        mask = (t < T)[None, :] & (c + lane < C)
        place = (item * C + c) * T + offsets
        total += activate(tl.load(x_ptr + place, mask=mask, other=0.0), prelu_ptr)
    mean = tl.sum(total, axis=0) * (1.0 / C)
    first = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    second = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in range(0, C, BLOCK_C):
        mask = (t < T)[None, :] & (c + lane < C)
        place = (item * C + c) * T + offsets
        v = activate(tl.load(x_ptr + place, mask=mask, other=0.0), prelu_ptr)
        d = tl.where(c + lane < C, v - mean[None, :], 0.0)
        first += d
        second = tl.fma(d, d, second)
    first, second = both_sums(first, second)
    rest = first * (1.0 / C)
    var = second * (1.0 / C) - rest * rest
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    rstd = tl.rsqrt(var + eps)
    frame = stats_ptr + item * T + t
    items = tl.cast(B, tl.int64) * T
    tl.store(frame, mean, mask=t < T)
    tl.store(frame + items, rest, mask=t < T)
    tl.store(frame + 2 * items, rstd, mask=t < T)
    shift = -rest * rstd
    for c in range(0, C, BLOCK_C):
        row = c + lane < C
        mask = (t < T)[None, :] & row
        place = (item * C + c) * T + offsets
        v = activate(tl.load(x_ptr + place, mask=mask, other=0.0), prelu_ptr)
        y = tl.fma(v - mean[None, :], rstd[None, :], shift[None, :])
        if weight_ptr is not None:
            y = y * tl.load(weight_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y = y + tl.load(bias_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _frames(stats_ptr, frame, items, mask):
    """The tile's mean, rstd and -rest·rstd, rows that broadcast over the channels."""
    mean = tl.load(stats_ptr + frame, mask=mask, other=0.0)
    rest = tl.load(stats_ptr + items + frame, mask=mask, other=0.0)
    rstd = tl.load(stats_ptr + 2 * items + frame, mask=mask, other=0.0)
    return mean[None, :], rstd[None, :], (-rest * rstd)[None, :]


@triton.jit(do_not_specialize=["B"])
def _gradient_means_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (3, B, T) float32: mean, what its rounding left, rstd
    means_ptr,  # out: (2, B, T) float32, means over channels of g and of g·xhat, g = dy·weight
    B,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    item, t, offsets = _tile(tl.program_id(0), T, BLOCK_C, BLOCK_T)
    lane = tl.arange(0, BLOCK_C)[:, None]
    frame = item * T + t
    items = tl.cast(B, tl.int64) * T
    mean, rstd, shift = _frames(stats_ptr, frame, items, t < T)
    g_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    gx_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in range(0, C, BLOCK_C):
        row = c + lane < C
        mask = (t < T)[None, :] & row
        place = (item * C + c) * T + offsets
        g = tl.load(dy_ptr + place, mask=mask, other=0.0).to(tl.float32)
        u = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
        if weight_ptr is not None:
            g = g * tl.load(weight_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        g_sum += g
        gx_sum = tl.fma(g, tl.fma(activate(u, prelu_ptr) - mean, rstd, shift), gx_sum)
    own, slope = both_sums(g_sum, gx_sum)
    tl.store(means_ptr + frame, own * (1.0 / C), mask=t < T)
    tl.store(means_ptr + items + frame, slope * (1.0 / C), mask=t < T)


@triton.jit(do_not_specialize=["B", "tiles"])
def _input_gradient_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (3, B, T) float32: mean, what its rounding left, rstd
    means_ptr,  # (2, B, T) float32, from the kernel before
    dx_ptr,  # out: (B, C, T)
    params_ptr,  # out: (groups, 2, C) float32, sums over frames of dy·xhat and dy; or None
    slopes_ptr,  # out: (groups, blocks) float32, the slope's gradient; or None
    B,
    T,
    tiles,  # of a group
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    c = tl.program_id(0) * BLOCK_C
    channel = c + tl.arange(0, BLOCK_C)
    row = channel < C
    group = tl.program_id(1).to(tl.int64)
    items = tl.cast(B, tl.int64) * T
    dw = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    db = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    da = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    step = tl.zeros((), tl.int32)
    while step < tiles:  # not range(): see layer.launch_sizes
        item, t, offsets = _tile(group * tiles + step, T, BLOCK_C, BLOCK_T)
        within = (t < T) & (item < B)
        mask = within[None, :] & row[:, None]
        frame = item * T + t
        place = (item * C + c) * T + offsets
        mean, rstd, shift = _frames(stats_ptr, frame, items, within)
        own = tl.load(means_ptr + frame, mask=within, other=0.0)[None, :]
        slope = tl.load(means_ptr + items + frame, mask=within, other=0.0)[None, :]
        g = tl.load(dy_ptr + place, mask=mask, other=0.0).to(tl.float32)
        u = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
        xhat = tl.fma(activate(u, prelu_ptr) - mean, rstd, shift)
        if params_ptr is not None:
            dw = tl.fma(g, xhat, dw)
            db += g
        if weight_ptr is not None:
            g = g * tl.load(weight_ptr + channel, mask=row, other=0.0).to(tl.float32)[:, None]
        dx = tl.fma(xhat, -slope, g - own) * rstd
        if slopes_ptr is not None:
            da += tl.where(u > 0, 0.0, dx * u)  # masked lanes hold u = 0
        if prelu_ptr is not None:
            dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
        tl.store(dx_ptr + place, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        step += 1
    if params_ptr is not None:
        out = params_ptr + group * 2 * C + channel
        tl.store(out, tl.sum(dw, axis=1), mask=row)
        tl.store(out + C, tl.sum(db, axis=1), mask=row)
    if slopes_ptr is not None:
        out = slopes_ptr + group * tl.num_programs(0) + tl.program_id(0)
        tl.store(out, tl.sum(tl.sum(da, axis=1), axis=0))


SIZES = {"BLOCK_C": 64, "BLOCK_T": 32, "num_warps": 8, "enable_fp_fusion": False}
PROGRAMS = 1024  # that the last kernel aims at


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    y: Tensor,
    stats: Tensor,
    eps: float,
) -> None:
    """Fills y (B, C, T) and stats (3, B, T) for contiguous x (B, C, T)."""
    B, C, T = x.shape
    _forward_kernel[(B * triton.cdiv(T, SIZES["BLOCK_T"]),)](
        x, weight, bias, prelu, y, stats, eps, B, T, C=C, **SIZES
    )


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
    """Fills dx; partial sums of the parameters' gradients (groups, 2·C) and (programs, 1)."""
    B, C, T = x.shape
    tiles = B * triton.cdiv(T, SIZES["BLOCK_T"])
    blocks = triton.cdiv(C, SIZES["BLOCK_C"])
    steps = triton.cdiv(tiles, max(1, PROGRAMS // blocks))
    groups = triton.cdiv(tiles, steps)
    means = stats.new_empty((2, B, T))
    params = stats.new_empty((groups, 2 * C)) if needs_params else None
    slopes = stats.new_empty((groups * blocks, 1)) if needs_prelu else None
    _gradient_means_kernel[(tiles,)](dy, x, weight, prelu, stats, means, B, T, C=C, **SIZES)
    _input_gradient_kernel[(blocks, groups)](
        dy, x, weight, prelu, stats, means, dx, params, slopes, B, T, steps, C=C, **SIZES
    )
    return params, slopes
