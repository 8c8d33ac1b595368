"""What the channelwise norm's kernels share: the place of a tile, the PReLU."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(pid, T, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr):
    """Item, frames (BLOCK_T,) and offsets of a block's first channels, (BLOCK_C, BLOCK_T)."""
    tiles = tl.cdiv(T, BLOCK_T)
    t = (pid % tiles) * BLOCK_T + tl.arange(0, BLOCK_T)
    channel = tl.arange(0, BLOCK_C).to(tl.int64)
    return (pid // tiles).to(tl.int64), t, channel[:, None] * T + t[None, :]


@triton.jit
def _activate(u, prelu_ptr):
    if prelu_ptr is not None:
        u = tl.where(u > 0, u, u * tl.load(prelu_ptr).to(tl.float32))
    return u


@triton.jit
def _sums(a, b):
    """Sums over the channels of two (BLOCK_C, BLOCK_T) tiles, in one exchange between the warps."""
    return tl.split(tl.sum(tl.join(a, b), axis=0))
