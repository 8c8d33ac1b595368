"""The channelwise norm in Triton: a program holds all channels of a few frames in registers.

x is read once and y written once. ``channelwise_wide.py`` takes more channels than registers hold.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import channelwise_wide
from convtasnet_kernels.channelwise_tile import _tile
from convtasnet_kernels.persistent import EACH, share
from convtasnet_kernels.tile_parts import activate, both_sums


@triton.jit(do_not_specialize=["B", "steps"])
@no_type_check
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
    ws, bs = (), ()
    for i in tl.static_range(CHUNKS):
        row = last if i * BLOCK_C + BLOCK_C > C else None
        if weight_ptr is not None:
            ws += (tl.load(weight_ptr + i * BLOCK_C + channel, mask=row),)
        if bias_ptr is not None:
            bs += (tl.load(bias_ptr + i * BLOCK_C + channel, mask=row),)
    for step in tl.range(0, steps, num_stages=STAGES):
        tile = step * tl.num_programs(0) + tl.program_id(0)
        item, t, offsets = _tile(tile, T, BLOCK_C, BLOCK_T)
        base = item * C * T
        within = (t < T) & (item < B)
        live = within[None, :]
        xs = ()
        total = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
        for i in tl.static_range(CHUNKS):
            mask = live & last[:, None] if i * BLOCK_C + BLOCK_C > C else live
            xs += (tl.load(x_ptr + base + i * stride + offsets, mask=mask, other=0.0),)
            total += activate(xs[i], prelu_ptr)  # masked lanes hold zero
        mean = tl.sum(total, axis=0) * (1.0 / C)
        # Around the mean, whose own rounding comes back as the mean of the deviations.
        first = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
        second = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
        for i in tl.static_range(CHUNKS):
            d = activate(xs[i], prelu_ptr) - mean[None, :]
            if i * BLOCK_C + BLOCK_C > C:
                d = tl.where(last[:, None], d, 0.0)
            first += d
            second = tl.fma(d, d, second)
        first, second = both_sums(first, second)
        rest = first * (1.0 / C)
        var = second * (1.0 / C) - rest * rest
        var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
        rstd = tl.rsqrt(var + eps)
        frame = stats_ptr + item * T + t
        tl.store(frame, mean, mask=within)
        tl.store(frame + items, rest, mask=within)
        tl.store(frame + 2 * items, rstd, mask=within)
        shift = -rest * rstd
        for i in tl.static_range(CHUNKS):
            d = activate(xs[i], prelu_ptr) - mean[None, :]
            y = tl.fma(d, rstd[None, :], shift[None, :])
            if weight_ptr is not None:
                y = y * ws[i].to(tl.float32)[:, None]
            if bias_ptr is not None:
                y = y + bs[i].to(tl.float32)[:, None]
            mask = live & last[:, None] if i * BLOCK_C + BLOCK_C > C else live
            out = y_ptr + base + i * stride + offsets
            tl.store(out, y.to(y_ptr.dtype.element_ty), mask=mask)


class Tile(NamedTuple):
    """How a launch is cut, by the bytes of an element."""

    channels: int  # of a block; a tile holds as many blocks as all channels need
    frames: int
    warps: int
    stages: int  # tiles on their way, the one worked on included
    programs: int  # on each multiprocessor


TILES = {2: Tile(64, 16, 4, 1, EACH), 4: Tile(32, 16, 4, 1, EACH)}
CHANNELS = 4096  # more are for channelwise_wide


def launch_sizes(x: Tensor, tile: Tile) -> tuple[int, dict[str, Any]]:
    """Programs, and the arguments of a kernel over x (B, C, T) that a tile decides."""
    B, C, T = x.shape
    tiles = B * triton.cdiv(T, tile.frames)
    programs, steps = share(tiles, tile.programs, x)
    return programs, {
        "steps": steps,
        "C": C,
        "BLOCK_C": min(tile.channels, triton.next_power_of_2(C)),
        "BLOCK_T": tile.frames,
        "STAGES": tile.stages,
        "num_warps": tile.warps,
        "enable_fp_fusion": False,
    }


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``channelwise_torch.forward``."""
    x = x.contiguous()
    B, C, T = x.shape
    weight, bias, prelu = (p if p is None else p.contiguous() for p in (weight, bias, prelu))
    y = torch.empty_like(x, dtype=out_dtype)
    stats = x.new_empty((3, B, T), dtype=torch.float32)
    if x.numel() == 0:
        return y, stats
    with torch.cuda.device_of(x):
        if C > CHANNELS:
            channelwise_wide.forward(x, weight, bias, prelu, y, stats, eps)
        else:
            programs, sizes = launch_sizes(x, TILES[x.element_size()])
            _forward_kernel[(programs,)](x, weight, bias, prelu, y, stats, eps, B, T, **sizes)
    return y, stats
