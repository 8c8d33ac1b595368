"""Models that the benchmark of the step cannot run, and a variant of ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from training_step import Variant

OURS = Variant("ours", "noncausal", "tf32", "graph", 8, 4.0)


class Broken(nn.Module):
    """A peer that cannot be run."""

    def __init__(self, **hparams: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.n_src, self.sample_rate = hparams["n_src"], hparams["sample_rate"]

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory\nby far")


class Synchronizing(Broken):
    """A peer that waits for the GPU, which no graph can hold."""

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        scale = float((self.weight * mixture.abs().max()).sum())
        return scale * self.weight * torch.stack([mixture] * self.n_src, 1)
