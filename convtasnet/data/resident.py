"""Training speech that stays in a device's memory, and batches made of it there.

Batches are those of the other loader: the same items, decided by the same numbers on the host
(tens of microseconds a batch), with the same samples up to rounding. Only the work is done by the
device: cutting, leveling and mixing, a whole batch at once.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from convtasnet.data.dataset import EpochDataset
from convtasnet.data.recordings import Recordings
from convtasnet.data.replayed import Replayed
from convtasnet.data.resident_audio import ResidentAudio
from convtasnet.data.sampler import TrainSampler
from convtasnet.data.waiting import WaitClock
from convtasnet.data.words import Words

logger = logging.getLogger(__name__)

# Of a GPU's free memory: at most so much by default, which leaves the training what it needs, …
AUTO_SHARE = 0.25
SHARE = 0.8  # … and so much for those who ask for it.
PLANNED = 16  # batches decided at once, which takes hardly longer than one


class ResidentLoader:
    """Training batches made on the device that holds the speech.

    The host decides what some batches are made of, and then the device makes each when it is asked
    for, on a GPU by one CUDA graph: so it takes the host a fraction of a millisecond.

    Args:
        dataset: makes them.
        audio: of what.
        sampler: the items of this process, in their order.
        batch_size: items in a batch; an incomplete last batch is left out.

    Attributes:
        clock: how long batches were waited for.
    """

    def __init__(
        self, dataset: EpochDataset, audio: ResidentAudio, sampler: TrainSampler, batch_size: int
    ):
        self.dataset, self.audio = dataset, audio
        self.sampler, self.batch_size = sampler, batch_size  # Lightning tells it the epoch
        self.clock = WaitClock()
        self._words = Words(dataset.decide([(0, 0)], audio))
        self._make = Replayed(self._batch, audio.device)

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.clock.watch(self._batches())

    def _batches(self) -> Iterator[dict[str, Any]]:
        keys, size = iter(self.sampler), self.batch_size
        while some := list(itertools.islice(keys, PLANNED * size)):
            rows = torch.from_numpy(self._words.pack(self.dataset.decide(some, self.audio)))
            if self.audio.device.type == "cuda":
                rows = rows.pin_memory()
            for i in range(0, len(some) - size + 1, size):
                batch = self._make(rows[i : i + size])
                yield {**batch, "ids": self.dataset.ids(some[i : i + size])}

    def _batch(self, rows: Tensor) -> dict[str, Tensor]:
        return self.dataset.make(self._words.unpack(rows), self.audio)


def make_resident(
    dataset: EpochDataset,
    device: torch.device,
    choice: bool | str,
    num_workers: int = 0,
    show: bool = False,
) -> ResidentAudio | None:
    """Bring the training speech into a device's memory, or say why not.

    Args:
        dataset: the data set.
        device: where to.
        choice: True, False, or "auto": on a GPU, if a quarter of its free memory is enough.
        num_workers: processes that read the files.
        show: whether to show the progress, for one of several processes.

    Returns:
        The audio; None if batches are to be read from files.

    Raises:
        ValueError: ``choice`` is True, and the data set can't or more than four fifths of the
            GPU's free memory would be needed.
    """
    if choice is False or (choice == "auto" and device.type != "cuda"):
        return None
    obstacle = _obstacle(dataset, device, AUTO_SHARE if choice == "auto" else SHARE)
    if obstacle:
        if choice != "auto":
            raise ValueError(f"data.resident=true: {obstacle}")
        logger.info("training reads its speech from files: %s", obstacle)
        return None
    assert dataset.recordings is not None
    audio = ResidentAudio(dataset.recordings, dataset.window, device, num_workers, show)
    logger.info(
        "training speech of %.2f hours is in the memory of %s, %s",
        _size(dataset.recordings) / 2 / dataset.recordings.sample_rate / 3600,
        *(device, _gigabytes(_size(dataset.recordings))),
    )
    return audio


def _obstacle(dataset: EpochDataset, device: torch.device, share: float) -> str | None:
    """Why the speech can't be resident."""
    if dataset.recordings is None:
        return f"{type(dataset).__name__} makes batches from files only"
    if device.type not in ("cpu", "cuda"):
        return f"batches can't be made on {device}"
    if device.type == "cuda":
        needed, free = _size(dataset.recordings), torch.cuda.mem_get_info(device)[0]
        if needed > share * free:
            return (
                f"it would take {_gigabytes(needed)}, more than {share:.0%} of the "
                f"{_gigabytes(free)} that are free on {device}"
            )
    return None


def _size(recordings: Recordings) -> int:
    return 2 * int(recordings.file_lengths.sum())


def _gigabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e9:.2f} GB"
