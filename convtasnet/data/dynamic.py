"""Mixtures made while reading: new ones for each training epoch, or a fixed list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.audio import read_audio
from convtasnet.data.corpus import Utterance
from convtasnet.data.dataset import Batch, EpochDataset, Item
from convtasnet.data.device_mixing import first_loud, frame_energies, gated_levels, mix_leveled
from convtasnet.data.draws import Key, below, distinct, uniforms
from convtasnet.data.mixing import Mixture, active_level, mix, paired_gains
from convtasnet.data.packed import PackedStrings
from convtasnet.data.recordings import Recordings
from convtasnet.data.resident import ResidentAudio
from convtasnet.data.speed import SPEEDS, change_speed
from convtasnet.resampling import resample

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


@dataclass(frozen=True)
class Plan:
    """What B training mixtures are made of, decided before a sample is read.

    Args:
        utterances: (B, n_src) int64, which ones.
        percents: (B, n_src) int64, at which speeds.
        counts: (B, n_src) int64, samples of a crop before its speed is changed.
        starts: (B, n_src, TRIES) int64, first samples of the crops to choose from.
        gains_db: (B, n_src) float64, relative gains.
    """

    utterances: np.ndarray
    percents: np.ndarray
    counts: np.ndarray
    starts: np.ndarray
    gains_db: np.ndarray


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

    recordings: Recordings

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
        facts = facts.take(order)
        self.recordings = Recordings(
            [utterances[i].path for i in order], facts.n_samples, facts.sample_rates, sample_rate
        )
        self._floors = np.fmax(QUIET_LEVEL, facts.levels * 10 ** (-QUIET_DB / 20))
        self.n_src, self.sample_rate, self.speed, self.seed = n_src, sample_rate, speed, seed
        self.n_samples = round(segment * sample_rate)
        self.window = int(self._needed(np.array(SPEEDS[-1] if speed else 100)))
        self._size = size

    def __len__(self) -> int:
        return self._size

    def plan(self, keys: Sequence[Key]) -> Plan:
        """Decide what the items (epoch, index) are made of."""
        n_src = self.n_src
        drawn = uniforms(self.seed, keys, n_src * (3 + TRIES) + n_src // 2)
        who, which, pace, where, gain = np.split(
            drawn, np.cumsum([n_src, n_src, n_src, n_src * TRIES]), axis=1
        )
        speakers = distinct(len(self._firsts) - 1, who)
        firsts = self._firsts[speakers]
        utterances = firsts + below(self._firsts[speakers + 1] - firsts, which)
        percents = np.full_like(utterances, 100)
        if self.speed:
            percents = SPEEDS[0] + below(len(SPEEDS), pace)
        lengths = self.recordings.lengths[utterances]
        counts = np.minimum(lengths, self._needed(percents))
        starts = below((lengths - counts + 1)[..., None], where.reshape(-1, n_src, TRIES))
        return Plan(utterances, percents, counts, starts, paired_gains(gain, n_src))

    def items(self, keys: Sequence[Key]) -> list[Item]:
        """New mixtures for each epoch and index."""
        plan = self.plan(keys)
        return [self._item(plan, row) | {"id": _id_of(*key)} for row, key in enumerate(keys)]

    def batch(self, keys: Sequence[Key], audio: ResidentAudio) -> Batch:
        """The same items, made on a device."""
        plan = self.plan(keys)
        played = self._played(plan)
        ends = played.max(1, keepdims=True)
        floors = self._floors[plan.utterances] / audio.scales[plan.utterances]
        wholes = np.stack(np.broadcast_arrays(plan.counts, ends, played, plan.percents))
        sizes = audio.to_device(wholes)
        counts, lengths, played_lengths, percents = sizes.unbind()
        loud, gains = audio.to_device(np.stack([floors, 10 ** (plan.gains_db / 20)])).unbind()
        crops = audio.crops(plan.utterances[..., None], plan.starts, counts[..., None])
        # The level of a crop decides whether it is loud, that of the padded source is its gain's.
        alone, padded = gated_levels(frame_energies(crops), sizes[:2, ..., None]).unbind()
        chosen = first_loud(alone, loud)[..., None]
        sources = crops.take_along_dim(chosen[..., None], 2).squeeze(2).float()
        levels = padded.take_along_dim(chosen, 2).squeeze(2)
        if self.speed:
            sources = change_speed(sources, percents, played_lengths, self.n_samples)
            levels = gated_levels(frame_energies(sources), lengths)
        mixture, sources = mix_leveled(sources, levels, gains)
        return {
            "mixture": mixture,
            "sources": sources,
            "lengths": lengths[:, 0].contiguous(),
            "ids": [_id_of(*key) for key in keys],
        }

    def _item(self, plan: Plan, row: int) -> Item:
        crops, levels = zip(*(self._crop(plan, row, k) for k in range(self.n_src)), strict=True)
        longest = max(map(len, crops))
        known = not self.speed and longest == min(map(len, crops))
        sources = [F.pad(crop, (0, longest - len(crop))) for crop in crops]
        gains_db = plan.gains_db[row].tolist()
        mixture, leveled = mix(sources, gains_db, levels=levels if known else None)
        return {"mixture": mixture, "sources": leveled}

    def _crop(self, plan: Plan, row: int, source: int) -> tuple[Tensor, float]:
        """The first crop that is not nearly silent, or the loudest; its level at normal speed."""
        utterance, count = int(plan.utterances[row, source]), int(plan.counts[row, source])
        best, loudest = torch.zeros(0), -1.0
        for start in dict.fromkeys(plan.starts[row, source].tolist()):
            crop = self.recordings.read(utterance, start, count)
            level = active_level(crop)
            if level > loudest:
                best, loudest = crop, level
            if level >= self._floors[utterance]:
                break
        # A step of its own: the ratio of rates and that of speeds together need a huge filter.
        played = resample(best, int(plan.percents[row, source]), 100)
        return played[: self.n_samples], loudest

    def _needed(self, percents: np.ndarray) -> np.ndarray:
        """Samples that become one segment at these speeds."""
        return -(-self.n_samples * percents // 100)

    def _played(self, plan: Plan) -> np.ndarray:
        """Samples of each source of a plan after its speed was changed, (B, n_src)."""
        return np.minimum(-(-plan.counts * 100 // plan.percents), self.n_samples)


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


def _id_of(epoch: int, index: int) -> str:
    return f"epoch{epoch}-{index}"


def _name(index: int, mixture: Mixture) -> str:
    """A name that tells the speakers, and that works as a file's name."""
    who = "_".join(speaker.replace("/", "-") for speaker in mixture.speakers)
    return f"{index:05d}_{who}"
