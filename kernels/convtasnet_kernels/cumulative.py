"""The cumulative norm in Triton: one launch, one read of x from device memory, one write of y.

A program takes one tile: all channels of ``BLOCK_T`` frames of one item. It sums over the channels,
publishes the tile's sums and waits for those of the tiles before it (``lookback.py``), finds the
statistics of its frames and writes them and y. A float32 tile stays in registers meanwhile. A tile
of 16 bits, which would cost as many registers and twice the programs, or of very many channels, is
read in chunks through shared memory and once more afterwards, from the L2.

That asks for rows that vectors of 16 bytes divide. Small items have a program each
(``cumulative_item.py``), other rows go through ``cumulative_rows.py``.

``kernels/README.md`` derives the formulas. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels import cumulative_item, cumulative_rows
from convtasnet_kernels.cumulative_scan import running_statistics, tile_sums
from convtasnet_kernels.lookback import GROUP, pair_words, sums_before, take_ticket, workspace
from convtasnet_kernels.tile_parts import activate


@triton.jit
def tile_offsets(T, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr, WIDE: tl.constexpr):
    """Offsets (BLOCK_C, BLOCK_T) of a chunk's elements from its first; 64 bits if WIDE."""
    c = tl.arange(0, BLOCK_C)[:, None]
    if WIDE:
        c = c.to(tl.int64)
    return c * T + tl.arange(0, BLOCK_T)[None, :]


@triton.jit
def chunk_mask(valid, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Which elements of the chunk from channel c exist: valid (BLOCK_T,) frames of C channels."""
    lane = tl.arange(0, BLOCK_C)[:, None]
    if C % BLOCK_C == 0:
        return valid[None, :] & (lane >= 0)
    else:
        return valid[None, :] & (c + lane < C)


@triton.jit
def load_channels(ptr, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """float32 (BLOCK_C, 1) of a parameter (C,) from channel c."""
    lane = c + tl.arange(0, BLOCK_C)
    return tl.load(ptr + lane, mask=lane < C, other=0.0).to(tl.float32)[:, None]


@triton.jit
def _held_statistics(u, pivot, prelu_ptr, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Gives x - K of a tile in registers, and mean - K and variance of each frame by itself."""
    exists = (tl.arange(0, BLOCK_C) < C)[:, None]
    d = activate(u, prelu_ptr) - pivot
    if C < BLOCK_C:
        d = tl.where(exists, d, 0.0)
    mean = tl.sum(d, axis=0) * (1.0 / C)
    rest = d - mean[None, :]
    if C < BLOCK_C:
        rest = tl.where(exists, rest, 0.0)
    return d, mean, tl.sum(rest * rest, axis=0) * (1.0 / C)


@triton.jit
def _streamed_statistics(
    x_ptr,
    pivot,
    prelu_ptr,
    valid,
    T,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
    STAGES: tl.constexpr,
    WIDE: tl.constexpr,
):
    """The same from memory, by sums around each frame's first channel.

    That channel is one of the C samples, so the squares exceed C·(C + 1) variances never: what
    cancels is at most C float32 roundings, and of the order of one unless it is an outlier.
    """
    offsets = tile_offsets(T, BLOCK_C, BLOCK_T, WIDE)
    first = tl.load(x_ptr + tl.arange(0, BLOCK_T), mask=valid, other=0.0)
    first = activate(first, prelu_ptr)
    total = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    square = tl.zeros((BLOCK_C, BLOCK_T), tl.float32)
    for c in tl.range(0, C, BLOCK_C, num_stages=STAGES):
        mask = chunk_mask(valid, c, C, BLOCK_C)
        d = activate(tl.load(x_ptr + offsets, mask=mask, other=0.0), prelu_ptr) - first[None, :]
        if C % BLOCK_C != 0:
            d = tl.where(c + tl.arange(0, BLOCK_C)[:, None] < C, d, 0.0)
        total += d
        square += d * d
        x_ptr += tl.cast(T, tl.int64) * BLOCK_C
    rest = tl.sum(total, axis=0) * (1.0 / C)
    var = tl.sum(square, axis=0) * (1.0 / C) - rest * rest
    return (first - pivot) + rest, tl.where(var < 0, 0.0, var)


@triton.jit
def _normalize(u, pivot, prelu_ptr, mean, rstd):
    """(x - mean)·rstd of a chunk; what 16 bits hold may take one multiply and add around zero."""
    x = activate(u, prelu_ptr)
    if u.dtype.primitive_bitwidth == 16:
        return x * rstd[None, :] - ((pivot + mean) * rstd)[None, :]
    else:
        return (x - pivot - mean[None, :]) * rstd[None, :]


@triton.jit(do_not_specialize=["B", "vectors"])
def _forward_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    y_ptr,  # out: (B, C, T), of a dtype of its own
    stats_ptr,  # out: (2, B, T) float32, mean - K and rstd
    workspace_ptr,  # pair_words(B, tiles) words
    eps,
    B,
    vectors,  # T / VECTOR
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels read at a time
    BLOCK_T: tl.constexpr,  # frames of a tile
    VECTOR: tl.constexpr,  # elements of x in 16 bytes
    HOLD: tl.constexpr,  # the tile stays in registers; BLOCK_C covers C
    STAGES: tl.constexpr,  # chunks on their way, if not HOLD
    WIDE: tl.constexpr,  # 64-bit offsets inside a chunk
    GROUP: tl.constexpr,
):
    T = vectors * VECTOR
    tiles = tl.cdiv(T, BLOCK_T)
    ticket = take_ticket(workspace_ptr)
    item = (ticket // tiles).to(tl.int64)
    tile = ticket % tiles
    start = tile * BLOCK_T
    j = tl.arange(0, BLOCK_T)
    valid = start + j < T
    base = item * C * T
    pivot = activate(tl.load(x_ptr + base), prelu_ptr)
    x_ptr += base + start
    y_ptr += base + start
    offsets = tile_offsets(T, BLOCK_C, BLOCK_T, WIDE)
    if HOLD:
        u = tl.load(x_ptr + offsets, mask=chunk_mask(valid, 0, C, BLOCK_C), other=0.0)
        d, mean, var = _held_statistics(u, pivot, prelu_ptr, C, BLOCK_C)
    else:
        mean, var = _streamed_statistics(
            x_ptr, pivot, prelu_ptr, valid, T, C, BLOCK_C, BLOCK_T, STAGES, WIDE
        )
    first, second = tile_sums(mean, var, valid, tl.minimum(T - start, BLOCK_T))
    first, second = sums_before(workspace_ptr, item, B, tiles, tile, first, second, GROUP)
    mean, rstd = running_statistics(mean, var, first, second, start, eps, C)
    stats_ptr += item * T + start
    tl.store(stats_ptr + j, mean, mask=valid)
    tl.store(stats_ptr + tl.cast(B, tl.int64) * T + j, rstd, mask=valid)
    for c in tl.range(0, C, BLOCK_C, num_stages=STAGES):
        mask = chunk_mask(valid, c, C, BLOCK_C)
        if HOLD:
            y = (d - mean[None, :]) * rstd[None, :]
        else:
            u = tl.load(x_ptr + offsets, mask=mask, other=0.0)
            y = _normalize(u, pivot, prelu_ptr, mean, rstd)
        if weight_ptr is not None:
            y *= load_channels(weight_ptr, c, C, BLOCK_C)
        if bias_ptr is not None:
            y += load_channels(bias_ptr, c, C, BLOCK_C)
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)
        x_ptr += tl.cast(T, tl.int64) * BLOCK_C
        y_ptr += tl.cast(T, tl.int64) * BLOCK_C


