"""Resampling between any two rates."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor
from torchaudio.transforms import Resample

_MAX_REDUCED_RATE = 1_000_000
_FILTER_WIDTH, _ROLLOFF = 6, 0.99  # torchaudio's defaults
_MATRIX_SIZE = 250_000  # coefficients, about, up to which torchaudio's filter is used: a megabyte


def resample(wav: Tensor, orig_rate: int, new_rate: int, n_samples: int | None = None) -> Tensor:
    """Resample the last axis, to what ``torchaudio.functional.resample`` gives (windowed sinc).

    torchaudio's filter has as many coefficients as the product of the reduced rates. Where these
    are many, as for 44101 and 8000 Hz, scipy applies the same filter without its zeros, on the CPU;
    such rates take no ``wav`` that needs a gradient. Rates beyond a million that have hardly a
    common divisor are taken as the nearest ratio of numbers up to that, off by less than 1e-6.

    Args:
        wav: ``(..., T)``.
        orig_rate: rate of ``wav`` in Hz.
        new_rate: rate wanted in Hz.
        n_samples: exact length wanted: the end is cut or padded with zeros. By default
            ``ceil(T * new_rate / orig_rate)``.

    Returns:
        ``(..., n_samples)``.

    Raises:
        ValueError: a rate below 1 Hz; or ``wav`` needs a gradient that there is not.

    >>> resample(torch.zeros(2, 44100), 44100, 8000).shape
    torch.Size([2, 8000])
    >>> resample(torch.zeros(16001), 16000, 8000, n_samples=8000).shape
    torch.Size([8000])
    """
    for name, rate in (("orig_rate", orig_rate), ("new_rate", new_rate)):
        if rate < 1:
            raise ValueError(f"{name} is {rate}, expected at least 1 Hz")
    expected = -(-wav.shape[-1] * new_rate // orig_rate)
    if orig_rate != new_rate and wav.shape[-1]:
        wav = _converted(wav, *rate_ratio(orig_rate, new_rate))
    if n_samples is None:
        n_samples = expected
    if wav.shape[-1] == n_samples:
        return wav
    return torch.nn.functional.pad(wav, (0, n_samples - wav.shape[-1]))


class Resampler:
    """Resamples a signal that comes in parts, in bounded memory, to what :func:`resample` gives.

    Args:
        orig_rate: rate of the parts in Hz.
        new_rate: rate wanted in Hz.

    >>> x = torch.randn(2, 44100)
    >>> resampler = Resampler(44100, 8000)
    >>> parts = [resampler.push(part) for part in x.split(1000, -1)]
    >>> parts.append(resampler.push(x[:, :0], end=True))
    >>> torch.testing.assert_close(torch.cat(parts, -1), resample(x, 44100, 8000))
    """

    def __init__(self, orig_rate: int, new_rate: int) -> None:
        self._orig, self._new = rate_ratio(orig_rate, new_rate)
        # Frames of ``orig`` samples in, ``new`` samples out; a filter reaches so many to each side.
        reach = _FILTER_WIDTH / (_ROLLOFF * min(self._orig, self._new))
        self._margin = math.ceil(reach + 1 / self._orig)
        self._buffer: Tensor | None = None
        self._passed = 0  # frames at the start of the buffer that are done

    def push(self, wav: Tensor, end: bool = False) -> Tensor:
        """Take (..., k) and give all samples that are final, (..., m); at the end, the rest too."""
        if self._orig == self._new:
            return wav
        self._buffer = wav if self._buffer is None else torch.cat([self._buffer, wav], -1)
        if end:
            rest = self._rest()
            self._buffer, self._passed = None, 0
            return rest
        done = self._buffer.shape[-1] // self._orig - self._margin
        if done <= self._passed:
            return wav[..., :0]
        final = self._rest()[..., : (done - self._passed) * self._new]
        kept = max(0, done - self._margin)
        self._buffer, self._passed = self._buffer[..., kept * self._orig :], done - kept
        return final

    def _rest(self) -> Tensor:
        """The buffer from the first frame that is not done on; its end lacks what is to come."""
        assert self._buffer is not None
        if not self._buffer.shape[-1]:
            return self._buffer
        return _converted(self._buffer, self._orig, self._new)[..., self._passed * self._new :]


def _converted(wav: Tensor, old: int, new: int) -> Tensor:
    """``ceil(T * new / old)`` samples of (..., T), T > 0."""
    if old * new <= _MATRIX_SIZE:
        return _matrix(old, new, wav.dtype, wav.device)(wav)
    if wav.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"rates in the ratio {old}:{new} are converted without gradients: detach wav"
        )
    from scipy.signal import upfirdn  # takes long to import, and few need it

    is_double = wav.dtype == torch.float64
    samples = wav.detach().to("cpu", torch.float64 if is_double else torch.float32).numpy()
    taps, start = _taps(old, new, np.float64 if is_double else np.float32)
    n_samples = -(-samples.shape[-1] * new // old)
    found = upfirdn(taps, samples, new, old)[..., start : start + n_samples]
    return torch.from_numpy(found).to(wav)


@functools.lru_cache(maxsize=64)
def _matrix(old: int, new: int, dtype: torch.dtype, device: torch.device) -> Resample:
    """What resamples by a convolution; kept, as making it takes longer than using it."""
    # Computed in float64: float32 would be off by 5e-5 at some pairs of rates.
    return Resample(old, new, dtype=torch.float64).to(device, dtype)


@functools.lru_cache(maxsize=4)
def _taps(old: int, new: int, dtype: type) -> tuple[np.ndarray, int]:
    """The same filter at the rate that both rates divide.

    Returns:
        The filter, and how many of its first outputs lie before the first sample.
    """
    large, small = max(old, new), min(old, new)
    half = math.ceil(_FILTER_WIDTH / _ROLLOFF * large)
    times = _ROLLOFF / large * np.arange(-half, half + 1)
    window = np.cos(np.clip(times / _FILTER_WIDTH, -1, 1) * np.pi / 2) ** 2
    taps = _ROLLOFF * small / old * np.sinc(times) * window
    before = -half % old  # the middle comes at an output
    return np.pad(taps, (before, 0)).astype(dtype), (half + before) // old


def filter_reach(orig_rate: int, new_rate: int) -> int:
    """Input samples to each side of an output sample that it is made of.

    >>> filter_reach(8000, 16000), filter_reach(16000, 8000)
    (7, 13)
    """
    return math.ceil(_FILTER_WIDTH * max(orig_rate, new_rate) / (_ROLLOFF * new_rate))


def rate_ratio(orig_rate: int, new_rate: int) -> tuple[int, int]:
    """Two small numbers in the ratio of the rates.

    >>> rate_ratio(44100, 8000), rate_ratio(96001, 8000)
    ((441, 80), (96001, 8000))
    """
    ratio = Fraction(max(orig_rate, new_rate), min(orig_rate, new_rate))
    if ratio.numerator > _MAX_REDUCED_RATE:
        ratio = ratio.limit_denominator(max(1, int(_MAX_REDUCED_RATE / ratio)))
    large, small = ratio.numerator, ratio.denominator
    return (large, small) if orig_rate > new_rate else (small, large)
