"""The fused block's backward, 4: through the depthwise convolution to the norm before it.

One pass gives the gradient of the norm's output, that of the taps, and what the norm's own gradient
needs of each frame. A program takes the frames of one tile in a chunk of channels, keeps their
statistics and sums in registers, and recomputes the norm's output. Import this module only where
Triton is wanted.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_frames import load_pivot, load_statistics, normalized
from convtasnet_kernels.block_gradient_sums import CHUNK
from convtasnet_kernels.block_tile import prelu
from convtasnet_kernels.global_tile import item_length, load_slope, place
from convtasnet_kernels.rows import (
    join_vectors,
    load_tap_vectors,
    load_tile,
    split_vectors,
    store_row,
    tap_arguments,
    tap_columns,
    vector_dot,
)


@triton.jit
def _column_sums(columns, N: tl.constexpr, WARPS: tl.constexpr):
    """N columns (BLOCK,), of which each warp adds up its own part -> (WARPS, N)."""
    block = join_vectors(columns, N)
    return tl.sum(tl.reshape(block, (WARPS, block.shape[0] // WARPS, N)), axis=1)


@triton.jit
@no_type_check
def _load_channel(
    u_ptr,
    du_ptr,
    vector,
    live,
    vectors,
    dilation,
    DILATION: tl.constexpr,
    CAUSAL: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """A channel's row of u, of ``live`` vectors, and du where each tap finds it, as stored."""
    loaded = (load_tile(u_ptr, vector, live, V, LAST=True),)
    for p in tl.static_range(P):
        taps = load_tap_vectors(du_ptr, vector, vectors, p, -1, dilation, DILATION, CAUSAL, P, V)
        loaded += (taps,)
    return loaded


