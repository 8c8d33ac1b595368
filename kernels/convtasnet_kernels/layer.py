"""The layer norm in Triton: a row, or several, stays in registers from its one read to its write.

A row is cut into ``CHUNKS`` blocks of ``BLOCK`` columns, so that a length between two powers of two
leaves few lanes idle. Programs stay for several rows: scale and shift are read once, and the next
row is on its way while one is worked on. At lengths where it is faster, a program takes one row and
reads scale and shift late, at their use. ``layer_wide.py`` takes rows that registers cannot hold.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import layer_wide
from convtasnet_kernels.persistent import EACH, share
from convtasnet_kernels.tile_parts import both_sums


@triton.jit(do_not_specialize=["M", "steps"])
@no_type_check
def _forward_kernel(
    x_ptr,  # (M, N) input
    weight_ptr,  # (N,) or None
    bias_ptr,  # (N,) or None
    y_ptr,  # out: (M, N)
    stats_ptr,  # out: (3, M) float32: mean, what its rounding left, rstd
    eps,
    M,
    N,
    steps,  # tiles of ROWS rows that a program works on
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,  # BLOCK·(CHUNKS - 1) < N <= BLOCK·CHUNKS
    STAGES: tl.constexpr,
    LATE: tl.constexpr,  # scale and shift are read at their use, not kept for the next rows
):
    column = tl.broadcast_to(tl.arange(0, BLOCK)[None, :], (ROWS, BLOCK))
    last = (CHUNKS - 1) * BLOCK + column < N
    share = 1.0 / tl.cast(N, tl.float32)
    ws, bs = (), ()
    for i in tl.static_range(CHUNKS):
        mask = last if i == CHUNKS - 1 else None
        if weight_ptr is not None and not LATE:
            ws += (tl.load(weight_ptr + i * BLOCK + column, mask=mask),)
        if bias_ptr is not None and not LATE:
            bs += (tl.load(bias_ptr + i * BLOCK + column, mask=mask),)
    for step in tl.range(0, steps, num_stages=STAGES):
        tile = step * tl.num_programs(0) + tl.program_id(0)
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        live = (row < M)[:, None]
        offsets = (row * N)[:, None] + column
        xs = ()
        total = tl.zeros((ROWS, BLOCK), tl.float32)
        for i in tl.static_range(CHUNKS):
            mask = live & last if i == CHUNKS - 1 else live
            xs += (tl.load(x_ptr + offsets + i * BLOCK, mask=mask, other=0.0),)
            total += xs[i].to(tl.float32)
        mean = tl.sum(total, axis=1) * share
        # Around the mean, whose own rounding comes back as the mean of the deviations.
        first = tl.zeros((ROWS, BLOCK), tl.float32)
        second = tl.zeros((ROWS, BLOCK), tl.float32)
        for i in tl.static_range(CHUNKS):
            d = xs[i].to(tl.float32) - mean[:, None]
            if i == CHUNKS - 1:
                d = tl.where(last, d, 0.0)
            first += d
            second = tl.fma(d, d, second)
        first, second = both_sums(first, second, 1)
        rest = first * share
        var = second * share - rest * rest
        var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
        rstd = tl.rsqrt(var + eps)
        items = tl.cast(M, tl.int64)
        tl.store(stats_ptr + row, mean, mask=row < M)
        tl.store(stats_ptr + items + row, rest, mask=row < M)
        tl.store(stats_ptr + 2 * items + row, rstd, mask=row < M)
        shift = -rest * rstd
        for i in tl.static_range(CHUNKS):
            d = xs[i].to(tl.float32) - mean[:, None]
            y = tl.fma(d, rstd[:, None], shift[:, None])
            mask = last if i == CHUNKS - 1 else None
            if weight_ptr is not None:
                w = tl.load(weight_ptr + i * BLOCK + column, mask=mask) if LATE else ws[i]
                y = y * w.to(tl.float32)
            if bias_ptr is not None:
                b = tl.load(bias_ptr + i * BLOCK + column, mask=mask) if LATE else bs[i]
                y = y + b.to(tl.float32)
            mask = live & last if i == CHUNKS - 1 else live
            tl.store(y_ptr + offsets + i * BLOCK, y.to(y_ptr.dtype.element_ty), mask=mask)


class Tile(NamedTuple):
    """How a launch is cut: a line of a table that a kernel's longest rows choose."""

    columns: int  # the longest row that this line serves
    rows: int
    block: int
    warps: int
    stages: int  # rows on their way, the one worked on included
    programs: int  # on each multiprocessor
    late: bool = False  # the forward kernel's ``LATE``


# By bytes an element, shortest rows first; longer rows than the last line's are for layer_wide.
TILES = {
    2: (
        Tile(1024, 1, 1024, 1, 1, EACH),
        Tile(2048, 1, 2048, 4, 1, EACH, late=True),
        Tile(4096, 1, 1024, 4, 3, 4),
        Tile(7168, 1, 1024, 4, 3, 2),
        Tile(8192, 1, 2048, 8, 1, EACH, late=True),
        Tile(9216, 1, 1024, 8, 1, EACH, late=True),
        Tile(12288, 1, 2048, 8, 1, EACH, late=True),
        Tile(16384, 1, 2048, 8, 3, 1),
        Tile(32768, 1, 4096, 16, 2, 1),
    ),
    4: (
        Tile(1024, 2, 1024, 8, 2, 4),
        Tile(4096, 1, 1024, 8, 2, 3),
        Tile(8192, 1, 2048, 16, 2, 2),
        Tile(16384, 1, 2048, 16, 2, 1),
    ),
}


def find_tile(x: Tensor, table: dict[int, tuple[Tile, ...]]) -> Tile | None:
    """The line of a table like ``TILES`` for rows of x (M, N), None where they are too long."""
    lines = table[x.element_size()]
    return next((line for line in lines if x.shape[1] <= line.columns), None)


def launch_sizes(x: Tensor, tile: Tile) -> tuple[int, dict[str, Any]]:
    """Programs, and the arguments of a kernel over x (M, N) that a tile decides."""
    M, N = x.shape
    block = min(tile.block, triton.next_power_of_2(N))
    programs, steps = share(triton.cdiv(M, tile.rows), tile.programs, x)
    return programs, {
        "steps": steps,
        "ROWS": tile.rows,
        "BLOCK": block,
        "CHUNKS": triton.cdiv(N, block),
        "STAGES": tile.stages,
        "num_warps": tile.warps,
        "enable_fp_fusion": False,
    }


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``layer_torch.forward``."""
    x = x.contiguous()
    weight, bias = (p if p is None else p.contiguous() for p in (weight, bias))
    y = torch.empty_like(x)
    stats = x.new_empty((3, x.shape[0]), dtype=torch.float32)
    if x.numel() == 0:
        return y, stats
    tile = find_tile(x, TILES)
    with torch.cuda.device_of(x):
        if tile is None:
            layer_wide.forward(x, weight, bias, y, stats, eps)
        else:
            programs, sizes = launch_sizes(x, tile)
            _forward_kernel[(programs,)](
                x, weight, bias, y, stats, eps, *x.shape, LATE=tile.late, **sizes
            )
    return y, stats
