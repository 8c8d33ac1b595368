"""The stopwatch: what is in a graph, what is called each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from convtasnet_kernels.timing import stopwatch


class _Count(torch.autograd.Function):
    """The identity; its backward adds 1 to a counter."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counter: Tensor) -> Tensor:
        ctx.counter = counter
        return x * 1

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        ctx.counter.add_(1)
        return dy * 1, None


@pytest.mark.gpu
def test_a_backward_pass_is_part_of_the_graph() -> None:
    called = 0
    counter = torch.zeros((), device="cuda")
    x = torch.ones(1024, device="cuda", requires_grad=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        y = _Count.apply(x, counter)

        def call() -> None:
            nonlocal called
            called += 1
            torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)

        assert 0 < stopwatch.graph_time(call) < 1000
        torch.cuda.synchronize()
    assert counter.item() > 5 * called  # the replays ran it, too


@pytest.mark.gpu
def test_calls_that_are_not_captured_run_each_time() -> None:
    called = 0
    counter = torch.zeros((), device="cuda")

    def call() -> None:
        nonlocal called
        called += 1
        counter.add_(1)

    assert 0 < stopwatch.event_time(call, least=60) < 1000
    assert counter.item() == called >= 60


@pytest.mark.gpu
def test_the_default_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="default stream"):
        stopwatch.graph_time(lambda: None)
