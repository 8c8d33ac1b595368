"""The statistics of a tile's frames, as the fused block's kernels want them in registers.

A tile is ``R`` vectors of ``V`` frames, 16 bytes of the map, (R, V); rows are whole vectors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from convtasnet_kernels.block_tile import prelu


@triton.jit
def load_frames(ptr, vector, T, V: tl.constexpr):
    """float32 of the vectors (R,) of a row of frames (T,), 0 outside of it -> (R, V).

    Read by 4 frames, so that each thread gets its own frames of a map's vector of 8.
    """
    live = ((vector >= 0) & (vector * V < T))[:, None]
    frame = (vector * V)[:, None] + tl.arange(0, 4)[None, :]
    first = tl.load(ptr + frame, mask=live, other=0.0)
    if V == 4:
        return first
    else:
        second = tl.load(ptr + frame + 4, mask=live, other=0.0)
        both = tl.permute(tl.join(first, second), (0, 2, 1))
        return tl.reshape(both, (vector.shape[0], V))


@triton.jit
def load_pivot(u_ptr, bias_ptr, slope, item, C, T, FOLD: tl.constexpr):
    """K, the first sample of an item (int64) of u + bias behind the PReLU, float32."""
    u = tl.load(u_ptr + item * C * T).to(tl.float32)
    if bias_ptr is not None:
        u += tl.load(bias_ptr).to(tl.float32)
    return prelu(u, slope, FOLD)


@triton.jit
def load_statistics(stats_ptr, pivot, item, B, vector, T, V: tl.constexpr, FOLD: tl.constexpr):
    """rstd, center and rest (R, V) of an item's frames, for ``normalized``.

    Args:
        stats_ptr: (2, B, T) float32, mean - K and rstd.
        pivot: K, float32.
        item: int64.
        B: items.
        vector: (R,) in the row.
        T: frames of a row.
        V: frames of a vector.
        FOLD: whether the map has 16 bits: then its own rounding hides that of mean·rstd.
    """
    mean = load_frames(stats_ptr + item * T, vector, T, V)
    rstd = load_frames(stats_ptr + (B + item) * T, vector, T, V)
    center = pivot + mean
    if FOLD:
        center *= rstd
        return rstd, center, center
    else:
        part = center - pivot
        low = (pivot - (center - part)) + (mean - part)  # what the rounding of center left
        return rstd, center, low * rstd


@triton.jit
def normalized(v, rstd, center, rest, FOLD: tl.constexpr):
    """Normalizes v, the map behind the PReLU."""
    if FOLD:
        return v * rstd - center
    else:
        return (v - center) * rstd - rest
