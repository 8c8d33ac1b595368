"""The global norm in PyTorch operators that torch.compile fuses into few passes over memory."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.backend import log_torch_only
from convtasnet_kernels.checks import check_arguments, check_lengths
from convtasnet_kernels.pointwise import activate, affine


def global_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Conv-TasNet's global layer norm (gLN): each item over all its channels and valid frames.

    From Luo and Mesgarani, 2019 (arXiv:1809.07454); the same as ``GroupNorm(1, C)`` where all
    frames are valid. It has a PyTorch path only, on every device; compile it for speed.
    Statistics are float32 (float64 for float64 input) around the first sample of the item.

    Args:
        x: (B, C, T) float16, bfloat16, float32 or float64; B and T may be 0.
        weight: (C,) scale, or None for 1.
        bias: (C,) shift, or None for 0.
        eps: added to the variance, inside the root.
        prelu: (1,) slope of a PReLU applied to x first, or None for none.
        lengths: (B,) integers, valid frames of each item, 0 to T; None for all. What lies beyond
            them (NaN, too) has no influence and gets no gradient, and the output there is zero.
            On a GPU the values are clamped to [0, T], not checked, as that would wait for it.

    Returns:
        (B, C, T) of x's dtype and device.

    Raises:
        ValueError: an argument of another shape, dtype, device or range.

    >>> x = torch.tensor([[[1.0, 3.0, 9.0]]])
    >>> global_layer_norm(x, lengths=torch.tensor([2]))
    tensor([[[-1.,  1.,  0.]]])
    """
    check_arguments(x, weight, bias, prelu)
    log_torch_only("global_layer_norm", x)
    if lengths is not None:
        check_lengths(lengths, x)
        return _masked(x, weight, bias, eps, prelu, lengths)
    v = activate(x, prelu)
    d = v - v[:, :1, :1].detach()
    if x.numel() == 0:  # no statistics of nothing; the graph stays whole
        return affine(d, weight, bias).to(x.dtype)
    var, mean = torch.var_mean(d, dim=(1, 2), correction=0, keepdim=True)
    return affine((d - mean) * torch.rsqrt(var + eps), weight, bias).to(x.dtype)


def _masked(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    prelu: Tensor | None,
    lengths: Tensor,
) -> Tensor:
    """The norm over the first lengths[b] frames; every choice by ``where``, so NaN stays behind."""
    lengths = lengths.to(x.device, non_blocking=True).clamp(0, x.shape[2])[:, None, None]
    valid = torch.arange(x.shape[2], device=x.device) < lengths
    zero = torch.zeros((), dtype=x.dtype, device=x.device)
    v = activate(torch.where(valid, x, zero), prelu)
    zero = zero.to(v.dtype)
    n = (lengths * x.shape[1]).clamp_min(1).to(v.dtype)
    d = torch.where(valid, v - v[:, :1, :1].detach(), zero)
    d = torch.where(valid, d - d.sum((1, 2), keepdim=True) / n, zero)
    var = d.square().sum((1, 2), keepdim=True) / n
    y = affine(d * torch.rsqrt(var + eps), weight, bias)
    return torch.where(valid, y, zero).to(x.dtype)
