"""Masks, their product with the features and the decoder as one PyTorch operator with autograd.

What is kept for backward are the scores and the features. Built like ``cumulative_op.py``: opaque
to torch.compile, the backend travels as an argument.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convtasnet_kernels import backend, masked_decode_torch
from convtasnet_kernels.checks import DTYPES, check_tensor
from convtasnet_kernels.pointwise import statistics_dtype

MOST_SAMPLES = 128  # of a frame, those of all sources, that the Triton kernels take
LEAST_TAPS = 16  # that a source counts for


def decode_masked(
    scores: Tensor, features: Tensor, filters: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The samples of each source's frames: of its ReLU mask, the features and the decoder.

    samples[b·S + s, l, f] = Σ_n filters[n, l] · features[b, n, f] · relu(scores[b, s·N + n, f] +
    bias[s·N + n]). No mask and no masked map is kept. Float32 products may use TF32 where
    ``torch.backends.cuda.matmul`` allows it.

    Args:
        scores: (B, S·N, F), those of the S sources side by side; float16, bfloat16, float32 or
            float64, as all others.
        features: (B, N, F).
        filters: (N, L) of the decoder.
        bias: (S·N,) of the scores, or None.

    Returns:
        (B·S, L, F) of the features' dtype, to be overlapped and added.

    Raises:
        ValueError: an argument of another shape, dtype or device, or a backend that cannot run.

    >>> scores, features = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[[3.0]]])
    >>> decode_masked(scores, features, torch.tensor([[1.0, 2.0]]))
    tensor([[[3.],
             [6.]],
    <BLANKLINE>
            [[0.],
             [0.]]])
    """
    _check(scores, features, filters, bias)
    return masked_decoding(scores, features, filters, bias, backend.requested())


def _check(scores: Tensor, features: Tensor, filters: Tensor, bias: Tensor | None) -> None:
    tensors = {"scores": scores, "features": features, "filters": filters}
    if bias is not None:
        tensors["bias"] = bias
    for name, value in tensors.items():
        check_tensor(name, value)
    for name, value in tensors.items():
        if value.dtype not in DTYPES:
            raise ValueError(
                f"{name} must be float16, bfloat16, float32 or float64, got {value.dtype}"
            )
        if value.device != features.device:
            raise ValueError(f"{name} is on {value.device}, features on {features.device}")
    if features.dim() != 3 or features.shape[1] == 0:
        raise ValueError(f"features must be (B, N, F) with N > 0, got {tuple(features.shape)}")
    B, N, F = features.shape
    rows = scores.shape[1] if scores.dim() == 3 else 0
    if scores.dim() != 3 or scores.shape != (B, rows, F) or rows == 0 or rows % N:
        raise ValueError(f"scores must be ({B}, S·{N}, {F}), got {tuple(scores.shape)}")
    if filters.dim() != 2 or filters.shape[0] != N or filters.shape[1] == 0:
        raise ValueError(f"filters must be ({N}, L) with L > 0, got {tuple(filters.shape)}")
    if bias is not None and bias.shape != (rows,):
        raise ValueError(f"bias must be ({rows},), got {tuple(bias.shape)}")


@torch.library.custom_op("convtasnet::masked_decode", mutates_args=())
def masked_decoding(
    scores: Tensor, features: Tensor, filters: Tensor, bias: Tensor | None, wish: str
) -> Tensor:
    """Arguments as in ``decode_masked``; ``wish`` is ``"torch"``, ``"triton"`` or ``"auto"``."""
    path = _path(wish, scores, features, filters)
    with torch.autocast(features.device.type, enabled=False):
        return path.forward(*_contiguous(scores, bias, features, filters))


@torch.library.custom_op("convtasnet::masked_decode_backward", mutates_args=())
def masked_decoding_backward(
    dy: Tensor,
    scores: Tensor,
    features: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    needs_filters: bool,
    needs_bias: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of scores and features, and of filters, then bias, as far as needed, in a row."""
    path = _path(wish, scores, features, filters)
    with torch.autocast(features.device.type, enabled=False):
        tensors = _contiguous(dy.to(features.dtype), scores, bias, features, filters)
        return path.backward(*tensors, needs_filters, needs_bias)


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    return [tensor if tensor is None else tensor.contiguous() for tensor in tensors]


def _path(wish: str, scores: Tensor, features: Tensor, filters: Tensor) -> ModuleType:
    sources = scores.shape[1] // features.shape[1]
    if sources * max(filters.shape[1], LEAST_TAPS) > MOST_SAMPLES:
        return masked_decode_torch
    return backend.module("decode_masked", wish, features, "masked_decode_torch", "masked_decode")


@masked_decoding.register_fake
def _(scores: Tensor, features: Tensor, filters: Tensor, bias: Tensor | None, wish: str) -> Tensor:
    B, N, F = features.shape
    return features.new_empty((B * (scores.shape[1] // N), filters.shape[1], F))


@masked_decoding_backward.register_fake
def _(
    dy: Tensor,
    scores: Tensor,
    features: Tensor,
    filters: Tensor,
    bias: Tensor | None,
    needs_filters: bool,
    needs_bias: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor]:
    others = filters.numel() * needs_filters + scores.shape[1] * needs_bias
    return (
        scores.new_empty(scores.shape),
        features.new_empty(features.shape),
        features.new_empty((others,), dtype=statistics_dtype(features)),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.wish = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 5
    scores, features, filters, bias = ctx.saved_tensors
    needs_scores, needs_features, needs_filters, needs_bias = ctx.needs_input_grad[:4]
    d_scores, d_features, others = masked_decoding_backward(
        dy, scores, features, filters, bias, needs_filters, needs_bias, ctx.wish
    )
    split = filters.numel() if needs_filters else 0
    return (
        d_scores if needs_scores else None,
        d_features if needs_features else None,
        others[:split].view(filters.shape).to(filters.dtype) if needs_filters else None,
        others[split:].to(bias.dtype) if needs_bias else None,
        None,
    )


masked_decoding.register_autograd(_gradients, setup_context=_setup_context)
