"""Audio files as one numbered list of signals of one rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.audio import read_audio, read_audio_into
from convtasnet.data.packed import PackedStrings
from convtasnet.resampling import rate_ratio, resample

# The resampling filter reaches this many samples of the lower rate to each side, rounded up.
_REACH = 7


class Recordings:
    """Files that are read, in stretches or whole, at one rate.

    A stretch of a file of another rate is that of the whole resampled file, to rounding.

    Args:
        paths: of the files.
        n_samples: int64, at the file's own rate; less than the file has leaves out its end.
        sample_rates: int64, the files' own, in Hz.
        sample_rate: of what is read, in Hz.
        group: so many files, one after the other, share an entry of ``n_samples`` and of
            ``sample_rates``, as mixture and sources do.
        least: files that are shorter, in samples at ``sample_rate``, are repeated up to that
            length: one number or (n // group,).

    Attributes:
        lengths: (n // group,) int64, samples at ``sample_rate``, repetitions included.

    >>> import tempfile
    >>> from convtasnet.audio import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", torch.zeros(1600), 16000)
    ...     audio = Recordings([f"{folder}/a.wav"], np.array([1600]), np.array([16000]), 8000)
    ...     audio.lengths.tolist(), audio.read(0, start=700, count=50).shape
    ([800], torch.Size([50]))
    """

    def __init__(
        self,
        paths: Sequence[str],
        n_samples: np.ndarray,
        sample_rates: np.ndarray,
        sample_rate: int,
        group: int = 1,
        least: np.ndarray | int = 0,
    ):
        self.paths = PackedStrings(paths)
        self.sample_rate, self.group = sample_rate, group
        self.n_samples, self.sample_rates = n_samples, sample_rates
        self._own_lengths = -(-n_samples * sample_rate // sample_rates)
        self.lengths = np.maximum(self._own_lengths, least)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def file_lengths(self) -> np.ndarray:
        """(n,) int64, samples of each file at ``sample_rate``."""
        return self.lengths.repeat(self.group)

    def read(self, index: int, start: int = 0, count: int | None = None) -> Tensor:
        """A stretch of one file.

        Args:
            index: which file.
            start: first sample, at ``sample_rate``.
            count: samples at ``sample_rate``; None reads to the end.

        Returns:
            (count,) float32.

        Raises:
            FileNotFoundError, ValueError: as ``audio.read_audio``; ValueError too if the file has
                changed its rate.
        """
        if count is None:
            count = int(self.lengths[index // self.group]) - start
        own = int(self._own_lengths[index // self.group])
        if start + count > own < self.lengths[index // self.group]:
            return self._stretch(index, 0, own)[(start + torch.arange(count)) % own]
        return self._stretch(index, start, count)

    def read_into(self, index: int, start: int, out: np.ndarray) -> None:
        """Read a stretch of one file to where it is wanted: ``out`` (count,), contiguous."""
        entry = index // self.group
        rate = int(self.sample_rates[entry])
        if rate == self.sample_rate and start + len(out) <= self._own_lengths[entry]:
            path = self.paths[index]
            _same_rate(path, read_audio_into(path, out, start), rate)
        else:
            out[:] = self.read(index, start, len(out)).numpy()

    def _stretch(self, index: int, start: int, count: int) -> Tensor:
        """Samples at ``sample_rate`` of the file itself."""
        rate = int(self.sample_rates[index // self.group])
        if rate == self.sample_rate:
            return self._read(index, rate, start, count)
        # Blocks of `old` samples become blocks of `new`, in the same way wherever they are.
        old, new = rate_ratio(rate, self.sample_rate)
        margin = -(-_REACH // min(old, new))
        first = max(0, start // new - margin)
        last = -(-(start + count) // new) + margin
        stop = min(int(self.n_samples[index // self.group]), last * old)
        wav = self._read(index, rate, first * old, stop - first * old)
        wav = resample(wav, rate, self.sample_rate)[start - first * new :][:count]
        return F.pad(wav, (0, count - len(wav)))

    def _read(self, index: int, rate: int, start: int, count: int) -> Tensor:
        path = self.paths[index]
        wav, found = read_audio(path, start=start, n_samples=count)
        _same_rate(path, found, rate)
        return wav


def _same_rate(path: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{path}: was {expected} Hz at the start of the run, now is {found} Hz")


def sixteen_bits(wav: Tensor) -> tuple[Tensor, float]:
    """Samples as 16-bit integers, and the number that they are to be multiplied by.

    What came from a 16-bit file is kept exactly; the rest is rounded to 2^-15 of its own peak.

    Args:
        wav: (T,) float32.

    Returns:
        (T,) int16, and the scale.

    >>> samples, scale = sixteen_bits(torch.tensor([0.5, -1.0]))
    >>> samples.tolist(), scale == 2**-15, sixteen_bits(torch.tensor([0.0, 1e-3]))[0].tolist()
    ([16384, -32768], True, [0, 32767])
    """
    scaled = wav * 2.0**15
    peak = float(wav.abs().amax()) if len(wav) else 0.0
    exact = scaled.round()
    if torch.equal(scaled, exact) and scaled.amax() < 2**15 and peak <= 1:
        return exact.to(torch.int16), 2.0**-15
    scale = peak / (2**15 - 1)
    return (wav / scale).round().to(torch.int16), scale
