"""Clipping of gradients that lie side by side: PyTorch's numbers, and a way back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from launches import Launches
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from convtasnet import ConvTasNet, system
from convtasnet.flat_clip import clipped_as_one
from convtasnet.losses import pit_loss
from convtasnet.side_by_side import as_one, laid_out
from convtasnet.system import SeparationSystem

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def with_gradients(device: str = "cpu") -> list[nn.Parameter]:
    model = nn.Sequential(nn.Linear(7, 300), nn.PReLU(), nn.Linear(300, 3)).to(device)
    parameters = list(model.parameters())
    for p, gradient in zip(parameters, laid_out(parameters), strict=True):
        p.grad = gradient.normal_()
    return parameters


def twins(parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """The same, gradients apart."""
    found = [nn.Parameter(p.detach().clone()) for p in parameters]
    for twin, p in zip(found, parameters, strict=True):
        twin.grad = None if p.grad is None else p.grad.clone()
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("scale", "max_norm"), [(1.0, 5.0), (1e-3, 5.0), (0.0, 1.0), (1e20, 0.1)])
def test_the_same_as_pytorchs(device: str, scale: float, max_norm: float) -> None:
    parameters = with_gradients(device)
    for p in parameters:
        p.grad *= scale
    expected = twins(parameters)
    nn.utils.clip_grad_norm_(expected, max_norm)
    assert clipped_as_one(parameters, max_norm)
    for p, other in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.grad, other.grad)


def test_gradients_that_lie_apart_are_left_alone() -> None:
    parameters = with_gradients()
    apart = twins(parameters)
    assert not clipped_as_one(apart, 1e-3)
    parameters[1].grad = None
    assert not clipped_as_one(parameters, 1e-3)
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(parameters[2:], apart[2:], strict=True))
    for p in parameters:
        p.grad = None
    assert not clipped_as_one(parameters, 1e-3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_leaves_nothing_behind(value: float) -> None:
    """As after a step that scaling of 16 bits leaves out."""
    parameters = with_gradients()
    parameters[3].grad[0, 5] = value
    clipped_as_one(parameters, 1.0)
    assert not parameters[3].grad[0, 5].isfinite()
    for p in parameters:
        p.grad.normal_()
    memory = as_one([p.grad for p in parameters])
    assert memory.isfinite().all()
    clipped_as_one(parameters, 1.0)
    torch.testing.assert_close(memory.norm(), torch.tensor(1.0))


@pytest.mark.parametrize(("algorithm", "joined"), [("norm", 5), (None, 5), ("value", 0)])
def test_a_training_clips_as_lightning_does(
    tmp_path: Path,
    launches: Launches,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str | None,
    joined: int,
) -> None:
    """The first of six batches comes before the graphs, whose gradients lie side by side."""
    found: list[bool] = []

    def noted(*arguments) -> bool:
        found.append(clipped_as_one(*arguments))
        return found[-1]

    monkeypatch.setattr(system, "clipped_as_one", noted)
    weights = []
    for compiled in ("graph", False):
        torch.manual_seed(0)
        model = ConvTasNet(2, 8, 4, 2, 4, 8, 4, n_blocks=2, n_repeats=1)
        trained = SeparationSystem(model, pit_loss, partial(SGD, lr=1e-2), compile=compiled)
        trainer = L.Trainer(
            max_epochs=1, accelerator="cpu", default_root_dir=tmp_path, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            gradient_clip_val=1e-2, gradient_clip_algorithm=algorithm,
        )  # fmt: skip
        trainer.fit(trained, DataLoader(batches(6), batch_size=None))
        weights.append(list(model.parameters()))
    assert sum(found) == joined
    for mine, theirs in zip(*weights, strict=True):
        torch.testing.assert_close(mine, theirs)


def batches(count: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    sources = torch.randn(count, 2, 2, 60, generator=generator)
    return [
        {"mixture": s.sum(1), "sources": s, "lengths": None, "ids": ["a", "b"]} for s in sources
    ]
