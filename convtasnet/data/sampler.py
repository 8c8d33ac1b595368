"""Which items a process reads, in which order."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Dataset, DistributedSampler

logger = logging.getLogger(__name__)


class TrainSampler(DistributedSampler):
    """Shuffled ``(epoch, index)`` pairs for one of several processes.

    The order is a function of (seed, epoch). Each process takes every ``num_replicas``-th item, so
    all have equally many; items left over are in another place in the next epoch.

    Lightning replaces samplers in distributed runs, except those of this base class, and calls
    ``set_epoch``. Carrying the epoch in the index keeps it right in workers that live on.

    Args:
        dataset: an ``EpochDataset``.
        batch_size: of one process.
        seed: of the order.
        num_replicas: number of processes.
        rank: number of this process.
        resume: ``(epoch, batch)`` where an interrupted run goes on: nothing before is given.

    >>> sampler = TrainSampler([10, 11, 12, 13], batch_size=2, seed=0)
    >>> sorted(sampler), sorted(TrainSampler([10, 11, 12, 13], 2, 0, resume=(3, 0)))
    ([(0, 0), (0, 1), (0, 2), (0, 3)], [(3, 0), (3, 1), (3, 2), (3, 3)])
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
        resume: tuple[int, int] = (0, 0),
    ):
        super().__init__(dataset, num_replicas, rank, shuffle=True, seed=seed, drop_last=True)
        self.batch_size = batch_size
        self.resume = resume

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch, batch = max((self.epoch, 0), self.resume)
        n_items = len(self.dataset)  # type: ignore[arg-type]
        order = np.random.default_rng((self.seed, epoch)).permutation(n_items)
        mine = order[self.rank :: self.num_replicas][: len(self)]
        return ((epoch, int(index)) for index in mine[batch * self.batch_size :])

    def __len__(self) -> int:
        # Items of a whole epoch, also where the first one is resumed: Lightning counts from 0.
        return len(self.dataset) // self.num_replicas  # type: ignore[arg-type]


class EvalSampler(DistributedSampler):
    """Every item exactly once over all processes, longest first.

    Items of like length meet in a batch, and a batch too large for the memory fails at once. A
    number of items that the processes can't share equally leaves some with one item less;
    ``batch_size`` then grows until all have equally many batches, as distributed evaluation needs.

    Args:
        dataset: a data set with ``__len__``.
        lengths: ``(len(dataset),)`` samples, for the order; None keeps the data set's.
        batch_size: of one process, the least.
        num_replicas: number of processes.
        rank: number of this process.

    Raises:
        ValueError: fewer items than processes.

    >>> list(EvalSampler(range(3), lengths=np.array([5, 9, 7])))
    [1, 2, 0]
    """

    def __init__(
        self,
        dataset: Dataset,
        lengths: np.ndarray | None = None,
        batch_size: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
    ):
        super().__init__(dataset, num_replicas, rank, shuffle=False)
        n_items = len(dataset)  # type: ignore[arg-type]
        if n_items < num_replicas:
            raise ValueError(
                f"{n_items} items to evaluate are too few for {num_replicas} processes"
            )
        everything = np.arange(n_items) if lengths is None else np.argsort(-lengths, kind="stable")
        self._mine = everything[rank::num_replicas]
        least, most = n_items // num_replicas, math.ceil(n_items / num_replicas)
        while math.ceil(least / batch_size) != math.ceil(most / batch_size):
            batch_size += 1
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[int]:
        return iter(self._mine.tolist())

    def __len__(self) -> int:
        return len(self._mine)


def resume_position(trainer: Any, n_batches: int) -> tuple[int, int]:
    """Epoch and batch where a training goes on, from the batches that it has done in all.

    Args:
        trainer: Lightning's, of the training; with None it begins.
        n_batches: batches of one process in a whole epoch.

    >>> resume_position(None, 10)
    (0, 0)
    """
    if trainer is None:
        return 0, 0
    limit = trainer.limit_train_batches
    if limit is not None:
        n_batches = min(n_batches, limit if isinstance(limit, int) else int(limit * n_batches))
    loop = trainer.fit_loop
    done = loop.epoch_loop.batch_progress.state_dict()["total"]["processed"]
    epoch, batch = divmod(done, max(n_batches, 1))
    # A checkpoint of an epoch's end counts that epoch as done or not, by where it was saved.
    counted = loop.epoch_progress.state_dict()["current"]["processed"]
    if epoch not in (counted, counted + 1):
        logger.warning(
            "the run that is resumed has not done epochs of %d batches (it was ended within one, "
            "or had another number): training goes on at the start of an epoch",
            n_batches,
        )
        return 0, 0
    if batch:
        logger.info("training goes on in epoch %d after batch %d of %d", epoch, batch, n_batches)
        # Lightning can't know that the sampler finds its place by itself.
        warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before")
    return epoch, batch
