"""What a training loss does not replay from graphs, and what it says of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from graphed_training import batch, loss_of, pair, train
from launches import Launches
from torch import Tensor, nn

from convtasnet import graphed_loss
from convtasnet.graphed_loss import GraphedLoss


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
