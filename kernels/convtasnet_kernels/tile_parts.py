"""What programs of several kernels do to their tiles: the PReLU, two sums at once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activate(u, prelu_ptr):
    """Gives float32 of u, through the PReLU if there is one."""
    u = u.to(tl.float32)
    if prelu_ptr is not None:
        u = tl.where(u > 0, u, u * tl.load(prelu_ptr).to(tl.float32))
    return u


@triton.jit
def both_sums(a, b, axis: tl.constexpr = 0):
    """Sums of two tiles along an axis, in one exchange between the warps."""
    return tl.split(tl.sum(tl.join(a, b), axis=axis))


@triton.jit
def both_running_sums(a, b, reverse: tl.constexpr = False):
    """Running sums of two tiles along their first axis, likewise; reverse: from the end."""
    return tl.split(tl.cumsum(tl.join(a, b), axis=0, reverse=reverse))
