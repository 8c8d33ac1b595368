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

    PyTorch takes the norm of each gradient, some 30 of them a launch. Gradients of
    ``graphed_loss.GraphedLoss`` lie side by side and are clipped as one vector, to the same numbers
    up to rounding. A NaN among them stays where it is: scaled by a norm that is NaN, all would be,
    the gaps between them too, which nothing clears afterwards.

    Args:
        parameters: whose gradients are clipped.
        max_norm: largest norm of all gradients as one vector, 0 or more.

    Returns:
        Whether they share one memory; where they lie apart, or there are none, nothing is done.

    Example:
        >>> from convtasnet.side_by_side import laid_out
        >>> parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (1, 2)]
        >>> for p, gradient, value in zip(parameters, laid_out(parameters), (3.0, 0.0)):
        ...     p.grad = gradient.fill_(value)
        >>> clipped_as_one(parameters, 1.5), parameters[0].grad
        (True, tensor([1.5000]))
        >>> parameters[0].grad = torch.ones(1)  # apart
        >>> clipped_as_one(parameters, 1.5)
        False
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    memory = as_one(gradients) if gradients else None
    if memory is None:
        return False
    excess = (torch.linalg.vector_norm(memory) + EPS) / max_norm
    memory /= excess.clamp_(min=1).nan_to_num_(nan=1.0, posinf=torch.inf)
    return True
