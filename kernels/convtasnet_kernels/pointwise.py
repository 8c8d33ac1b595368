"""What all PyTorch paths do to each element: the statistics' dtype and the PReLU."""

from __future__ import annotations

import torch
from torch import Tensor


def statistics_dtype(x: Tensor) -> torch.dtype:
    """float64 for float64 input, float32 for all else."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def activate(x: Tensor, prelu: Tensor | None) -> Tensor:
    """Takes x to the dtype of the statistics and through the PReLU if there is one.

    Written out, as autocast would run ``F.prelu`` in half precision.
    """
    v = x.to(statistics_dtype(x))
    return v if prelu is None else torch.where(v > 0, v, v * prelu.to(v.dtype))