@triton.jit(do_not_specialize=["B", "T", "tiles", "dilation"])
@no_type_check
def _depthwise_gradient_kernel(
    du_ptr,  # (B, C, T) gradient of the convolution's output
    u_ptr,  # (B, C, T) what the PReLU before the norm takes
    slope_ptr,  # (1,) the PReLU's
    gamma_ptr,  # (C,)
    beta_ptr,  # (C,)
    stats_ptr,  # (2, B, T) float32, mean - K and rstd
    weight_ptr,  # (C, P)
    lengths_ptr,  # (B,) integers, valid frames, or None
    bias_ptr,  # (C,) still to be added to u, or None
    dz_ptr,  # out: (B, C, T) gradient of the norm's output
    taps_ptr,  # out: (B·tiles·WARPS, C, P) float32, sums over frames for the taps' gradient
    partial_ptr,  # out: (2, B, chunks, T) float32, sums of dz·gamma and dz·gamma·xhat
    B,
    T,
    tiles,  # of a row
    dilation,  # vectors between two taps, where DILATION is 0
    DILATION: tl.constexpr,  # frames between two taps, 0 where all shifts are whole vectors
    CAUSAL: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,  # channels of a program
    STEP: tl.constexpr,  # channels whose sums are added up together
    AHEAD: tl.constexpr,  # channels on their way
    P: tl.constexpr,
    BLOCK: tl.constexpr,  # vectors of a tile
    V: tl.constexpr,
    WARPS: tl.constexpr,
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    N: tl.constexpr = triton.next_power_of_2(max(STEP * P, 2))
    T = T // V * V  # tells the compiler that rows are whole vectors
    item, channel, tile = place(tl.program_id(0), C, tiles, CHUNK)
    length = item_length(lengths_ptr, item, T)
    live = tl.cdiv(length, V)
    slope = load_slope(slope_ptr)
    pivot = load_pivot(u_ptr, bias_ptr, slope, item, C, T, FOLD)
    vector = tile * BLOCK + tl.arange(0, BLOCK)
    rstd, center, rest = load_statistics(stats_ptr, pivot, item, B, vector, T, V, FOLD)
    rstd = split_vectors(rstd, V)
    center = split_vectors(center, V)
    rest = split_vectors(rest, V)
    zero = tl.zeros((BLOCK,), tl.float32)
    total = (zero,) * V
    product = (zero,) * V
    row = (item * C + channel) * T
    warp = tl.arange(0, WARPS)[:, None]
    n = tl.arange(0, N)[None, :]
    taps_ptr += ((item * tiles + tile) * WARPS + warp) * (C * P) + channel * P + n
    ahead = ()
    for i in tl.static_range(AHEAD):
        end = tl.where((i < CHUNK) & (channel + i < C), T // V, 0)
        ahead += (
            _load_channel(
                u_ptr + row + tl.cast(T, tl.int64) * i, du_ptr + row + tl.cast(T, tl.int64) * i,
                vector, tl.minimum(live, end), end, dilation, DILATION, CAUSAL, P, V,
            ),
        )  # fmt: skip
    for c in tl.range(0, CHUNK, STEP, num_stages=1):
        dots = ()
        for i in tl.static_range(STEP):
            k = channel + c + i
            exists = C % CHUNK == 0 or k < C
            # A later channel's loads, before this one's store, which would hold them up.
            end = tl.where((c + i + AHEAD < CHUNK) & (k + AHEAD < C), T // V, 0)
            loaded = ahead[0]
            ahead = ahead[1:]
            ahead += (
                _load_channel(
                    u_ptr + row + tl.cast(T, tl.int64) * AHEAD,
                    du_ptr + row + tl.cast(T, tl.int64) * AHEAD,
                    vector, tl.minimum(live, end), end, dilation, DILATION, CAUSAL, P, V,
                ),
            )  # fmt: skip
            gamma = tl.load(gamma_ptr + k, mask=exists, other=0.0).to(tl.float32)
            beta = tl.load(beta_ptr + k, mask=exists, other=0.0).to(tl.float32)
            if bias_ptr is not None:
                bias = tl.load(bias_ptr + k, mask=exists, other=0.0).to(tl.float32)
            us = split_vectors(loaded[0].to(tl.float32), V)
            inside = tl.where(vector * V < T, beta, 0.0)  # where xhat, of rstd 0, is zero
            xhats, zs, dzs = (), (), ()
            for j in tl.static_range(V):
                v = prelu(us[j] + bias if bias_ptr is not None else us[j], slope, FOLD)
                xhat = normalized(v, rstd[j], center[j], rest[j], FOLD)
                if lengths_ptr is not None:
                    inside = tl.where(vector * V + j < length, beta, 0.0)
                xhats += (xhat,)
                zs += (xhat * gamma + inside,)
            for p in tl.static_range(P):
                w = tl.load(weight_ptr + k * P + p, mask=exists, other=0.0).to(tl.float32)
                g = tap_columns(loaded[1 + p], p, -1, DILATION, CAUSAL, P, V)
                dots += (vector_dot(g, zs, V),)
                grown = ()
                for j in tl.static_range(V):
                    if p == 0:
                        grown += (g[j] * w,)
                    else:
                        grown += (dzs[j] + g[j] * w,)
                dzs = grown
            totals, products = (), ()
            valid = ()
            for j in tl.static_range(V):
                dz = dzs[j]
                if lengths_ptr is not None:
                    dz = tl.where(vector * V + j < length, dz, 0.0)
                g = dz * gamma
                totals += (total[j] + g,)
                products += (product[j] + g * xhats[j],)
                valid += (dz,)
            total, product = totals, products
            store_row(dz_ptr + row, valid, vector, 0, tl.where(exists, T, 0), True, V)
            row += T
        dots += (zero,) * (N - STEP * P)
        mask = (warp >= 0) & (n < STEP * P) & (n < (C - channel - c) * P)
        tl.store(taps_ptr + c * P, _column_sums(dots, N, WARPS), mask=mask)
    chunks: tl.constexpr = (C + CHUNK - 1) // CHUNK
    partial_ptr += (item * chunks + channel // CHUNK) * T
    sums = (total, product)
    for k in tl.static_range(2):
        store_row(partial_ptr, sums[k], vector, 0, T, True, V)
        partial_ptr += tl.cast(B, tl.int64) * chunks * T


# By bytes an element: vectors of a tile, warps, channels whose sums are added up together,
# channels on their way.
TILES = {2: (32, 1, 1, 2), 4: (64, 2, 1, 2)}
REGISTERS = 128  # of a thread at most, so that 16 warps share a multiprocessor


def depthwise_gradient(
    du: Tensor,
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    weight: Tensor,
    dilation: int,
    causal: bool,
    lengths: Tensor | None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the norm's output z and of the taps, and sums for the norm's own gradient.

    Args:
        du: (B, C, T) gradient of the convolution's output, T a multiple of the elements in 16
            bytes; zero beyond the valid frames.
        u: (B, C, T) the input of the PReLU before the norm; the map's dtype, as du.
        slope: (1,) of the PReLU.
        gamma: (C,) the norm's scale.
        beta: (C,) the norm's shift.
        stats: (2, B, T) float32, mean - K and 1/std of each frame.
        weight: (C, 1, P) the taps.
        dilation: frames between two taps.
        causal: whether the taps reach back only.
        lengths: (B,) valid frames, or None where all are.
        bias: (C,) still to be added to u, or None.

    Returns:
        dz (B, C, T), zero beyond the valid frames; (rows, C·P) float32, whose sum over the rows is
        the taps' gradient; and partial as ``norm_gradient_sums(dz, …)`` gives it.
    """
    B, C, T = u.shape
    chunk = min(CHUNK, triton.next_power_of_2(C))
    dz = torch.empty_like(u)
    partial = stats.new_empty((2, B, triton.cdiv(C, chunk), T))
    if u.numel() == 0:
        return dz, stats.new_zeros((1, weight.numel())), partial.zero_()
    vectors, warps, step, ahead = TILES[u.element_size()]
    V = 16 // u.element_size()
    tiles = triton.cdiv(T, vectors * V)
    taps = stats.new_empty((B * tiles * warps, weight.numel()))
    with torch.cuda.device_of(u):
        _depthwise_gradient_kernel[(B * partial.shape[2] * tiles,)](
            du, u, slope, gamma, beta, stats, weight, lengths, bias, dz, taps, partial,
            B, T, tiles, **tap_arguments(weight.shape[2], dilation, causal, V),
            C=C, CHUNK=chunk, STEP=min(step, chunk), AHEAD=ahead, BLOCK=vectors, V=V, WARPS=warps,
            num_warps=warps, maxnreg=REGISTERS,
        )  # fmt: skip
    return dz, taps, partial
