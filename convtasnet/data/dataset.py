"""Mixtures and their sources as tensors, from files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from convtasnet.data.batch import Batch, Item, collate, named
from convtasnet.data.checks import Headers, read_headers
from convtasnet.data.draws import Key, below, uniforms
from convtasnet.data.manifest import Manifest
from convtasnet.data.packed import PackedStrings
from convtasnet.data.recordings import Recordings
from convtasnet.data.resident_audio import ResidentAudio
from convtasnet.data.words import Fields

logger = logging.getLogger(__name__)


class EpochDataset(Dataset[Item]):
    """A data set whose items depend on the epoch.

    It is indexed by ``(epoch, index)``, as the training sampler does, so that workers that live
    on know the epoch, or by ``index`` in the epoch last given to ``set_epoch``. Subclasses
    implement ``__len__`` and ``item`` (or ``items``).

    ``paths`` are the files that items come from, if they are known.

    Those whose batches can be made from samples in a device's memory too (``resident.py``) name
    the ``recordings`` that they read and the samples of their longest crop, ``window``, and
    implement ``decide``, ``make`` and ``ids``.
    """

    epoch = 0
    paths: PackedStrings | tuple[str, ...] = ()
    recordings: Recordings | None = None
    window = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of items asked for by ``index`` alone."""
        self.epoch = epoch

    def __len__(self) -> int:
        raise NotImplementedError

    def item(self, epoch: int, index: int) -> Item:
        """``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32.

        And ``"noise": (T,)``, if the data set gives noise apart from the sources.
        """
        raise NotImplementedError

    def decide(self, keys: Sequence[Key], audio: ResidentAudio) -> Fields:
        """What the items (epoch, index) are made of, of recordings in ``audio``.

        Returns:
            Arrays of n items, (n, ...) int64 or float64, of the same shapes for all items.
        """
        raise NotImplementedError

    def make(self, fields: Mapping[str, Tensor], audio: ResidentAudio) -> dict[str, Tensor]:
        """What ``collate`` makes of these items, but for ``ids``, on the device of ``audio``.

        ``fields`` are those of ``decide``, on that device. What is launched depends on the number
        of items alone, and does not wait for the device: a GPU replays it.
        """
        raise NotImplementedError

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Names of the items (epoch, index)."""
        raise NotImplementedError

    def items(self, keys: Sequence[Key]) -> list[Item]:
        """The items (epoch, index)."""
        return [self.item(*key) for key in keys]

    def read_batch(self, keys: Sequence[Key], n_samples: int) -> Batch:
        """What ``collate`` makes of the items (epoch, index), padded to ``n_samples``."""
        return collate(self.items(keys), n_samples)

    def __getitem__(self, key: int | Key) -> Item:
        return self.items(self.checked([key]))[0]

    def __getitems__(self, keys: Sequence[int | Key]) -> list[Item]:
        """What a ``DataLoader`` asks for: the items of a batch."""
        return self.items(self.checked(keys))

    def checked(self, keys: Sequence[int | Key]) -> list[Key]:
        """The keys with their epochs.

        Raises:
            IndexError: there is no such item.
        """
        pairs = [key if isinstance(key, tuple) else (self.epoch, key) for key in keys]
        for _, index in pairs:
            if not 0 <= index < len(self):
                raise IndexError(f"item {index} of a data set of {len(self)}")
        return pairs


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

    Items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, float32, and, if the rows have
    noise, ``"noise": (T,)``.

    Raises:
        ValueError: a sample rate or segment that isn't positive.
        FileNotFoundError, ValueError: files are missing or damaged, all of them named.
    """

    recordings: Recordings

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
        self.window = self.n_samples or 0
        self.seed = seed
        self.n_src = manifest.n_src
        self._group = len(manifest[0].files)  # mixture, sources, perhaps noise
        self._ids = PackedStrings([row.id for row in manifest])
        headers = read_headers(manifest) if headers is None else headers
        # The files of row i are recordings i * group and those after it.
        self.recordings = Recordings(
            [path for row in manifest for path in row.files],
            headers.n_samples,
            headers.sample_rates,
            sample_rate,
            group=self._group,
        )
        self.lengths = self.recordings.lengths
        self.paths = self.recordings.paths
        self._report(manifest.origin)

    def _report(self, origin: str) -> None:
        n = len(self)
        found = self.recordings.sample_rates
        other = int((found != self.sample_rate).sum())
        if other:
            rates = sorted({int(rate) for rate in found} - {self.sample_rate})
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
        return self.recordings.paths[index * self._group]

    def item(self, epoch: int, index: int) -> Item:
        """A whole mixture, or the crop of this epoch."""
        (start,), (count,) = (values.tolist() for values in self._crops([(epoch, index)]))
        first = index * self._group
        wavs = torch.stack(
            [self.recordings.read(first + k, start, count) for k in range(self._group)]
        )
        return {**named(wavs[0], wavs[1:], self.n_src), "id": self._ids[index]}

    def read_batch(self, keys: Sequence[Key], n_samples: int) -> Batch:
        """The crops of the items, each file read to its place in the batch."""
        starts, counts = self._crops(keys)
        n_items = len(keys)
        # One block of memory: the system gives it in few large pages, and processes hand it over
        # as one. Of each kind of file (mixture, sources, noise) it holds all items in a row.
        block = np.empty((self._group, n_items, n_samples), np.float32)
        sources = block[1 : 1 + self.n_src].reshape(n_items, self.n_src, n_samples)
        for i, (_, index) in enumerate(keys):
            start, count = int(starts[i]), int(counts[i])
            rows = [block[0, i], *sources[i], *block[1 + self.n_src :, i]]
            for k, row in enumerate(rows):
                self.recordings.read_into(index * self._group + k, start, row[:count])
                row[count:] = 0
        batch = {"mixture": block[0], "sources": sources}
        if self._group > 1 + self.n_src:
            batch["noise"] = block[-1]
        return {
            **{name: torch.from_numpy(wav) for name, wav in batch.items()},
            "lengths": torch.from_numpy(counts),
            "ids": self.ids(keys),
        }

    def decide(self, keys: Sequence[Key], audio: ResidentAudio) -> Fields:
        """Where the crops are, and what their samples are to be multiplied by."""
        starts, counts = self._crops(keys)
        first = np.array([index for _, index in keys]) * self._group
        members = first[:, None] + np.arange(self._group)
        places = audio.places(members, starts[:, None])
        return {"places": places, "counts": counts, "scales": audio.scales[members]}

    def make(self, fields: Mapping[str, Tensor], audio: ResidentAudio) -> dict[str, Tensor]:
        """The crops of the items."""
        counts = fields["counts"]
        crops = audio.crops(fields["places"], counts[:, None], self.window)
        wavs = crops * fields["scales"].float()[..., None]
        signals = named(wavs[:, 0], wavs[:, 1:], self.n_src)
        return {**signals, "lengths": counts.contiguous()}

    def ids(self, keys: Sequence[Key]) -> list[str]:
        """Those of the manifest."""
        return [self._ids[index] for _, index in keys]

    def _crops(self, keys: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
        """First sample and length of each item, at the items' rate: (n,) int64 each."""
        lengths = self.lengths[[index for _, index in keys]]
        counts = lengths if self.n_samples is None else np.minimum(lengths, self.n_samples)
        return below(lengths - counts + 1, uniforms(self.seed, keys, 1)[:, 0]), counts


class Batches(Dataset[Batch]):
    """The items of a data set as whole batches, for a loader that only hands them on.

    Args:
        dataset: the data set.
        n_samples: that all items are padded to.
    """

    def __init__(self, dataset: EpochDataset, n_samples: int):
        self.dataset, self.n_samples = dataset, n_samples

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: Sequence[int | Key]) -> Batch:
        """What a ``DataLoader`` asks for: the batch of these items."""
        return self.dataset.read_batch(self.dataset.checked(keys), self.n_samples)
