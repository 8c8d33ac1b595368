"""What runs beside the blocks, in Triton: the sums of residuals and skips, and their gradients.

A program takes ``BLOCK`` vectors in a row of one item and channel, of the residual or of the skips.
Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_tile import load_tile, place, store_tile


@triton.jit(do_not_specialize=["R", "S", "tiles", "vectors"])
def _add_kernel(
    y_ptr,  # (B, R + S, F) output of a 1×1 convolution, without its bias
    bias_ptr,  # (R + S,)
    x_ptr,  # (B, R, F)
    skips_ptr,  # (B, S, F) or None
    onward_ptr,  # out: (B, R, F), x with the first part of y
    sum_ptr,  # out: (B, S, F), skips with the second
    R,
    S,
    tiles,  # of a row
    vectors,  # of a row
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    item, channel, vector = place(R + S, tiles, BLOCK)
    frames = vectors * V
    y = load_tile(y_ptr + (item * (R + S) + channel) * frames, vector, vectors, V)
    y = y.to(tl.float32) + tl.load(bias_ptr + channel).to(tl.float32)
    if channel < R:
        row = (item * R + channel) * frames
        y += load_tile(x_ptr + row, vector, vectors, V)
        store_tile(onward_ptr + row, y, vector, vectors, V)
    else:
        row = (item * S + channel - R) * frames
        if skips_ptr is not None:
            y += load_tile(skips_ptr + row, vector, vectors, V)
        store_tile(sum_ptr + row, y, vector, vectors, V)


@triton.jit(do_not_specialize=["R", "S", "tiles", "vectors"])
def _join_kernel(
    onward_ptr,  # (B, R, F) gradient
    skips_ptr,  # (B, S, F) gradient
    dy_ptr,  # out: (B, R + S, F) both
    partial_ptr,  # out: (B·tiles, R + S) float32, sums over frames
    R,
    S,
    tiles,  # of a row
    vectors,  # of a row
    BLOCK: tl.constexpr,
    V: tl.constexpr,
):
    item, channel, vector = place(R + S, tiles, BLOCK)
    frames = vectors * V
    onward = (item * R + channel) * frames
    skips = (item * S + channel - R) * frames
    g = load_tile(onward_ptr + onward, vector, tl.where(channel < R, vectors, 0), V)
    g += load_tile(skips_ptr + skips, vector, tl.where(channel < R, 0, vectors), V)
    g = g.to(tl.float32)  # one of the two is zero
    store_tile(dy_ptr + (item * (R + S) + channel) * frames, g, vector, vectors, V)
    row = item * tiles + tl.program_id(0) % tiles
    tl.store(partial_ptr + row * (R + S) + channel, tl.sum(tl.sum(g, axis=1), axis=0))


# By bytes an element: vectors of a tile, and warps.
ADD_TILES = {2: (512, 4), 4: (512, 4)}
JOIN_TILES = {2: (512, 4), 4: (512, 4)}


def _rows(x: Tensor, channels: int, tile: tuple[int, int]) -> tuple[int, dict[str, int]]:
    """Programs over maps (B, channels, F) like x, and their arguments from ``tiles`` on."""
    V = 16 // x.element_size()
    block, warps = tile
    vectors = x.shape[2] // V
    tiles = triton.cdiv(vectors, block)
    fixed = {"tiles": tiles, "vectors": vectors, "BLOCK": block, "V": V, "num_warps": warps}
    return x.shape[0] * channels * tiles, fixed


def add_outputs(
    y: Tensor, bias: Tensor, x: Tensor, skips: Tensor | None, residual: bool
) -> tuple[Tensor, Tensor]:
    """As ``block_torch.add_outputs``."""
    B, channels, F = y.shape
    R = x.shape[1] if residual else 0
    S = channels - R
    onward = torch.empty_like(x) if residual else x.new_empty((0,))
    total = x.new_empty((B, S, F)) if S else x.new_empty((0,))
    programs, rest = _rows(x, channels, ADD_TILES[x.element_size()])
    with torch.cuda.device_of(x):
        _add_kernel[(programs,)](y, bias, x, skips, onward, total, R, S, **rest)
    return onward, total


def join_gradients(onward: Tensor | None, skips: Tensor | None) -> tuple[Tensor, Tensor]:
    """As ``block_backward_torch.join_gradients``."""
    parts = [part.contiguous() for part in (onward, skips) if part is not None]
    R, S = (0 if part is None else part.shape[1] for part in (onward, skips))
    B, _, F = parts[0].shape
    dy = parts[0].new_empty((B, R + S, F))
    programs, rest = _rows(dy, R + S, JOIN_TILES[dy.element_size()])
    partial = dy.new_empty((programs // (R + S), R + S), dtype=torch.float32)
    with torch.cuda.device_of(dy):
        _join_kernel[(programs,)](parts[0], parts[-1], dy, partial, R, S, **rest)
    return dy, partial
