"""The fused block's forward, 3: norm and depthwise convolution in one pass.

The norm is applied where its map is read, at the taps, from two float32 values a frame. The next
channel's loads are issued before this one's store: none may overtake a store. Import this module
only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_frame_sums import add_frame, store_sums
from convtasnet_kernels.block_frames import load_frames, load_pivot, load_statistics, normalized
from convtasnet_kernels.block_tile import (
    Tile,
    biased,
    empty_partial,
    load_channel,
    no_tiles,
    place,
    prelu,
    row_vectors,
    store_tile,
    tile_constants,
)
from convtasnet_kernels.block_window import load_window, tap_of, window_arguments, window_vector


@triton.jit
def _load_parameters(
    gamma_ptr, beta_ptr, taps_ptr, bias_ptr, next_ptr, c, end, P: tl.constexpr, EVEN: tl.constexpr
):
    """Of channel c: gamma, beta, the biases before and behind the convolution, its taps."""
    found = no_tiles()
    found += (load_channel(gamma_ptr, c, end, EVEN), load_channel(beta_ptr, c, end, EVEN))
    found += (load_channel(bias_ptr, c, end, EVEN), load_channel(next_ptr, c, end, EVEN))
    for p in tl.static_range(P):
        found += (load_channel(taps_ptr + p, c * P, end * P, EVEN),)
    return found


@triton.jit
def _sides(
    rstd_ptr,
    parameters,
    vector,
    F,
    dilation,
    left,
    DILATION: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    WINDOW: tl.constexpr,
    PAIRS: tl.constexpr,
    P: tl.constexpr,
    V: tl.constexpr,
):
    """What the norm's beta adds behind the convolution, (BLOCK, V), where some taps see nothing.

    The frames' rstd is loaded once more, as so many comparisons do not fit into predicates.
    """
    rstds = no_tiles()
    for k in tl.static_range(WINDOW):
        seen = window_vector(vector, k, dilation, left, DILATION, LEFT, FIRST, PAIRS, V)
        rstds += (load_frames(rstd_ptr, seen, F, V),)
    added = tl.zeros((vector.shape[0], V), tl.float32)
    for p in tl.static_range(P):
        rstd = tap_of(rstds, p, DILATION, LEFT, FIRST, PAIRS, V)
        added += tl.where(rstd == 0, 0.0, parameters[4 + p] * parameters[1])
    return added


@triton.jit(do_not_specialize=["B", "tiles", "vectors", "dilation", "left"])
def _depthwise_kernel(
    u_ptr,  # (B, H, F) before PReLU and norm, without its bias
    bias_ptr,  # (H,) or None
    slope_ptr,  # (1,) of the PReLU
    gamma_ptr,  # (H,) of the norm
    beta_ptr,  # (H,)
    stats_ptr,  # (2, B, F) float32, mean - K and rstd
    taps_ptr,  # (H, P)
    next_bias_ptr,  # (H,)
    next_slope_ptr,  # (1,) of the PReLU that follows
    y_ptr,  # out: (B, H, F), with its bias
    partial_ptr,  # out: (3, B, chunks, F) float32, frame sums behind that PReLU
    B,
    tiles,  # of a row
    vectors,  # of a row
    dilation,  # see window_arguments, and so to P
    left,
    DILATION: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    WINDOW: tl.constexpr,
    PAIRS: tl.constexpr,
    P: tl.constexpr,
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    EVEN: tl.constexpr,  # all chunks have them
    BLOCK: tl.constexpr,  # vectors of a tile
    V: tl.constexpr,  # elements of a vector
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    chunks = tl.cdiv(H, STEPS)
    item, chunk, vector = place(chunks, tiles, BLOCK)
    F = vectors * V
    slope = tl.load(slope_ptr).to(tl.float32)
    next_slope = tl.load(next_slope_ptr).to(tl.float32)
    pivot = load_pivot(u_ptr, bias_ptr, slope, item, H, F, FOLD)
    # What the frames decide on of the window; zero outside of the item.
    rstds, centers, rests = no_tiles(), no_tiles(), no_tiles()
    whole = tl.full((BLOCK, V), 1, tl.int32)
    for k in tl.static_range(WINDOW):
        seen = window_vector(vector, k, dilation, left, DILATION, LEFT, FIRST, PAIRS, V)
        rstd, center, rest = load_statistics(stats_ptr, pivot, item, B, seen, F, V, FOLD)
        rstds += (rstd,)
        centers += (center,)
        rests += (rest,)
        whole = tl.where((rstd == 0) & (vector < vectors)[:, None], 0, whole)
    whole = tl.min(tl.min(whole, axis=1), axis=0)
    rstd_ptr = stats_ptr + (tl.cast(B, tl.int64) + item) * F
    total = tl.zeros((BLOCK, V), tl.float32)
    square = tl.zeros((BLOCK, V), tl.float32)
    first = total
    c = chunk * STEPS
    u_ptr += (item * H + c) * F
    y_ptr += (item * H + c) * F
    ahead = load_window(
        u_ptr, vector, vectors, dilation, left, DILATION, LEFT, FIRST, WINDOW, PAIRS, V
    )
    parameters_ahead = _load_parameters(
        gamma_ptr, beta_ptr, taps_ptr, bias_ptr, next_bias_ptr, c, H, P, EVEN
    )
    for step in tl.range(0, STEPS, num_stages=1):
        tiles_seen, parameters = ahead, parameters_ahead
        u_ptr += F
        # The next channel's, before this one's store; behind the last, none.
        more = tl.where(step + 1 < STEPS, row_vectors(c + 1, H, vectors, EVEN), 0)
        ahead = load_window(
            u_ptr, vector, more, dilation, left, DILATION, LEFT, FIRST, WINDOW, PAIRS, V
        )
        parameters_ahead = _load_parameters(
            gamma_ptr, beta_ptr, taps_ptr, bias_ptr, next_bias_ptr,
            tl.minimum(c + 1, H - 1), H, P, EVEN,
        )  # fmt: skip
        gamma, beta, bias, next_bias = parameters[0], parameters[1], parameters[2], parameters[3]
        xhats = no_tiles()
        for k in tl.static_range(WINDOW):
            v = prelu(biased(tiles_seen[k], bias_ptr, bias), slope, FOLD)
            xhats += (normalized(v, rstds[k], centers[k], rests[k], FOLD),)
        y = tl.zeros((BLOCK, V), tl.float32)
        offset = next_bias
        for p in tl.static_range(P):
            y += tap_of(xhats, p, DILATION, LEFT, FIRST, PAIRS, V) * (parameters[4 + p] * gamma)
            offset += parameters[4 + p] * beta
        if whole == 1:
            y += offset
        else:
            y += next_bias + _sides(
                rstd_ptr, parameters, vector, F, dilation, left,
                DILATION, LEFT, FIRST, WINDOW, PAIRS, P, V,
            )  # fmt: skip
        y = y.to(y_ptr.dtype.element_ty)
        store_tile(y_ptr, y, vector, row_vectors(c, H, vectors, EVEN), V)
        v = prelu(y, next_slope, FOLD)
        first = tl.where(step == 0, v, first)
        total, square = add_frame(v, first, total, square, c < H, EVEN)
        y_ptr += F
        c += 1
    store_sums(partial_ptr, total, square, first, item, chunk, B, chunks, vector, vectors, V)


# By bytes an element; where all taps are whole vectors away, a window is one of as many as taps.
TILES = {2: Tile(32, None, 128, 4, 128), 4: Tile(32, None, 128, 4, 128)}
WHOLE_TILES = {2: Tile(16, None, 64, 2, 128), 4: Tile(32, None, 128, 4, 128)}


def depthwise_norm(
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    taps: Tensor,
    next_bias: Tensor,
    dilation: int,
    causal: bool,
    next_slope: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As ``block_torch.depthwise_norm``, with the sums of ``block_frame_sums.frame_sums``."""
    size = u.element_size()
    tile = (WHOLE_TILES if dilation * size % 16 == 0 else TILES)[size]
    window = window_arguments(taps.shape[2], dilation, causal, 16 // size)
    y, partial = torch.empty_like(u), empty_partial(u, tile.channels)
    programs, rest = tile_constants(u, tile)
    with torch.cuda.device_of(u):
        _depthwise_kernel[(programs,)](
            u, bias, slope, gamma, beta, stats, taps, next_bias, next_slope, y, partial, len(u),
            **window, **rest,
        )  # fmt: skip
    return y, partial
