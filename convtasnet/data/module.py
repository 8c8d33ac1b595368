"""Data modules: what Lightning asks for loaders, and evaluation for data sets."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convtasnet.audio import PathLike
from convtasnet.data.augment import Augment
from convtasnet.data.checks import Headers, find_problems, raise_problems, read_headers
from convtasnet.data.corpus import SPLITS
from convtasnet.data.dataset import EpochDataset, MixtureDataset
from convtasnet.data.dynamic import DynamicMixtures
from convtasnet.data.loaders import LoadingModule
from convtasnet.data.manifest import Manifest
from convtasnet.data.names import WSJ0_SPEAKER
from convtasnet.data.noise import NOISES, check_choice, place_noise
from convtasnet.data.part import Ingredients
from convtasnet.data.remix import remixed
from convtasnet.data.wsj0_mix import wsj0_mix_manifest

_CHECKS = ("samples", "headers")


class MixtureData(LoadingModule):
    """Mixtures for training, validation and testing.

    Subclasses say where they come from: those that read lists of files implement ``rows``,
    others ``make_dataset`` and ``check``. ``prepare_data`` may make the data
    first; it runs in one process only, so nothing that it keeps in ``self`` may be needed later.

    Training items are random crops, in an order and at places that are functions of (seed, epoch,
    index): the same in every run whatever the number of workers, and after resuming, in
    mid-epoch too. Validation and test items are whole files, each exactly once.

    Args:
        root: folder of the data.
        sample_rate: in Hz; files of another rate are resampled.
        n_src: number of sources.
        segment: seconds of a training item.
        batch_size: of training, in one process.
        num_workers: of each loader; None takes the available cores less one, at most 8.
        seed: of order and crops.
        eval_batch_size: of validation and testing, in one process; items of like length meet.
        check: ``"samples"`` looks at all headers and once at the samples of float wav and FLAC
            files, ``"headers"`` at headers only.
        resident: whether the training speech lies in the memory of the Trainer's device, where
            the batches are made (``convtasnet.data.resident``): True, False or ``"auto"``.
        noise: what becomes of the noise in mixtures that have some: ``"batch"``: the model is to
            leave it out, and batches hold it as ``noise``; ``"source"``: it is the last source, and
            one of ``n_src``; ``"ignore"``: as "batch", but batches don't hold it.
        **augment: of ``augment.Augment``: whether and how training mixtures are made anew.

    Batches: see ``convtasnet.data.batch.collate``; training batches are padded to the segment.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        root: PathLike,
        sample_rate: int = 8000,
        n_src: int = 2,
        segment: float = 4.0,
        batch_size: int = 8,
        num_workers: int | None = None,
        seed: int = 0,
        eval_batch_size: int = 4,
        check: str = "samples",
        resident: bool | str = "auto",
        noise: str = "batch",
        **augment: Any,
    ):
        for name, value in {"sample_rate": sample_rate, "n_src": n_src}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected 1 or more")
        if not 1 <= segment * sample_rate < math.inf:
            raise ValueError(f"segment is {segment} s, expected at least one sample")
        n_samples = round(segment * sample_rate)
        super().__init__(n_samples, batch_size, eval_batch_size, num_workers, seed, resident)
        self.augment = Augment(**augment)
        if check not in _CHECKS:
            raise ValueError(f"check is '{check}', expected one of {_CHECKS}")
        check_choice("noise", noise, NOISES)
        self.noise = noise
        self.root = Path(os.path.abspath(os.path.expanduser(root)))
        self.sample_rate, self.n_src, self.segment = sample_rate, n_src, segment
        self.check_level = check
        self._datasets: dict[str, EpochDataset] = {}
        self._headers: dict[str, tuple[Manifest, Headers]] = {}

    def rows(self, split: str) -> Manifest:
        """The mixtures of "train", "valid" or "test" as they are listed, noise beside the sources.

        Noise may be left out where ``needs_noise`` is False.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lists of mixtures")

    def manifest(self, split: str) -> Manifest:
        """The mixtures of a split, noise where it is wanted (``noise.place_noise``).

        Raises:
            FileNotFoundError, ValueError: lists, folders or noise are missing or wrong.
        """
        return place_noise(self.rows(split), "batch" if self.remixes(split) else self.noise)

    def remixes(self, split: str) -> bool:
        """Are the mixtures of the split made anew?"""
        return bool(self.augment.remix) and split == "train"

    def needs_noise(self, split: str) -> bool:
        """Is the noise of the split's own mixtures read?"""
        if self.remixes(split):
            return self.augment.noise_root is None
        return self.noise != "ignore"

    @property
    def talkers(self) -> int:
        """Talkers in a mixture: ``n_src`` less the noise, if that is a source.

        Raises:
            ValueError: there is none.
        """
        talkers = self.n_src - (self.noise == "source")
        if talkers < 1:
            raise ValueError(f"n_src is {self.n_src} and noise is 'source': no talker is left")
        return talkers

    def make_dataset(self, split: str) -> EpochDataset:
        """The data set of a split: crops for "train", whole items otherwise."""
        if split not in self._headers:
            manifest = self.manifest(split)
            self._headers[split] = manifest, read_headers(manifest)
        manifest, headers = self._headers.pop(split)
        if self.remixes(split):
            size = self.augment.epoch_size or len(manifest)
            samples = self.check_level == "samples"
            return self.dynamic(remixed(manifest, self.talkers, self.augment, samples), size)
        segment = self.segment if split == "train" else None
        return MixtureDataset(manifest, self.sample_rate, segment, self.seed, headers)

    def dynamic(self, ingredients: Ingredients, size: int) -> DynamicMixtures:
        """Training mixtures that are made anew, ``size`` in an epoch.

        Raises:
            ValueError: noise is to be a source, and there is none.
        """
        if self.noise == "source" and ingredients.noise is None:
            raise ValueError("noise is 'source', but there is no noise: set data.noise_root")
        return DynamicMixtures(
            ingredients,
            self.talkers,
            self.sample_rate,
            self.segment,
            size,
            self.augment,
            self.noise,
            self.seed,
        )

    def check(self, splits: Sequence[str] = SPLITS) -> None:
        """Look at all files of these splits.

        Raises:
            FileNotFoundError, ValueError: all that is wrong, in one message.
        """
        problems = []
        for split in map(checked_split, splits):
            manifest = self.manifest(split)
            headers, found = find_problems(manifest, samples=self.check_level == "samples")
            problems += found
            self._headers[split] = manifest, headers
        raise_problems(problems)

    def dataset(self, split: str) -> EpochDataset:
        """The data set of a split; needs no Trainer.

        Args:
            split: "train" (random crops), "valid" or "test" (whole items).

        Raises:
            ValueError: no such split.
            FileNotFoundError, ValueError: the data are missing or damaged.
        """
        if checked_split(split) not in self._datasets:
            self._datasets[split] = self.make_dataset(split)
        return self._datasets[split]

    def prepare_data(self) -> None:
        """Check the splits that the Trainer is going to use; without one, all."""
        self.check(self._splits())

    def setup(self, stage: str) -> None:
        """Build the data sets, so that mistakes show before the first step."""
        for split in self._splits():
            self.dataset(split)


