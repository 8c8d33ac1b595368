"""Where a tile of the channelwise norm's kernels lies."""

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
