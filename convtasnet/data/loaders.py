"""Loaders of data sets: what Lightning asks a data module for."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from convtasnet.cores import available_cores
from convtasnet.data.batch import Batch, collate
from convtasnet.data.corpus import SPLITS
from convtasnet.data.dataset import Batches, EpochDataset
from convtasnet.data.resident import ResidentLoader, make_resident
from convtasnet.data.resident_audio import ResidentAudio
from convtasnet.data.sampler import EvalSampler, TrainSampler, resume_position
from convtasnet.data.waiting import WatchedLoader


class LoadingModule(lightning.LightningDataModule):
    """Loaders of the data sets that a subclass gives by ``dataset``.

    Training items come in an order that is a function of (seed, epoch), the same in every run
    whatever the number of workers, and after resuming, in mid-epoch too. Validation and test items
    come each exactly once.

    Args:
        n_samples: that training items are padded to.
        batch_size: of training, in one process.
        eval_batch_size: of validation and testing, in one process; items of like length meet.
        num_workers: of each loader; None takes the available cores less one, at most 8.
        seed: of the order.
        resident: whether the training speech lies in the memory of the Trainer's device, where
            the batches are made (``convtasnet.data.resident``): True, False or ``"auto"``.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        n_samples: int,
        batch_size: int,
        eval_batch_size: int,
        num_workers: int | None,
        seed: int,
        resident: bool | str,
    ):
        super().__init__()
        for name, value in {"batch_size": batch_size, "eval_batch_size": eval_batch_size}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected 1 or more")
        for name, value in {"seed": seed, "num_workers": num_workers or 0}.items():
            if value < 0:
                raise ValueError(f"{name} is {value}, expected 0 or more")
        if resident not in (True, False, "auto"):
            raise ValueError(f"resident is '{resident}', expected True, False or 'auto'")
        self.n_samples = n_samples
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.num_workers = default_workers() if num_workers is None else num_workers
        self.seed, self.resident = seed, resident
        self._audio: dict[torch.device, ResidentAudio | None] = {}

    def dataset(self, split: str) -> EpochDataset:
        """The data set of a split."""
        raise NotImplementedError(f"{type(self).__name__} has no data sets")

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
        return WatchedLoader(
            Batches(dataset, self.n_samples),
            self.batch_size,
            sampler=sampler,
            collate_fn=_unchanged,
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


def _unchanged(batch: Batch) -> Batch:
    return batch


def default_workers() -> int:
    """Cores that this process may use less one, at most 8."""
    return min(8, available_cores() - 1)
