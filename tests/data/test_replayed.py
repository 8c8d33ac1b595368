"""Work that is captured once and replayed."""

import logging

import pytest
import torch
from launches import Launches

from convtasnet.data import replayed
from convtasnet.data.replayed import Replayed

CPU = torch.device("cpu")


@pytest.fixture
def launches(monkeypatch):
    found = Launches()
    monkeypatch.setattr(replayed, "GraphMaker", found)
    monkeypatch.setattr(replayed, "can_capture", lambda device: True)
    monkeypatch.setattr(replayed, "capture_stream", lambda device: None)
    return found


def squares(numbers):
    return {"squares": numbers**2, "numbers": numbers}


def test_a_graph_for_each_shape_and_results_of_their_own(launches):
    make = Replayed(squares, CPU)
    given = [torch.randn(3 + i % 2) for i in range(8)]
    found = [make(numbers) for numbers in given]
    for numbers, result in zip(given, found, strict=True):
        torch.testing.assert_close(result, squares(numbers), rtol=0, atol=0)
    assert (launches.captured, launches.replayed) == (2, 6)


def test_what_can_not_be_captured_runs_as_it_is(launches, monkeypatch, caplog):
    def fail(call):
        raise RuntimeError("no memory is left\nby far")

    monkeypatch.setattr(launches, "capture", fail)
    make = Replayed(squares, CPU)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            numbers = torch.randn(4)
            torch.testing.assert_close(make(numbers), squares(numbers), rtol=0, atol=0)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["training batches are launched kernel by kernel: no memory is left"]


def test_an_error_of_the_function_is_not_hidden(launches):
    with pytest.raises(RuntimeError, match="must match the size"):
        Replayed(lambda numbers: {"sum": numbers + torch.zeros(2)}, CPU)(torch.zeros(3))


@pytest.mark.gpu
def test_a_gpu_replays_it(caplog):
    device = torch.device("cuda", 0)
    make = Replayed(squares, device)
    given = [torch.randn(5) for _ in range(4)]
    with caplog.at_level(logging.INFO):
        found = [make(numbers.pin_memory()) for numbers in given]
    for numbers, result in zip(given, found, strict=True):
        assert torch.equal(result["squares"].cpu(), numbers**2)
        assert torch.equal(result["numbers"].cpu(), numbers)
    assert [r.getMessage().split(",")[0] for r in caplog.records] == [
        "training batches replay a CUDA graph"
    ]


@pytest.mark.gpu
def test_a_function_that_waits_for_the_gpu_runs_as_it_is(caplog):
    make = Replayed(lambda numbers: {"sum": numbers * numbers.sum().item()}, torch.device("cuda"))
    for _ in range(3):
        assert make(torch.ones(3).pin_memory())["sum"].tolist() == [3, 3, 3]
    assert "kernel by kernel: it cannot be captured: it waits for the GPU" in caplog.text
    assert len(caplog.records) == 1
