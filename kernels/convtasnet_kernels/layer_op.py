"""The layer norm as PyTorch operators with autograd, and its public function.

Built like ``cumulative_op.py``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.checks import check_eps, check_rows
from convtasnet_kernels.pointwise import statistics_dtype


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm over the last axis: y = (x - mean) / sqrt(var + eps) · weight + bias.

    The same as ``torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)`` with
    float32 statistics (float64 for float64 input) that keep their digits at a large mean: the mean,
    then the deviations from it, which hold below 1e18. From Ba et al., 2016 (arXiv:1607.06450).

    Args:
        x: (..., N) float16, bfloat16, float32 or float64; any leading size may be 0.
        weight: (N,) scale, or None for 1.
        bias: (N,) shift, or None for 0.
        eps: added to the variance, inside the root.

    Returns:
        (..., N) of x's dtype and device, contiguous.

    Raises:
        ValueError: an argument of another shape, dtype or device, or a backend that cannot run.

    >>> layer_norm(torch.tensor([[1.0, 3.0], [2.0, 6.0]]), eps=0.0)
    tensor([[-1.,  1.],
            [-1.,  1.]])
    """
    check_rows(x, weight, bias)
    check_eps(eps)
    rows = x.reshape(-1, x.shape[-1])
    y, _ = row_norm(rows, weight, bias, eps, backend.requested())
    return y.view(x.shape)


@torch.library.custom_op("convtasnet::layer_norm", mutates_args=())
def row_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, wish: str
) -> tuple[Tensor, Tensor]:
    """The norm of the rows of x (M, N) and its statistics (3, M).

    ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``.
    """
    return _path(wish, x, "layer").forward(x, weight, bias, eps)


@torch.library.custom_op("convtasnet::layer_norm_backward", mutates_args=())
def row_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    dtype: torch.dtype,
    wish: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of x (M, N), and of weight and bias (2, N) in dtype; empty if unneeded."""
    path = _path(wish, x, "layer_backward")
    return path.backward(dy, x, weight, stats, needs_params, dtype)


def _path(wish: str, x: Tensor, triton_path: str) -> ModuleType:
    return backend.module("layer_norm", wish, x, "layer_torch", triton_path)


@row_norm.register_fake
def _(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, wish: str
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty((3, x.shape[0]), dtype=statistics_dtype(x))


@row_norm_backward.register_fake
def _(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    needs_params: bool,
    dtype: torch.dtype,
    wish: str,
) -> tuple[Tensor, Tensor]:
    dparams = stats.new_empty((2, x.shape[1]) if needs_params else (0,), dtype=dtype)
    return x.new_empty(x.shape), dparams


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, _, ctx.wish = inputs
    ctx.dtypes = tuple(None if p is None else p.dtype for p in (weight, bias))
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, weight, output[1])


def _gradients(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 5
    x, weight, stats = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    weight_dtype, bias_dtype = ctx.dtypes
    # One dtype for both, and no conversion after the fact where they share it.
    dtype = weight_dtype if weight_dtype == bias_dtype else None
    dx, dparams = row_norm_backward(
        dy, x, weight, stats, needs_weight or needs_bias, dtype or stats.dtype, ctx.wish
    )
    return (
        dx if needs_x else None,
        dparams[0].to(weight_dtype) if needs_weight else None,
        dparams[1].to(bias_dtype) if needs_bias else None,
        None,
        None,
    )


row_norm.register_autograd(_gradients, setup_context=_setup_context)
