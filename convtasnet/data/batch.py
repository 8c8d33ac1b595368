"""How the items of a data set become a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Item = dict[str, Any]
Batch = dict[str, Any]


def named(mixture: Tensor, parts: Tensor, n_src: int) -> dict[str, Tensor]:
    """Signals of an item or of a batch by their names.

    Args:
        mixture: (..., T).
        parts: (..., n_src, T) sources, or (..., n_src + 1, T): with noise as the last.
        n_src: number of sources.
    """
    found = {"mixture": mixture, "sources": parts[..., :n_src, :]}
    if parts.shape[-2] > n_src:
        found["noise"] = parts[..., n_src, :]
    return {name: signal.contiguous() for name, signal in found.items()}


def collate(items: Sequence[Item], n_samples: int | None = None) -> Batch:
    """Items to a batch, padded with zeros at the end.

    Args:
        items: ``{"mixture": (T,), "sources": (n_src, T), "id": str}``, of any lengths, perhaps
            with ``"noise": (T,)``.
        n_samples: pad to this length (training: to the segment, so that all batches have one
            shape); None pads to the longest item.

    Returns:
        ``{"mixture": (B, T), "sources": (B, n_src, T), "lengths": (B,) int64, "ids": list[str]}``,
        and ``"noise": (B, T)`` if the items have it.

    Raises:
        ValueError: an item is longer than ``n_samples``.

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
        wavs = [item[key] for item in items]
        if min(lengths) < longest:
            wavs = [F.pad(wav, (0, longest - wav.shape[-1])) for wav in wavs]
        return torch.stack(wavs)

    return {
        **{key: padded(key) for key in ("mixture", "sources", "noise") if key in items[0]},
        "lengths": torch.tensor(lengths, dtype=torch.int64),
        "ids": [item["id"] for item in items],
    }
