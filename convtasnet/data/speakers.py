"""Dynamic mixing: training mixtures made anew in each epoch from single-speaker utterances."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from convtasnet.data.corpus import SPLITS, list_utterances, split_speakers
from convtasnet.data.dataset import EpochDataset
from convtasnet.data.fixed import FixedMixtures
from convtasnet.data.mixing import count_combinations, draw_mixtures
from convtasnet.data.module import MixtureData
from convtasnet.data.part import Facts, Ingredients, Part, measured
from convtasnet.data.remix import surrounded
from convtasnet.data.sounds import share_out

logger = logging.getLogger(__name__)

N_EVAL = 200


class SpeakersData(MixtureData):
    """Mixtures made from a folder ``SPEAKER/…/utterance.{wav,flac}`` or a csv.

    The speakers are split by the seed into three sets that share none. Training mixes on the fly
    (``dynamic.DynamicMixtures``); validation and test are lists of whole mixtures that the seed
    and the files' names determine (``mixing.draw_mixtures``), cut to the shortest source.

    Silent utterances are named at the start and left out.

    Args:
        root: the folder, or a csv with the columns ``speaker,path`` and perhaps ``length``.
        n_valid_speakers: default: 4 % of all speakers, at least ``n_src``.
        n_test_speakers: same default.
        n_valid: validation mixtures; default: 200, or all there are if the utterances give fewer.
        n_test: test mixtures; same default.
        eval_seconds: validation and test mix stretches of so many seconds that do not overlap,
            instead of whole utterances: more mixtures from few long utterances.
        epoch_size: training mixtures in an epoch.
        remix: True or None: speakers are always mixed anew.
        **kwargs: see ``MixtureData`` and ``augment.Augment``, whose noise and rooms are those of
            validation and test as well: some are held out for each. ``check="headers"`` spares the
            one-time scan of all samples, without which silent utterances aren't found.

    Raises:
        ValueError: too few speakers, or more mixtures asked for than the utterances can give; the
            messages count them. Damaged files, all of them named.
        FileNotFoundError: ``root`` or files of the csv are missing, all of them named.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        n_valid_speakers: int | None = None,
        n_test_speakers: int | None = None,
        n_valid: int | None = None,
        n_test: int | None = None,
        eval_seconds: float | None = None,
        epoch_size: int = 20000,
        remix: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if remix not in (True, None):
            raise ValueError(f"remix is {remix!r}, but speakers are always mixed: expected true")
        super().__init__(root, epoch_size=epoch_size, remix=True, **kwargs)
        if epoch_size is None:
            raise ValueError("epoch_size is None, but speakers list no mixtures: expected a number")
        for name, value, least in (
            *(("n_valid_speakers", n_valid_speakers, 0), ("n_test_speakers", n_test_speakers, 0)),
            *(("n_valid", n_valid, 1), ("n_test", n_test, 1)),
        ):
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name} is {value}, expected {least} or more")
        if eval_seconds is not None and not eval_seconds * self.sample_rate >= 1:
            raise ValueError(f"eval_seconds is {eval_seconds}, expected at least one sample")
        self.eval_seconds = eval_seconds
        self.n_held_out = {"valid": n_valid_speakers, "test": n_test_speakers}
        self.n_mixtures = {"valid": n_valid, "test": n_test}
        self.epoch_size = epoch_size
        self._parts: dict[str, Ingredients] = {}

    def check(self, splits: Sequence[str] = SPLITS) -> None:
        """Look at all files and count what they can give; see the class for the errors."""
        for split in splits:
            self.dataset(split)

    def make_dataset(self, split: str) -> EpochDataset:
        """Mixtures of the split's speakers."""
        if not self._parts:
            self._parts = self._split()
        part = self._parts[split]
        if split == "train":
            return self.dynamic(part, self.epoch_size)
        if self.noise == "source" and part.noise is None:
            raise ValueError("noise is 'source', but there is no noise: set data.noise_root")
        count = self._count(split, part.talkers)
        if self.eval_seconds is not None:
            part = replace(part, talkers=part.talkers.excerpts(self.eval_seconds))
        seed = f"{split}/{self.seed}"
        names = part.talkers.by_speaker()
        mixtures = draw_mixtures(names, count, self.talkers, seed)
        return FixedMixtures(mixtures, part, self.sample_rate, self.augment, self.noise, seed)

    def _count(self, split: str, part: Part) -> int:
        asked = self.n_mixtures[split]
        if asked is not None:
            return asked
        sizes = [len(names) for names in part.by_speaker().values()]
        there = count_combinations(sizes, self.talkers)
        if there < N_EVAL:
            logger.info(
                "%s: the %d utterances of %d speakers give %d different mixtures, not %d",
                *(split, sum(sizes), len(sizes), there, N_EVAL),
            )
        return min(N_EVAL, there)

    def _split(self) -> dict[str, Ingredients]:
        """Check the corpus and split it; one line of the log for each split."""
        samples = self.check_level == "samples"
        everything = measured(list_utterances(self.root), self.root, samples)
        split = split_speakers(
            everything.speakers(),
            self.talkers,
            self.seed,
            self.n_held_out["valid"],
            self.n_held_out["test"],
        )
        whole = surrounded(everything, self.talkers, self.augment, samples)
        noises = share_out(whole.noise, whole.noise.paths() if whole.noise else [], self.seed)
        rooms = share_out(whole.rooms, whole.rooms.speakers() if whole.rooms else [], self.seed)
        parts = {}
        for name, members in split.items():
            mine = everything.of_speakers(members)
            parts[name] = Ingredients(mine, noises[name], rooms[name])
            logger.info(
                "%s, %s: %d speakers, %d utterances, %.2f hours",
                *(self.root, name, len(members), len(mine), mine.hours),
            )
        self._report_short(parts["train"].talkers.facts)
        return parts

    def _report_short(self, facts: Facts) -> None:
        short = int((facts.n_samples < self.segment * facts.sample_rates).sum())
        if short:
            logger.info(
                "train: %d of %d utterances are shorter than the segment of %g s and padded",
                *(short, len(facts.n_samples), self.segment),
            )
