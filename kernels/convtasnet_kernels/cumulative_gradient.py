"""What the cumulative norm's backward kernels share: xhat, and the sums over time."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative_scan import FEW_CHANNELS, inverse
from convtasnet_kernels.lookback import sums_before


@triton.jit
def normalized(x, pivot, mean, rstd, FOLD: tl.constexpr):
    """Gives xhat of an activated chunk; FOLD: by one multiply and add, enough for 16 bits."""
    if FOLD:
        return x * rstd[None, :] - ((pivot + mean) * rstd)[None, :]
    else:
        return (x - pivot - mean[None, :]) * rstd[None, :]


@triton.jit
def summands(g, x, pivot, mean, rstd, FOLD: tl.constexpr, C: tl.constexpr):
    """g·xhat and g of a chunk, to be summed over frames; g float32, x activated.

    Of few channels in float64: what a channel's gradient adds up may cancel, and where no other
    channel's is larger, roundings of its terms would be seen.
    """
    if C < FEW_CHANNELS:
        xhat = normalized(x.to(tl.float64), pivot, mean, rstd, False)
        return g * xhat, g.to(tl.float64)
    else:
        return g * normalized(x, pivot, mean, rstd, FOLD), g


@triton.jit
def gradient_terms(g, gx, mean, rstd, valid, start, places, GROUP: tl.constexpr, C: tl.constexpr):
    """own, later and slope of each frame: dx = rstd·(g - own + later - slope·xhat).

    ``places`` is (workspace_ptr, item, items, tiles, order) of ``sums_before``; without a workspace
    the tile is the whole item. What frame s sends to all frames before it is a_s + (m_t - m)·b_s,
    where m is the mean of the tile's first frame: tiles tell each other the sums around m = 0 (K).
    The frame's own part stays apart: at C = 1 it cancels g and leaves little.
    """
    workspace_ptr, item, items, tiles, order = places
    j = tl.arange(0, mean.shape[0])
    near = tl.sum(tl.where(j == 0, mean, 0.0), axis=0)
    rise = mean - near
    share = inverse((start + j + 1).to(tl.float32) * C, C)
    own = g * share
    slope = gx * share
    b = tl.where(valid, -(rstd * rstd) * slope, 0.0)
    a = tl.where(valid, -rstd * own, 0.0) - b * rise
    if C < FEW_CHANNELS:
        # The frame's own a, taken off again, may be 1/sqrt(eps) times what is left.
        a, b = a.to(tl.float64), b.to(tl.float64)
    later_a = tl.cumsum(a, axis=0, reverse=True) - a
    later_b = tl.cumsum(b, axis=0, reverse=True) - b
    if workspace_ptr is not None:
        near = near.to(tl.float64)
        tile_b = tl.sum(b, axis=0).to(tl.float64)
        tile_a = tl.sum(a, axis=0).to(tl.float64) - near * tile_b
        tiles_a, tiles_b = sums_before(
            workspace_ptr, item, items, tiles, order, tile_a, tile_b, GROUP
        )
        later_a += (tiles_a + near * tiles_b).to(a.dtype)
        later_b += tiles_b.to(b.dtype)
    b = later_b.to(tl.float32)
    std = inverse(rstd, C)
    return own, (later_a.to(tl.float32) + rise * b) * std, slope - b * std * std


def may_fuse(x: Tensor) -> bool:
    """Whether a kernel over x (B, C, T) may fuse multiplications and additions.

    Of few channels, dx is what is left of g - own, and fma(dy, weight, -own), which does not round
    dy·weight as own did, would leave a rounding more.
    """
    return x.shape[1] >= FEW_CHANNELS.value
