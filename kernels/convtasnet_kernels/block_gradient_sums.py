"""The fused block's backward, 1: what a norm's gradient needs of each frame, summed over channels.

A program takes the frames of one tile in a chunk of channels and keeps their statistics and sums in
registers. Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_frames import load_pivot, load_statistics, normalized
from convtasnet_kernels.block_tile import prelu
from convtasnet_kernels.global_tile import item_length, load_slope, place


@triton.jit(do_not_specialize=["B", "T", "tiles"])
def _gradient_sums_kernel(
    g_ptr,  # (B, C, T) gradient of the norm's output
    u_ptr,  # (B, C, T) what the PReLU before the norm takes
    slope_ptr,  # (1,) the PReLU's
    gamma_ptr,  # (C,)
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    lengths_ptr,  # (B,) integers, valid frames, or None
    partial_ptr,  # out: (2, B, chunks, T) float32, sums of g·gamma and g·gamma·xhat
    B,
    T,
    tiles,  # of a row
    C: tl.constexpr,
    CHUNK: tl.constexpr,  # channels of a program
    STEP: tl.constexpr,  # channels read at a time
    STAGES: tl.constexpr,  # such steps on their way
    R: tl.constexpr,
    V: tl.constexpr,
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    T = T // V * V  # tells the compiler that rows are whole vectors
    item, channel, tile = place(tl.program_id(0), C, tiles, CHUNK)
    length = item_length(lengths_ptr, item, T)
    slope = load_slope(slope_ptr)
    pivot = load_pivot(u_ptr, None, slope, item, C, T, FOLD)
    vector = tile * R + tl.arange(0, R)
    rstd, center, rest = load_statistics(stats_ptr, pivot, item, B, vector, T, V, FOLD)
    frame = (vector * V)[:, None] + tl.arange(0, V)[None, :]
    live = (vector * V < length)[:, None]
    row = (item * C + channel) * T
    g_ptr += row
    u_ptr += row
    total = tl.zeros((R, V), tl.float32)
    product = tl.zeros((R, V), tl.float32)
    for c in tl.range(0, CHUNK, STEP, num_stages=STAGES):
        for i in tl.static_range(STEP):
            mask = live
            exists = True
            if C % CHUNK != 0:
                exists = channel + c + i < C
                mask = live & exists
            offset = tl.cast(c + i, tl.int64) * T
            u = tl.load(u_ptr + offset + frame, mask=mask, other=0.0).to(tl.float32)
            g = tl.load(g_ptr + offset + frame, mask=mask, other=0.0).to(tl.float32)
            gamma = tl.load(gamma_ptr + channel + c + i, mask=exists, other=0.0).to(tl.float32)
            g *= gamma
            total += g
            product += g * normalized(prelu(u, slope, FOLD), rstd, center, rest, FOLD)
    if lengths_ptr is not None:
        total = tl.where(frame < length, total, 0.0)
        product = tl.where(frame < length, product, 0.0)
    chunks: tl.constexpr = (C + CHUNK - 1) // CHUNK
    partial_ptr += (item * chunks + channel // CHUNK) * T + frame
    mask = (vector * V < T)[:, None]
    tl.store(partial_ptr, total, mask=mask)
    tl.store(partial_ptr + tl.cast(B, tl.int64) * chunks * T, product, mask=mask)


CHUNK = 32  # channels whose sums stand in one row
# By bytes an element: vectors of a tile, warps, channels a step, steps on their way.
TILES = {2: (128, 4, 1, 4), 4: (128, 4, 1, 4)}


def norm_gradient_sums(
    g: Tensor, u: Tensor, slope: Tensor, gamma: Tensor, stats: Tensor, lengths: Tensor | None
) -> Tensor:
    """Sums over chunks of channels, frame by frame, of g·gamma and g·gamma·xhat.

    Args:
        g: (B, C, T) gradient of the norm's output, T a multiple of the elements in 16 bytes.
        u: (B, C, T) the input of the PReLU before the norm; the map's dtype, as g.
        slope: (1,) of the PReLU.
        gamma: (C,) the norm's scale.
        stats: (2, B, T) float32, mean - K and 1/std of each frame; K is the first sample of the
            item, behind the PReLU.
        lengths: (B,) valid frames, or None where all are.

    Returns:
        (2, B, chunks, T) float32, zero beyond the valid frames.
    """
    B, C, T = u.shape
    chunk = min(CHUNK, triton.next_power_of_2(C))
    partial = u.new_empty((2, B, triton.cdiv(C, chunk), T), dtype=torch.float32)
    if u.numel() == 0:
        return partial.zero_()
    vectors, warps, step, stages = TILES[u.element_size()]
    V = 16 // u.element_size()
    tiles = triton.cdiv(T, vectors * V)
    with torch.cuda.device_of(u):
        _gradient_sums_kernel[(B * partial.shape[2] * tiles,)](
            g, u, slope, gamma, stats, lengths, partial, B, T, tiles,
            C=C, CHUNK=chunk, STEP=min(step, chunk), STAGES=stages, R=vectors, V=V,
            num_warps=warps,
        )  # fmt: skip
    return partial