class Tile(NamedTuple):
    """How a program is laid out.

    Args:
        channels: read at a time, at most.
        frames: of a tile.
        warps: of a program.
        registers: a thread may use, at most; None for the compiler's choice.
        stages: chunks on their way.
    """

    channels: int
    frames: int
    warps: int
    registers: int | None
    stages: int


# A float32 tile that registers hold, and tiles that are streamed, by bytes an element.
HELD = Tile(512, 32, 8, 128, 1)
STREAMED = {2: Tile(64, 64, 4, 128, 3), 4: Tile(32, 32, 4, None, 3)}
HELD_CHANNELS = 4096
THREAD_ELEMENTS = 512  # a warp's at least, where a tile of few channels takes fewer warps


def forward_tile(x: Tensor) -> dict[str, Any]:
    """The constants of the forward kernel over x (B, C, T)."""
    C, size = x.shape[1], x.element_size()
    if size != 4 or C > HELD_CHANNELS:
        return {**tile_constants(x, STREAMED[size]), "HOLD": False}
    block_c = triton.next_power_of_2(C)
    frames = min(HELD.frames, HELD.channels * HELD.frames // block_c)
    warps = max(min(HELD.warps, block_c * frames // THREAD_ELEMENTS), 1)
    tile = HELD._replace(channels=block_c, frames=frames, warps=warps)
    return {**tile_constants(x, tile), "HOLD": True}


def is_aligned(x: Tensor) -> bool:
    """Whether vectors of 16 bytes divide the rows of x (B, C, T)."""
    return x.shape[2] * x.element_size() % 16 == 0


def tile_constants(x: Tensor, tile: Tile) -> dict[str, Any]:
    """The constants that both directions take from a tile, for x (B, C, T)."""
    _, C, T = x.shape
    block_c = min(tile.channels, triton.next_power_of_2(C))
    constants = {
        "C": C,
        "BLOCK_C": block_c,
        "BLOCK_T": tile.frames,
        "VECTOR": 16 // x.element_size(),
        "STAGES": tile.stages,
        "WIDE": block_c * T >= 2**31,
        "GROUP": GROUP,
        "num_warps": tile.warps,
    }
    return constants if tile.registers is None else {**constants, "maxnreg": tile.registers}


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``cumulative_torch.forward``."""
    x = x.contiguous()
    weight, bias, prelu = (p if p is None else p.contiguous() for p in (weight, bias, prelu))
    y = torch.empty_like(x, dtype=out_dtype)
    stats = x.new_empty((2, x.shape[0], x.shape[2]), dtype=torch.float32)
    if x.numel() == 0:
        return y, stats
    with torch.cuda.device_of(x):
        if cumulative_item.is_small(x):
            launch = cumulative_item.forward
        else:
            launch = _launch if is_aligned(x) else cumulative_rows.forward
        launch(x, weight, bias, prelu, y, stats, eps)
    return y, stats


def _launch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    y: Tensor,
    stats: Tensor,
    eps: float,
) -> None:
    """Fills y (B, C, T) and stats (2, B, T) for contiguous x (B, C, T) on the current device."""
    B, _, T = x.shape
    constants = forward_tile(x)
    tiles = triton.cdiv(T, constants["BLOCK_T"])
    words = workspace(x, pair_words(B, tiles, constants["GROUP"]))
    _forward_kernel[(B * tiles,)](
        x, weight, bias, prelu, y, stats, words, eps, B, T // constants["VECTOR"], **constants
    )
