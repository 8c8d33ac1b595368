"""Data modules: what Lightning asks for loaders, and evaluation for data sets."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from convtasnet.audio import PathLike
from convtasnet.cores import available_cores
from convtasnet.data.checks import Headers, find_problems, raise_problems, read_headers
from convtasnet.data.dataset import EpochDataset, MixtureDataset, collate
from convtasnet.data.manifest import Manifest
from convtasnet.data.noise import NOISES, check_choice, place_noise
from convtasnet.data.resident import ResidentAudio, ResidentLoader, make_resident
from convtasnet.data.sampler import EvalSampler, TrainSampler, resume_position
from convtasnet.data.waiting import WatchedLoader
from convtasnet.data.wsj0_mix import wsj0_mix_manifest

SPLITS = ("train", "valid", "test")
_CHECKS = ("samples", "headers")


class MixtureData(lightning.LightningDataModule):
    """Mixtures for training, validation and testing.

    Subclasses say where they come from: those that read lists of files implement ``manifest``,
    others (dynamic mixing) ``make_dataset`` and ``check``. ``prepare_data`` may make the data
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

    Batches: see ``convtasnet.data.dataset.collate``; training batches are padded to the segment.

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
    ):
        super().__init__()
        least = {"sample_rate": sample_rate, "n_src": n_src, "batch_size": batch_size}
        for name, value in (least | {"eval_batch_size": eval_batch_size}).items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected 1 or more")
        if not 1 <= segment * sample_rate < math.inf:
            raise ValueError(f"segment is {segment} s, expected at least one sample")
        for name, value in {"seed": seed, "num_workers": num_workers or 0}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}, expected 0 or more")
        if check not in _CHECKS:
            raise ValueError(f"check is '{check}', expected one of {_CHECKS}")
        if resident not in (True, False, "auto"):
            raise ValueError(f"resident is '{resident}', expected True, False or 'auto'")
        self.root = Path(os.path.abspath(os.path.expanduser(root)))
        self.sample_rate, self.n_src, self.segment = sample_rate, n_src, segment
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.num_workers = default_workers() if num_workers is None else num_workers
        self.seed, self.check_level, self.resident = seed, check, resident
        self._datasets: dict[str, EpochDataset] = {}
        self._headers: dict[str, tuple[Manifest, Headers]] = {}
        self._audio: dict[torch.device, ResidentAudio | None] = {}

    def manifest(self, split: str) -> Manifest:
        """The mixtures of "train", "valid" or "test"; called by ``check`` and ``make_dataset``."""
        raise NotImplementedError(f"{type(self).__name__} has no manifest")

    def make_dataset(self, split: str) -> EpochDataset:
        """The data set of a split: crops for "train", whole items otherwise."""
        if split not in self._headers:
            manifest = self.manifest(split)
            self._headers[split] = manifest, read_headers(manifest)
        manifest, headers = self._headers.pop(split)
        segment = self.segment if split == "train" else None
        return MixtureDataset(manifest, self.sample_rate, segment, self.seed, headers)

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

    def train_dataloader(self) -> WatchedLoader | ResidentLoader:
        """Shuffled crops; incomplete last batches are left out.

        Raises:
            ValueError: not one batch can be filled, or ``resident=True`` can't be done.
        """
        dataset = self.dataset("train")
        world, rank = self._processes()
        if len(dataset) < self.batch_size * world:
            raise ValueError(
                f"batch_size is {self.batch_size} in each of {world} processes, the training set "
                f"has {len(dataset)} items: not one batch can be filled"
            )
        n_batches = len(dataset) // world // self.batch_size
        resume = resume_position(self.trainer, n_batches)
        sampler = TrainSampler(dataset, self.batch_size, self.seed, world, rank, resume)
        audio = self._resident_audio(dataset, rank)
        if audio is not None:
            return ResidentLoader(dataset, audio, sampler, self.batch_size)
        pad = functools.partial(collate, n_samples=round(self.segment * self.sample_rate))
        return WatchedLoader(
            dataset,
            self.batch_size,
            sampler=sampler,
            collate_fn=pad,
            drop_last=True,
            **self._workers(),
        )

    def _resident_audio(self, dataset: EpochDataset, rank: int) -> ResidentAudio | None:
        """The training speech in the device's memory, if it is to be there."""
        device = torch.device("cpu")
        if self.trainer is not None:
            if getattr(self.trainer, "overfit_batches", 0):  # it gives a DataLoader another sampler
                return None
            device = self.trainer.strategy.root_device
        if device not in self._audio:
            self._audio[device] = make_resident(
                dataset, device, self.resident, self.num_workers, show=rank == 0
            )
        return self._audio[device]

    def val_dataloader(self) -> DataLoader:
        """Whole items of the validation set, each once."""
        return self._eval_loader("valid")

    def test_dataloader(self) -> DataLoader:
        """Whole items of the test set, each once."""
        return self._eval_loader("test")

    def _eval_loader(self, split: str) -> DataLoader:
        dataset = self.dataset(split)
        lengths = getattr(dataset, "lengths", None)
        sampler = EvalSampler(dataset, lengths, self.eval_batch_size, *self._processes())
        return DataLoader(
            dataset, sampler.batch_size, sampler=sampler, collate_fn=collate, **self._workers()
        )

    def _workers(self) -> dict[str, Any]:
        # Workers run with one torch thread each: DataLoader's own rule.
        return {
            "num_workers": self.num_workers,
            "pin_memory": torch.cuda.is_available(),
            "persistent_workers": self.num_workers > 0,
        }

    def _splits(self) -> tuple[str, ...]:
        state = None if self.trainer is None else self.trainer.state.fn
        if state == TrainerFn.FITTING:
            return ("train", "valid")
        if state == TrainerFn.VALIDATING:
            return ("valid",)
        return ("test",) if state == TrainerFn.TESTING else SPLITS

    def _processes(self) -> tuple[int, int]:
        return (
            (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)
        )


