"""Slow, readable definitions of the norms: what the fast paths are tested against.

Meant for float64 input. x is (B, C, T), time last; autograd differentiates all of it. A leading
PReLU, ``prelu`` of shape (1,), is applied to x first. The variance is biased, eps inside the root.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def cumulative(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
) -> Tensor:
    """Conv-TasNet's cLN: frame t is normalized over all channels of frames 0..t, as in Luo and
    Mesgarani, 2019 (arXiv:1809.07454).

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]], dtype=torch.float64)
    >>> cumulative(x)[0, :, 0]  # mean 2, variance 1
    tensor([-1.0000,  1.0000], dtype=torch.float64)
    """
    x = x if prelu is None else F.prelu(x, prelu)
    # A norm does not feel a constant shift; float64 does, once squares are subtracted.
    x = x - x[:, :1, :1].detach()
    n = x.shape[1] * torch.arange(1, x.shape[2] + 1, dtype=x.dtype, device=x.device)
    mean = x.sum(1).cumsum(1) / n
    var = (x**2).sum(1).cumsum(1) / n - mean**2
    return _affine(x, mean[:, None], var[:, None].clamp_min(0), weight, bias, eps)


def global_(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Conv-TasNet's gLN (arXiv:1809.07454): each item over all its channels and valid frames.

    Args:
        x: (B, C, T).
        weight: (C,).
        bias: (C,).
        eps: added to the variance.
        prelu: (1,) slope.
        lengths: (B,) valid frames of each item, all of T if None; the output beyond is zero.

    >>> x = torch.tensor([[[1.0, 3.0, 9.0]]], dtype=torch.float64)
    >>> global_(x, lengths=torch.tensor([2]))
    tensor([[[-1.0000,  1.0000,  0.0000]]], dtype=torch.float64)
    """
    x = x if prelu is None else F.prelu(x, prelu)
    items = []
    for b in range(x.shape[0]):
        valid = x[b : b + 1, :, : x.shape[2] if lengths is None else int(lengths[b])]
        mean = valid.mean((1, 2), keepdim=True)
        var = ((valid - mean) ** 2).mean((1, 2), keepdim=True)
        y = _affine(valid, mean, var, weight, bias, eps)
        items.append(F.pad(y, (0, x.shape[2] - y.shape[2])))
    return torch.cat(items)


def channelwise(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
) -> Tensor:
    """Each frame over its own channels; other toolkits call this one "cLN", the paper does not.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]], dtype=torch.float64)
    >>> channelwise(x)
    tensor([[[-1.0000, -1.0000],
             [ 1.0000,  1.0000]]], dtype=torch.float64)
    """
    x = x if prelu is None else F.prelu(x, prelu)
    mean = x.mean(1, keepdim=True)
    var = ((x - mean) ** 2).mean(1, keepdim=True)
    return _affine(x, mean, var, weight, bias, eps)


def _affine(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    y = (x - mean) / torch.sqrt(var + eps)
    y = y if weight is None else y * weight[:, None]
    return y if bias is None else y + bias[:, None]
