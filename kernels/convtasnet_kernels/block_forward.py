"""A fused block's large kernels in Triton, forward: each map goes through memory once a kernel.

A norm is applied where its map is read, at the taps of the depthwise convolution, from two float32
values a frame (``block_statistics.py``); whoever writes a map leaves the sums of its frames behind.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_residual import add_outputs
from convtasnet_kernels.block_statistics import statistics
from convtasnet_kernels.block_tile import (
    Tile,
    empty_partial,
    load_channel,
    load_tap_tile,
    load_tile,
    no_tiles,
    place,
    prelu,
    row_vectors,
    store_tile,
    tile_constants,
)
from convtasnet_kernels.rows import tap_arguments

__all__ = ["add_bias", "add_outputs", "depthwise_norm", "normalize", "statistics"]


@triton.jit
def add_frame(v, first, total, square, channel, H: tl.constexpr, STEPS: tl.constexpr):
    """Adds a channel's (BLOCK, V) to the sums around the chunk's first channel."""
    d = v - first
    if H % STEPS != 0:
        d = tl.where(channel < H, d, 0.0)
    return total + d, square + d * d


@triton.jit
def store_sums(partial_ptr, total, square, item, chunk, B, H, STEPS, vector, vectors, V):
    """Writes the sums of a chunk into partial (2, B, chunks, F)."""
    chunks = tl.cdiv(H, STEPS)
    partial_ptr += (item * chunks + chunk) * vectors * V
    store_tile(partial_ptr, total, vector, vectors, V)
    partial_ptr += tl.cast(B, tl.int64) * chunks * vectors * V
    store_tile(partial_ptr, square, vector, vectors, V)


@triton.jit
def centers(mean, rstd, pivot, FOLD: tl.constexpr):
    """What ``normalized`` takes beside rstd: (K + mean)·rstd where FOLD, else the mean around K."""
    if FOLD:
        return (pivot + mean) * rstd
    else:
        return mean


@triton.jit
def normalized(u, slope, pivot, center, rstd, FOLD: tl.constexpr):
    """Xhat of a tile; FOLD: by one multiply and add, enough for 16 bits."""
    if FOLD:
        return prelu(u, slope, FOLD) * rstd - center
    else:
        return (prelu(u, slope, FOLD) - pivot - center) * rstd


@triton.jit(do_not_specialize=["B", "tiles", "vectors"])
def _bias_kernel(
    u_ptr,  # (B, H, F), in and out
    bias_ptr,  # (H,)
    slope_ptr,  # (1,) of the PReLU behind it
    partial_ptr,  # out: (2, B, chunks, F) float32
    B,
    tiles,  # of a row
    vectors,  # of a row
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    BLOCK: tl.constexpr,  # vectors of a tile
    V: tl.constexpr,  # elements of a vector
    STAGES: tl.constexpr,  # channels on their way
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    item, chunk, vector = place(tl.cdiv(H, STEPS), tiles, BLOCK)
    slope = tl.load(slope_ptr).to(tl.float32)
    channel = chunk * STEPS
    u_ptr += (item * H + channel) * vectors * V
    total = tl.zeros((BLOCK, V), tl.float32)
    square = tl.zeros((BLOCK, V), tl.float32)
    first = total
    for step in tl.range(0, STEPS, num_stages=STAGES):
        c = channel + step
        inside = row_vectors(c, vectors, H, STEPS)
        u = load_tile(u_ptr, vector, inside, V) + load_channel(bias_ptr, c, H, STEPS)
        u = u.to(u_ptr.dtype.element_ty)
        store_tile(u_ptr, u, vector, inside, V)
        v = prelu(u, slope, FOLD)
        first = tl.where(step == 0, v, first)
        total, square = add_frame(v, first, total, square, c, H, STEPS)
        u_ptr += vectors * V
    store_sums(partial_ptr, total, square, item, chunk, B, H, STEPS, vector, vectors, V)


@triton.jit(do_not_specialize=["B", "tiles", "vectors", "dilation"])
def _depthwise_kernel(
    u_ptr,  # (B, H, F) before PReLU and norm
    slope_ptr,  # (1,) of the PReLU
    gamma_ptr,  # (H,) of the norm
    beta_ptr,  # (H,)
    stats_ptr,  # (2, B, F) float32, mean - K and rstd
    weight_ptr,  # (H, P) taps
    bias_ptr,  # (H,)
    next_slope_ptr,  # (1,) of the PReLU that follows
    y_ptr,  # out: (B, H, F)
    partial_ptr,  # out: (2, B, chunks, F) float32, frame sums behind that PReLU
    B,
    tiles,  # as in the kernel above, and so all else that it has
    vectors,
    dilation,  # vectors between two taps, where DILATION is 0
    DILATION: tl.constexpr,  # frames between two taps, 0 where all shifts are whole vectors
    CAUSAL: tl.constexpr,
    P: tl.constexpr,
    H: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    V: tl.constexpr,
    STAGES: tl.constexpr,
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    item, chunk, vector = place(tl.cdiv(H, STEPS), tiles, BLOCK)
    slope = tl.load(slope_ptr).to(tl.float32)
    next_slope = tl.load(next_slope_ptr).to(tl.float32)
    channel = chunk * STEPS
    pivot = prelu(tl.load(u_ptr + item * H * vectors * V), slope, FOLD)
    u_ptr += (item * H + channel) * vectors * V
    y_ptr += (item * H + channel) * vectors * V
    stats_ptr += item * vectors * V
    rstd_ptr = stats_ptr + tl.cast(B, tl.int64) * vectors * V
    # What the frames decide on of the taps; zero outside of the item.
    total = tl.zeros((BLOCK, V), tl.float32)
    square = tl.zeros((BLOCK, V), tl.float32)
    first = total
    rstds, shifts = no_tiles(), no_tiles()
    whole = tl.full((BLOCK, V), 1, tl.int32)
    for p in tl.static_range(P):
        mean = load_tap_tile(stats_ptr, vector, vectors, p, 1, dilation, DILATION, CAUSAL, P, V)
        rstd = load_tap_tile(rstd_ptr, vector, vectors, p, 1, dilation, DILATION, CAUSAL, P, V)
        rstds += (rstd,)
        shifts += (centers(mean, rstd, pivot, FOLD),)
        whole = tl.where((rstd == 0) & (vector < vectors)[:, None], 0, whole)
    whole = tl.min(tl.min(whole, axis=1), axis=0)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        c = channel + step
        inside = row_vectors(c, vectors, H, STEPS)
        gamma = load_channel(gamma_ptr, c, H, STEPS)
        beta = load_channel(beta_ptr, c, H, STEPS)
        y = tl.zeros((BLOCK, V), tl.float32)
        sides = load_channel(bias_ptr, c, H, STEPS)
        parts = no_tiles()
        for p in tl.static_range(P):
            u = load_tap_tile(u_ptr, vector, inside, p, 1, dilation, DILATION, CAUSAL, P, V)
            w = load_channel(weight_ptr + p, c * P, H * P, STEPS * P)
            y += normalized(u, slope, pivot, shifts[p], rstds[p], FOLD) * (w * gamma)
            parts += (w * beta,)
            sides += w * beta
        if whole == 1:
            y += sides
        else:
            y += load_channel(bias_ptr, c, H, STEPS)
            for p in tl.static_range(P):
                # Loaded once more, as so many comparisons do not fit into predicates.
                rstd = load_tap_tile(
                    rstd_ptr, vector, vectors, p, 1, dilation, DILATION, CAUSAL, P, V
                )
                y += tl.where(rstd == 0, 0.0, parts[p])
        y = y.to(y_ptr.dtype.element_ty)
        store_tile(y_ptr, y, vector, inside, V)
        v = prelu(y, next_slope, FOLD)
        first = tl.where(step == 0, v, first)
        total, square = add_frame(v, first, total, square, c, H, STEPS)
        u_ptr += vectors * V
        y_ptr += vectors * V
    store_sums(partial_ptr, total, square, item, chunk, B, H, STEPS, vector, vectors, V)


@triton.jit(do_not_specialize=["B", "tiles", "vectors"])
def _normalize_kernel(
    u_ptr,  # (B, H, F) before PReLU and norm
    slope_ptr,  # (1,) of the PReLU
    gamma_ptr,  # (H,) of the norm
    beta_ptr,  # (H,)
    stats_ptr,  # (2, B, F) float32, mean - K and rstd
    z_ptr,  # out: (B, H, F)
    B,
    tiles,  # as in the kernels above, and so all that follows
    vectors,
    H: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
    V: tl.constexpr,
    STAGES: tl.constexpr,
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    item, chunk, vector = place(tl.cdiv(H, STEPS), tiles, BLOCK)
    slope = tl.load(slope_ptr).to(tl.float32)
    channel = chunk * STEPS
    pivot = prelu(tl.load(u_ptr + item * H * vectors * V), slope, FOLD)
    u_ptr += (item * H + channel) * vectors * V
    z_ptr += (item * H + channel) * vectors * V
    stats_ptr += item * vectors * V
    mean = load_tile(stats_ptr, vector, vectors, V)
    rstd = load_tile(stats_ptr + tl.cast(B, tl.int64) * vectors * V, vector, vectors, V)
    center = centers(mean, rstd, pivot, FOLD)
    for step in tl.range(0, STEPS, num_stages=STAGES):
        c = channel + step
        inside = row_vectors(c, vectors, H, STEPS)
        xhat = normalized(load_tile(u_ptr, vector, inside, V), slope, pivot, center, rstd, FOLD)
        z = xhat * load_channel(gamma_ptr, c, H, STEPS) + load_channel(beta_ptr, c, H, STEPS)
        # rstd is zero beyond the length and nowhere else
        store_tile(z_ptr, tl.where(rstd == 0, 0.0, z), vector, inside, V)
        u_ptr += vectors * V
        z_ptr += vectors * V


# By bytes an element.
BIAS_TILES = {2: Tile(128, 4, None, 1), 4: Tile(128, 4, None, 1)}
DEPTHWISE_TILES = {2: Tile(128, 4, 128, 1), 4: Tile(128, 4, 128, 1)}
NORMALIZE_TILES = {2: Tile(128, 4, None, 1), 4: Tile(128, 4, None, 1)}


def add_bias(u: Tensor, bias: Tensor, slope: Tensor) -> Tensor:
    """Adds a bias (H,) to u (B, H, F) in place.

    Returns:
        (2, B, chunks, F): for each chunk of channels and frame, sums of v - p and of (v - p)², v
        = prelu(u), p that of the chunk's first channel.
    """
    partial = empty_partial(u)
    programs, rest = tile_constants(u, BIAS_TILES[u.element_size()])
    with torch.cuda.device_of(u):
        _bias_kernel[(programs,)](u, bias, slope, partial, len(u), **rest)
    return partial


def depthwise_norm(
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    weight: Tensor,
    bias: Tensor,
    dilation: int,
    causal: bool,
    lengths: Tensor | None,
    next_slope: Tensor,
) -> tuple[Tensor, Tensor]:
    """As ``block_torch.depthwise_norm``, with the sums of ``add_bias``."""
    y, partial = torch.empty_like(u), empty_partial(u)
    programs, rest = tile_constants(u, DEPTHWISE_TILES[u.element_size()])
    taps = tap_arguments(weight.shape[2], dilation, causal, rest["V"])
    with torch.cuda.device_of(u):
        _depthwise_kernel[(programs,)](
            u, slope, gamma, beta, stats, weight, bias, next_slope, y, partial, len(u),
            **taps, **rest,
        )  # fmt: skip
    return y, partial


def normalize(
    u: Tensor, slope: Tensor, gamma: Tensor, beta: Tensor, stats: Tensor, lengths: Tensor | None
) -> Tensor:
    """As ``block_torch.normalize``."""
    z = torch.empty_like(u)
    programs, rest = tile_constants(u, NORMALIZE_TILES[u.element_size()])
    with torch.cuda.device_of(u):
        _normalize_kernel[(programs,)](u, slope, gamma, beta, stats, z, len(u), **rest)
    return z
