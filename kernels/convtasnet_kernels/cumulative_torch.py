"""The cumulative norm in PyTorch operators: any device and dtype, no loop over time.

Same mathematics, saved tensors and accuracy as the Triton kernels of ``cumulative.py``; the
formulas are derived in ``kernels/README.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.pointwise import activate


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, prelu: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Normalizes x.

    Args:
        x: (B, C, T).
        weight: (C,) or None.
        bias: (C,) or None.
        prelu: (1,) slope of a PReLU that comes first, or None.
        eps: added to the variance.

    Returns:
        y (B, C, T) of x's dtype, and the statistics (2, B, T): mean - K and 1/sqrt(var + eps).
    """
    x = x.contiguous()
    d = _pivoted(x, prelu)
    frame_mean = d.mean(1)
    frame_var = (d - frame_mean[:, None]).square_().mean(1)
    # Two (B, T) sums in float64: a float32 running sum loses digits with every hour of audio.
    m = frame_mean.double()
    n = torch.arange(1, x.shape[2] + 1, dtype=torch.float64, device=x.device)
    mean = m.cumsum(1) / n
    var = ((frame_var.double() + m.square()).cumsum(1) / n - mean.square()).clamp_min_(0)
    stats = torch.stack((mean, (var + eps).rsqrt())).to(d.dtype)
    y = d.sub_(stats[0][:, None]).mul_(stats[1][:, None])
    if weight is not None:
        y = y.mul_(weight.to(y.dtype)[:, None])
    if bias is not None:
        y = y.add_(bias.to(y.dtype)[:, None])
    return y.to(x.dtype), stats


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
        dy: (B, C, T) gradient of y.
        x: (B, C, T) the input, before the PReLU.
        weight: (C,) or None.
        prelu: (1,) or None.
        stats: (2, B, T) from ``forward``.
        needs_params: whether the gradients of weight and bias are wanted.
        needs_prelu: whether the gradient of the slope is wanted.

    Returns:
        dx (B, C, T) of x's dtype; (2, C) gradients of weight and bias, and (1,) of the slope, in
        the statistics' dtype, empty where not wanted.
    """
    x = x.contiguous()
    mean, rstd = stats
    xhat = _pivoted(x, prelu).sub_(mean[:, None]).mul_(rstd[:, None])
    g = dy.to(stats.dtype, copy=True, memory_format=torch.contiguous_format)
    dparams = stats.new_empty((2, x.shape[1]) if needs_params else (0,))
    if needs_params:
        dparams[0] = (g * xhat).sum((0, 2))
        dparams[1] = g.sum((0, 2))
    if weight is not None:
        g.mul_(weight.to(g.dtype)[:, None])
    own, later, slope = _time_sums(g.sum(1), (g * xhat).sum(1), stats, x.shape[1])
    # The frame's own part first: at C = 1 it cancels g, and what follows may be far smaller.
    dx = g.sub_(own[:, None]).add_(later[:, None]).sub_(xhat.mul_(slope[:, None]))
    dx = dx.mul_(rstd[:, None])
    dprelu = stats.new_empty(1 if needs_prelu else 0)
    if prelu is not None:
        u = x.to(dx.dtype)
        if needs_prelu:
            dprelu[0] = (dx * u.clamp_max(0)).sum()
        dx = torch.where(u > 0, dx, dx * prelu.to(dx.dtype))
    return dx.to(x.dtype), dparams, dprelu


def _pivoted(x: Tensor, prelu: Tensor | None) -> Tensor:
    """prelu(x) - K in a tensor of its own; K is the first sample of the item, so of frame 0."""
    v = activate(x, prelu)
    return v - v[:, :1, :1]


def _time_sums(
    g_sum: Tensor, gx_sum: Tensor, stats: Tensor, channels: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The (B, T) vectors of dx = rstd·(g - own + later - slope·xhat)."""
    mean, rstd = stats.double()
    n = channels * torch.arange(1, mean.shape[1] + 1, dtype=torch.float64, device=mean.device)
    own, own_slope = g_sum / n, gx_sum / n
    dvar = -rstd.square() * own_slope
    b = _later_sum(dvar)
    a = _later_sum(-rstd * own - dvar * mean)
    later = (a + mean * b) / rstd
    slope = own_slope - b / rstd.square()
    return own.to(stats.dtype), later.to(stats.dtype), slope.to(stats.dtype)


def _later_sum(terms: Tensor) -> Tensor:
    """(B, T) -> the sum of the frames after each one."""
    later = torch.cat((terms[:, 1:], torch.zeros_like(terms[:, :1])), 1)
    return later.flip(1).cumsum(1).flip(1)
