"""Masks, their product with the features, the decoder in PyTorch operators: all devices, dtypes."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.pointwise import statistics_dtype


def forward(scores: Tensor, bias: Tensor | None, features: Tensor, filters: Tensor) -> Tensor:
    """Sums the masked features' filters, frame by frame; all tensors are contiguous.

    Args:
        scores: (B, S·N, F).
        bias: (S·N,) of the scores, or None.
        features: (B, N, F).
        filters: (N, L).

    Returns:
        (B·S, L, F) of the features' dtype.
    """
    masked = _product(_masks(scores, bias, features), features)
    filters = filters.to(features.dtype)
    return torch.bmm(filters.mT.expand(len(masked), -1, -1), masked)


def backward(
    dy: Tensor,
    scores: Tensor,
    bias: Tensor | None,
    features: Tensor,
    filters: Tensor,
    needs_filters: bool,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``forward``; all tensors are contiguous.

    Args:
        dy: (B·S, L, F) gradient of the samples, of the features' dtype.
        scores: as in ``forward``, and so all that follows.
        bias: see scores.
        features: see scores.
        filters: see scores.
        needs_filters: whether the gradient of the filters is wanted.
        needs_bias: whether that of the bias is.

    Returns:
        Those of scores and features in their dtypes; of filters (N·L), then bias (S·N), as far as
        wanted, in a row of float32 (float64 for float64 features).
    """
    masks = _masks(scores, bias, features)
    dtype = masks.dtype
    filters = filters.to(features.dtype)
    g = torch.bmm(filters.expand(len(dy), -1, -1), dy).to(dtype).view(masks.shape)
    d_features = (g * masks).sum(1)
    d_scores = torch.where(masks == 0, 0.0, g * features.to(dtype)[:, None]).flatten(1, 2)
    others = [masks.new_empty(0)]
    if needs_filters:
        others.append(torch.bmm(_product(masks, features), dy.mT).to(dtype).sum(0).flatten())
    if needs_bias:
        others.append(d_scores.sum((0, 2)))
    return d_scores.to(scores.dtype), d_features.to(features.dtype), torch.cat(others)


def _masks(scores: Tensor, bias: Tensor | None, features: Tensor) -> Tensor:
    """(B, S, N, F) in float32 (float64 for float64 features)."""
    dtype = statistics_dtype(features)
    scores = scores.to(dtype)
    if bias is not None:
        scores = scores + bias.to(dtype)[:, None]
    return scores.relu().unflatten(1, (-1, features.shape[1]))


def _product(masks: Tensor, features: Tensor) -> Tensor:
    """(B·S, N, F) of the features' dtype."""
    return (masks * features.to(masks.dtype)[:, None]).to(features.dtype).flatten(0, 1)
