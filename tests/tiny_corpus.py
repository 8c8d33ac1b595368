"""A corpus of a few short mixtures, for runs that only have to run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from convtasnet.audio import write_audio
from convtasnet.data.manifest import Manifest, Row

RATE = 8000
SPLITS = {"train": 4, "valid": 2, "test": 2}


def voice(seed: int, seconds: float) -> Tensor:
    """Noise that comes and goes like syllables, (T,) at ``RATE``."""
    generator = torch.Generator().manual_seed(seed)
    t = torch.arange(round(seconds * RATE)) / RATE
    syllables = torch.sin(2 * torch.pi * (3 + seed % 3) * t + seed).clamp(min=0) + 0.01
    return 0.1 * torch.randn(len(t), generator=generator) * syllables


def write_corpus(root: Path, splits: dict[str, int] = SPLITS, seconds: float = 1.0) -> Path:
    """Write ``mixture_0.wav, …`` with their sources, and a manifest of each split.

    Args:
        root: the folder, for ``data=manifest data.root=…``.
        splits: number of mixtures of each split.
        seconds: length of each mixture.

    Returns:
        ``root``.
    """
    count = 0
    for split, n_mixtures in splits.items():
        rows = []
        for index in range(count, count + n_mixtures):
            sources = [voice(2 * index + k, seconds) for k in range(2)]
            names = ["mixture", "source_1", "source_2"]
            files = [root / f"{name}_{index}.wav" for name in names]
            for file, wav in zip(files, [sources[0] + sources[1], *sources], strict=True):
                write_audio(file, wav.clamp(-1, 1), RATE)
            paths = [str(file) for file in files]
            rows.append(Row(f"mix{index}", paths[0], tuple(paths[1:]), None, len(sources[0])))
        count += n_mixtures
        Manifest(rows).to_csv(root / f"{split}.csv")
    return root
