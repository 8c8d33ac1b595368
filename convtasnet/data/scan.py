"""What the samples of a data set's files are like: level, peak, DC offset, clipping, NaN.

All is measured on the one channel that the model hears (several are averaged).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from convtasnet.audio import PathLike, audio_info, iter_blocks
from convtasnet.data.checks import Problem, gather
from convtasnet.data.file_cache import FileCache
from convtasnet.pack import file_of

# A peak below this is silence: -60 dB of full scale.
_SILENCE = 1e-3
# A DC offset above this fraction of the level is worth a word: it is 20 dB below it.
_OFFSET = 0.1
# Quiet 16-bit files have few values, and peaks that are flat by chance.
_LOUD = 0.1
_CHUNK = 8


@dataclass
class Scan:
    """Measurements of a file.

    Args:
        size: bytes.
        changed: time of the last change in nanoseconds.
        n_samples: of one channel.
        sample_rate: in Hz.
        peak: largest magnitude; full scale is 1.
        level: root mean square.
        offset: mean.
        n_flat: samples that are, like both their neighbours, equal to the highest or the lowest of
            all: where a loud signal was cut, at full scale or, if it was scaled later, anywhere.
        n_bad: samples that are NaN or infinite; the rest is measured with zeros in their place.
    """

    size: int
    changed: int
    n_samples: int
    sample_rate: int
    peak: float
    level: float
    offset: float
    n_flat: int
    n_bad: int

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.n_samples / self.sample_rate

    @property
    def silent(self) -> bool:
        """Whether nothing in it reaches -60 dB of full scale."""
        return self.peak < _SILENCE

    def faults(self) -> dict[str, str]:
        """What is wrong: the kind of fault -> a sentence with the numbers."""
        found = {}
        if self.n_bad:
            found["NaN"] = f"holds {self.n_bad} NaN or infinite samples"
        elif self.silent:
            found["silence"] = f"is silent, its peak is {decibels(self.peak):.1f} dB"
        if self.n_flat and self.peak >= _LOUD:
            found["clipping"] = (
                f"is clipped, {self.n_flat} samples lie flat at its peak of "
                f"{decibels(self.peak):.1f} dB"
            )
        if not self.silent and abs(self.offset) > _OFFSET * self.level:
            found["DC offset"] = (
                f"has a DC offset of {self.offset:.4f}, {abs(self.offset) / self.level:.0%} of its "
                "level"
            )
        return found


class _Top:
    """The highest value of a signal that comes in blocks, and how often it is flat there."""

    def __init__(self) -> None:
        self.value, self.n_flat = -math.inf, 0

    def add(self, block: np.ndarray) -> None:
        highest = float(block.max())
        if highest > self.value:
            self.value, self.n_flat = highest, 0
        if highest == self.value:
            there = block == highest
            self.n_flat += int(np.count_nonzero(there[:-2] & there[1:-1] & there[2:]))


def measure(path: PathLike) -> Scan:
    """Decode a file to its end, in bounded memory, and measure it.

    Raises:
        FileNotFoundError, ValueError: as ``audio.iter_blocks``.

    >>> import tempfile
    >>> from convtasnet.audio import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", np.tile([0.5, -0.5], 400), 8000)
    ...     scan = measure(f"{folder}/a.wav")
    >>> scan.peak, scan.level, scan.offset, scan.seconds, scan.faults()
    (0.5, 0.5, 0.0, 0.1, {})
    """
    status = os.stat(file_of(path))
    info = audio_info(path)
    top, bottom = _Top(), _Top()
    total = power = 0.0
    n_bad = 0
    for block in iter_blocks(path):
        finite = np.isfinite(block)
        if not finite.all():
            n_bad += int(np.count_nonzero(~finite))
            block = np.where(finite, block, np.float32(0))
        total += float(block.sum(dtype=np.float64))
        power += float(np.square(block, dtype=np.float64).sum())
        top.add(block)
        bottom.add(-block)
    return Scan(
        size=status.st_size,
        changed=status.st_mtime_ns,
        n_samples=info.n_samples,
        sample_rate=info.sample_rate,
        peak=max(top.value, bottom.value),
        level=math.sqrt(power / info.n_samples),
        offset=total / info.n_samples,
        n_flat=top.n_flat + bottom.n_flat,
        n_bad=n_bad,
    )


def scan_files(owner: Mapping[str, str], origin: str) -> tuple[dict[str, Scan], list[Problem]]:
    """Measure files by threads; what did not change since the last time is remembered.

    Args:
        owner: path of each file -> the ID of a row that uses it.
        origin: name of the data set.

    Returns:
        Measurements by path, and the files that can't be decoded.
    """
    cache = FileCache(origin, Scan, "scans")
    known = {path: found for path in owner if (found := _remembered(path, cache))}
    new = {path: row for path, row in owner.items() if path not in known}
    title = "Scanning samples, once" if new else None
    measured, problems = gather(new, measure, _CHUNK, title)
    cache.save(known | measured)
    return known | measured, problems


def find_faults(scans: Iterable[tuple[str, str, Scan]]) -> list[tuple[str, Problem]]:
    """Faults of (path, ID, measurements): the kind of each and what it is."""
    return [
        (kind, Problem(path, row, reason))
        for path, row, scan in scans
        for kind, reason in scan.faults().items()
    ]


def decibels(amplitude: float) -> float:
    """20 log10 of an amplitude; minus infinity for 0.

    >>> round(decibels(0.5), 2), decibels(0)
    (-6.02, -inf)
    """
    return 20 * math.log10(amplitude) if amplitude > 0 else -math.inf


def _remembered(path: str, cache: FileCache[Scan]) -> Scan | None:
    try:
        status = os.stat(file_of(path))
    except OSError:
        return None
    return cache.get(path, status.st_size, status.st_mtime_ns)
