"""The global norm as PyTorch operators with autograd, and its public function.

``torch.ops.convtasnet.global_norm`` and ``…_backward`` are opaque to torch.compile, which therefore
calls the same code as eager mode. The backend travels as an argument, as the cumulative norm's.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.autograd import connect
from convtasnet_kernels.checks import check_arguments, check_dtype, check_eps, check_lengths
from convtasnet_kernels.pointwise import statistics_dtype


def global_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
    lengths: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Conv-TasNet's global layer norm (gLN): each item over all its channels and valid frames.

    From Luo and Mesgarani, 2019 (arXiv:1809.07454); the same as ``GroupNorm(1, C)`` where all
    frames are valid. Statistics are float32 sums around samples of the item, added up in float64;
    they hold for deviations from them below 1e18.

    Args:
        x: (B, C, T) float16, bfloat16, float32 or float64; B and T may be 0.
        weight: (C,) scale, or None for 1.
        bias: (C,) shift, or None for 0.
        eps: added to the variance, inside the root.
        prelu: (1,) slope of a PReLU applied to x first, or None for none.
        lengths: (B,) integers on any device, valid frames of each item, 0 to T; None for all. What
            lies beyond them (NaN, too) has no influence and gets no gradient, and the output there
            is zero. On a GPU the values are clamped to [0, T], not checked, as that would wait for
            it.
        out_dtype: dtype of the output, None for x's: the same numbers, rounded to it as they are
            written.

    Returns:
        (B, C, T) of ``out_dtype``, on x's device, contiguous.

    Raises:
        ValueError: an argument of another shape, dtype, device or range, or a backend that cannot
            run.

    >>> x = torch.tensor([[[1.0, 3.0, 9.0]]])
    >>> global_layer_norm(x, lengths=torch.tensor([2]))
    tensor([[[-1.,  1.,  0.]]])
    """
    check_arguments(x, weight, bias, prelu)
    check_eps(eps)
    check_dtype("out_dtype", out_dtype)
    if lengths is not None:
        check_lengths(lengths, x)
        lengths = lengths.to(x.device, non_blocking=True)
    y, _ = global_norm(x, weight, bias, prelu, lengths, eps, out_dtype, backend.requested())
    return y


@torch.library.custom_op("convtasnet::global_norm", mutates_args=())
def global_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    lengths: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    """The norm and its statistics (2, B); arguments as in ``global_layer_norm``.

    ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``.
    """
    return _path(wish, x, "global_").forward(x, weight, bias, prelu, lengths, eps, out_dtype)


@torch.library.custom_op("convtasnet::global_norm_backward", mutates_args=())
def global_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    prelu: Tensor | None,
    stats: Tensor,
    lengths: Tensor | None,
    needs_params: bool,
    needs_prelu: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (B, C, T), of weight and bias (2, C), of the slope (1,); empty if unneeded."""
    path = _path(wish, x, "global_backward")
    return path.backward(dy, x, weight, prelu, stats, lengths, needs_params, needs_prelu)


def _path(wish: str, x: Tensor, triton_path: str) -> ModuleType:
    return backend.module("global_layer_norm", wish, x, "global_torch", triton_path)


@global_norm.register_fake
def _(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    prelu: Tensor | None,
    lengths: Tensor | None,
    eps: float,
    out_dtype: torch.dtype | None,
    wish: str,
) -> tuple[Tensor, Tensor]:
    stats = x.new_empty((2, x.shape[0]), dtype=statistics_dtype(x))
    return x.new_empty(x.shape, dtype=out_dtype), stats


connect(global_norm, global_norm_backward)
