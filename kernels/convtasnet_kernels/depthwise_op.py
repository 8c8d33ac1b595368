"""The depthwise convolution as PyTorch operators with autograd, and its public function.

Built like ``cumulative_op.py``: opaque to torch.compile, the backend travels as an argument.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.checks import DTYPES, check_arguments, check_taps, check_tensor
from convtasnet_kernels.pointwise import statistics_dtype


def depthwise_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dilation: int = 1,
    causal: bool = False,
) -> Tensor:
    """A dilated convolution of each channel by itself that keeps the length.

    y[c, t] = bias_c + Σ_p weight[c, 0, p] · x[c, t - left + p·dilation], x being zero before its
    first frame and behind its last. The taps reach ``left`` = (P - 1)·dilation frames back where
    causal, half of that (rounded down) otherwise: ``torch.nn.functional.conv1d`` with
    ``groups=C`` of the padded map. Sums are float32 (float64 for float64 input).

    Args:
        x: (B, C, T) float16, bfloat16, float32 or float64; B and T may be 0.
        weight: (C, 1, P) taps.
        bias: (C,) or None for 0.
        dilation: frames between two taps, at least 1.
        causal: whether the taps reach back only. Then no later value, NaN neither, reaches an
            earlier output.

    Returns:
        (B, C, T) of x's dtype and device, contiguous.

    Raises:
        ValueError: an argument of another shape, dtype, device or range, or a backend that cannot
            run.

    >>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    >>> depthwise_conv(x, torch.ones(1, 1, 3))
    tensor([[[3., 6., 9., 7.]]])
    >>> depthwise_conv(x, torch.ones(1, 1, 2), dilation=2, causal=True)
    tensor([[[1., 2., 4., 6.]]])
    """
    check_arguments(x, None, bias, None)
    _check_weight(x, weight)
    check_taps(dilation, causal)
    return depthwise_convolution(x, weight, bias, dilation, causal, backend.requested())


def _check_weight(x: Tensor, weight: Tensor) -> None:
    check_tensor("weight", weight)
    fits = weight.dim() == 3 and weight.shape[:2] == (x.shape[1], 1) and weight.shape[2] > 0
    if not fits or weight.dtype not in DTYPES:
        raise ValueError(
            f"weight must be a floating tensor of shape ({x.shape[1]}, 1, taps), "
            f"got {tuple(weight.shape)} of {weight.dtype}"
        )
    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, x on {x.device}: move one of them")


@torch.library.custom_op("convtasnet::depthwise_conv", mutates_args=())
def depthwise_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, causal: bool, wish: str
) -> Tensor:
    """Arguments as in ``depthwise_conv``; ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``."""
    return _path(wish, x).forward(x, weight, bias, dilation, causal)


@torch.library.custom_op("convtasnet::depthwise_conv_backward", mutates_args=())
def depthwise_convolution_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    dilation: int,
    causal: bool,
    needs_params: bool,
    wish: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of x (B, C, T), and of weight, then bias, (C·P + C,), empty if unneeded."""
    return _path(wish, x).backward(dy, x, weight, dilation, causal, needs_params)


def _path(wish: str, x: Tensor) -> ModuleType:
    return backend.module("depthwise_conv", wish, x, "depthwise_torch", "depthwise")


@depthwise_convolution.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, causal: bool, wish: str
) -> Tensor:
    return x.new_empty(x.shape)


@depthwise_convolution_backward.register_fake
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    dilation: int,
    causal: bool,
    needs_params: bool,
    wish: str,
) -> tuple[Tensor, Tensor]:
    sums = weight.numel() + x.shape[1] if needs_params else 0
    return x.new_empty(x.shape), x.new_empty((sums,), dtype=statistics_dtype(x))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, *ctx.options = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight)


def _gradients(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 6
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    dilation, causal, wish = ctx.options
    dx, dparams = depthwise_convolution_backward(
        dy, x, weight, dilation, causal, needs_weight or needs_bias, wish
    )
    taps = weight.numel()
    return (
        dx if needs_x else None,
        dparams[:taps].view(weight.shape).to(weight.dtype) if needs_weight else None,
        dparams[taps:].to(ctx.bias_dtype) if needs_bias else None,
        None,
        None,
        None,
    )


depthwise_convolution.register_autograd(_gradients, setup_context=_setup_context)