class Wsj0MixData(MixtureData):
    """A folder in the layout of wsj0-2mix: see ``convtasnet.data.wsj0_mix``.

    Args:
        root: the folder that holds ``2speakers/wav8k/min/tr`` and so on, or ``tr``, ``cv``, ``tt``.
        mode: ``"min"`` or ``"max"``: mixtures cut to the shortest source or padded to the longest.
        **kwargs: see ``MixtureData``.
    """

    speaker_pattern = WSJ0_SPEAKER  # of an utterance's name

    def __init__(self, root: PathLike, mode: str = "min", **kwargs: Any) -> None:
        super().__init__(root, **kwargs)
        if mode not in ("min", "max"):
            raise ValueError(f"mode is '{mode}', expected 'min' or 'max'")
        self.mode = mode

    def rows(self, split: str) -> Manifest:
        """Mixtures of the folder ``tr``, ``cv`` or ``tt``."""
        return wsj0_mix_manifest(
            self.root, split, self.sample_rate, self.talkers, self.mode, self.speaker_pattern
        )


class ManifestData(MixtureData):
    """Mixtures listed in files: see ``convtasnet.data.manifest``.

    Args:
        root: folder of the lists.
        train: the training set's list or lists, relative to ``root`` or absolute: whatever
            ``Manifest.read`` takes.
        valid: of the validation set.
        test: of the test set.
        **kwargs: see ``MixtureData``.
    """

    def __init__(
        self,
        root: PathLike,
        train: PathLike | Sequence[PathLike] = "train.csv",
        valid: PathLike | Sequence[PathLike] = "valid.csv",
        test: PathLike | Sequence[PathLike] = "test.csv",
        **kwargs: Any,
    ) -> None:
        super().__init__(root, **kwargs)
        self.files = {"train": train, "valid": valid, "test": test}

    def rows(self, split: str) -> Manifest:
        """Rows of the split's list.

        Raises:
            FileNotFoundError, ValueError: see ``Manifest.read``.
        """
        named = self.files[split]
        if not named:
            raise ValueError(f"{split}={named!r} names no list of mixtures")
        source: Path | list[Path]
        if isinstance(named, str | os.PathLike):
            source = self.root / named
        else:
            source = [self.root / name for name in named]
        return Manifest.read(source, self.talkers, self.root)


def checked_split(split: str) -> str:
    """The name of a split, or a ValueError."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {SPLITS}")
    return split
