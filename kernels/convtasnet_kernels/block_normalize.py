"""The fused block's forward, 4: PReLU and norm of a map, for the last product.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.block_frames import load_pivot, load_statistics, normalized
from convtasnet_kernels.block_tile import (
    Tile,
    load_channel,
    no_tiles,
    place,
    prelu,
    row_vectors,
    store_tile,
    tile_constants,
)
from convtasnet_kernels.rows import load_tile


@triton.jit(do_not_specialize=["B", "tiles", "vectors"])
def _normalize_kernel(
    u_ptr,  # (B, H, F) before PReLU and norm
    slope_ptr,  # (1,) of the PReLU
    gamma_ptr,  # (H,) of the norm
    beta_ptr,  # (H,)
    stats_ptr,  # (2, B, F) float32, mean - K and rstd
    z_ptr,  # out: (B, H, F)
    B,
    tiles,  # of a row
    vectors,  # of a row
    H: tl.constexpr,
    STEPS: tl.constexpr,  # channels of a chunk
    GROUP: tl.constexpr,  # of which so many are loaded together
    EVEN: tl.constexpr,  # all chunks have them
    BLOCK: tl.constexpr,  # vectors of a tile
    V: tl.constexpr,  # elements of a vector
):
    FOLD: tl.constexpr = u_ptr.dtype.element_ty.primitive_bitwidth == 16
    item, chunk, vector = place(tl.cdiv(H, STEPS), tiles, BLOCK)
    F = vectors * V
    slope = tl.load(slope_ptr).to(tl.float32)
    pivot = load_pivot(u_ptr, None, slope, item, H, F, FOLD)
    rstd, center, rest = load_statistics(stats_ptr, pivot, item, B, vector, F, V, FOLD)
    channel = chunk * STEPS
    u_ptr += (item * H + channel) * F
    z_ptr += (item * H + channel) * F
    for step in tl.range(0, STEPS, GROUP, num_stages=1):
        us, gammas, betas = no_tiles(), no_tiles(), no_tiles()
        for i in tl.static_range(GROUP):
            c = channel + step + i
            us += (load_tile(u_ptr, vector, row_vectors(c, H, vectors, EVEN), V),)
            gammas += (load_channel(gamma_ptr, c, H, EVEN),)
            betas += (load_channel(beta_ptr, c, H, EVEN),)
            u_ptr += F
        for i in tl.static_range(GROUP):
            xhat = normalized(prelu(us[i], slope, FOLD), rstd, center, rest, FOLD)
            # rstd is zero beyond the length and nowhere else
            z = tl.where(rstd == 0, 0.0, xhat * gammas[i] + betas[i])
            c = channel + step + i
            store_tile(z_ptr, z, vector, row_vectors(c, H, vectors, EVEN), V)
            z_ptr += F


TILES = {2: Tile(8, 8, 64, 2, None), 4: Tile(8, 4, 64, 2, None)}  # by bytes an element


def normalize(u: Tensor, slope: Tensor, gamma: Tensor, beta: Tensor, stats: Tensor) -> Tensor:
    """As ``block_torch.normalize``."""
    z = torch.empty_like(u)
    programs, rest = tile_constants(u, TILES[u.element_size()])
    with torch.cuda.device_of(u):
        _normalize_kernel[(programs,)](u, slope, gamma, beta, stats, z, len(u), **rest)
    return z
