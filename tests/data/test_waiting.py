"""The clock of loaders."""

import time

import pytest
import torch

from convtasnet.data.waiting import WaitClock, WatchedLoader


def slow(seconds, count):
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_only_the_waiting_counts():
    clock = WaitClock()
    for _ in clock.watch(slow(0.02, 4)):
        time.sleep(0.03)
    assert 0.08 <= clock.seconds < 0.12


def test_an_error_passes_through():
    def broken():
        yield 1
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(WaitClock().watch(broken()))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_gives_what_it_would_give_unwatched(num_workers):
    items = torch.arange(7)
    loader = WatchedLoader(items, 2, num_workers=num_workers, persistent_workers=num_workers > 0)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6]]
    assert loader.clock.seconds > 0
