"""Dynamic mixing: training mixtures made anew in each epoch from single-speaker utterances."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convtasnet.data.checks import find_problems, raise_problems
from convtasnet.data.corpus import Utterance, as_manifest, list_utterances, split_speakers
from convtasnet.data.dataset import EpochDataset
from convtasnet.data.dynamic import DynamicMixtures, Facts, FixedMixtures, excerpts
from convtasnet.data.levels import file_levels
from convtasnet.data.mixing import count_combinations, draw_mixtures
from convtasnet.data.module import SPLITS, MixtureData
from convtasnet.data.shown import some_lines

logger = logging.getLogger(__name__)

N_EVAL = 200


@dataclass(frozen=True)
class _Part:
    """The utterances of one split."""

    utterances: list[Utterance]
    facts: Facts

    def by_speaker(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for utterance in self.utterances:
            names.setdefault(utterance.speaker, []).append(utterance.name)
        return names


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
        speed: whether training changes the speed of each source by up to 5 %.
        **kwargs: see ``MixtureData``; ``check="headers"`` spares the one-time scan of all samples,
            without which silent utterances aren't found.

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
        speed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(root, **kwargs)
        counts = {"n_valid": n_valid, "n_test": n_test, "epoch_size": epoch_size}
        for name, value in counts.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, expected 1 or more")
        if eval_seconds is not None and not eval_seconds * self.sample_rate >= 1:
            raise ValueError(f"eval_seconds is {eval_seconds}, expected at least one sample")
        self.eval_seconds = eval_seconds
        self.n_held_out = {"valid": n_valid_speakers, "test": n_test_speakers}
        self.n_mixtures = {"valid": n_valid, "test": n_test}
        self.epoch_size, self.speed = epoch_size, speed
        self._parts: dict[str, _Part] = {}

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
            return DynamicMixtures(
                part.utterances,
                part.facts,
                self.n_src,
                self.sample_rate,
                self.segment,
                self.epoch_size,
                self.speed,
                self.seed,
            )
        count = self._count(split, part)
        if self.eval_seconds is not None:
            part = _Part(*excerpts(part.utterances, part.facts, self.eval_seconds))
        mixtures = draw_mixtures(part.by_speaker(), count, self.n_src, f"{split}/{self.seed}")
        return FixedMixtures(mixtures, part.utterances, part.facts, self.sample_rate)

    def _count(self, split: str, part: _Part) -> int:
        asked = self.n_mixtures[split]
        if asked is not None:
            return asked
        sizes = [len(names) for names in part.by_speaker().values()]
        there = count_combinations(sizes, self.n_src)
        if there < N_EVAL:
            logger.info(
                "%s: the %d utterances of %d speakers give %d different mixtures, not %d",
                *(split, sum(sizes), len(sizes), there, N_EVAL),
            )
        return min(N_EVAL, there)

    def _split(self) -> dict[str, _Part]:
        """Check the corpus and split it; one line of the log for each split."""
        utterances = list_utterances(self.root)
        headers, problems = find_problems(as_manifest(utterances, self.root))
        raise_problems(problems)
        levels = np.full(len(utterances), np.nan)
        if self.check_level == "samples":
            levels = file_levels([utterance.path for utterance in utterances])
        starts = np.zeros(len(utterances), np.int64)
        facts = Facts(headers.n_samples, headers.sample_rates, levels, starts)
        _report_silent([u.path for u, level in zip(utterances, levels, strict=True) if level == 0])
        heard = [i for i in range(len(utterances)) if levels[i] != 0]
        split = split_speakers(
            {utterances[i].speaker for i in heard},
            self.n_src,
            self.seed,
            self.n_held_out["valid"],
            self.n_held_out["test"],
        )
        home = {speaker: name for name, members in split.items() for speaker in members}
        parts = {}
        for name, members in split.items():
            mine = [i for i in heard if home[utterances[i].speaker] == name]
            parts[name] = _Part([utterances[i] for i in mine], facts.take(mine))
            seconds = (parts[name].facts.n_samples / parts[name].facts.sample_rates).sum()
            logger.info(
                "%s, %s: %d speakers, %d utterances, %.2f hours",
                *(self.root, name, len(members), len(mine), seconds / 3600),
            )
        self._report_short(parts["train"].facts)
        return parts

    def _report_short(self, facts: Facts) -> None:
        short = int((facts.n_samples < self.segment * facts.sample_rates).sum())
        if short:
            logger.info(
                "train: %d of %d utterances are shorter than the segment of %g s and padded",
                *(short, len(facts.n_samples), self.segment),
            )


def _report_silent(paths: Sequence[str]) -> None:
    if paths:
        logger.warning("%d utterances are silent and left out:%s", len(paths), some_lines(paths))
