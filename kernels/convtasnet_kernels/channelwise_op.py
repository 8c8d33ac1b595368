"""The channelwise norm as PyTorch operators with autograd, and its public function.

Built like ``cumulative_op.py``.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.autograd import connect
from convtasnet_kernels.checks import check_arguments, check_dtype, check_eps
from convtasnet_kernels.pointwise import statistics_dtype


def channelwise_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Each frame over its own channels: a layer norm over axis 1.

    Asteroid, SpeechBrain and ESPnet call this one "cLN"; the paper's cLN is
    ``cumulative_layer_norm``. Statistics are float32 (float64 for float64 input): the mean, then
    the deviations from it, which hold below 1e18.

    Args:
        x: (B, C, T) float16, bfloat16, float32 or float64; B and T may be 0.
        weight: (C,) scale, or None for 1.
        bias: (C,) shift, or None for 0.
        eps: added to the variance, inside the root.
        prelu: (1,) slope of a PReLU applied to x first, or None for none.

        out_dtype: dtype of the output, None for x's: the same numbers, rounded to it as they are
            written.

    Returns:
        (B, C, T) of ``out_dtype``, on x's device, contiguous.

    Raises:
        ValueError: an argument of another shape, dtype or device, or a backend that cannot run.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> channelwise_layer_norm(x)
    tensor([[[-1., -1.],
             [ 1.,  1.]]])
    """
    check_arguments(x, weight, bias, prelu)
    check_eps(eps)
    check_dtype("out_dtype", out_dtype)
    y, _ = channelwise_norm(x, weight, bias, prelu, eps, out_dtype, backend.requested())
    return y


@torch.library.custom_op("convtasnet::channelwise_norm", mutates_args=())
def channelwise_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    """The norm and its statistics (3, B, T); arguments as in ``channelwise_layer_norm``.

    ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``.
    """
    return _path(wish, x, "channelwise").forward(x, weight, bias, prelu, eps, out_dtype)


@torch.library.custom_op("convtasnet::channelwise_norm_backward", mutates_args=())
def channelwise_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    needs_prelu: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (B, C, T), of weight and bias (2, C), of the slope (1,); empty if unneeded."""
    path = _path(wish, x, "channelwise_backward")
    return path.backward(dy, x, weight, prelu, stats, needs_params, needs_prelu)


def _path(wish: str, x: Tensor, triton_path: str) -> ModuleType:
    return backend.module("channelwise_layer_norm", wish, x, "channelwise_torch", triton_path)


@channelwise_norm.register_fake
def _(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    stats = x.new_empty((3, x.shape[0], x.shape[2]), dtype=statistics_dtype(x))
    return x.new_empty(x.shape, dtype=out_dtype), stats


connect(channelwise_norm, channelwise_norm_backward)
