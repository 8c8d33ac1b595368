"""Numbers about items in rows of 8-byte words: one copy brings those of a batch to a device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

Fields = dict[str, np.ndarray]  # int64 or float64, of n items: (n, ...)


class Words:
    """How fields lie in a row: one after the other, those of an item in one row.

    Args:
        fields: an example, of any number of items.

    Raises:
        ValueError: a field has another type than int64 or float64.

    >>> fields = {"starts": np.array([[3, 4], [5, 6]]), "peak": np.array([0.5, 0.25])}
    >>> words = Words(fields)
    >>> rows = torch.from_numpy(words.pack(fields))
    >>> rows.shape, {name: field.tolist() for name, field in words.unpack(rows[1:]).items()}
    (torch.Size([2, 3]), {'starts': [[5, 6]], 'peak': [0.25]})
    """

    def __init__(self, fields: Mapping[str, np.ndarray]):
        for name, field in fields.items():
            if field.dtype not in (np.int64, np.float64):
                raise ValueError(f"{name} is {field.dtype}, expected int64 or float64")
        self._kinds = {
            name: (field.shape[1:], torch.float64 if field.dtype == np.float64 else torch.int64)
            for name, field in fields.items()
        }
        self._widths = [int(np.prod(shape)) for shape, _ in self._kinds.values()]

    def pack(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Fields of the example's shapes, of n items: (n, n_words) int64."""
        parts = zip(self._kinds, self._widths, strict=True)
        return np.hstack([fields[name].reshape(-1, width).view(np.int64) for name, width in parts])

    def unpack(self, rows: Tensor) -> dict[str, Tensor]:
        """The fields of rows, as views of them, on any device."""
        parts = rows.split(self._widths, 1)
        return {
            name: part.view(dtype).view(-1, *shape)
            for part, (name, (shape, dtype)) in zip(parts, self._kinds.items(), strict=True)
        }
