"""Many strings in two arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np


class PackedStrings:
    """A read-only list of strings that worker processes share.

    A list of Python strings is copied, page by page, into every forked worker, because reading an
    object writes its reference count. Two arrays are not.

    Args:
        strings: file names or IDs; undecodable bytes of file names survive.

    >>> names = PackedStrings(["a.wav", "größe.wav", ""])
    >>> len(names), names[1], list(names)
    (3, 'größe.wav', ['a.wav', 'größe.wav', ''])
    """

    def __init__(self, strings: Sequence[str]):
        encoded = [os.fsencode(string) for string in strings]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(data) for data in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        begin = self._ends[index - 1] if index else 0
        return os.fsdecode(self._bytes[begin : self._ends[index]].tobytes())
