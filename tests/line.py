"""The smallest model that Lightning trains."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor
from torch.optim import SGD


class Line(lightning.LightningModule):
    """One weight, whose loss is its value."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.weight.sum()

    def configure_optimizers(self) -> SGD:
        return SGD(self.parameters(), 0.1)
