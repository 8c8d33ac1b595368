"""Backward of the channelwise norm in Triton: x and dy are read once, dx is written once.

Built like ``channelwise.py``. A program adds its tiles' share of the parameters' gradients up in
registers and leaves one row of partial sums.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import channelwise_wide
from convtasnet_kernels.channelwise import CHANNELS, Tile, launch_sizes
from convtasnet_kernels.channelwise_tile import _tile
from convtasnet_kernels.partials import sum_partials
from convtasnet_kernels.registers import again
from convtasnet_kernels.tile_parts import activate, both_sums


@triton.jit(do_not_specialize=["B", "steps"])
@no_type_check
def _backward_kernel(
    dy_ptr,  # (B, C, T) gradient of the output, of its dtype
    x_ptr,  # (B, C, T) input, before the PReLU
    weight_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (3, B, T) float32: mean, what its rounding left, rstd
    dx_ptr,  # out: (B, C, T)
    params_ptr,  # out: (programs, 2, C) float32, sums over frames of dy·xhat and dy; or None
    slopes_ptr,  # out: (programs,) float32, the slope's gradient; or None
    B,
    T,
    steps,  # tiles that a program works on
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STAGES: tl.constexpr,
):
    CHUNKS: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    channel = tl.arange(0, BLOCK_C)
    last = (CHUNKS - 1) * BLOCK_C + channel < C
    stride = tl.cast(T, tl.int64) * BLOCK_C
    items = tl.cast(B, tl.int64) * T
    ws, dws, dbs = (), (), ()
    for i in tl.static_range(CHUNKS):
        row = last if i * BLOCK_C + BLOCK_C > C else None
        if weight_ptr is not None:
            ws += (tl.load(weight_ptr + i * BLOCK_C + channel, mask=row),)
        if params_ptr is not None:
            dws += (tl.zeros((BLOCK_C,), tl.float32),)
            dbs += (tl.zeros((BLOCK_C,), tl.float32),)
    da = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        tile = step * tl.num_programs(0) + tl.program_id(0)
        item, t, offsets = _tile(tile, T, BLOCK_C, BLOCK_T)
        base = item * C * T
        within = (t < T) & (item < B)
        live = within[None, :]
        frame = stats_ptr + item * T + t
        mean = tl.load(frame, mask=within, other=0.0)[None, :]
        rest = tl.load(frame + items, mask=within, other=0.0)[None, :]
        rstd = tl.load(frame + 2 * items, mask=within, other=0.0)[None, :]
        shift = -rest * rstd
        xs, gs = (), ()
        for i in tl.static_range(CHUNKS):
            mask = live & last[:, None] if i * BLOCK_C + BLOCK_C > C else live
            place = base + i * stride + offsets
            xs += (tl.load(x_ptr + place, mask=mask, other=0.0),)
            gs += (tl.load(dy_ptr + place, mask=mask, other=0.0),)
        g_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
        gx_sum = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
        sums = ((), ())
        for i in tl.static_range(CHUNKS):
            g = gs[i].to(tl.float32)  # zero in masked lanes, and with it all that is summed
            xhat = tl.fma(activate(xs[i], prelu_ptr) - mean, rstd, shift)
            if params_ptr is not None:
                dw, db = both_sums(g * xhat, g, 1)
                sums = (sums[0] + (dws[i] + dw,), sums[1] + (dbs[i] + db,))
            if weight_ptr is not None:
                g = g * ws[i].to(tl.float32)[:, None]
            g_sum += g
            gx_sum = tl.fma(g, xhat, gx_sum)
        dws, dbs = sums
        own, slope = both_sums(g_sum, gx_sum)
        own = own[None, :] * (1.0 / C)
        # dx = rstd·(g - own - slope·xhat), with xhat = (x - mean - rest)·rstd multiplied out.
        slope = -(slope[None, :] * (1.0 / C) * rstd) * rstd
        late = -slope * rest
        for i in tl.static_range(CHUNKS):
            u = again(xs[i], own)
            g = again(gs[i], own)
            if weight_ptr is not None:
                g = g * ws[i].to(tl.float32)[:, None]
            dx = tl.fma(activate(u, prelu_ptr) - mean, slope, late)
            dx = tl.fma(g - own, rstd, dx)
            if slopes_ptr is not None:
                da += tl.where(u > 0, 0.0, dx * u)  # masked lanes hold u = 0
            if prelu_ptr is not None:
                dx = tl.where(u > 0, dx, dx * tl.load(prelu_ptr).to(tl.float32))
            mask = live & last[:, None] if i * BLOCK_C + BLOCK_C > C else live
            out = dx_ptr + base + i * stride + offsets
            tl.store(out, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    out = tl.program_id(0).to(tl.int64) * 2 * C + channel
    if params_ptr is not None:
        for i in tl.static_range(CHUNKS):
            mask = channel < C - i * BLOCK_C
            tl.store(params_ptr + out + i * BLOCK_C, dws[i], mask=mask)
            tl.store(params_ptr + out + C + i * BLOCK_C, dbs[i], mask=mask)
    if slopes_ptr is not None:
        slope = tl.sum(tl.sum(da, axis=0), axis=0)
        tl.store(slopes_ptr + tl.program_id(0), slope)


# As in channelwise.py; and for few channels, of which a multiprocessor holds more programs.
TILES = {2: Tile(64, 32, 8, 2, 1), 4: Tile(64, 16, 8, 3, 1)}
NARROW_TILES = {2: Tile(64, 16, 4, 1, 4), 4: Tile(64, 16, 4, 1, 4)}
NARROW = 128  # channels, at most


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``channelwise.forward``; as ``channelwise_torch.backward``."""
    dy, x, stats = dy.contiguous(), x.contiguous(), stats.contiguous()
    weight, prelu = (p if p is None else p.contiguous() for p in (weight, prelu))
    C = x.shape[1]
    dx = torch.empty_like(x)
    if x.numel() == 0:
        return (
            dx,
            stats.new_zeros((2, C) if needs_params else (0,)),
            stats.new_zeros(1 if needs_prelu else 0),
        )
    with torch.cuda.device_of(x):
        launch = channelwise_wide.backward if C > CHANNELS else _launch
        params, slopes = launch(dy, x, weight, prelu, stats, dx, needs_params, needs_prelu)
    dparams, dprelu = sum_partials(params, slopes, stats)
    return dx, dparams, dprelu


def _launch(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    dx: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Fills dx; partial sums of the parameters' gradients (programs, 2·C) and (programs, 1)."""
    B, C, T = x.shape
    tiles = NARROW_TILES if C <= NARROW else TILES
    programs, sizes = launch_sizes(x, tiles[x.element_size()])
    params = stats.new_empty((programs, 2 * C)) if needs_params else None
    slopes = stats.new_empty((programs, 1)) if needs_prelu else None
    _backward_kernel[(programs,)](dy, x, weight, prelu, stats, dx, params, slopes, B, T, **sizes)
    return params, slopes
