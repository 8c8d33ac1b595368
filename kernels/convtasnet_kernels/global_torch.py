"""The global norm in PyTorch operators: any device and dtype.

Same mathematics, saved tensors and accuracy as the Triton kernels of ``global_.py``; the formulas
are derived in ``kernels/README.md``.
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
    lengths: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Normalizes x.

    Args:
        x: (B, C, T).
        weight: (C,) or None.
        bias: (C,) or None.
        prelu: (1,) slope of a PReLU that comes first, or None.
        lengths: (B,) integers, valid frames, clamped to 0..T; or None for all.
        eps: added to the variance.
        out_dtype: of y; None for x's.

    Returns:
        y (B, C, T), zero beyond the lengths, and the statistics (2, B):
        mean - pivot and 1/sqrt(var + eps); the pivot is the first sample of the item.
    """
    n, padding = _extent(x, lengths)
    d = _pivoted(x, prelu, padding)
    mean = _item_mean(d, n)
    d = _zero(d.sub_(mean[:, None, None]), padding)
    var = _item_mean(d.square(), n)
    stats = torch.stack((mean, (var + eps).rsqrt()))
    y = d.mul_(stats[1][:, None, None])
    if weight is not None:
        y = y.mul_(weight.to(y.dtype)[:, None])
    if bias is not None:
        y = y.add_(bias.to(y.dtype)[:, None])
    return _zero(y, padding).to(out_dtype or x.dtype), stats


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    lengths: Tensor | None,
    needs_params: bool,
    needs_prelu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``forward``.

    Args:
        dy: (B, C, T) gradient of y, of y's dtype.
        x: (B, C, T) the input, before the PReLU.
        weight: (C,) or None.
        prelu: (1,) or None.
        stats: (2, B) from ``forward``.
        lengths: (B,) or None.
        needs_params: whether the gradients of weight and bias are wanted.
        needs_prelu: whether the gradient of the slope is wanted.

    Returns:
        dx (B, C, T) of x's dtype; (2, C) gradients of weight and bias, and (1,) of the slope, in
        the statistics' dtype, empty where not wanted.
    """
    n, padding = _extent(x, lengths)
    mean = stats[0][:, None, None]
    # One element is its own mean: no gradient.
    rstd = torch.where(n > 1, stats[1], 0)[:, None, None]
    xhat = _zero(_pivoted(x, prelu, padding).sub_(mean).mul_(rstd), padding)
    g = dy.to(stats.dtype, copy=True, memory_format=torch.contiguous_format)
    g = _zero(g, padding)
    dparams = stats.new_empty((2, x.shape[1]) if needs_params else (0,))
    if needs_params:
        dparams[0] = (g * xhat).sum((0, 2))
        dparams[1] = g.sum((0, 2))
    if weight is not None:
        g.mul_(weight.to(g.dtype)[:, None])
    own, slope = _item_mean(g, n), _item_mean(g * xhat, n)
    dx = g.sub_(own[:, None, None]).sub_(xhat.mul_(slope[:, None, None])).mul_(rstd)
    dx = _zero(dx, padding)
    dprelu = stats.new_empty(1 if needs_prelu else 0)
    if prelu is not None:
        u = x.to(dx.dtype)
        if needs_prelu:
            dprelu[0] = _zero(dx * u.clamp_max(0), padding).sum()
        dx = torch.where(u > 0, dx, dx * prelu.to(dx.dtype))
    return dx.to(x.dtype), dparams, dprelu


def _extent(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Valid elements (B,) in each item, and where the padding is (B, 1, T) if there are lengths."""
    B, C, T = x.shape
    if lengths is None:
        return torch.full((B,), C * T, device=x.device), None
    lengths = lengths.clamp(0, T).long()
    frames = torch.arange(T, device=x.device)
    return lengths * C, (frames >= lengths[:, None])[:, None]


def _pivoted(x: Tensor, prelu: Tensor | None, padding: Tensor | None) -> Tensor:
    """prelu(x) - pivot in a contiguous tensor of its own, zero in the padding."""
    v = activate(x.contiguous(), prelu)
    return _zero(v - v[:, :1, :1], padding)


def _zero(v: Tensor, padding: Tensor | None) -> Tensor:
    """Returns v with its padding set to zero, in place."""
    return v if padding is None else v.masked_fill_(padding, 0)


def _item_mean(v: Tensor, n: Tensor) -> Tensor:
    """(B, C, T) -> (B,) sums over n; channels are added in float64."""
    return (v.sum(2).double().sum(1) / n.clamp_min(1)).to(v.dtype)
