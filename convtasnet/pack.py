"""Many recordings in one file: 16-bit samples one after the other, and an index before them.

A recording in a pack is named like a file in a folder, ``speech.pack/17``, and ``convtasnet.audio``
reads it like any other. (For slow disks: one file to open, to copy and to read from end to end.)

The file, little-endian: the 8 bytes ``ctnpack1``; their number n, int64; n times first sample and
number of samples (int64), rate in Hz (int64), and what the integers are to be multiplied by
(float64); then the samples, int16, of one channel.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from io import RawIOBase
from pathlib import Path

import numpy as np

from convtasnet.files import replacing
from convtasnet.plain_wav import read_into

PathLike = str | os.PathLike[str]

SUFFIX = ".pack"
_MAGIC = b"ctnpack1"
_ENTRY = np.dtype([("start", "<i8"), ("length", "<i8"), ("rate", "<i8"), ("scale", "<f8")])
_SAMPLE = np.dtype("<i2")


class PackedSound:
    """A recording in an opened pack; attributes and ``read`` are those of ``PlainWav``."""

    subtype, format, channels = "PCM_16", "PACK", 1

    def __init__(self, file: RawIOBase, entry: np.void, begin: int) -> None:
        self._file = file
        self.frames, self.samplerate = int(entry["length"]), int(entry["rate"])
        self._scale = np.float32(entry["scale"])
        self._begin = begin + int(entry["start"]) * _SAMPLE.itemsize

    def read(self, start: int, out: np.ndarray) -> int:
        """Read (count,) samples from ``start`` on; how many there were."""
        samples = np.empty(len(out), _SAMPLE)
        size = _SAMPLE.itemsize
        count = read_into(self._file, self._begin + start * size, samples) // size
        np.multiply(samples[:count], self._scale, out=out[:count])
        return count


def address(path: PathLike) -> tuple[str, int] | None:
    """Pack and number of a recording; None if it is a file of its own.

    >>> address("/data/speech.pack/17"), address("/data/speech/17.wav")
    (('/data/speech.pack', 17), None)
    """
    path = os.fspath(path)
    if SUFFIX not in path:
        return None
    folder, name = os.path.split(path)
    if not folder.endswith(SUFFIX) or not (name.isascii() and name.isdigit()):
        return None
    return folder, int(name)


def file_of(path: PathLike) -> str:
    """The file on the disk that holds a recording: a pack, or its own."""
    found = address(path)
    return os.fspath(path) if found is None else found[0]


def open_packed(file: RawIOBase, pack: str, number: int) -> PackedSound:
    """A recording of a pack.

    Args:
        file: the pack, opened without a buffer.
        pack: its path.
        number: of the recording, from 0 on.

    Raises:
        ValueError: it isn't a pack, is cut short, or has fewer recordings.
    """
    status = os.stat(pack)
    index = _index(pack, status.st_size, status.st_mtime_ns)
    if number >= len(index):
        raise ValueError(f"{pack}: has {len(index)} recordings, there is none of number {number}")
    return PackedSound(file, index[number], _begin(len(index)))


def write_pack(
    path: Path,
    lengths: np.ndarray,
    sample_rate: int,
    pieces: Iterable[tuple[np.ndarray, np.ndarray]],
) -> None:
    """Write a pack, whole or not at all.

    Args:
        path: the pack; its name ends in ``.pack``.
        lengths: (n,) samples of each recording.
        sample_rate: of all, in Hz.
        pieces: the samples, int16, of some recordings after the other, and the scale of each.

    Raises:
        ValueError: another ending, or the pieces don't have these lengths.

    >>> import tempfile
    >>> from convtasnet.audio import read_audio
    >>> samples = np.array([1, 2, 3, 400, 500], np.int16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pack = Path(folder, "two.pack")
    ...     write_pack(pack, np.array([3, 2]), 8000, [(samples, np.array([2**-15, 0.001]))])
    ...     read_audio(pack / "1")
    (tensor([0.4000, 0.5000]), 8000)
    """
    if path.suffix != SUFFIX:
        raise ValueError(f"{path}: a pack's name ends in {SUFFIX}")
    index = np.zeros(len(lengths), _ENTRY)
    index["start"], index["length"] = np.cumsum(lengths) - lengths, lengths
    index["rate"] = sample_rate
    scales, count = [], 0
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.seek(_begin(len(index)))
        for samples, own in pieces:
            file.write(samples.astype(_SAMPLE, copy=False).tobytes())
            scales.append(own)
            count += len(samples)
        everything = np.concatenate([*scales, np.zeros(0)])
        if (count, len(everything)) != (lengths.sum(), len(lengths)):
            raise ValueError(
                f"{path}: {len(everything)} recordings of {count} samples, expected "
                f"{len(lengths)} of {lengths.sum()}"
            )
        index["scale"] = everything
        file.seek(0)
        file.write(_MAGIC + np.int64(len(index)).astype("<i8").tobytes() + index.tobytes())


def _begin(count: int) -> int:
    """Where the samples of a pack of so many recordings begin."""
    return len(_MAGIC) + 8 + count * _ENTRY.itemsize


@functools.lru_cache(maxsize=16)
def _index(pack: str, size: int, changed: int) -> np.ndarray:
    """The index of a pack of this size and time of change."""
    with open(pack, "rb") as file:
        head = file.read(len(_MAGIC) + 8)
        if len(head) < len(_MAGIC) + 8 or not head.startswith(_MAGIC):
            raise ValueError(f"{pack}: not a pack of recordings")
        count = int.from_bytes(head[len(_MAGIC) :], "little")
        index = np.fromfile(file, _ENTRY, count if _begin(count) <= size else 0)
    expected = _begin(count) + int(index["length"].sum()) * _SAMPLE.itemsize
    if len(index) != count or size != expected:
        raise ValueError(f"{pack}: cut short or damaged: make it anew")
    return index
