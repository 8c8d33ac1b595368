"""Training speech that stays in a device's memory, and batches made of it there.

Batches are those of the other loader: the same items, decided by the same numbers on the host
(tens of microseconds a batch), with the same samples up to rounding. Only the work is done by the
device: cutting, leveling and mixing, a whole batch at once.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from convtasnet.data.draws import Key
from convtasnet.data.pieces import read_pieces
from convtasnet.data.recordings import Recordings
from convtasnet.data.replayed import Replayed
from convtasnet.data.sampler import TrainSampler
from convtasnet.data.waiting import WaitClock
from convtasnet.data.words import Fields, Words

logger = logging.getLogger(__name__)

# Of a GPU's free memory: at most so much by default, which leaves the training what it needs, …
AUTO_SHARE = 0.25
SHARE = 0.8  # … and so much for those who ask for it.
PLANNED = 16  # batches decided at once, which takes hardly longer than one


class ResidentAudio:
    """Recordings as 16-bit samples on one device.

    Samples of 16-bit files of the right rate are kept exactly, others are rounded to 2^-15 of
    their file's peak. A file of another rate is resampled as a whole.

    Args:
        recordings: the files.
        window: samples of the longest crop.
        device: whose memory holds them.
        num_workers: processes that read the files.
        show: whether to show the progress.

    Attributes:
        scales: (n,) float64 on the host: what a file's integers are to be multiplied by.

    Raises:
        FileNotFoundError, ValueError: files are missing or damaged.

    >>> import tempfile
    >>> from convtasnet.audio import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", torch.arange(80) / 2**15, 8000)
    ...     files = Recordings([f"{folder}/a.wav"], np.array([80]), np.array([8000]), 8000)
    ...     audio = ResidentAudio(files, window=4, device=torch.device("cpu"))
    >>> places = torch.from_numpy(audio.places(np.array([0, 0]), np.array([5, 76])))
    >>> audio.crops(places, torch.tensor([4, 2]), window=4).tolist()
    [[5, 6, 7, 8], [76, 77, 0, 0]]
    """

    def __init__(
        self,
        recordings: Recordings,
        window: int,
        device: torch.device,
        num_workers: int = 0,
        show: bool = False,
    ):
        self.device = device
        lengths = recordings.file_lengths
        self._offsets = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        self._samples = torch.zeros(total + window, dtype=torch.int16, device=device)
        scales, end = [], 0
        title = f"Loading speech to {device}"
        for samples, own in read_pieces(recordings, num_workers, title, show):
            self._samples[end : end + len(samples)] = torch.from_numpy(samples)
            scales.append(own)
            end += len(samples)
        self.scales = np.concatenate(scales)

    def places(self, members: np.ndarray, starts: np.ndarray | int) -> np.ndarray:
        """Where stretches of recordings begin among all samples.

        Args:
            members: (...) which recordings.
            starts: first samples; shapes broadcast.

        Returns:
            (...) int64.
        """
        return self._offsets[members] + starts

    def crops(self, places: Tensor, counts: Tensor, window: int) -> Tensor:
        """Stretches of recordings, with zeros after their end.

        Args:
            places: (...) int64 where they begin, on the device.
            counts: (...) int64 samples wanted, on the device, at most ``window``.
            window: samples of the result, at most those of the longest crop.

        Returns:
            (..., window) int16, on the device.
        """
        windows = self._samples.unfold(0, window, 1)  # row i: the samples from i on, not copied
        inside = torch.arange(window, device=self.device) < counts[..., None]
        return windows[places] * inside


class Maker(Protocol):
    """A data set that makes batches from resident audio; ``dataset.EpochDataset`` says more."""

    recordings: Recordings | None
    window: int

    def decide(self, keys: Sequence[Key], audio: ResidentAudio) -> Fields:
        """What the items (epoch, index) are made of."""

    def make(self, fields: Mapping[str, Tensor], audio: ResidentAudio) -> dict[str, Tensor]:
        """Signals and lengths of a batch, on the device of ``audio``, where its fields are."""

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Names of the items."""


class ResidentLoader:
    """Training batches made on the device that holds the speech.

    The host decides what some batches are made of, and then the device makes each when it is asked
    for, on a GPU by one CUDA graph: so it takes the host a fraction of a millisecond.

    Args:
        maker: makes them.
        audio: of what.
        sampler: the items of this process, in their order.
        batch_size: items in a batch; an incomplete last batch is left out.

    Attributes:
        clock: how long batches were waited for.
    """

    def __init__(self, maker: Maker, audio: ResidentAudio, sampler: TrainSampler, batch_size: int):
        self.maker, self.audio = maker, audio
        self.sampler, self.batch_size = sampler, batch_size  # Lightning tells it the epoch
        self.clock = WaitClock()
        self._words = Words(maker.decide([(0, 0)], audio))
        self._make = Replayed(self._batch, audio.device)

    def __len__(self) -> int:
        return len(self.sampler) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.clock.watch(self._batches())

    def _batches(self) -> Iterator[dict[str, Any]]:
        keys, size = iter(self.sampler), self.batch_size
        while some := list(itertools.islice(keys, PLANNED * size)):
            rows = torch.from_numpy(self._words.pack(self.maker.decide(some, self.audio)))
            if self.audio.device.type == "cuda":
                rows = rows.pin_memory()
            for i in range(0, len(some) - size + 1, size):
                batch = self._make(rows[i : i + size])
                yield {**batch, "ids": self.maker.ids(some[i : i + size])}

    def _batch(self, rows: Tensor) -> dict[str, Tensor]:
        return self.maker.make(self._words.unpack(rows), self.audio)


def make_resident(
    maker: Maker,
    device: torch.device,
    choice: bool | str,
    num_workers: int = 0,
    show: bool = False,
) -> ResidentAudio | None:
    """Bring the training speech into a device's memory, or say why not.

    Args:
        maker: the data set.
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
    obstacle = _obstacle(maker, device, AUTO_SHARE if choice == "auto" else SHARE)
    if obstacle:
        if choice != "auto":
            raise ValueError(f"data.resident=true: {obstacle}")
        logger.info("training reads its speech from files: %s", obstacle)
        return None
    assert maker.recordings is not None
    audio = ResidentAudio(maker.recordings, maker.window, device, num_workers, show)
    logger.info(
        "training speech of %.2f hours is in the memory of %s, %s",
        _size(maker.recordings) / 2 / maker.recordings.sample_rate / 3600,
        *(device, _gigabytes(_size(maker.recordings))),
    )
    return audio


def _obstacle(maker: Maker, device: torch.device, share: float) -> str | None:
    """Why the speech can't be resident."""
    if maker.recordings is None:
        return f"{type(maker).__name__} makes batches from files only"
    if device.type not in ("cpu", "cuda"):
        return f"batches can't be made on {device}"
    if device.type == "cuda":
        needed, free = _size(maker.recordings), torch.cuda.mem_get_info(device)[0]
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
