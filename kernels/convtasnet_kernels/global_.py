"""The global norm in Triton: one launch that adds up each item and normalizes it from the L2.

``global_tile.py`` tells how programs share the work. Sums are float32 inside rows of 16 bytes,
around the item's first sample, and float64 beyond; each has one order, every offset is 64 bits
wide. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.global_tile import (
    activate,
    alignment,
    apply_index,
    by_channel,
    item_length,
    item_pivot,
    item_result,
    item_sums,
    packed,
    publish_result,
    schedule,
    share,
    split_center,
    step_offsets,
    step_rows,
    tile_start,
    touched,
    valid_elements,
)
from convtasnet_kernels.lookback import take_ticket


@triton.jit
def _sum_tile(
    x_ptr,
    prelu_ptr,
    lengths_ptr,
    words_ptr,
    stats_ptr,
    eps,
    ticket,
    tiles,
    group,
    B,
    C,
    T,
    N,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    ITEMS: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Publishes a tile's sums of (v - pivot) and of its square."""
    item = ticket // tiles
    tile = ticket - item * tiles
    item = item.to(tl.int64)
    x_ptr += item * N
    length = item_length(lengths_ptr, item, T)
    pivot = item_pivot(x_ptr, prelu_ptr, length)
    start, channel, frame = tile_start(tile, T, TILE)
    x_ptr += start
    first = tl.zeros((STEP // V,), tl.float64)
    second = tl.zeros((STEP // V,), tl.float64)
    for k in range(0, TILE, STEP):
        c, t = step_rows(k, channel, frame, T, V, STEP)
        mask = touched(c, t, length, C, T, V, ITEMS)
        u = tl.load(
            x_ptr + step_offsets(k, V, STEP), mask=mask, other=0.0, eviction_policy="evict_last"
        )
        d = activate(u.to(tl.float32), prelu_ptr) - pivot
        # Each row by its own mean: what is left to float32 cannot cancel.
        if ITEMS and lengths_ptr is None:
            mean = tl.sum(d, axis=1) * (1.0 / V)
            d -= mean[:, None]
            count = tl.where(c < C, V, 0)
        else:
            valid = valid_elements(c, t, length, C, T, V)
            d = tl.where(valid, d, 0.0)
            count = tl.sum(valid.to(tl.int32), axis=1)
            mean = tl.sum(d, axis=1) / tl.maximum(count, 1).to(tl.float32)
            d = tl.where(valid, d - mean[:, None], 0.0)
        square = tl.where(count > 0, tl.sum(d * d, axis=1), 0.0)
        mean = tl.where(count > 0, mean, 0.0).to(tl.float64)
        total = mean * count.to(tl.float64)
        first += total
        second += square.to(tl.float64) + mean * total
    share(words_ptr, ticket, tl.sum(first, axis=0), tl.sum(second, axis=0), tile, tiles, group, B)
    if tile == tiles - 1:
        mean, square = item_sums(words_ptr, item, tiles, group, B)
        n = tl.maximum(length.to(tl.float64) * C, 1.0)
        mean /= n
        var = square / n - mean * mean
        var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
        rstd = 1.0 / tl.sqrt(var + eps)
        mean = mean.to(tl.float32)
        tl.store(stats_ptr + item, mean)
        tl.store(stats_ptr + B + item, rstd.to(tl.float32))
        publish_result(words_ptr, item, pivot.to(tl.float64) + mean.to(tl.float64), rstd, B)


@triton.jit
def _apply_tile(
    x_ptr,
    weight_ptr,
    bias_ptr,
    prelu_ptr,
    lengths_ptr,
    words_ptr,
    y_ptr,
    index,
    tiles,
    B,
    C,
    T,
    N,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    ITEMS: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
    """Normalizes a tile once the sums of its item are there."""
    item, tile = apply_index(index, tiles)
    x_ptr += item * N
    length = item_length(lengths_ptr, item, T)
    start, channel, frame = tile_start(tile, T, TILE)
    x_ptr += start
    y_ptr += item * N + start
    center, rstd = item_result(words_ptr, item, B)
    high, low = split_center(center)
    rstd = rstd.to(tl.float32)
    for k in range(0, TILE, STEP):
        c, t = step_rows(k, channel, frame, T, V, STEP)
        mask = touched(c, t, length, C, T, V, ITEMS)
        offsets = step_offsets(k, V, STEP)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        scale = rstd
        if weight_ptr is not None:
            scale = rstd * by_channel(weight_ptr, c, t, C, T, V, ROWS)
        shift = -low * scale
        if bias_ptr is not None:
            shift += by_channel(bias_ptr, c, t, C, T, V, ROWS)
        y = (activate(u.to(tl.float32), prelu_ptr) - high) * scale + shift
        if lengths_ptr is not None:
            y = tl.where(valid_elements(c, t, length, C, T, V), y, 0.0)
        mask = touched(c, t, T, C, T, V, ITEMS)
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["B", "C", "T", "lag", "group"])
def _forward_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    workspace_ptr,  # of lookback.py, zeroed
    y_ptr,  # out: (B, C, T)
    stats_ptr,  # out: (2, B) float32, mean - pivot and rstd
    eps,
    B,
    C,
    T,
    lag,  # tile u is applied after sum unit u + lag
    group,  # sum units a group
    V: tl.constexpr,  # elements of a row of a tile, 16 bytes
    ROWS: tl.constexpr,  # whether T is a multiple of V
    ITEMS: tl.constexpr,  # whether C·T is
    STEP: tl.constexpr,
    TILE: tl.constexpr,
):
    ticket = take_ticket(workspace_ptr).to(tl.int32)
    words_ptr = workspace_ptr + 1
    N = tl.cast(C, tl.int64) * T
    tiles = tl.cdiv(N, TILE).to(tl.int32)
    if ITEMS:
        N = N // V * V  # tells the compiler
    if ticket < B * tiles:
        _sum_tile(
            x_ptr, prelu_ptr, lengths_ptr, words_ptr, stats_ptr, eps, ticket, tiles, group, B, C,
            T, N, V, ROWS, ITEMS, STEP, TILE,
        )  # fmt: skip
    if ticket >= lag:
        _apply_tile(
            x_ptr, weight_ptr, bias_ptr, prelu_ptr, lengths_ptr, words_ptr, y_ptr, ticket - lag,
            tiles, B, C, T, N, V, ROWS, ITEMS, STEP, TILE,
        )  # fmt: skip


# (STEP, TILE, warps) by bytes an element.
TILES = {2: (4096, 16384, 8), 4: (4096, 16384, 8)}


def tile_sizes(x: Tensor) -> dict[str, int | bool]:
    """The constants of the kernel for x (B, C, T), and its warps."""
    step, size, warps = TILES[x.element_size()]
    return {**alignment(x), "STEP": step, "TILE": size, "num_warps": warps}


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    lengths: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``global_torch.forward``."""
    x = x.contiguous()
    weight, bias, prelu, lengths = packed(weight, bias, prelu, lengths)
    B, C, T = x.shape
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y, x.new_zeros((2, B), dtype=torch.float32)
    stats = x.new_empty((2, B), dtype=torch.float32)
    constants = tile_sizes(x)
    tiles = triton.cdiv(C * T, constants["TILE"])
    lag, group, workspace = schedule(x, tiles, tiles)
    with torch.cuda.device_of(x):
        _forward_kernel[(B * tiles + lag,)](
            x, weight, bias, prelu, lengths, workspace, y, stats, eps, B, C, T, lag, group,
            **constants,
        )  # fmt: skip
    return y, stats
