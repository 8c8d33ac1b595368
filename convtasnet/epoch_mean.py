"""The mean of a loss over an epoch."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric


class EpochMean(Metric):
    """Mean of values weighted by numbers of items, over all processes; two launches an update.

    Example:
        >>> mean = EpochMean()
        >>> mean.update(torch.tensor(1.0), 3)
        >>> mean.update(torch.tensor(5.0), 1)
        >>> mean.compute()
        tensor(2.)
    """

    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, value: Tensor, items: int) -> None:
        """Take the mean of so many items into account."""
        self.total.add_(value.detach(), alpha=items)
        self.count.add_(items)

    def compute(self) -> Tensor:
        """The mean so far."""
        return self.total / self.count
