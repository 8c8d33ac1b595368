"""Other toolkits' data sets of LibriMix, for measurements side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import soundfile as sf
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

Pair = tuple[Tensor, Tensor]  # mixture (T,) and sources (2, T)


def asteroid_dataset(csv: Path, sample_rate: int, segment: float) -> Dataset[Pair]:
    """Asteroid's ``LibriMix``: crops.

    Args:
        csv: the list, alone in its folder; its name has "clean" in it.
        sample_rate: in Hz.
        segment: seconds.
    """
    from asteroid.data import LibriMix  # installed for measurements only

    return LibriMix(str(csv.parent), "sep_clean", sample_rate, n_src=2, segment=segment)


class TorchaudioCrops(Dataset[Pair]):
    """Crops of torchaudio's ``LibriMix``, which gives whole mixtures.

    Args:
        root: holds ``Libri2Mix``.
        sample_rate: in Hz.
        segment: seconds.
    """

    def __init__(self, root: Path, sample_rate: int, segment: float) -> None:
        import torchaudio
        from torchaudio.datasets import LibriMix

        if find_spec("torchcodec") is None:
            torchaudio.load = _load_by_soundfile  # what it did before it needed torchcodec
        self._whole = LibriMix(root, "train-100", 2, sample_rate, "sep_clean", "min")
        self._count = round(segment * sample_rate)

    def __len__(self) -> int:
        return len(self._whole)

    def __getitem__(self, index: int) -> Pair:
        _, mixture, sources = self._whole[index]
        start = random.randint(0, max(0, mixture.shape[-1] - self._count))
        crop = torch.cat([mixture, *sources])[:, start : start + self._count]
        crop = F.pad(crop, (0, self._count - crop.shape[-1]))
        return crop[0], crop[1:]


def stacked(pairs: Sequence[Pair]) -> dict[str, Tensor]:
    """Pairs of one length as a batch."""
    mixtures, sources = zip(*pairs, strict=True)
    return {"mixture": torch.stack(mixtures), "sources": torch.stack(sources)}


def _load_by_soundfile(path: str, *args: Any, **kwargs: Any) -> tuple[Tensor, int]:
    wav, rate = sf.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(wav.T), rate
