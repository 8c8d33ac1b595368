"""The cumulative norm in Triton where a program takes a whole item, and so waits for nobody.

It reads the item twice, the second time from the multiprocessor's own cache. Of small maps the
launches cost more than the bytes: there is one. Import this module only where Triton is wanted.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from convtasnet_kernels.cumulative_scan import running_statistics, summed
from convtasnet_kernels.tile_parts import activate


@triton.jit(do_not_specialize=["B", "vectors"])
def _forward_kernel(
    x_ptr,  # (B, C, T) input
    weight_ptr,  # (C,) or None
    bias_ptr,  # (C,) or None
    prelu_ptr,  # (1,) slope or None
    y_ptr,  # out: (B, C, T), of a dtype of its own
    stats_ptr,  # out: (2, B, T) float32, mean - K and rstd
    eps,
    B,
    vectors,  # T / VECTOR
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,  # channels read at a time
    BLOCK_T: tl.constexpr,  # at least T
    VECTOR: tl.constexpr,  # elements read at a time; rows are multiples of it
):
    """Sums around each frame's first channel; see ``cumulative_rows.py``."""
    T = vectors * VECTOR
    item = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BLOCK_T)
    valid = j < T
    x_ptr += item * C * T
    y_ptr += item * C * T
    pivot = activate(tl.load(x_ptr), prelu_ptr)
    first = summed(activate(tl.load(x_ptr + j, mask=valid, other=0.0), prelu_ptr), C)
    total = tl.zeros((BLOCK_T,), first.dtype)
    square = tl.zeros((BLOCK_T,), first.dtype)
    for start in tl.range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        mask = (c < C)[:, None] & valid[None, :]
        u = tl.load(x_ptr + (c[:, None] * T + j[None, :]), mask=mask, other=0.0)
        d = summed(activate(u, prelu_ptr), C) - first[None, :]
        if C % BLOCK_C != 0:
            d = tl.where((c < C)[:, None], d, 0.0)
        total += tl.sum(d, axis=0)
        square += tl.sum(d * d, axis=0)
    rest = total / C
    var = square / C - rest * rest
    var = tl.where(var < 0, 0.0, var)  # rounding; a maximum would swallow NaN
    zero = tl.zeros((), tl.float64)
    mean, rstd = running_statistics((first - pivot) + rest, var, zero, zero, 0, eps, C)
    stats_ptr += item * T + j
    tl.store(stats_ptr, mean, mask=valid)
    tl.store(stats_ptr + tl.cast(B, tl.int64) * T, rstd, mask=valid)
    for start in tl.range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        mask = (c < C)[:, None] & valid[None, :]
        offsets = c[:, None] * T + j[None, :]
        x = activate(tl.load(x_ptr + offsets, mask=mask, other=0.0), prelu_ptr)
        y = (x - pivot - mean[None, :]) * rstd[None, :]
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
        if bias_ptr is not None:
            y += tl.load(bias_ptr + c, mask=c < C, other=0.0).to(tl.float32)[:, None]
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


ELEMENTS = 2**15  # of an item, at most
FRAMES = 512  # of an item, at most
CHANNELS, WARPS = 16, 16
WARP_ELEMENTS = 256  # read at a time by a warp, at least


def is_small(x: Tensor) -> bool:
    """Whether these kernels serve x (B, C, T)."""
    _, C, T = x.shape
    return item_frames(C) >= T


def item_frames(C: int) -> int:
    """Frames of an item of C channels, at most."""
    return min(FRAMES, ELEMENTS // triton.next_power_of_2(C))


def item_constants(x: Tensor, warps: int) -> dict[str, Any]:
    """The constants of a kernel over x (B, C, T), of so many warps at most."""
    C = x.shape[1]
    frames = item_frames(C)
    channels = min(CHANNELS, triton.next_power_of_2(C))
    return {
        "C": C,
        "BLOCK_C": channels,
        "BLOCK_T": frames,
        "VECTOR": vector(x),
        "num_warps": max(1, min(warps, channels * frames // WARP_ELEMENTS)),
    }


def vector(x: Tensor) -> int:
    """Elements that one load may take in each row of x: 16 bytes, one word of 4 bytes, or one.

    Few choices, so that few binaries serve all lengths.
    """
    size = x.element_size()
    for elements in (16 // size, 4 // size):
        if x.shape[2] % elements == 0:
            return elements
    return 1


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    y: Tensor,
    stats: Tensor,
    eps: float,
) -> None:
    """Fills y (B, C, T) and stats (2, B, T) for contiguous x (B, C, T) on the current device."""
    B, _, T = x.shape
    fixed = item_constants(x, WARPS)
    _forward_kernel[(B,)](x, weight, bias, prelu, y, stats, eps, B, T // fixed["VECTOR"], **fixed)
