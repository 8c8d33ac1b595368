"""The cumulative norm's sums over time: from statistics of frames to running ones."""

from __future__ import annotations

import triton
import triton.language as tl

# So many channels average the roundings of a frame's statistics away. With fewer, divisions and
# roots are exact to the last bit, and what is summed over time is summed in float64.
FEW_CHANNELS = tl.constexpr(16)


@triton.jit
def summed(x, C: tl.constexpr):
    """Gives x as it is summed over channels and time: float64 of few channels, else float32."""
    if C < FEW_CHANNELS:
        return x.to(tl.float64)
    else:
        return x.to(tl.float32)


@triton.jit
def inverse(x, C: tl.constexpr):
    """Gives 1/x."""
    if C < FEW_CHANNELS:
        return tl.div_rn(1.0, x)
    else:
        return 1.0 / x


@triton.jit
def tile_sums(mean, var, valid, frames):
    """Sums over the tile of m_t and of v_t + m_t², float64, added up in float32 around the first
    frame's mean: the means of neighbours differ little, their squares may be huge.
    """
    j = tl.arange(0, mean.shape[0])
    near = tl.sum(tl.where(j == 0, mean, 0.0), axis=0)
    e = tl.where(valid, mean - near, 0.0)
    first = tl.sum(e, axis=0).to(tl.float64)
    second = tl.sum(tl.where(valid, var + e * e, 0.0), axis=0).to(tl.float64)
    near = near.to(tl.float64)
    n = frames.to(tl.float64)
    return n * near + first, second + near * (2.0 * first + n * near)


@triton.jit
def running_statistics(mean, var, before_m, before_s, start, eps, C: tl.constexpr):
    """Mean - K and rstd of frames 0..t for each t of the tile, float32.

    Args:
        mean: (BLOCK_T,) float32, m_t - K of each frame by itself.
        var: (BLOCK_T,) float32, v_t of each frame by itself.
        before_m: float64, the sum of m_t over the frames before the tile.
        before_s: float64, the sum of v_t + m_t² over them.
        start: number of those frames.
        eps: added to the variance.
        C: channels.

    What came before is a mean and a sum of squared deviations from it; the tile's frames are
    merged as deviations from that mean (in the first tile, from its first frame's).
    """
    j = tl.arange(0, mean.shape[0])
    if C < FEW_CHANNELS:
        mean, var = mean.to(tl.float64), var.to(tl.float64)
    near = tl.sum(tl.where(j == 0, mean, 0.0), axis=0)
    n = tl.maximum(start, 1).to(tl.float64)
    near = tl.where(start == 0, near, (before_m / n).to(near.dtype))
    spread = (before_s - before_m * (before_m / n)).to(near.dtype)
    # Negative by rounding; a maximum would swallow NaN.
    spread = tl.where((start == 0) | (spread < 0), 0.0, spread)
    e = mean - near
    share = 1.0 / (start + j + 1).to(near.dtype)
    total = tl.cumsum(e, axis=0)
    rise = total * share
    running = (spread + tl.cumsum(var + e * e, axis=0) - total * rise) * share
    running = tl.where(running < 0, 0.0, running)
    if C < FEW_CHANNELS:
        rstd = tl.div_rn(1.0, tl.sqrt_rn((running + eps).to(tl.float32)))
    else:
        rstd = tl.rsqrt(running + eps)
    return (near + rise).to(tl.float32), rstd
