"""The depthwise convolution in PyTorch operators: any device and dtype."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels.pointwise import statistics_dtype


def padding(taps: int, dilation: int, causal: bool) -> tuple[int, int]:
    """Zeros before and behind the map that keep its length."""
    reach = dilation * (taps - 1)
    left = reach if causal else reach // 2
    return left, reach - left


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, causal: bool) -> Tensor:
    """Convolves x in float32 (float64 for float64 input).

    Args:
        x: (B, C, T).
        weight: (C, 1, P).
        bias: (C,) or None.
        dilation: frames between two taps.
        causal: whether all zeros come before the map, none behind it.

    Returns:
        (B, C, T) of x's dtype.
    """
    if x.numel() == 0:
        return x.new_empty(x.shape)
    dtype = statistics_dtype(x)
    padded = F.pad(x.contiguous().to(dtype), padding(weight.shape[2], dilation, causal))
    bias = bias if bias is None else bias.to(dtype)
    with torch.autocast(x.device.type, enabled=False):  # it would round x and weight once more
        y = F.conv1d(padded, weight.to(dtype), bias, dilation=dilation, groups=x.shape[1])
    return y.to(x.dtype)


def backward(
    dy: Tensor, x: Tensor, weight: Tensor, dilation: int, causal: bool, needs_params: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of ``forward``.

    Args:
        dy: (B, C, T) gradient of y.
        x: (B, C, T) the input.
        weight: (C, 1, P).
        dilation: as in ``forward``.
        causal: as in ``forward``.
        needs_params: whether the gradients of weight and bias are wanted.

    Returns:
        dx (B, C, T) of x's dtype; (C·P + C,) gradients of weight, then bias, in float32 (float64
        for float64 input), empty where not wanted.
    """
    _, C, T = x.shape
    dtype = statistics_dtype(x)
    sums = weight.numel() + C if needs_params else 0
    if x.numel() == 0:
        return x.new_empty(x.shape), x.new_zeros((sums,), dtype=dtype)
    left, right = padding(weight.shape[2], dilation, causal)
    padded = F.pad(x.contiguous().to(dtype), (left, right))
    dy = dy.contiguous().to(dtype)
    dpadded, _, _ = torch.ops.aten.convolution_backward(
        dy,
        padded,
        weight.to(dtype),
        None,  # no bias
        [1],  # stride
        [0],  # padding
        [dilation],
        False,  # not transposed
        [0],  # output padding
        C,  # groups
        [True, False, False],  # of x only
    )
    dx = dpadded[:, :, left : left + T].to(x.dtype).contiguous()
    if not needs_params:
        return dx, x.new_empty((0,), dtype=dtype)
    # PyTorch's convolution adds up over time in one chain, which loses digits; sum() adds pairs.
    views = (padded[:, :, p * dilation :][:, :, :T] for p in range(weight.shape[2]))
    dweight = torch.stack([(dy * view).sum((0, 2)) for view in views], 1)
    return dx, torch.cat((dweight.flatten(), dy.sum((0, 2))))
