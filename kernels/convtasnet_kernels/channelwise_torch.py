"""The channelwise norm in PyTorch operators: any device and dtype.

Same saved tensors and accuracy as the Triton kernels of ``channelwise.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.pointwise import activate


def forward(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalizes x.

    Args:
        x: (B, C, T).
        weight: (C,) or None.
        bias: (C,) or None.
        prelu: (1,) slope of a PReLU that comes first, or None.
        eps: added to the variance.
        out_dtype: of y; None for x's.

    Returns:
        y (B, C, T), and the statistics (3, B, T): the mean, what its rounding left
        (the mean of the deviations from it) and 1/sqrt(var + eps).
    """
    x = x.contiguous()
    v = activate(x, prelu)
    mean = v.mean(1)
    d = v - mean[:, None]
    rest = d.mean(1)
    d = d.sub_(rest[:, None])
    rstd = (d.square().mean(1) + eps).rsqrt_()
    y = d.mul_(rstd[:, None])
    if weight is not None:
        y = y.mul_(weight.to(y.dtype)[:, None])
    if bias is not None:
        y = y.add_(bias.to(y.dtype)[:, None])
    return y.to(out_dtype or x.dtype), torch.stack((mean, rest, rstd))


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``forward``.

    Args:
        dy: (B, C, T) gradient of y, of y's dtype.
        x: (B, C, T) the input, before the PReLU.
        weight: (C,) or None.
        prelu: (1,) or None.
        stats: (3, B, T) from ``forward``.
        needs_params: whether the gradients of weight and bias are wanted.
        needs_prelu: whether the gradient of the slope is wanted.

    Returns:
        dx (B, C, T) of x's dtype; (2, C) gradients of weight and bias, and (1,) of the slope, in
        the statistics' dtype, empty where not wanted.
    """
    x = x.contiguous()
    mean, rest, rstd = (s[:, None] for s in stats)
    xhat = (activate(x, prelu) - mean).sub_(rest).mul_(rstd)
    g = dy.to(stats.dtype, copy=True, memory_format=torch.contiguous_format)
    gx = g * xhat
    dparams = stats.new_empty((2, x.shape[1]) if needs_params else (0,))
    if needs_params:
        dparams[0] = gx.sum((0, 2))
        dparams[1] = g.sum((0, 2))
    if weight is not None:
        w = weight.to(g.dtype)[:, None]
        g, gx = g.mul_(w), gx.mul_(w)
    own, slope = g.mean(1, keepdim=True), gx.mean(1, keepdim=True)
    dx = g.sub_(own).sub_(xhat.mul_(slope)).mul_(rstd)
    dprelu = stats.new_empty(1 if needs_prelu else 0)
    if prelu is not None:
        u = x.to(dx.dtype)
        if needs_prelu:
            dprelu[0] = (dx * u.clamp_max(0)).sum()
        dx = torch.where(u > 0, dx, dx * prelu.to(dx.dtype))
    return dx.to(x.dtype), dparams, dprelu
