"""All recordings from end to end, as 16-bit samples, read by several processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch.utils.data import DataLoader, Dataset

from convtasnet.data.recordings import Recordings, sixteen_bits

PIECE = 1 << 20  # samples that a process reads at a time, or one longer file


def read_pieces(
    recordings: Recordings, num_workers: int, title: str, show: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The samples of some recordings after the other, (T,) int16, and the scales of each.

    Samples of 16-bit files of the right rate are kept exactly, others are rounded to 2^-15 of
    their file's peak (``recordings.sixteen_bits``). A file of another rate is resampled as a whole.

    Args:
        recordings: the files.
        num_workers: processes that read them.
        title: of the progress bar.
        show: whether to show it.

    Raises:
        FileNotFoundError, ValueError: files are missing or damaged.
    """
    # Arrays come through pipes: tensors would need shared memory, which may be small.
    loader = DataLoader(
        _Pieces(recordings),
        batch_size=None,
        num_workers=num_workers,
        collate_fn=_unchanged,
        generator=torch.Generator(),  # leaves the global one alone
    )
    for piece in track(loader, title, transient=True, disable=not show):
        if isinstance(piece, Exception):
            raise piece
        yield piece


class _Pieces(Dataset[Any]):
    """Runs of recordings: the samples of each in one row, and the scales of its files.

    What is wrong with a file is a piece, too: raised in a process, it would bring that one's
    traceback along.
    """

    def __init__(self, recordings: Recordings):
        self._recordings = recordings
        piece = np.cumsum(recordings.file_lengths) // PIECE
        ends = np.flatnonzero(np.diff(piece, append=-1)) + 1
        self._bounds = np.array([0, *ends])

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray] | Exception:
        members = range(self._bounds[index], self._bounds[index + 1])
        try:
            pairs = [sixteen_bits(self._recordings.read(i)) for i in members]
        except (ValueError, OSError) as error:
            return error
        wavs, scales = zip(*pairs, strict=True)
        return torch.cat(wavs).numpy(), np.array(scales)


def _unchanged(piece: Any) -> Any:
    return piece
