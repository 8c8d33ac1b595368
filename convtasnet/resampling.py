"""Resampling between any two rates."""

from __future__ import annotations

from fractions import Fraction

import torch
import torchaudio
from torch import Tensor

_MAX_REDUCED_RATE = 12000


def resample(wav: Tensor, orig_rate: int, new_rate: int, n_samples: int | None = None) -> Tensor:
    """Resample the last axis (``torchaudio.functional.resample``, windowed sinc).

    Args:
        wav: ``(..., T)``.
        orig_rate: rate of ``wav`` in Hz.
        new_rate: rate wanted in Hz.
        n_samples: exact length wanted: the end is cut or padded with zeros. By default
            ``ceil(T * new_rate / orig_rate)``.

    The filter's size is the product of the reduced rates. Rates that have hardly a common divisor
    and reach far, such as 96001 and 8000 Hz, are taken as the nearest ratio of smaller numbers, off
    by less than 1e-4.

    Returns:
        ``(..., n_samples)``.

    Raises:
        ValueError: a rate below 1 Hz.

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
        wav = torchaudio.functional.resample(wav, *rate_ratio(orig_rate, new_rate))
    if n_samples is None:
        n_samples = expected
    if wav.shape[-1] == n_samples:
        return wav
    return torch.nn.functional.pad(wav, (0, n_samples - wav.shape[-1]))


def rate_ratio(orig_rate: int, new_rate: int) -> tuple[int, int]:
    """Two small numbers in the ratio of the rates.

    >>> rate_ratio(44100, 8000), rate_ratio(96001, 8000)
    ((441, 80), (12, 1))
    """
    ratio = Fraction(max(orig_rate, new_rate), min(orig_rate, new_rate))
    if ratio.numerator > _MAX_REDUCED_RATE:
        ratio = ratio.limit_denominator(max(1, int(_MAX_REDUCED_RATE / ratio)))
    large, small = ratio.numerator, ratio.denominator
    return (large, small) if orig_rate > new_rate else (small, large)
