"""How long a training waits for its data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader

T = TypeVar("T")


class WaitClock:
    """Adds up the time that somebody waits for the next of something.

    A GPU computes what was launched while its host waits, and nobody asks it for the time.

    Attributes:
        seconds: waited so far.

    >>> clock = WaitClock()
    >>> list(clock.watch(iter("ab"))), clock.seconds > 0
    (['a', 'b'], True)
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, items: Iterator[T]) -> Iterator[T]:
        """The same items."""
        while True:
            began = time.perf_counter()
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - began
            yield item


class WatchedLoader(DataLoader[Any]):
    """A ``DataLoader`` that knows how long its batches were waited for.

    Attributes:
        clock: of the waiting.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock = WaitClock()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self.clock.watch(super().__iter__())
