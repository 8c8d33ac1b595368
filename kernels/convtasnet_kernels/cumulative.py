"""The cumulative norm in Triton: frame sums, a scan over time, and the maps that apply it.

A program of the first and third kernels takes one tile (all channels of ``BLOCK_T`` frames of one
item) and walks over the channels. Between them one program an item scans the (B, T) sums in
float64. Nothing waits for another program, every sum has one order, every offset is 64 bits wide.
``kernels/README.md`` derives the formulas. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _tile(pid, T, C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr):
    """Item, its first element, the tile's frames (BLOCK_T,) and offsets (BLOCK_C, BLOCK_T)."""
    tiles = tl.cdiv(T, BLOCK_T)
    item = (pid // tiles).to(tl.int64)
    t = (pid % tiles) * BLOCK_T + tl.arange(0, BLOCK_T)
    offsets = tl.arange(0, BLOCK_C).to(tl.int64)[:, None] * T + t[None, :]
    return item, item * C * T, t, offsets


@triton.jit
def _activate(u, prelu_ptr):
    if prelu_ptr is not None:
        u = tl.where(u > 0, u, u * tl.load(prelu_ptr).to(tl.float32))
    return u


@triton.jit(do_not_specialize=["B"])
def _frame_stats_kernel(
    x_ptr,  # (B, C, T) input
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # out: (2, B, T) float32, mean - K and variance of each frame by itself
    B,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    item, base, t, offsets = _tile(tl.program_id(0), T, C, BLOCK_C, BLOCK_T)
    pivot = _activate(tl.load(x_ptr + base).to(tl.float32), prelu_ptr)
    lane = tl.arange(0, BLOCK_C)[:, None]
    mean = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    m2 = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    # Welford's update, each lane over its own channels: no cancellation, whatever K is.
    for c in range(0, C, BLOCK_C):
        mask = (t < T)[None, :] & (c + lane < C)
        start = x_ptr + (base + tl.cast(c, tl.int64) * T)
        u = tl.load(start + offsets, mask=mask, other=0.0, eviction_policy="evict_last")
        d = _activate(u.to(tl.float32), prelu_ptr) - pivot - mean
        if C % BLOCK_C != 0:
            d = tl.where(c + lane < C, d, 0.0)
        step = d * (1.0 / (c // BLOCK_C + 1))
        m2 += d * (d - step)
        mean += step
    count = ((C - lane + BLOCK_C - 1) // BLOCK_C).to(tl.float32)  # channels that a lane has seen
    frame_mean = tl.sum(mean * count, axis=0) / C
    between = mean - frame_mean[None, :]
    frame_var = tl.sum(m2 + between * between * count, axis=0) / C
    out = stats_ptr + item * T + t
    tl.store(out, frame_mean, mask=t < T)
    tl.store(out + tl.cast(B, tl.int64) * T, frame_var, mask=t < T)


@triton.jit(do_not_specialize=["B"])
def _scan_kernel(
    stats_ptr,  # (2, B, T) in: of each frame by itself; out: mean - K and rstd of frames 0..t
    eps,
    B,
    T,
    BLOCK: tl.constexpr,
):
    mean_ptr = stats_ptr + tl.program_id(0).to(tl.int64) * T
    rstd_ptr = mean_ptr + tl.cast(B, tl.int64) * T
    first = tl.zeros((1,), tl.float64)
    second = tl.zeros((1,), tl.float64)
    start = tl.zeros((), tl.int32)
    while start < T:  # not range(): the interpreter of triton 3.6 cannot read T under numpy 2.4
        t = start + tl.arange(0, BLOCK)
        mask = t < T
        m = tl.load(mean_ptr + t, mask=mask, other=0.0).to(tl.float64)
        s = tl.load(rstd_ptr + t, mask=mask, other=0.0).to(tl.float64) + m * m
        n = (t + 1).to(tl.float64)
        mean = (first + tl.cumsum(m, axis=0)) / n
        var = (second + tl.cumsum(s, axis=0)) / n - mean * mean
        var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
        tl.store(mean_ptr + t, mean.to(tl.float32), mask=mask)
        tl.store(rstd_ptr + t, (1.0 / tl.sqrt(var + eps)).to(tl.float32), mask=mask)
        first += tl.sum(m, axis=0)
        second += tl.sum(s, axis=0)
        start += BLOCK


@triton.jit(do_not_specialize=["B"])
def _apply_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    y_ptr,  # out: (B, C, T)
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
    frame = stats_ptr + item * T + t
    mean = tl.load(frame, mask=t < T, other=0.0)[None, :]
    rstd = tl.load(frame + tl.cast(B, tl.int64) * T, mask=t < T, other=0.0)[None, :]
    lane = tl.arange(0, BLOCK_C)[:, None]
    for c in range(0, C, BLOCK_C):
        row = c + lane < C
        mask = (t < T)[None, :] & row
        start = base + tl.cast(c, tl.int64) * T
        u = tl.load(x_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        y = (_activate(u.to(tl.float32), prelu_ptr) - pivot - mean) * rstd
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y += tl.load(bias_ptr + c + lane, mask=row, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


# (BLOCK_C, BLOCK_T, warps) by bytes an element. Rows of 128 bytes; about four programs a
# multiprocessor at the paper's sizes. T has no say: any length runs the same few binaries.
TILES = {2: (64, 64, 8), 4: (64, 32, 8)}
SCAN_BLOCK, SCAN_WARPS = 4096, 16

INTERPRETED = not isinstance(_apply_kernel, triton.runtime.jit.JITFunction)


def tile_sizes(x: Tensor, table: dict[int, tuple[int, int, int]]) -> dict[str, int]:
    """The tile arguments of a kernel over x (B, C, T), by a table like ``TILES``."""
    block_c, block_t, warps = table[x.element_size()]
    C = x.shape[1]
    block_c = min(block_c, triton.next_power_of_2(C))
    return {"C": C, "BLOCK_C": block_c, "BLOCK_T": block_t, "num_warps": warps}


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, prelu: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``cumulative_torch.forward``."""
    x = x.contiguous()
    B, _, T = x.shape
    weight, bias, prelu = (p if p is None else p.contiguous() for p in (weight, bias, prelu))
    y = torch.empty_like(x)
    stats = x.new_empty((2, B, T), dtype=torch.float32)
    if x.numel() == 0:
        return y, stats
    tile = tile_sizes(x, TILES)
    grid = (B * triton.cdiv(T, tile["BLOCK_T"]),)
    with torch.cuda.device_of(x):
        _frame_stats_kernel[grid](x, prelu, stats, B, T, **tile)
        _scan_kernel[(B,)](stats, eps, B, T, BLOCK=SCAN_BLOCK, num_warps=SCAN_WARPS)
        _apply_kernel[grid](x, weight, bias, prelu, stats, y, B, T, **tile)
    return y, stats
