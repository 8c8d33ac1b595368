"""The cumulative norm as PyTorch operators with autograd, and its public function.

``torch.ops.convtasnet.cumulative_norm`` and ``…_backward`` are opaque to torch.compile, which
therefore calls the same code as eager mode. The backend travels as an argument, since autograd runs
backward in a thread of its own, where a context manager of the caller does not reach.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.autograd import connect
from convtasnet_kernels.checks import check_arguments, check_dtype, check_eps
from convtasnet_kernels.pointwise import statistics_dtype


def cumulative_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Conv-TasNet's cumulative layer norm (cLN): frame t by the statistics of frames 0..t.

    y = (x - mean_t) / sqrt(var_t + eps) · weight_c + bias_c, mean and biased variance over all
    channels of the frames up to and with t. Causal to the bit: a later NaN does not reach an
    earlier output. Statistics are float32 sums a frame, added over time in float64, around the
    first sample of the item; they hold for deviations from it below 1e18.
    From Luo and Mesgarani, 2019 (arXiv:1809.07454); other toolkits call it ``cgLN``.

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
    >>> cumulative_layer_norm(x)
    tensor([[[-1.0000, -0.5345],
             [ 1.0000,  1.6036]]])
    """
    check_arguments(x, weight, bias, prelu)
    check_eps(eps)
    check_dtype("out_dtype", out_dtype)
    y, _ = cumulative_norm(x, weight, bias, prelu, eps, out_dtype, backend.requested())
    return y


@torch.library.custom_op("convtasnet::cumulative_norm", mutates_args=())
def cumulative_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    """The norm and its statistics (2, B, T); arguments as in ``cumulative_layer_norm``.

    ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``.
    """
    return _path(wish, x, "cumulative").forward(x, weight, bias, prelu, eps, out_dtype)


@torch.library.custom_op("convtasnet::cumulative_norm_backward", mutates_args=())
def cumulative_norm_backward(
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
    path = _path(wish, x, "cumulative_backward")
    return path.backward(dy, x, weight, prelu, stats, needs_params, needs_prelu)


def _path(wish: str, x: Tensor, triton_path: str) -> ModuleType:
    return backend.module("cumulative_layer_norm", wish, x, "cumulative_torch", triton_path)


@cumulative_norm.register_fake
def _(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    stats = x.new_empty((2, x.shape[0], x.shape[2]), dtype=statistics_dtype(x))
    return x.new_empty(x.shape, dtype=out_dtype), stats


connect(cumulative_norm, cumulative_norm_backward)
