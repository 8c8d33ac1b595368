"""Mixtures and their sources as tensors, from files, and how items become a batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from convtasnet.audio import read_audio
from convtasnet.data.checks import Headers, read_headers
from convtasnet.data.manifest import Manifest
from convtasnet.data.packed import PackedStrings
from convtasnet.resampling import resample

logger = logging.getLogger(__name__)

Item = dict[str, Any]
Batch = dict[str, Any]


def random_state(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The randomness of one training item: a function of these three numbers and nothing else.

    So a run repeats itself whatever the number of workers and processes, and epochs differ.

    >>> bool(random_state(0, 1, 7).random() == random_state(0, 1, 7).random())
    True
    """
    return np.random.default_rng((seed, epoch, index))


class EpochDataset(Dataset[Item]):
    """A data set whose items depend on the epoch.

    It is indexed by ``(epoch, index)``, as the training sampler does, so that workers that live
    on know the epoch, or by ``index`` in the epoch last given to ``set_epoch``. Subclasses
    implement ``__len__`` and ``item``.
    """

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of items asked for by ``index`` alone."""
        self.epoch = epoch

    def __len__(self) -> int:
        raise NotImplementedError

    def item(self, epoch: int, index: int) -> Item:
        """``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32."""
        raise NotImplementedError

    def __getitem__(self, key: int | tuple[int, int]) -> Item:
        epoch, index = key if isinstance(key, tuple) else (self.epoch, key)
        if not 0 <= index < len(self):
            raise IndexError(f"item {index} of a data set of {len(self)}")
        return self.item(epoch, index)


class MixtureDataset(EpochDataset):
    """Mixtures read from files, whole or as random crops.

    Files of another rate are resampled. Where mixture and sources differ slightly in length, all
    are cut to the shortest (``checks.read_headers`` refuses more than that). Files shorter than
    the segment are given whole; ``collate`` pads them and keeps their lengths.

    Args:
        manifest: the mixtures.
        sample_rate: rate of the items in Hz.
        segment: seconds of a random crop; None gives whole files.
        seed: of the crops; a crop is a function of (seed, epoch, index).
        headers: what ``checks.read_headers(manifest)`` gave, to save reading them twice.

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32.

    Raises:
        ValueError: a sample rate or segment that isn't positive.
        FileNotFoundError, ValueError: files are missing or damaged, all of them named.
    """

    def __init__(
        self,
        manifest: Manifest,
        sample_rate: int,
        segment: float | None = None,
        seed: int = 0,
        headers: Headers | None = None,
    ):
        if sample_rate < 1:
            raise ValueError(f"sample_rate is {sample_rate}, expected at least 1 Hz")
        if segment is not None and not segment * sample_rate >= 1:
            raise ValueError(f"segment is {segment} s, expected at least one sample")
        if seed < 0:
            raise ValueError(f"seed is {seed}, expected 0 or more")
        self.sample_rate = sample_rate
        self.n_samples = None if segment is None else round(segment * sample_rate)
        self.seed = seed
        self.n_src = manifest.n_src
        self._ids = PackedStrings([row.id for row in manifest])
        self._paths = PackedStrings([p for row in manifest for p in (row.mixture, *row.sources)])
        headers = read_headers(manifest) if headers is None else headers
        self._file_lengths, self._rates = headers.n_samples, headers.sample_rates
        self.lengths = -(-self._file_lengths * sample_rate // self._rates)
        self._report(manifest.origin)

    def _report(self, origin: str) -> None:
        n = len(self)
        other = int((self._rates != self.sample_rate).sum())
        if other:
            rates = sorted({int(rate) for rate in self._rates} - {self.sample_rate})
            logger.info(
                "%s: %d of %d mixtures are resampled from %s to %d Hz",
                *(origin, other, n, rates, self.sample_rate),
            )
        if self.n_samples is not None:
            padded = int((self.lengths < self.n_samples).sum())
            exact = int((self.lengths == self.n_samples).sum())
            logger.info(
                "%s: of %d mixtures %d are shorter than the segment of %d samples and padded, "
                "%d are cropped to it, %d fit",
                *(origin, n, padded, self.n_samples, n - padded - exact, exact),
            )

    def __len__(self) -> int:
        return len(self._ids)

    def mixture_path(self, index: int) -> str:
        """File of a mixture."""
        return self._paths[index * (1 + self.n_src)]

    def item(self, epoch: int, index: int) -> Item:
        """A whole mixture, or the crop of this epoch."""
        length, rate = int(self._file_lengths[index]), int(self._rates[index])
        start, count, n_out = 0, length, int(self.lengths[index])
        if self.n_samples is not None:
            wanted = -(-self.n_samples * rate // self.sample_rate)
            if length >= wanted:
                start = int(random_state(self.seed, epoch, index).integers(length - wanted + 1))
                count, n_out = wanted, self.n_samples
        first = index * (1 + self.n_src)
        wavs = torch.stack(
            [
                self._read(self._paths[first + k], rate, start, count, n_out)
                for k in range(1 + self.n_src)
            ]
        )
        return {"mixture": wavs[0], "sources": wavs[1:], "id": self._ids[index]}

    def _read(self, path: str, rate: int, start: int, count: int, n_out: int) -> Tensor:
        wav, found = read_audio(path, start=start, n_samples=count)
        if found != rate:
            raise ValueError(f"{path}: was {rate} Hz at the start of the run, now is {found} Hz")
        return resample(wav, rate, self.sample_rate, n_out)


def collate(items: Sequence[Item], n_samples: int | None = None) -> Batch:
    """Items to a batch, padded with zeros at the end.

    Args:
        items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, of any lengths.
        n_samples: pad to this length (training: to the segment, so that all batches have one
            shape); None pads to the longest item.

    Returns:
        ``{"mixture": (B, T), "sources": (B, n_src, T), "lengths": (B,) int64, "ids": list[str]}``.

    >>> short = {"mixture": torch.ones(3), "sources": torch.ones(2, 3), "id": "a"}
    >>> long = {"mixture": torch.ones(5), "sources": torch.ones(2, 5), "id": "b"}
    >>> batch = collate([short, long])
    >>> batch["sources"].shape, batch["lengths"].tolist(), batch["mixture"][0].tolist()
    (torch.Size([2, 2, 5]), [3, 5], [1.0, 1.0, 1.0, 0.0, 0.0])
    """
    lengths = [item["mixture"].shape[-1] for item in items]
    longest = max(lengths) if n_samples is None else n_samples
    if max(lengths) > longest:
        raise ValueError(f"an item has {max(lengths)} samples, n_samples is {n_samples}")

    def padded(key: str) -> Tensor:
        return torch.stack(
            [F.pad(item[key], (0, longest - n)) for item, n in zip(items, lengths, strict=True)]
        )

    return {
        "mixture": padded("mixture"),
        "sources": padded("sources"),
        "lengths": torch.tensor(lengths, dtype=torch.int64),
        "ids": [item["id"] for item in items],
    }
