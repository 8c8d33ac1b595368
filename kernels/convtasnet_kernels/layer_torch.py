"""The layer norm in PyTorch operators: any device and dtype.

Same saved tensors and accuracy as the Triton kernels of ``layer.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.pointwise import statistics_dtype


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Normalizes each row of x.

    Args:
        x: (M, N).
        weight: (N,) or None.
        bias: (N,) or None.
        eps: added to the variance.

    Returns:
        y (M, N) of x's dtype, and the statistics (3, M): the mean, what its rounding left (the
        mean of the deviations from it) and 1/sqrt(var + eps).
    """
    v = x.contiguous().to(statistics_dtype(x))
    mean = v.mean(1, keepdim=True)
    weight, bias = (p if p is None else p.to(v.dtype) for p in (weight, bias))
    y, rest, rstd = torch.native_layer_norm(v - mean, x.shape[1:], weight, bias, eps)
    return y.to(x.dtype), torch.stack((mean, rest, rstd)).squeeze(2)


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Gradients of ``forward``.

    Args:
        dy: (M, N) gradient of y.
        x: (M, N) the input.
        weight: (N,) or None.
        stats: (3, M) from ``forward``.
        needs_params: whether the gradients of weight and bias are wanted.
        dtype: theirs.

    Returns:
        dx (M, N) of x's dtype, and the gradients of weight and bias (2, N), empty if not wanted.
    """
    mean, rest, rstd = stats[:, :, None]
    d = x.contiguous().to(stats.dtype) - mean
    g = dy.contiguous().to(stats.dtype)
    if weight is None:  # the operator gives no weight's gradient without a weight
        weight = stats.new_ones(x.shape[1])
    dx, dweight, dbias = torch.ops.aten.native_layer_norm_backward(
        g,
        d,
        x.shape[1:],
        rest,
        rstd,
        weight.to(stats.dtype),
        weight.to(stats.dtype),  # stands for a bias, of which only the shape counts
        [True, needs_params, needs_params],
    )
    if x.shape[1] == 1:  # one element is its own mean; the operator leaves a rounding times rstd
        dx = g - g
    dparams = torch.stack((dweight, dbias)) if needs_params else stats.new_empty((0,))
    return dx.to(x.dtype), dparams.to(dtype)
