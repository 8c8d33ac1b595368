"""The training step that is timed trains as it should."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from step_peers import OURS, Synchronizing
from tiny_model import TINY
from torch import Tensor
from training_step import Failure, Measurement, TrainingStep, measure

from convtasnet import ConvTasNet
from convtasnet.losses import pit_loss
from convtasnet_kernels.timing import stopwatch


def written_out(model: ConvTasNet, sources: Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        pit_loss(model(sources.sum(1)), sources)[0].backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        for gradient in gradients:
            gradient.mul_((5.0 / norm).clamp(max=1.0))
        optimizer.step()


def test_a_step_trains_as_written_out() -> None:
    model, other = ConvTasNet(**TINY), ConvTasNet(**TINY)
    other.load_state_dict(model.state_dict())
    before = model.separator.bottleneck.weight.detach().clone()
    step = TrainingStep(model, batch=2, seconds=0.05)
    for _ in range(3):
        step()
    written_out(other, step.sources, 3)
    assert step.sources.shape == (2, 2, 400)
    # Adam divides by gradients: where they are nearly zero, rounding decides.
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert (model.separator.bottleneck.weight - before).abs().mean() > 1e-3


def test_the_forward_pass_alone_keeps_no_graph() -> None:
    step = TrainingStep(ConvTasNet(**TINY), batch=2, seconds=0.05, bf16=True)
    estimates = step.forward()
    assert estimates.shape == (2, 2, 400)
    assert not estimates.requires_grad


@pytest.mark.gpu
def test_what_cannot_be_captured_spoils_nothing() -> None:
    device = torch.device("cuda")
    hparams = ConvTasNet(**TINY).hparams
    variant = replace(OURS, batch=2, seconds=0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        failed = measure(replace(variant, model="peer"), lambda: Synchronizing(**hparams), device)
        found = measure(variant, lambda: ConvTasNet(**TINY), device)
        eager = replace(variant, model="peer", mode="eager")
        other = measure(eager, lambda: Synchronizing(**hparams), device)
    assert isinstance(failed, Failure)
    assert "captur" in failed.reason
    assert isinstance(found, Measurement)
    assert isinstance(other, Measurement)


@pytest.mark.gpu
def test_a_captured_step_trains() -> None:
    model = ConvTasNet(**TINY).cuda()
    step = TrainingStep(model, batch=2, seconds=0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        first = float(step())
        stopwatch.graph_time(step, least=50)
        last = float(step())
    assert last < first - 0.1


@pytest.mark.gpu
def test_a_step_of_graphs_trains_as_one_without() -> None:
    models = [ConvTasNet(**TINY).cuda() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    losses = []
    for model, mode in zip(models, ("graph", "eager"), strict=True):
        torch.manual_seed(0)
        step = TrainingStep(model, batch=2, seconds=0.5, mode=mode)
        losses.append([float(step()) for _ in range(10)])
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
    assert losses[0][-1] < losses[0][0]
