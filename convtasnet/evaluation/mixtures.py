"""Items to evaluate: in batches of like length, read by threads ahead of the model."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from convtasnet.data.dataset import MixtureDataset
from convtasnet.evaluation.estimators import Item
from convtasnet.evaluation.mixture_scores import signals_key

READERS = 4  # threads
AHEAD = 2  # batches that are read before they are needed


class Mixtures(Protocol):
    """What is evaluated: items ``{"mixture": (T,), "sources": (n_src, T), "id": str}``."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Item: ...


@dataclass(frozen=True)
class Reading:
    """An item that was read.

    Args:
        index: in the data set.
        item: mixture, sources and ID.
        key: of its samples, for the cache of the mixtures' scores.
    """

    index: int
    item: Item
    key: str


def whole(dataset: Any) -> Any:
    """The data set without the crops of training: items of full length, where they have one.

    Mixtures that are made for training have no other length than the segment.
    """
    if not isinstance(dataset, MixtureDataset):
        return dataset
    uncut = copy.copy(dataset)
    uncut.n_samples, uncut.window = None, 0
    return uncut


def batches(
    dataset: Mixtures, count: int, sample_rate: int, seconds: float | None
) -> list[list[int]]:
    """Indices of the items that go through the model together.

    They depend on the data set alone, so that a resumed evaluation gives what one without a break
    would have given, to the last bit.

    Args:
        dataset: with ``lengths`` if items are to meet.
        count: only the first so many items.
        sample_rate: of the items, in Hz.
        seconds: of a padded batch, at most (one item may be longer); None puts each item alone.

    Returns:
        Batches of items of like length, longest first; or one item each, in order.

    Example:
        >>> class Three(list):
        ...     lengths = [8000, 24000, 16000]
        >>> batches(Three("abc"), 3, 8000, seconds=6.0), batches(Three("abc"), 2, 8000, None)
        ([[1, 2], [0]], [[0], [1]])
    """
    lengths = getattr(dataset, "lengths", None)
    if seconds is None or lengths is None:
        return [[index] for index in range(count)]
    result: list[list[int]] = []
    room = 0
    for index in sorted(range(count), key=lambda i: (-int(lengths[i]), i)):
        if room == 0:
            result.append([])
            room = max(1, int(seconds * sample_rate) // int(lengths[index]))
        result[-1].append(index)
        room -= 1
    return result


def read_ahead(
    dataset: Mixtures, batches: Sequence[Sequence[int]], sample_rate: int
) -> Iterator[list[Reading]]:
    """Read batches by threads, in order, a few ahead.

    Args:
        dataset: whose items may be read by several threads at once.
        batches: indices.
        sample_rate: of the items, in Hz.

    Example:
        >>> import torch
        >>> items = [{"mixture": torch.zeros(8), "sources": torch.zeros(2, 8), "id": "a"}]
        >>> [[reading.item["id"] for reading in batch] for batch in read_ahead(items, [[0]], 8000)]
        [['a']]
    """

    def read(index: int) -> Reading:
        item = dataset[index]
        return Reading(index, item, signals_key(item["mixture"], item["sources"], sample_rate))

    with ThreadPoolExecutor(READERS) as pool:
        waiting: deque[list[Future[Reading]]] = deque()
        try:
            for batch in batches:
                waiting.append([pool.submit(read, index) for index in batch])
                if len(waiting) > AHEAD:
                    yield [future.result() for future in waiting.popleft()]
            while waiting:
                yield [future.result() for future in waiting.popleft()]
        finally:
            for futures in waiting:
                for future in futures:
                    future.cancel()
