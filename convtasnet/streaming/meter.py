"""How computing keeps up with time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class RealTimeMeter:
    """Times the blocks of a stream, and says how it goes.

    Args:
        sample_rate: Hz.
        file: where a line is shown once a second, if that is a terminal.

    Attributes:
        late: blocks that took longer than they last.

    Example:
        >>> meter = RealTimeMeter(8000)
        >>> with meter.block(800):
        ...     time.sleep(0.02)
        >>> 0.2 < meter.factor < 1.0, meter.late
        (True, 0)
    """

    def __init__(self, sample_rate: int, file: TextIO | None = None) -> None:
        self.sample_rate = sample_rate
        self.file = sys.stderr if file is None else file
        self.audio = self.busy = 0.0
        self.slowest = 0.0
        self.late = 0
        self._shown = time.monotonic()

    @property
    def factor(self) -> float:
        """Real-time factor: seconds of computing for a second of audio."""
        return self.busy / self.audio if self.audio else 0.0

    @contextmanager
    def block(self, n_samples: int) -> Iterator[None]:
        """Time what is inside as the computing of a block of so many samples."""
        start = time.perf_counter()
        yield
        taken, lasts = time.perf_counter() - start, n_samples / self.sample_rate
        self.audio += lasts
        self.busy += taken
        self.slowest = max(self.slowest, taken)
        self.late += taken > lasts
        if self.file.isatty() and time.monotonic() - self._shown > 1:
            self._shown = time.monotonic()
            self.file.write(f"\r{self}")
            self.file.flush()

    def __str__(self) -> str:
        """What is known so far, in one line."""
        return (
            f"{self.audio:.1f} s, real-time factor {self.factor:.2f}, slowest block "
            f"{1e3 * self.slowest:.1f} ms, {self.late} blocks late"
        )
