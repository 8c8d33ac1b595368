"""Recordings with what was measured of them: the talkers of a split, noise, rooms."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convtasnet.data.checks import find_problems, raise_problems
from convtasnet.data.corpus import Utterance, as_manifest
from convtasnet.data.levels import file_levels
from convtasnet.data.recordings import Recordings
from convtasnet.data.shown import some_lines

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Facts:
    """What is known of recordings, in their order.

    Args:
        n_samples: (n,) int64, at the file's own rate.
        sample_rates: (n,) int64, in Hz.
        levels: (n,) active levels; 0 where silent, NaN where not measured.
        starts: (n,) int64, where in the file the recording starts, at the file's own rate.
    """

    n_samples: np.ndarray
    sample_rates: np.ndarray
    levels: np.ndarray
    starts: np.ndarray

    def take(self, indices: Sequence[int]) -> Facts:
        """Facts of some of the recordings."""
        return Facts(*(getattr(self, name)[list(indices)] for name in vars(self)))


@dataclass(frozen=True)
class Part:
    """Some recordings and their facts. A noise's or a room's "speaker" is its folder."""

    utterances: list[Utterance]
    facts: Facts

    def __len__(self) -> int:
        return len(self.utterances)

    def take(self, indices: Sequence[int]) -> Part:
        """Some of the recordings."""
        return Part([self.utterances[i] for i in indices], self.facts.take(indices))

    def speakers(self) -> list[str]:
        """The speaker of each recording."""
        return [utterance.speaker for utterance in self.utterances]

    def paths(self) -> list[str]:
        """The file of each recording."""
        return [utterance.path for utterance in self.utterances]

    def of_speakers(self, names: Iterable[str]) -> Part:
        """The recordings of these speakers."""
        wanted = set(names)
        return self.take([i for i, who in enumerate(self.speakers()) if who in wanted])

    def by_speaker(self) -> dict[str, list[str]]:
        """Names of each speaker's utterances."""
        names: dict[str, list[str]] = {}
        for utterance in self.utterances:
            names.setdefault(utterance.speaker, []).append(utterance.name)
        return names

    def ordered(self) -> Part:
        """The same, speaker after speaker."""
        return self.take(sorted(range(len(self)), key=lambda i: (self.utterances[i].speaker, i)))

    def bounds(self) -> np.ndarray:
        """Where speakers change: of a part in order, bounds[k] to bounds[k + 1] are speaker k's."""
        speakers = self.speakers()
        starts = [i for i, s in enumerate(speakers) if i == 0 or s != speakers[i - 1]]
        return np.array([*starts, len(speakers)])

    @property
    def hours(self) -> float:
        """Duration of all."""
        return float((self.facts.n_samples / self.facts.sample_rates).sum()) / 3600

    def excerpts(self, seconds: float) -> Part:
        """Stretches of equal length that do not overlap, named ``NAME#0``, ….

        The rest at the end is left out; a recording shorter than ``seconds`` stays whole.

        >>> facts = Facts(np.array([25]), np.array([10]), np.array([0.1]), np.array([0]))
        >>> whole = Part([Utterance("ann", "ann/a.wav", "/data/ann/a.wav")], facts)
        >>> parts = whole.excerpts(seconds=1.0)
        >>> [part.name for part in parts.utterances], parts.facts.starts, parts.facts.n_samples
        (['ann/a.wav#0', 'ann/a.wav#1'], array([ 0, 10]), array([10, 10]))
        """
        parts, indices, starts, counts = [], [], [], []
        for i, utterance in enumerate(self.utterances):
            length = int(self.facts.n_samples[i])
            count = min(length, round(seconds * int(self.facts.sample_rates[i])))
            for k in range(length // count):
                parts.append(replace(utterance, name=f"{utterance.name}#{k}"))
                indices.append(i)
                starts.append(int(self.facts.starts[i]) + k * count)
                counts.append(count)
        facts = self.facts.take(indices)
        return Part(parts, replace(facts, n_samples=np.array(counts), starts=np.array(starts)))


def measured(utterances: Sequence[Utterance], root: Path, samples: bool) -> Part:
    """Look at recordings; silent ones are named in the log and left out.

    Args:
        utterances: what to look at.
        root: where they come from, for messages and as the name of what is remembered.
        samples: whether to decode all files once and measure their levels; without it levels are
            unknown and silence isn't found.

    Raises:
        FileNotFoundError, ValueError: files are missing or damaged; all are listed.
    """
    headers, problems = find_problems(as_manifest(utterances, root))
    raise_problems(problems)
    levels = np.full(len(utterances), np.nan)
    if samples:
        levels = file_levels([utterance.path for utterance in utterances])
    starts = np.zeros(len(utterances), np.int64)
    facts = Facts(headers.n_samples, headers.sample_rates, levels, starts)
    silent = [u.path for u, level in zip(utterances, levels, strict=True) if level == 0]
    if silent:
        logger.warning("%d recordings are silent and left out:%s", len(silent), some_lines(silent))
    heard = np.flatnonzero(levels != 0).tolist()
    return Part(list(utterances), facts).take(heard)


@dataclass(frozen=True)
class Ingredients:
    """What mixtures are made of: talkers, and perhaps noise and impulse responses of rooms."""

    talkers: Part
    noise: Part | None = None
    rooms: Part | None = None

    @property
    def parts(self) -> list[Part]:
        """Those that are there, in this order."""
        return [part for part in (self.talkers, self.noise, self.rooms) if part is not None]

    def ordered(self) -> Ingredients:
        """The same, talkers speaker after speaker and impulse responses room after room."""
        rooms = None if self.rooms is None else self.rooms.ordered()
        return Ingredients(self.talkers.ordered(), self.noise, rooms)

    def recordings(self, sample_rate: int, least: int) -> Recordings:
        """All of them as one list of signals.

        Args:
            sample_rate: in Hz.
            least: samples of noise at ``sample_rate``: shorter noise is repeated.
        """
        sizes = [np.full(len(part), least if part is self.noise else 0) for part in self.parts]
        return recordings_of(self.parts, sample_rate, np.concatenate(sizes))


def recordings_of(parts: Sequence[Part], sample_rate: int, least: np.ndarray | int) -> Recordings:
    """Parts as one list of signals; see ``Recordings``."""
    return Recordings(
        [path for part in parts for path in part.paths()],
        np.concatenate([part.facts.n_samples for part in parts]),
        np.concatenate([part.facts.sample_rates for part in parts]),
        sample_rate,
        least=least,
    )
