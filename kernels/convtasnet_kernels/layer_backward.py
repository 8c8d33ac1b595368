"""Backward of the layer norm in Triton: x and dy are read once, dx is written once.

Built like ``layer.py``. A program adds its rows' share of the gradients of weight and bias up in
registers and leaves one row of partial sums.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import layer_wide
from convtasnet_kernels.layer import Tile, find_tile, launch_sizes
from convtasnet_kernels.partials import sum_rows
from convtasnet_kernels.registers import again
from convtasnet_kernels.tile_parts import both_sums


@triton.jit(do_not_specialize=["M", "steps"])
@no_type_check
def _backward_kernel(
    dy_ptr,  # (M, N) gradient of the output
    x_ptr,  # (M, N) input
    weight_ptr,  # (N,) or None
    stats_ptr,  # (3, M) float32: mean, what its rounding left, rstd
    dx_ptr,  # out: (M, N)
    partial_ptr,  # out: (programs, 2, N) float32, sums over rows of dy·xhat and dy; or None
    M,
    N,
    steps,  # tiles of ROWS rows that a program works on
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,  # BLOCK·(CHUNKS - 1) < N <= BLOCK·CHUNKS
    STAGES: tl.constexpr,
):
    column = tl.broadcast_to(tl.arange(0, BLOCK)[None, :], (ROWS, BLOCK))
    last = (CHUNKS - 1) * BLOCK + column < N
    share = 1.0 / tl.cast(N, tl.float32)
    items = tl.cast(M, tl.int64)
    ws, dws, dbs = (), (), ()
    for i in tl.static_range(CHUNKS):
        mask = last if i == CHUNKS - 1 else None
        if weight_ptr is not None:
            ws += (tl.load(weight_ptr + i * BLOCK + column, mask=mask),)
        if partial_ptr is not None:
            dws += (tl.zeros((ROWS, BLOCK), tl.float32),)
            dbs += (tl.zeros((ROWS, BLOCK), tl.float32),)
    for step in tl.range(0, steps, num_stages=STAGES):
        tile = step * tl.num_programs(0) + tl.program_id(0)
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        live = (row < M)[:, None]
        mean = tl.load(stats_ptr + row, mask=row < M, other=0.0)[:, None]
        rest = tl.load(stats_ptr + items + row, mask=row < M, other=0.0)[:, None]
        rstd = tl.load(stats_ptr + 2 * items + row, mask=row < M, other=0.0)[:, None]
        shift = -rest * rstd
        offsets = (row * N)[:, None] + column
        xs, gs = (), ()
        for i in tl.static_range(CHUNKS):
            mask = live & last if i == CHUNKS - 1 else live
            xs += (tl.load(x_ptr + offsets + i * BLOCK, mask=mask, other=0.0),)
            gs += (tl.load(dy_ptr + offsets + i * BLOCK, mask=mask, other=0.0),)
        g_sum = tl.zeros((ROWS, BLOCK), tl.float32)
        gx_sum = tl.zeros((ROWS, BLOCK), tl.float32)
        sums = ((), ())
        for i in tl.static_range(CHUNKS):
            g = gs[i].to(tl.float32)  # zero in masked lanes, and with it all that is summed
            xhat = tl.fma(xs[i].to(tl.float32) - mean, rstd, shift)
            if partial_ptr is not None:
                sums = (sums[0] + (tl.fma(g, xhat, dws[i]),), sums[1] + (dbs[i] + g,))
            if weight_ptr is not None:
                g = g * ws[i].to(tl.float32)
            g_sum += g
            gx_sum = tl.fma(g, xhat, gx_sum)
        dws, dbs = sums
        own, slope = both_sums(g_sum, gx_sum, 1)
        own = own[:, None] * share
        # dx = rstd·(g - own - slope·xhat), with xhat = (x - mean - rest)·rstd multiplied out.
        slope = -(slope[:, None] * share * rstd) * rstd
        late = -slope * rest
        for i in tl.static_range(CHUNKS):
            g = again(gs[i], own)
            if weight_ptr is not None:
                g = g * ws[i].to(tl.float32)
            dx = tl.fma(again(xs[i], own) - mean, slope, late)
            dx = tl.fma(g - own, rstd, dx)
            mask = live & last if i == CHUNKS - 1 else live
            tl.store(dx_ptr + offsets + i * BLOCK, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    if partial_ptr is not None:
        out = partial_ptr + tl.program_id(0).to(tl.int64) * 2 * N + tl.arange(0, BLOCK)
        for i in tl.static_range(CHUNKS):
            mask = i * BLOCK + tl.arange(0, BLOCK) < N
            tl.store(out + i * BLOCK, tl.sum(dws[i], axis=0), mask=mask)
            tl.store(out + N + i * BLOCK, tl.sum(dbs[i], axis=0), mask=mask)


# As in layer.py.
TILES = {
    2: (
        Tile(1024, 2, 1024, 4, 2, 4),
        Tile(5120, 1, 1024, 4, 3, 2),
        Tile(6144, 1, 2048, 8, 4, 1),
        Tile(8192, 1, 4096, 16, 4, 1),
        Tile(12288, 1, 2048, 8, 3, 1),
        Tile(16384, 1, 2048, 8, 2, 1),
    ),
    4: (
        Tile(1024, 2, 1024, 8, 2, 2),
        Tile(4096, 1, 1024, 8, 2, 1),
        Tile(8192, 1, 2048, 16, 2, 1),
    ),
}


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``layer.forward``; as ``layer_torch.backward``."""
    dy, x, stats = dy.contiguous(), x.contiguous(), stats.contiguous()
    weight = weight if weight is None else weight.contiguous()
    N = x.shape[1]
    dx = torch.empty_like(x)
    if x.numel() == 0:
        return dx, stats.new_zeros((2, N) if needs_params else (0,), dtype=dtype)
    tile = find_tile(x, TILES)
    if tile is None:
        partial = layer_wide.backward(dy, x, weight, stats, dx, needs_params)
    else:
        programs, sizes = launch_sizes(x, tile)
        partial = stats.new_empty((programs, 2 * N)) if needs_params else None
        with torch.cuda.device_of(x):
            _backward_kernel[(programs,)](dy, x, weight, stats, dx, partial, *x.shape, **sizes)
    if partial is None:
        return dx, stats.new_empty((0,), dtype=dtype)
    return dx, sum_rows(partial, dtype).view(2, N)
