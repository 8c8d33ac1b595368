"""Wav files of 16-bit or float samples, read without libsndfile: opening one costs a sixth.

Everything else, and whatever is odd about a header, is left to libsndfile.
"""

from __future__ import annotations

import os
import struct
from io import RawIOBase

import numpy as np

_HEAD = 4096  # bytes in which the samples have to begin
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_GUID_TAIL = bytes.fromhex(
    "000000001000800000aa00389b71"
)  # of the formats' GUIDs, after the number
_SUBTYPES = {(_PCM, 16): "PCM_16", (_FLOAT, 32): "FLOAT"}


class PlainWav:
    """An opened wav file.

    Args:
        file: opened without a buffer, to be read from its start.

    Attributes:
        frames: samples of one channel.
        samplerate: in Hz.
        channels: their number.
        subtype: ``PCM_16`` or ``FLOAT``.
        format: ``WAV``. (All names are those of ``soundfile.SoundFile``.)

    Raises:
        ValueError: it isn't such a file: another format, no samples, cut short, an odd header.

    >>> import io
    >>> head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 40, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000,
    ...                    2, 16)
    >>> wav = PlainWav(io.BytesIO(head + struct.pack("<4sI2h", b"data", 4, 16384, -32768)))
    >>> samples = np.empty(2, np.float32)
    >>> wav.samplerate, wav.read(0, samples), samples.tolist()
    (8000, 2, [0.5, -1.0])
    """

    format = "WAV"

    def __init__(self, file: RawIOBase) -> None:
        self._file = file
        head = file.read(_HEAD)
        if head[:4] != b"RIFF" or head[8:12] != b"WAVE":
            raise ValueError("not RIFF")
        position, layout = 12, None
        while True:
            if position + 8 > len(head):
                raise ValueError("no samples near the start")
            kind, length = struct.unpack_from("<4sI", head, position)
            position += 8
            if kind == b"fmt ":
                layout = _layout(head[position : position + length])
            elif kind == b"data":
                break
            position += length + length % 2
        if layout is None:
            raise ValueError("no format before the samples")
        self.subtype, self.channels, self.samplerate = layout
        self._type = np.dtype("<i2" if self.subtype == "PCM_16" else "<f4")
        self._begin, self._block = position, self.channels * self._type.itemsize
        size = file.seek(0, os.SEEK_END)
        if not 0 < length <= size - position or length % self._block:
            raise ValueError("empty, cut short or odd")
        self.frames = length // self._block

    def read(self, start: int, out: np.ndarray) -> int:
        """Read from sample ``start`` on, channels averaged.

        Args:
            start: first sample.
            out: (count,) float32, contiguous, to be filled.

        Returns:
            How many samples were read: fewer than wanted where the file ends.
        """
        samples = np.empty((len(out), self.channels), self._type)
        count = read_into(self._file, self._begin + start * self._block, samples) // self._block
        scale = 2.0**-15 if self.subtype == "PCM_16" else 1.0
        if self.channels == 1:
            np.multiply(samples[:count, 0], np.float32(scale), out=out[:count])
        else:
            (samples[:count] * np.float32(scale)).mean(1, out=out[:count])
        return count


def read_into(file: RawIOBase, position: int, array: np.ndarray) -> int:
    """Fill a contiguous array with what a file holds from a byte on; how many bytes there were."""
    file.seek(position)
    missing = array.reshape(-1).view(np.uint8).data
    while missing and (got := file.readinto(missing)):  # 2 GB at most at a time
        missing = missing[got:]
    return array.nbytes - len(missing)


def _layout(chunk: bytes) -> tuple[str, int, int]:
    """Subtype, channels and rate of a ``fmt`` chunk."""
    if len(chunk) < 16:
        raise ValueError("a short format")
    code, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 40 and chunk[26:40] == _GUID_TAIL:
        code = struct.unpack_from("<H", chunk, 24)[0]
    subtype = _SUBTYPES.get((code, bits))
    if subtype is None or not channels or not rate or block != channels * bits // 8:
        raise ValueError("another format")
    return subtype, channels, rate
