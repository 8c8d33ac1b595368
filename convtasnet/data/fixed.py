"""A fixed list of mixtures made while reading, for validation and test."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from convtasnet.audio import read_audio
from convtasnet.data.augment import Augment
from convtasnet.data.batch import Item, named
from convtasnet.data.dataset import EpochDataset
from convtasnet.data.mixing import Mixture, mix
from convtasnet.data.packed import PackedStrings
from convtasnet.data.part import Ingredients, Part, recordings_of
from convtasnet.data.reverb import in_rooms


class FixedMixtures(EpochDataset):
    """A fixed list of whole mixtures, cut to the shortest source (WSJ0-mix's ``min``).

    Noise and rooms, if any, are drawn from ``seed`` for each mixture, in the order of the list.

    Args:
        mixtures: as ``mixing.draw_mixtures`` gives them; their paths are utterances' names.
        ingredients: talkers, among them those of the mixtures, and perhaps noise and rooms.
        sample_rate: of the items in Hz.
        augment: SNR and target.
        noise: what becomes of the noise: "batch", "source" or "ignore".
        seed: of what is drawn.

    Attributes:
        lengths: (n,) samples of each item.

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32, and perhaps
    ``"noise": (T,)``.
    """

    def __init__(
        self,
        mixtures: Sequence[Mixture],
        ingredients: Ingredients,
        sample_rate: int,
        augment: Augment,
        noise: str = "batch",
        seed: int | str = 0,
    ):
        talkers = ingredients.talkers
        position = {utterance.name: i for i, utterance in enumerate(talkers.utterances)}
        self._members = np.array([[position[name] for name in m.paths] for m in mixtures])
        self._gains = np.array([mixture.gains_db for mixture in mixtures])
        self.paths = PackedStrings(talkers.paths())
        self._ids = PackedStrings([_name(i, mixture) for i, mixture in enumerate(mixtures)])
        self._facts = talkers.facts
        self.sample_rate, self._direct = sample_rate, augment.target == "direct"
        resampled = -(-self._facts.n_samples * sample_rate // self._facts.sample_rates)
        self.lengths = resampled[self._members].min(1)
        n_talkers = self._members.shape[1]
        self.n_src = n_talkers + (noise == "source")
        self._given = self.n_src if noise == "ignore" else n_talkers + 1
        rng = random.Random(f"surroundings/{seed}")
        self._noise = self._rooms = None
        if ingredients.noise:
            self._noise = _Noise(ingredients.noise, self.lengths, augment.snr, sample_rate, rng)
        if ingredients.rooms:
            self._rooms = _Rooms(ingredients.rooms, len(mixtures), n_talkers, sample_rate, rng)

    def __len__(self) -> int:
        return len(self._ids)

    def item(self, epoch: int, index: int) -> Item:
        """The mixture, the same in every epoch."""
        n_samples = int(self.lengths[index])
        sources = [self._read(int(member), n_samples) for member in self._members[index]]
        gains = self._gains[index].tolist()
        if self._noise:
            sources.append(self._noise.read(index, n_samples))
            gains.append(max(gains) - float(self._noise.snr[index]))
        parts, targets = torch.stack(sources), None
        if self._rooms:
            impulses = self._rooms.read(index)
            parts, targets = in_rooms(parts, impulses, self.sample_rate, self._direct)
        mixture, leveled = mix(parts, gains, targets=targets)
        return {**named(mixture, leveled[: self._given], self.n_src), "id": self._ids[index]}

    def _read(self, utterance: int, n_samples: int) -> Tensor:
        start, count = int(self._facts.starts[utterance]), int(self._facts.n_samples[utterance])
        wav, _ = read_audio(self.paths[utterance], self.sample_rate, start, count)
        return wav[:n_samples]


class _Noise:
    """Noise of each of some mixtures: which recording, from where on, at which SNR."""

    def __init__(
        self,
        part: Part,
        lengths: np.ndarray,
        snr: Sequence[float],
        sample_rate: int,
        rng: random.Random,
    ):
        self._recordings = recordings_of([part], sample_rate, lengths.max())
        self._members = np.array([rng.randrange(len(part)) for _ in lengths])
        room = self._recordings.lengths[self._members] - lengths
        self._starts = np.array([rng.randint(0, limit) for limit in room.tolist()])
        self.snr = np.array([rng.uniform(*snr) for _ in lengths])

    def read(self, index: int, n_samples: int) -> Tensor:
        return self._recordings.read(int(self._members[index]), int(self._starts[index]), n_samples)


class _Rooms:
    """Impulse responses of each of some mixtures: different ones of one room."""

    def __init__(
        self, part: Part, count: int, n_talkers: int, sample_rate: int, rng: random.Random
    ):
        part = part.ordered()
        self._recordings = recordings_of([part], sample_rate, 0)
        bounds = part.bounds().tolist()
        rooms = [range(*ends) for ends in itertools.pairwise(bounds)]
        self._places = np.array([rng.sample(rng.choice(rooms), n_talkers) for _ in range(count)])

    def read(self, index: int) -> Tensor:
        """(n_talkers, K)."""
        impulses = [self._recordings.read(int(place)) for place in self._places[index]]
        return pad_sequence(impulses, batch_first=True)


def _name(index: int, mixture: Mixture) -> str:
    """A name that tells the speakers, and that works as a file's name."""
    who = "_".join(speaker.replace("/", "-") for speaker in mixture.speakers)
    return f"{index:05d}_{who}"
