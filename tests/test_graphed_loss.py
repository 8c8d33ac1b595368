"""A training loss replayed from graphs: the same gradients, hooks, accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphed_training import batch, gradients, loss_of, pair, train
from launches import Launches
from torch import Tensor, nn

from convtasnet.graphed_loss import GraphedLoss


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("norm", ["global", "batch"])
def test_trains_as_without_graphs(launches: Launches, accumulate: int, norm: str) -> None:
    """Two shapes in turn: gradients of one are added to those of the other."""
    model, other = pair(norm=norm)
    batches = [batch(0.05 if i % 3 else 0.04, seed=i) for i in range(12)]
    graphed = GraphedLoss(loss_of(model), model)
    losses = train(model, graphed, batches, accumulate)
    torch.testing.assert_close(losses, train(other, loss_of(other), batches, accumulate))
    for (name, mine), theirs in zip(
        model.state_dict().items(), other.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(mine, theirs, msg=lambda text, name=name: f"{name}: {text}")
    assert launches.captured == 4  # two passes of two shapes
    assert launches.replayed == 2 * (12 - 2)


def test_gradients_are_handed_over_without_copies(launches: Launches) -> None:
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    places = []
    for seed in range(4):
        model.zero_grad()
        graphed(*batch(seed=seed)).backward()
        places.append([p.grad.data_ptr() for p in model.parameters() if p.grad is not None])
    assert places[2] == places[3]
    assert places[0] != places[2]


def test_a_scaled_loss_gives_scaled_gradients(launches: Launches) -> None:
    model, other = pair()
    graphed = GraphedLoss(loss_of(model), model)
    for _ in range(3):
        model.zero_grad()
        (graphed(*batch()) * 1024).backward()
    loss_of(other)(*batch()).backward()
    for mine, theirs in zip(gradients(model), gradients(other), strict=True):
        torch.testing.assert_close(mine, 1024 * theirs, rtol=1e-4, atol=1e-3)


def test_frozen_parameters_and_unused_ones_get_no_gradient(launches: Launches) -> None:
    model, _ = pair()
    model.unused = nn.Parameter(torch.ones(3))
    graphed = GraphedLoss(loss_of(model), model)
    for _ in range(3):
        graphed(*batch()).backward()
    model.zero_grad()
    model.encoder.requires_grad_(False)
    for _ in range(3):
        graphed(*batch()).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {"encoder.filterbank._filters", "unused"}
    assert launches.captured == 4


def test_autocast_is_that_of_the_call(launches: Launches) -> None:
    model, other = pair()
    graphed = GraphedLoss(loss_of(model), model)

    def bf16(loss: Callable[..., Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            return loss(*batch())

    for _ in range(3):
        graphed(*batch()).backward()
        value = bf16(graphed)
        model.zero_grad()
        value.backward()
    expected = bf16(loss_of(other))
    expected.backward()
    assert value.item() == expected.item() != loss_of(other)(*batch()).item()
    assert all(
        torch.equal(mine, theirs)
        for mine, theirs in zip(gradients(model), gradients(other), strict=True)
    )
    assert launches.captured == 4


def test_weights_cast_ahead_follow_the_optimizer(launches: Launches) -> None:
    model, other = pair()
    graphed = GraphedLoss(loss_of(model), model)
    values: dict[nn.Module, list[float]] = {model: [], other: []}
    for seed in range(5):
        for each, loss in ((model, graphed), (other, loss_of(other))):
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                value = loss(*batch(seed=seed))
            each.zero_grad()
            value.backward()
            torch.optim.SGD(each.parameters(), 0.1).step()
            values[each].append(value.item())
    assert values[model] == values[other]
    assert launches.captured == 2


def test_parameters_see_the_gradient_once_a_step(launches: Launches) -> None:
    """What is captured leaves them alone: autograd may treat them on a stream of their own."""
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    seen: list[str] = []
    for name, p in model.named_parameters():
        p.register_hook(lambda gradient, name=name: seen.append(name))
    for step in range(4):
        graphed(*batch(seed=step)).backward()
        assert sorted(seen) == sorted(name for name, _ in model.named_parameters())
        seen.clear()


def test_hooks_come_and_go(launches: Launches) -> None:
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    calls: list[Tensor] = []
    found: list[list[Tensor]] = []
    for hooked in (False, False, False, True, False):
        model.zero_grad()
        last = list(model.parameters())[-1]
        hook = last.register_post_accumulate_grad_hook(calls.append) if hooked else None
        graphed(*batch()).backward()
        found.append(gradients(model))
        if hook is not None:
            hook.remove()
    assert len(calls) == 1
    assert calls[0] is last
    for each in found[1:]:
        torch.testing.assert_close(each, found[0])


ROUNDING = {"fp32": 1e-3, "bf16": 2**-8}  # of products: TF32's, bfloat16's


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"norm": "cumulative", "causal": True}, {"norm": "batch"}])
@pytest.mark.parametrize("precision", list(ROUNDING))
def test_trains_on_a_gpu_as_without_graphs(
    changes: dict[str, Any], accumulate: int, precision: str
) -> None:
    model, other = (each.cuda() for each in pair(**changes))
    batches = [[t.cuda() for t in batch(0.5 if i % 3 else 0.4, seed=i, items=3)] for i in range(12)]
    graphed = GraphedLoss(loss_of(model), model)
    with torch.autocast("cuda", torch.bfloat16, precision == "bf16", cache_enabled=False):
        losses = train(model, graphed, batches, accumulate)
        expected = train(other, loss_of(other), batches, accumulate)
    assert graphed.captured == 2
    # Library kernels may add up weight gradients in any order; the steps carry the roundings on.
    rounding = ROUNDING[precision]
    torch.testing.assert_close(losses, expected, rtol=rounding, atol=rounding)
    assert losses[-1] < losses[0]
