"""Mixtures made while reading: new ones for each training epoch, or a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from convtasnet.audio import read_audio
from convtasnet.data.corpus import Utterance
from convtasnet.data.dataset import EpochDataset, Item, random_state
from convtasnet.data.mixing import Mixture, active_level, draw_gains, mix
from convtasnet.data.packed import PackedStrings
from convtasnet.resampling import resample

SPEEDS = range(95, 106)  # percent
TRIES = 4
QUIET_DB = 25.0  # a crop this far below its utterance's level is nearly silent
QUIET_LEVEL = 1e-3  # and so is one below -60 dB of full scale


@dataclass(frozen=True)
class Facts:
    """What is known of utterances, in their order.

    Args:
        n_samples: (n,) int64, at the file's own rate.
        sample_rates: (n,) int64, in Hz.
        levels: (n,) active levels; 0 where silent, NaN where not measured.
        starts: (n,) int64, where in the file the utterance starts, at the file's own rate.
    """

    n_samples: np.ndarray
    sample_rates: np.ndarray
    levels: np.ndarray
    starts: np.ndarray

    def take(self, indices: Sequence[int]) -> Facts:
        """Facts of some of the utterances."""
        return Facts(*(getattr(self, name)[list(indices)] for name in vars(self)))


def excerpts(
    utterances: Sequence[Utterance], facts: Facts, seconds: float
) -> tuple[list[Utterance], Facts]:
    """Utterances cut into stretches of equal length that do not overlap, named ``NAME#0``, ….

    The rest at the end is left out; an utterance shorter than ``seconds`` stays whole.

    >>> one = [Utterance("ann", "ann/a.wav", "/data/ann/a.wav")]
    >>> facts = Facts(np.array([25]), np.array([10]), np.array([0.1]), np.array([0]))
    >>> parts, their_facts = excerpts(one, facts, seconds=1.0)
    >>> [part.name for part in parts], their_facts.starts, their_facts.n_samples
    (['ann/a.wav#0', 'ann/a.wav#1'], array([ 0, 10]), array([10, 10]))
    """
    parts, indices, starts, counts = [], [], [], []
    for i, utterance in enumerate(utterances):
        length = int(facts.n_samples[i])
        count = min(length, round(seconds * int(facts.sample_rates[i])))
        for k in range(length // count):
            parts.append(replace(utterance, name=f"{utterance.name}#{k}"))
            indices.append(i)
            starts.append(int(facts.starts[i]) + k * count)
            counts.append(count)
    return parts, replace(facts.take(indices), n_samples=np.array(counts), starts=np.array(starts))


class DynamicMixtures(EpochDataset):
    """Training mixtures of random speakers, utterances, crops and levels.

    Every item draws ``n_src`` different speakers, all equally likely, then an utterance of each
    and a crop of it. A crop that is nearly silent (25 dB below the level of its utterance, or
    -60 dB of full scale) is drawn again, up to four times; the loudest is kept if none is better.
    Levels are those of ``mixing.mix``. An utterance shorter than the segment is taken whole and
    followed by zeros up to the longest source of the item.

    Everything is a function of (seed, epoch, index).

    Args:
        utterances: all utterances of the training speakers.
        facts: of the utterances.
        n_src: speakers in a mixture.
        sample_rate: of the items in Hz.
        segment: length of the items in seconds.
        size: items in an epoch.
        speed: whether each source is played at 0.95 to 1.05 times its speed, in steps of 0.01
            (pitch and formants change with it).
        seed: of all draws.

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32.

    Raises:
        ValueError: ``size`` below 1.
    """

    def __init__(
        self,
        utterances: Sequence[Utterance],
        facts: Facts,
        n_src: int,
        sample_rate: int,
        segment: float,
        size: int,
        speed: bool = False,
        seed: int = 0,
    ):
        if size < 1:
            raise ValueError(f"epoch_size is {size}, expected at least 1 item")
        order = sorted(range(len(utterances)), key=lambda i: (utterances[i].speaker, i))
        speakers = [utterances[i].speaker for i in order]
        # Utterances firsts[k] to firsts[k + 1] are speaker k's.
        starts = [i for i, s in enumerate(speakers) if i == 0 or s != speakers[i - 1]]
        self._firsts = np.array([*starts, len(order)])
        self._paths = PackedStrings([utterances[i].path for i in order])
        self._facts = facts.take(order)
        self.n_src, self.sample_rate, self.speed, self.seed = n_src, sample_rate, speed, seed
        self.n_samples = round(segment * sample_rate)
        self._size = size

    def __len__(self) -> int:
        return self._size

    def item(self, epoch: int, index: int) -> Item:
        """A new mixture for each epoch and index."""
        rng = random_state(self.seed, epoch, index)
        speakers = rng.choice(len(self._firsts) - 1, self.n_src, replace=False)
        crops = [
            self._crop(int(rng.integers(self._firsts[k], self._firsts[k + 1])), rng)
            for k in speakers
        ]
        longest = max(map(len, crops))
        sources = [F.pad(crop, (0, longest - len(crop))) for crop in crops]
        mixture, leveled = mix(sources, draw_gains(self.n_src, rng))
        return {"mixture": mixture, "sources": leveled, "id": f"epoch{epoch}-{index}"}

    def _crop(self, utterance: int, rng: np.random.Generator) -> Tensor:
        """A crop that is not nearly silent, if a few draws find one."""
        facts = self._facts
        percent = int(rng.choice(SPEEDS)) if self.speed else 100
        floor = np.fmax(QUIET_LEVEL, facts.levels[utterance] * 10 ** (-QUIET_DB / 20))
        length, rate = int(facts.n_samples[utterance]), int(facts.sample_rates[utterance])
        # Samples at the file's rate that become one segment, and a margin for the rounding.
        wanted = -(-self.n_samples * rate * percent // (self.sample_rate * 100)) + 1
        best, loudest = None, -1.0
        for _ in range(TRIES):
            start = int(rng.integers(max(0, length - wanted) + 1))
            crop = self._read(utterance, start, min(wanted, length), percent)
            level = active_level(crop)
            if level > loudest:
                best, loudest = crop, level
            if level >= floor or length <= wanted:
                break
        assert best is not None
        return best

    def _read(self, utterance: int, start: int, count: int, percent: int) -> Tensor:
        wav, _ = read_audio(self._paths[utterance], self.sample_rate, start, count)
        # Two steps: the ratio of rates and that of speeds together would need a huge filter.
        return resample(wav, percent, 100)[: self.n_samples]


class FixedMixtures(EpochDataset):
    """A fixed list of whole mixtures, cut to the shortest source (WSJ0-mix's ``min``).

    Args:
        mixtures: as ``mixing.draw_mixtures`` gives them; their paths are utterances' names.
        utterances: among them those of the mixtures.
        facts: of the utterances.
        sample_rate: of the items in Hz.

    Attributes:
        lengths: (n,) samples of each item.

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32.
    """

    def __init__(
        self,
        mixtures: Sequence[Mixture],
        utterances: Sequence[Utterance],
        facts: Facts,
        sample_rate: int,
    ):
        position = {utterance.name: i for i, utterance in enumerate(utterances)}
        self._members = np.array([[position[name] for name in m.paths] for m in mixtures])
        self._gains = np.array([mixture.gains_db for mixture in mixtures])
        self._paths = PackedStrings([utterance.path for utterance in utterances])
        self._ids = PackedStrings([_name(i, mixture) for i, mixture in enumerate(mixtures)])
        self._facts = facts
        self.sample_rate = sample_rate
        resampled = -(-facts.n_samples * sample_rate // facts.sample_rates)
        self.lengths = resampled[self._members].min(1)

    def __len__(self) -> int:
        return len(self._ids)

    def item(self, epoch: int, index: int) -> Item:
        """The mixture, the same in every epoch."""
        n_samples = int(self.lengths[index])
        sources = [self._read(int(member), n_samples) for member in self._members[index]]
        mixture, leveled = mix(sources, self._gains[index].tolist())
        return {"mixture": mixture, "sources": leveled, "id": self._ids[index]}

    def _read(self, utterance: int, n_samples: int) -> Tensor:
        start, count = int(self._facts.starts[utterance]), int(self._facts.n_samples[utterance])
        wav, _ = read_audio(self._paths[utterance], self.sample_rate, start, count)
        return wav[:n_samples]


def _name(index: int, mixture: Mixture) -> str:
    """A name that tells the speakers, and that works as a file's name."""
    who = "_".join(speaker.replace("/", "-") for speaker in mixture.speakers)
    return f"{index:05d}_{who}"
