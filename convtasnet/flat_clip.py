"""Clipping of gradients by their norm in a few launches, as long as they lie side by side."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from convtasnet.side_by_side import as_one

EPS = 1e-6  # that clip_grad_norm_ adds to the norm


@torch.no_grad()
def clipped_as_one(parameters: Iterable[Tensor], max_norm: float) -> bool:
    """What ``torch.nn.utils.clip_grad_norm_`` does to the gradients, if they share one memory.

    That takes a norm of each gradient and some 30 of them a launch. Those of
    ``graphed_loss.GraphedLoss`` are one vector here, to the same numbers up to rounding. A NaN
    among them stays where it is: scaled by their norm, all would be NaN, and what lies between
    them, too, where nothing would ever clear it.

    Args:
        parameters: whose gradients are clipped.
        max_norm: what their norm is scaled down to.

    Returns:
        False where they lie apart, or are not there: nothing was done.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> clipped_as_one([weight], 1.0)  # no memory of ``side_by_side.laid_out``
        False
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    memory = as_one(gradients) if gradients else None
    if memory is None:
        return False
    excess = (torch.linalg.vector_norm(memory) + EPS) / max_norm
    memory /= excess.clamp_(min=1).nan_to_num_(nan=1.0, posinf=torch.inf)
    return True
