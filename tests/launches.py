"""CUDA graphs where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Launches:
    """Stands in for CUDA graphs on a CPU: a replay calls what was captured once more."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0
        self.stream: Any = None

    def __call__(self, stream: Any) -> Launches:
        return self

    def rehearse(self, call: Callable[[], object]) -> None:
        call()

    def capture(self, call: Callable[[], object]) -> SimpleNamespace:
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            call()

        return SimpleNamespace(replay=replay)
