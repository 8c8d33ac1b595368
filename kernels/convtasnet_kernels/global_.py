"""The global norm in Triton: one launch adds up the items, a second normalizes them.

The second goes backwards, so that it finds in the L2 what the first read last. Sums are float32
around the first sample of each span, then float64; each has one order, every offset is 64 bits
wide. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.global_tile import (
    activate,
    combined,
    constants,
    empty_sums,
    item_length,
    item_pivot,
    item_sums,
    load_channels,
    load_mask,
    load_slope,
    packed,
    place,
    row_begin,
    row_vectors,
    spans,
    split_center,
    store_tile,
    valid_elements,
)
from convtasnet_kernels.tile_parts import both_sums


@triton.jit(do_not_specialize=["C", "T", "chunks", "steps"])
def _sums_kernel(
    x_ptr,  # (B, C, T) input
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    sums_ptr,  # out: (2, B, programs an item) float64, (v - pivot) and its square, over n
    C,
    T,
    chunks,  # spans of a row
    steps,  # tiles of a span
    V: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    R: tl.constexpr,
    STAGES: tl.constexpr,
):
    program = tl.program_id(0)
    item, channel, chunk = place(program, C, chunks, BLOCK_C)
    length = item_length(lengths_ptr, item, T)
    slope = load_slope(prelu_ptr)
    start = chunk * steps * R

    i = tl.arange(0, BLOCK_C)
    _, lead = row_begin(item, channel, i, C, T, V, ROWS)
    begin = tl.minimum(tl.maximum(start * V - lead, 0), length)
    end = tl.minimum(tl.maximum((start + steps * R) * V - lead, 0), length)
    count = tl.sum(tl.where(channel + i < C, end - begin, 0), axis=0).to(tl.float64)
    own = tl.minimum(start * V, length - 1)
    own_ptr = x_ptr + (item * C + channel) * T + own
    own = activate(tl.load(own_ptr, mask=length > 0, other=0.0).to(tl.float32), prelu_ptr, slope)
    shift = own.to(tl.float64) - item_pivot(x_ptr, prelu_ptr, slope, item, length, C, T)

    n = tl.arange(0, BLOCK_C * R)
    c = channel + n // R
    first, lead = row_begin(item, channel, n // R, C, T, V, ROWS)
    total = tl.zeros((BLOCK_C * R,), tl.float32)
    squares = tl.zeros((BLOCK_C * R,), tl.float32)
    for step in tl.range(0, steps, num_stages=STAGES):
        j = start + step * R + n % R
        t = j * V - lead
        offsets = ((first + j) * V)[:, None] + tl.arange(0, V)[None, :]
        mask = load_mask(c, t, length, C, V, WHOLE)
        u = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        d = activate(u.to(tl.float32), prelu_ptr, slope) - own
        if lengths_ptr is not None or not ROWS:
            mask = valid_elements(c, t, length, C, V)
        d = tl.where(mask, d, 0.0)
        total += tl.sum(d, axis=1)
        squares += tl.sum(d * d, axis=1)

    total, squares = both_sums(total.to(tl.float64), squares.to(tl.float64))
    # Around the item's pivot, where the sums of all programs add up.
    squares += shift * (2.0 * total + count * shift)
    total += count * shift
    scale = 1.0 / tl.maximum(length.to(tl.float64) * C, 1.0)
    tl.store(sums_ptr + program, total * scale)
    tl.store(sums_ptr + tl.num_programs(0) + program, squares * scale)


@triton.jit(do_not_specialize=["B", "C", "T", "tiles", "count"])
def _apply_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    lengths_ptr,  # (B,) integers, valid frames, or None
    sums_ptr,  # (2, B, count) float64, of the first launch
    y_ptr,  # out: (B, C, T), of a dtype of its own
    stats_ptr,  # out: (2, B) float32, mean - pivot and rstd
    eps,
    B,
    C,
    T,
    tiles,  # of a row
    count,
    V: tl.constexpr,
    ROWS: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_C: tl.constexpr,
    R: tl.constexpr,
):
    item, channel, tile = place(tl.num_programs(0) - 1 - tl.program_id(0), C, tiles, BLOCK_C)
    length = item_length(lengths_ptr, item, T)
    n = tl.arange(0, BLOCK_C * R)
    c = channel + n // R
    first, lead = row_begin(item, channel, n // R, C, T, V, ROWS)
    j = tile * R + n % R
    t = j * V - lead
    offsets = ((first + j) * V)[:, None] + tl.arange(0, V)[None, :]
    mask = load_mask(c, t, length, C, V, WHOLE)
    u = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
    slope = load_slope(prelu_ptr)
    pivot = item_pivot(x_ptr, prelu_ptr, slope, item, length, C, T)
    scale = load_channels(weight_ptr, c, C, 1.0)
    bias = load_channels(bias_ptr, c, C, 0.0)

    mean, square = item_sums(sums_ptr, item, B, count)
    var = square - mean * mean
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    mean = mean.to(tl.float32)
    rstd = tl.rsqrt((var + eps).to(tl.float32))
    if (channel == 0) & (tile == 0):
        tl.store(stats_ptr + item, mean)
        tl.store(stats_ptr + B + item, rstd)
    high, low = split_center(pivot + mean.to(tl.float64))
    scale *= rstd
    shift = bias - low * scale
    d = activate(u.to(tl.float32), prelu_ptr, slope) - high
    y = d * scale[:, None] + shift[:, None]
    if lengths_ptr is not None:
        y = tl.where(valid_elements(c, t, length, C, V), y, 0.0)
    store_tile(y_ptr + offsets, y, c, t, C, T, V, ROWS)


# By bytes an element: (channels, frames, warps) of a tile; of the sums, in rows of SPAN frames too.
SUMS_TILES = {2: (8, 256, 4), 4: (8, 128, 4)}
APPLY_TILES = {2: (8, 512, 4), 4: (16, 128, 4)}
SPAN = 4096
STAGES = 4  # tiles on their way at a time


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    lengths: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalizes x on its device; arguments and results as ``global_torch.forward``."""
    x = x.contiguous()
    weight, bias, prelu, lengths = packed(weight, bias, prelu, lengths)
    B, C, T = x.shape
    y = torch.empty_like(x, dtype=out_dtype)
    if x.numel() == 0:
        return y, x.new_zeros((2, B), dtype=torch.float32)
    stats = x.new_empty((2, B), dtype=torch.float32)
    fixed = constants(x, SUMS_TILES[x.element_size()])
    chunks, steps = spans(T, fixed, SPAN)
    sums = empty_sums(x, triton.cdiv(C, fixed["BLOCK_C"]) * chunks)
    with torch.cuda.device_of(x):
        _sums_kernel[(sums.numel() // 2,)](
            x, prelu, lengths, sums, C, T, chunks, steps, **fixed, STAGES=STAGES
        )
        sums = combined(sums)
        fixed = constants(x, APPLY_TILES[x.element_size()])
        tiles = triton.cdiv(row_vectors(T, fixed), fixed["R"])
        _apply_kernel[(B * triton.cdiv(C, fixed["BLOCK_C"]) * tiles,)](
            x, weight, bias, prelu, lengths, sums, y, stats, eps, B, C, T, tiles, sums.shape[2],
            **fixed,
        )  # fmt: skip
    return y, stats
