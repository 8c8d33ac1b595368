"""The cumulative norm in PyTorch operators: any device and dtype, no loop over time.

Same mathematics, saved tensors and accuracy as the Triton kernels of ``cumulative.py``; the
formulas are derived in ``kernels/README.md``. Operators and their order are chosen for a CPU: no
comparison to booleans and no ``torch.where``, which are ten times slower there than arithmetic, and
a few items at a time, so that the many passes over them hit its caches.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels.pointwise import statistics_dtype

ELEMENTS_A_THREAD = 2**18  # 1 MiB of float32


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
        y (B, C, T), and the statistics (2, B, T): mean - K and 1/sqrt(var + eps).
    """
    x = x.contiguous()
    y = torch.empty_like(x, dtype=out_dtype)
    stats = x.new_empty((2, x.shape[0], x.shape[2]), dtype=statistics_dtype(x))
    with torch.autocast(x.device.type, enabled=False):  # which would round the PReLU's output
        for few in _few_items(x):
            _normalize(x[few], weight, bias, prelu, eps, y[few], stats[:, few])
    return y, stats


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
        stats: (2, B, T) from ``forward``.
        needs_params: whether the gradients of weight and bias are wanted.
        needs_prelu: whether the gradient of the slope is wanted.

    Returns:
        dx (B, C, T) of x's dtype; (2, C) gradients of weight and bias, and (1,) of the slope, in
        the statistics' dtype, empty where not wanted.
    """
    x = x.contiguous()
    dx = torch.empty_like(x)
    dparams = stats.new_zeros((2, x.shape[1]) if needs_params else (0,))
    dprelu = stats.new_zeros(1 if needs_prelu else 0)
    with torch.autocast(x.device.type, enabled=False):  # which would round the PReLU's output
        for few in _few_items(x):
            _propagate(dy[few], x[few], weight, prelu, stats[:, few], dx[few], dparams, dprelu)
    return dx, dparams, dprelu


def _few_items(x: Tensor) -> Iterator[slice]:
    """Slices of the batch; all of it at once on any device but a CPU."""
    items = x.shape[0]
    if x.device.type == "cpu":
        threads = max(2, torch.get_num_threads())  # less work than for two is mostly calls
        items = ELEMENTS_A_THREAD * threads // max(1, x.shape[1] * x.shape[2])
    for start in range(0, x.shape[0], max(1, items)):
        yield slice(start, start + max(1, items))


def _normalize(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    y: Tensor,
    stats: Tensor,
) -> None:
    """Writes y and stats of a few items."""
    d = _pivoted(x, prelu, y if y.dtype == stats.dtype else torch.empty_like(x, dtype=stats.dtype))
    frame_mean = d.mean(1)
    frame_var = (d - frame_mean[:, None]).square_().mean(1)
    stats[0], stats[1] = _statistics(frame_mean.double(), frame_var, eps)
    d.sub_(stats[0][:, None]).mul_(stats[1][:, None])
    if weight is not None:
        d.mul_(weight.to(d.dtype)[:, None])
    if bias is not None:
        d.add_(bias.to(d.dtype)[:, None])
    if d is not y:
        y.copy_(d)


def _propagate(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    dx: Tensor,
    dparams: Tensor,
    dprelu: Tensor,
) -> None:
    """Writes dx of a few items and adds to the gradients of the parameters that are wanted."""
    mean, rstd = stats
    xhat = _pivoted(x, prelu, torch.empty_like(x, dtype=stats.dtype))
    xhat.sub_(mean[:, None]).mul_(rstd[:, None])
    g = dx if dx.dtype == stats.dtype else torch.empty_like(xhat)
    g.copy_(dy)
    gx = g * xhat
    if dparams.numel():
        dparams[0] += gx.sum((0, 2))
        dparams[1] += g.sum((0, 2))
    if weight is not None:
        scale = weight.to(g.dtype)[:, None]
        g.mul_(scale)
        gx.mul_(scale)
    own, later, slope = _time_sums(g.sum(1), gx.sum(1), stats, x.shape[1])
    # The frame's own part first: at C = 1 it cancels g, and what follows may be far smaller.
    g.sub_(own[:, None]).add_(later[:, None]).addcmul_(xhat, slope[:, None], value=-1)
    g.mul_(rstd[:, None])
    if prelu is not None:
        negative = torch.mul(g, torch.le(x, 0, out=gx), out=gx)  # 0 where the PReLU is the identity
        if dprelu.numel():
            dprelu += (negative * x).sum()
        g.addcmul_(negative, prelu.to(g.dtype) - 1)
    if g is not dx:
        dx.copy_(g)


def _pivoted(x: Tensor, prelu: Tensor | None, out: Tensor) -> Tensor:
    """prelu(x) - K in out; K is the first sample of the item, so of frame 0."""
    v = x if x.dtype == out.dtype else out.copy_(x)
    if prelu is not None:
        v = F.prelu(v, prelu.to(v.dtype))
    return torch.sub(v, v[:, :1, :1].clone(), out=out)


def _statistics(mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Of each frame alone (B, T) -> mean and 1/sqrt(var + eps) of all frames up to it, float64.

    float32 sums over time would lose digits with every hour of audio.
    """
    n = torch.arange(1, mean.shape[1] + 1, dtype=torch.float64, device=mean.device)
    square = mean.square().add_(var).cumsum(1).div_(n)
    mean = mean.cumsum(1).div_(n)
    var = square.addcmul_(mean, mean, value=-1).clamp_min_(0)
    return mean, var.add_(eps).rsqrt_()


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
