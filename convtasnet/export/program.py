"""A model as a torch.export program, of PyTorch's own operators alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from convtasnet.model import ConvTasNet
from convtasnet_kernels.depthwise_torch import forward as depthwise
from convtasnet_kernels.pointwise import activate

Parameter = Tensor | None


def export_program(model: ConvTasNet) -> ExportedProgram:
    """Export ``model(mixture)`` for mixtures (B, T) of any batch and length.

    Norms and depthwise convolutions are written out, so that the program runs where nothing of this
    project is installed. Statistics over time are float64 sums.

    Args:
        model: a model on the CPU; is exported in eval mode.

    Returns:
        A program that takes (B, T) and gives (B, n_src, T), T from ``kernel_size + stride`` on;
        ``torch.export.save`` writes it to a file.

    Raises:
        ValueError: the model is on another device.

    Example:
        >>> size = {"n_filters": 16, "bn_chan": 8, "hid_chan": 16, "skip_chan": 8}
        >>> model = ConvTasNet(**size, n_blocks=1, n_repeats=1)
        >>> export_program(model).module()(torch.randn(3, 1000)).shape
        torch.Size([3, 2, 1000])
    """
    like = model.separator.bottleneck.weight
    if like.device.type != "cpu":
        raise ValueError(f"the model is on {like.device}: move it to the CPU before the export")
    plain = copy.deepcopy(model).eval().requires_grad_(False)
    plain.frame_alignment = 1  # rows of any length: alignment would be a condition on T
    shortest = model.kernel_size + model.stride
    example = torch.zeros(2, 10 * shortest, dtype=like.dtype)
    shapes = ({0: Dim("batch"), 1: Dim("samples", min=shortest)},)
    # The model switches autocast off around its waveforms; nothing switches it on here.
    with mock.patch.object(torch, "autocast", return_value=nullcontext()):
        program = torch.export.export(plain, (example,), dynamic_shapes=shapes, strict=False)
    program = program.run_decompositions(_written_out())
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # of this machine
    return program


def _written_out() -> dict[Any, Callable[..., Any]]:
    """This project's operators, in functional operators of PyTorch."""
    ops = torch.ops.convtasnet
    return {
        ops.cumulative_norm.default: _cumulative,
        ops.global_norm.default: _global,
        ops.channelwise_norm.default: _channelwise,
        ops.depthwise_conv.default: _depthwise,
    }


def _cumulative(
    x: Tensor,
    weight: Parameter,
    bias: Parameter,
    prelu: Parameter,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    v = activate(x, prelu)
    v = v - v[:, :1, :1]  # around a value of its own, as a large mean would cost digits
    mean = v.mean(1)
    square = (v - mean[:, None]).square().mean(1) + mean.double().square()
    count = torch.arange(1, x.shape[2] + 1, dtype=torch.float64, device=x.device)
    mean = mean.double().cumsum(1) / count
    variance = (square.cumsum(1) / count - mean.square()).clamp(min=0)
    return _affine(v, mean[:, None], variance[:, None], weight, bias, eps, out_dtype)


def _global(
    x: Tensor,
    weight: Parameter,
    bias: Parameter,
    prelu: Parameter,
    lengths: Parameter,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    assert lengths is None
    v = activate(x, prelu)
    mean = _mean(v)
    return _affine(v, mean, _mean((v - mean.to(v.dtype)).square()), weight, bias, eps, out_dtype)


def _mean(v: Tensor) -> Tensor:
    """Over channels and frames, (B, 1, 1) float64."""
    return v.mean(1, keepdim=True).double().mean(2, keepdim=True)


def _channelwise(
    x: Tensor,
    weight: Parameter,
    bias: Parameter,
    prelu: Parameter,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    v = activate(x, prelu)
    mean = v.mean(1, keepdim=True)
    variance = (v - mean).square().mean(1, keepdim=True)
    return _affine(v, mean, variance, weight, bias, eps, out_dtype)


def _depthwise(
    x: Tensor, weight: Tensor, bias: Parameter, dilation: int, causal: bool, wish: str
) -> Tensor:
    return depthwise(x, weight, bias, dilation, causal)


def _affine(
    v: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Parameter,
    bias: Parameter,
    eps: float,
    out_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    """The normalized map and, in place of the operators' statistics, something that is unused."""
    rstd = (variance + eps).rsqrt().to(v.dtype)
    y = (v - mean.to(v.dtype)) * rstd
    y = y if weight is None else y * weight[:, None]
    y = y if bias is None else y + bias[:, None]
    return y if out_dtype is None else y.to(out_dtype), rstd
