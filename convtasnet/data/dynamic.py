"""Training mixtures made while reading, new ones in each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from convtasnet.data.augment import Augment
from convtasnet.data.batch import Item, named
from convtasnet.data.dataset import EpochDataset
from convtasnet.data.device_mixing import first_loud, frame_energies, gated_levels, mix_leveled
from convtasnet.data.draws import Key
from convtasnet.data.mixing import active_level, mix
from convtasnet.data.part import Ingredients
from convtasnet.data.plan import Plan, Planner, needed
from convtasnet.data.recordings import Recordings
from convtasnet.data.resident_audio import ResidentAudio
from convtasnet.data.reverb import in_rooms
from convtasnet.data.speed import change_speed
from convtasnet.data.words import Fields
from convtasnet.resampling import resample

QUIET_DB = 25.0  # a crop this far below its recording's level is nearly silent
QUIET_LEVEL = 1e-3  # and so is one below -60 dB of full scale


class DynamicMixtures(EpochDataset):
    """Training mixtures of random talkers, crops, levels, noise and rooms.

    ``plan.Planner`` says what is drawn. A crop that is nearly silent (25 dB below the level of its
    recording, or -60 dB of full scale) is drawn again, up to four times; the loudest is kept if
    none is better. An utterance shorter than the segment is taken whole and followed by zeros up
    to the longest talker of the item. Then the speed is changed, the talkers are put in a room,
    and talkers and noise are leveled, weighted, added and scaled (``mixing.mix``).

    Everything is a function of (seed, epoch, index).

    Args:
        ingredients: the utterances of the training speakers; noise, of which every mixture has
            some; rooms, in which every talker has a place.
        n_talkers: in a mixture.
        sample_rate: of the items in Hz.
        segment: length of the items in seconds.
        size: items in an epoch.
        augment: gains, speed, SNR, target, peak.
        noise: what becomes of the noise: "batch", "source" or "ignore".
        seed: of all draws.

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32, and perhaps
    ``"noise": (T,)``.

    Raises:
        ValueError: ``size`` below 1.
    """

    recordings: Recordings

    def __init__(
        self,
        ingredients: Ingredients,
        n_talkers: int,
        sample_rate: int,
        segment: float,
        size: int,
        augment: Augment,
        noise: str = "batch",
        seed: int = 0,
    ):
        if size < 1:
            raise ValueError(f"epoch_size is {size}, expected at least 1 item")
        ordered = ingredients.ordered()
        self.n_talkers, self.n_samples = n_talkers, round(segment * sample_rate)
        self.recordings = ordered.recordings(sample_rate, self.n_samples)
        levels = np.concatenate([part.facts.levels for part in ordered.parts])
        self._floors = np.fmax(QUIET_LEVEL, levels * 10 ** (-QUIET_DB / 20))
        self.sample_rate, self.augment = sample_rate, augment
        self.n_src = n_talkers + (noise == "source")
        n_noises = len(ordered.noise or ())
        self.planner = Planner(
            self.recordings.lengths,
            ordered.talkers.bounds(),
            n_noises,
            ordered.rooms.bounds() if ordered.rooms else None,
            n_talkers,
            self.n_samples,
            augment,
            seed,
        )
        self._crop_window = int(needed(self.n_samples, augment.speeds[-1]))
        first_room = len(ordered.talkers) + n_noises
        self._room_window = int(self.recordings.lengths[first_room:].max(initial=0))
        self.window = max(self._crop_window, self._room_window)
        self._given = self.n_src if noise == "ignore" else n_talkers + 1  # of the rows of a plan
        self._size = size

    def __len__(self) -> int:
        return self._size

    def items(self, keys: Sequence[Key]) -> list[Item]:
        """New mixtures for each epoch and index."""
        plan = self.planner.plan(keys)
        return [self._item(plan, i) | {"id": name} for i, name in enumerate(self.ids(keys))]

    def decide(self, keys: Sequence[Key], audio: ResidentAudio) -> Fields:
        """The plan of the items, in terms of the samples of ``audio``."""
        plan = self.planner.plan(keys)
        fields = {
            "places": audio.places(plan.members[..., None], plan.starts),
            "floors": self._floors[plan.members] / audio.scales[plan.members],
            "gains": 10 ** (plan.gains_db / 20),
            "counts": plan.counts,
            "percents": plan.percents,
            "played": plan.played,
            "lengths": plan.played.max(1),
            "peaks": plan.peaks,
        }
        if plan.rooms is not None:
            fields["rooms"] = audio.places(plan.rooms, 0)
            fields["room_counts"] = self.recordings.lengths[plan.rooms]
        return fields

    def make(self, fields: Mapping[str, Tensor], audio: ResidentAudio) -> dict[str, Tensor]:
        """The same items as the files give."""
        counts, lengths = fields["counts"], fields["lengths"]
        ends = lengths[:, None]
        crops = audio.crops(fields["places"], counts[..., None], self._crop_window)
        # The level of a crop decides whether it is loud, that of the padded source is its gain's.
        sizes = torch.stack([counts, ends.expand_as(counts)])[..., None]
        alone, padded = gated_levels(frame_energies(crops), sizes).unbind()
        chosen = first_loud(alone, fields["floors"])[..., None]
        sources = crops.take_along_dim(chosen[..., None], 2).squeeze(2).float()
        levels = padded.take_along_dim(chosen, 2).squeeze(2)
        if self.augment.speed:
            speeds = self.augment.speeds
            percents, played = fields["percents"], fields["played"]
            sources = change_speed(sources, percents, played, self.n_samples, speeds)
        targets = None
        if "rooms" in fields:
            # The scale of a response doesn't matter, as its talker is leveled.
            impulses = audio.crops(fields["rooms"], fields["room_counts"], self._room_window)
            sources, targets = self._in_rooms(sources, impulses.float())
            inside = torch.arange(self.n_samples, device=audio.device) < ends[..., None]
            sources = sources * inside
            targets = None if targets is None else targets * inside
        if self.augment.speed or "rooms" in fields:
            levels = gated_levels(frame_energies(sources), ends)
        mixture, sources = mix_leveled(sources, levels, fields["gains"], fields["peaks"], targets)
        signals = named(mixture, sources[:, : self._given], self.n_src)
        return {**signals, "lengths": lengths.contiguous()}

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Which epoch and index."""
        return [f"epoch{epoch}-{index}" for epoch, index in keys]

    def _item(self, plan: Plan, i: int) -> Item:
        rows = range(plan.members.shape[1])
        crops, found = zip(*(self._crop(plan, i, row) for row in rows), strict=True)
        sources = pad_sequence(list(crops), batch_first=True)
        padded = sources.shape[-1] > min(map(len, crops))
        levels: Sequence[float] | None = None if self.augment.speed or padded else found
        targets = None
        if plan.rooms is not None:
            impulses = [self.recordings.read(int(room)) for room in plan.rooms[i]]
            sources, targets = self._in_rooms(sources, pad_sequence(impulses, batch_first=True))
            levels = None
        gains_db, peak = plan.gains_db[i].tolist(), float(plan.peaks[i])
        mixture, parts = mix(sources, gains_db, peak, levels, targets)
        return named(mixture, parts[: self._given], self.n_src)

    def _crop(self, plan: Plan, i: int, row: int) -> tuple[Tensor, float]:
        """The first crop that is not nearly silent, or the loudest; its level at normal speed."""
        member, count = int(plan.members[i, row]), int(plan.counts[i, row])
        best, loudest = torch.zeros(0), -1.0
        for start in dict.fromkeys(plan.starts[i, row].tolist()):
            crop = self.recordings.read(member, start, count)
            level = active_level(crop)
            if level > loudest:
                best, loudest = crop, level
            if level >= self._floors[member]:
                break
        # A step of its own: the ratio of rates and that of speeds together need a huge filter.
        played = resample(best, int(plan.percents[i, row]), 100)
        return played[: self.n_samples], loudest

    def _in_rooms(self, sources: Tensor, impulses: Tensor) -> tuple[Tensor, Tensor | None]:
        return in_rooms(sources, impulses, self.sample_rate, self.augment.target == "direct")
