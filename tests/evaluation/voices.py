"""Mixtures of two noises that come and go like syllables, and models that need no training."""

from __future__ import annotations

from typing import Any

import torch
from tiny_corpus import RATE, voice
from torch import Tensor, nn

__all__ = ["RATE", "Halves", "WithLengths", "items"]


class Halves(nn.Module):
    """Gives the mixture back, half and half with noise: any output does here."""

    sample_rate, n_src = RATE, 2

    def forward(self, mix: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return mix + mix.std() * torch.randn(2, len(mix), generator=generator)


class WithLengths(list):
    """Items whose lengths are known without reading them."""

    def __init__(self, data: list[dict[str, Any]]) -> None:
        super().__init__(data)
        self.lengths = [len(item["mixture"]) for item in data]


def items(*seconds: float) -> WithLengths:
    result = []
    for i, length in enumerate(seconds):
        sources = torch.stack([voice(2 * i, length), voice(2 * i + 1, length)])
        result.append({"mixture": sources.sum(0), "sources": sources, "id": f"mix{i}"})
    return WithLengths(result)
