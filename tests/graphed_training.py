"""Two equal models, their batches and trainings: with graphs, and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tiny_model import TINY
from torch import Tensor, nn

from convtasnet import ConvTasNet
from convtasnet.losses import pit_loss


def loss_of(model: nn.Module) -> Callable[..., Tensor]:
    return lambda mixture, sources, lengths: pit_loss(model(mixture, lengths), sources, lengths)[0]


def pair(**changes: Any) -> tuple[ConvTasNet, ConvTasNet]:
    """Two models with the same weights."""
    models = ConvTasNet(**{**TINY, **changes}), ConvTasNet(**{**TINY, **changes})
    models[1].load_state_dict(models[0].state_dict())
    return models


def batch(seconds: float = 0.05, seed: int = 0, items: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    samples = round(8000 * seconds)
    sources = torch.randn(items, 2, samples, generator=generator)
    lengths = torch.tensor([samples - 7 * i for i in range(items)])
    return sources.sum(1), sources, lengths


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def train(
    model: nn.Module, loss: Callable[..., Tensor], batches: list[Any], accumulate: int = 1
) -> list[float]:
    """Losses of a training."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    losses = []
    for i, each in enumerate(batches):
        value = loss(*each)
        if i % accumulate == 0:
            optimizer.zero_grad()
        (value / accumulate).backward()
        if (i + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        losses.append(value.item())
    return losses
