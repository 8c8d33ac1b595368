"""A training loss replayed from graphs: the same gradients, shapes, accumulation, ways out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launches import Launches
from tiny_model import TINY
from torch import Tensor, nn

from convtasnet import ConvTasNet, graphed_loss
from convtasnet.graphed_loss import GraphedLoss
from convtasnet.losses import pit_loss


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    found = Launches()
    monkeypatch.setattr(graphed_loss, "GraphMaker", found)
    monkeypatch.setattr(graphed_loss, "can_capture", lambda x: True)
    monkeypatch.setattr(graphed_loss, "capture_stream", lambda device: None)
    return found


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


def test_a_late_or_second_backward_pass_is_refused(launches: Launches) -> None:
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    for _ in range(2):
        graphed(*batch()).backward()
    first, second = graphed(*batch()), graphed(*batch(seed=1))
    with pytest.raises(RuntimeError, match="before the next batch"):
        first.backward()
    second.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        second.backward()


def test_only_so_many_shapes_are_captured(
    launches: Launches, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model, max_shapes=2)
    for _ in range(3):
        for i in range(4):
            assert graphed(*batch(0.03 + 0.01 * i)).isfinite()
    assert launches.captured == 4
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "training steps are launched kernel by kernel for further shapes: batches have more than "
        "2 different shapes"
    ]


def test_what_cannot_be_captured_runs_as_it_is(
    launches: Launches, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Launches, call: Callable[[], object]) -> None:
        raise RuntimeError("it waits for the GPU\nmore")

    monkeypatch.setattr(Launches, "rehearse", refuse)
    model, other = pair()
    batches = [batch(0.04 + 0.01 * (i % 2), seed=i) for i in range(6)]
    losses = train(model, GraphedLoss(loss_of(model), model), batches)
    assert losses == train(other, loss_of(other), batches)
    assert [r.getMessage() for r in caplog.records] == [
        "training steps are launched kernel by kernel: it waits for the GPU"
    ]


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


def test_a_parameter_kept_apart_is_not_missed(
    launches: Launches, caplog: pytest.LogCaptureFixture
) -> None:
    model, other = pair()

    def loss(model: nn.Module) -> Callable[..., Tensor]:
        p, plain = next(model.parameters()), loss_of(model)
        return lambda *each: plain(*each) + p.square().sum()

    batches = [batch(seed=i) for i in range(4)]
    assert train(model, GraphedLoss(loss(model), model), batches) == train(
        other, loss(other), batches
    )
    assert "launched kernel by kernel: the loss uses parameters that" in caplog.text


def test_a_capture_that_fails_once_is_tried_again(
    launches: Launches, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture, left = Launches.capture, [RuntimeError("lost")]

    def fail(self: Launches, call: Callable[[], object]) -> SimpleNamespace:
        if left:
            raise left.pop()
        return capture(self, call)

    monkeypatch.setattr(Launches, "capture", fail)
    model, other = pair()
    batches = [batch(seed=i) for i in range(6)]
    losses = train(model, GraphedLoss(loss_of(model), model), batches)
    torch.testing.assert_close(losses, train(other, loss_of(other), batches))
    assert launches.captured == 2
    assert not caplog.records


def test_several_processes_launch_kernel_by_kernel(
    launches: Launches, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphed_loss, "is_distributed", lambda: True)
    caplog.set_level(logging.INFO)
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    for _ in range(3):
        graphed(*batch()).backward()
    assert launches.captured == 0
    assert caplog.text.count("launched kernel by kernel: several processes train together") == 1


def test_a_cpu_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model, _ = pair()
    graphed = GraphedLoss(loss_of(model), model)
    for _ in range(3):
        graphed(*batch()).backward()
    assert caplog.text.count("launched kernel by kernel: the batch is not on a GPU") == 1


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


@pytest.mark.gpu
def test_a_loss_that_waits_for_the_gpu_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """And leaves the device's random numbers and the next capture alone."""
    model, _ = (each.cuda() for each in pair())
    plain = loss_of(model)
    waiting = GraphedLoss(lambda *each: plain(*each) + 0 * plain(*each).item(), model)
    each = [t.cuda() for t in batch()]
    for _ in range(3):
        waiting(*each).backward()
    assert "it waits for the GPU" in caplog.text
    torch.randn(3, device="cuda")
    graphed = GraphedLoss(plain, model)
    for _ in range(3):
        graphed(*each).backward()
    assert (waiting.captured, graphed.captured) == (0, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("failure", ["raises", "joins the default stream"])
def test_a_failed_capture_harms_nothing(
    caplog: pytest.LogCaptureFixture, failure: str, times: int
) -> None:
    """Once: it is tried again. Twice: training goes on without graphs, others are captured."""
    model, other = (each.cuda() for each in pair())
    plain, left = loss_of(model), [failure] * times

    def failing(*each: Any) -> Tensor:
        if torch.cuda.is_current_stream_capturing() and left:
            if left.pop() == "raises":
                raise RuntimeError("no, thanks")
            torch.cuda.default_stream().wait_stream(torch.cuda.current_stream())
        return plain(*each)

    batches = [[t.cuda() for t in batch(seed=i)] for i in range(6)]
    before = torch.cuda.current_stream()
    graphed = GraphedLoss(failing, model)
    losses = train(model, graphed, batches)
    torch.testing.assert_close(losses, train(other, loss_of(other), batches), rtol=1e-3, atol=1e-3)
    assert torch.cuda.current_stream() == before
    assert (graphed.captured, "kernel by kernel" in caplog.text) == (times == 1, times == 2)
    torch.randn(3, device="cuda")
    held = torch.cuda.memory_allocated()
    again = GraphedLoss(plain, model)
    train(model, again, batches)
    assert again.captured == 1
    del again, graphed
    assert torch.cuda.memory_allocated() <= held
