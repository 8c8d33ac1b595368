"""Raw PCM samples from and to files and pipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

FORMATS: dict[str, np.dtype[Any]] = {"s16le": np.dtype("<i2"), "f32le": np.dtype("<f4")}
FULL_SCALE = 32768


class PcmReader:
    r"""Blocks of one channel, until the file ends.

    Args:
        file: open for reading bytes.
        kind: a key of ``FORMATS``.
        block: samples of a block; the last one may be shorter.

    Attributes:
        replaced: NaN and infinite samples so far, which become zeros.
        cut: bytes of an incomplete sample with which the file ended.

    Example:
        >>> from io import BytesIO
        >>> list(PcmReader(BytesIO(b"\x00\x40\x00\x80"), "s16le", block=1))
        [array([0.5], dtype=float32), array([-1.], dtype=float32)]
    """

    def __init__(self, file: BinaryIO, kind: str, block: int) -> None:
        self.file, self.dtype, self.block = file, FORMATS[kind], block
        self.replaced = self.cut = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        """Blocks (k,) float32."""
        size = self.dtype.itemsize
        while data := self.file.read(self.block * size):
            self.cut = len(data) % size
            if len(data) >= size:
                yield self._decode(data[: len(data) - self.cut])

    def _decode(self, data: bytes) -> np.ndarray:
        samples = np.frombuffer(data, self.dtype).astype(np.float32)
        if self.dtype.kind == "i":
            return samples / FULL_SCALE
        finite = np.isfinite(samples)
        self.replaced += int(np.sum(~finite))
        return np.where(finite, samples, np.float32(0))


class PcmWriter:
    r"""Writes voices sample by sample, all voices of a sample together.

    Args:
        file: open for writing bytes; is flushed after every block.
        kind: a key of ``FORMATS``.

    Attributes:
        clipped: samples beyond full scale so far, which integers cannot hold.

    Example:
        >>> from io import BytesIO
        >>> writer = PcmWriter(BytesIO(), "s16le")
        >>> writer(np.array([[0.5], [2.0]]))
        >>> writer.file.getvalue(), writer.clipped
        (b'\x00@\xff\x7f', 1)
    """

    def __init__(self, file: BinaryIO, kind: str) -> None:
        self.file, self.dtype = file, FORMATS[kind]
        self.clipped = 0

    def __call__(self, voices: np.ndarray) -> None:
        """Write voices (n, m)."""
        samples = voices.T
        if self.dtype.kind == "i":
            samples = np.rint(samples * FULL_SCALE)
            kept = samples.clip(-FULL_SCALE, FULL_SCALE - 1)
            self.clipped += int(np.sum(kept != samples))
            samples = kept
        self.file.write(np.ascontiguousarray(samples, self.dtype).tobytes())
        self.file.flush()