class Wsj0MixData(MixtureData):
    """A folder in the layout of wsj0-2mix: see ``convtasnet.data.wsj0_mix``.

    Args:
        root: the folder that holds ``2speakers/wav8k/min/tr`` and so on, or ``tr``, ``cv``, ``tt``.
        mode: ``"min"`` or ``"max"``: mixtures cut to the shortest source or padded to the longest.
        **kwargs: see ``MixtureData``.
    """

    def __init__(self, root: PathLike, mode: str = "min", **kwargs: Any) -> None:
        super().__init__(root, **kwargs)
        if mode not in ("min", "max"):
            raise ValueError(f"mode is '{mode}', expected 'min' or 'max'")
        self.mode = mode

    def manifest(self, split: str) -> Manifest:
        """Mixtures of the folder ``tr``, ``cv`` or ``tt``."""
        return wsj0_mix_manifest(self.root, split, self.sample_rate, self.n_src, self.mode)


class ManifestData(MixtureData):
    """Mixtures listed in files: see ``convtasnet.data.manifest``.

    Args:
        root: folder of the lists.
        train: the training set's list or lists, relative to ``root`` or absolute: whatever
            ``Manifest.read`` takes.
        valid: of the validation set.
        test: of the test set.
        noise: what becomes of noise that the lists name (``noise.place_noise``): ``"batch"``:
            batches hold it as ``noise``; ``"source"``: it is the last source, and one of
            ``n_src``; ``"ignore"``: it isn't read.
        **kwargs: see ``MixtureData``.
    """

    def __init__(
        self,
        root: PathLike,
        train: PathLike | Sequence[PathLike] = "train.csv",
        valid: PathLike | Sequence[PathLike] = "valid.csv",
        test: PathLike | Sequence[PathLike] = "test.csv",
        noise: str = "batch",
        **kwargs: Any,
    ) -> None:
        super().__init__(root, **kwargs)
        check_choice("noise", noise, NOISES)
        self.noise = noise
        self.files = {"train": train, "valid": valid, "test": test}

    def manifest(self, split: str) -> Manifest:
        """Rows of the split's list.

        Raises:
            FileNotFoundError, ValueError: see ``Manifest.read`` and ``noise.place_noise``.
        """
        named = self.files[split]
        source: Path | list[Path]
        if isinstance(named, str | os.PathLike):
            source = self.root / named
        else:
            source = [self.root / name for name in named]
        talkers = self.n_src - (self.noise == "source")
        return place_noise(Manifest.read(source, talkers, self.root), self.noise)


def default_workers() -> int:
    """Cores that this process may use less one, at most 8."""
    return min(8, available_cores() - 1)


def checked_split(split: str) -> str:
    """The name of a split, or a ValueError."""
    if split not in SPLITS:
        raise ValueError(f"split is '{split}', expected one of {SPLITS}")
    return split
