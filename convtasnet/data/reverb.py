"""Rooms: talkers as a microphone hears them."""

from __future__ import annotations

import torch
from scipy.fft import next_fast_len
from torch import Tensor
from torch.nn import functional as F
from torchaudio.functional import fftconvolve

DIRECT_SECONDS = 2.5e-3  # after the largest peak of an impulse response: before any reflection


def in_rooms(
    sources: Tensor, impulses: Tensor, sample_rate: int, direct: bool
) -> tuple[Tensor, Tensor | None]:
    """Talkers as they are heard in their places, and what a model is to give of them.

    Args:
        sources: (..., n_rows, T): the talkers, and perhaps other signals, which stay as they are.
        impulses: (..., n_talkers, K).
        sample_rate: in Hz.
        direct: whether the targets are the talkers without reflections.

    Returns:
        (..., n_rows, T), and the same of the targets or None: they are what is heard.
    """
    n_talkers = impulses.shape[-2]
    talkers, others = sources[..., :n_talkers, :], sources[..., n_talkers:, :]
    heard = torch.cat([reverberate(talkers, impulses), others], -2)
    if not direct:
        return heard, None
    straight = reverberate(talkers, direct_part(impulses, sample_rate))
    return heard, torch.cat([straight, others], -2)


def reverberate(sources: Tensor, impulses: Tensor) -> Tensor:
    """Sources in rooms, cut to the sources' length: delayed by the way to the microphone.

    Args:
        sources: (..., T).
        impulses: (..., K), impulse responses; zeros may follow.

    Returns:
        (..., T).

    >>> reverberate(torch.tensor([1.0, 0, 0, 2]), torch.tensor([0, 1, 0.5])).round(decimals=3)
    tensor([0.0000, 1.0000, 0.5000, 0.0000])
    """
    n_samples = sources.shape[-1]
    # Transforms of a length that is a product of small primes are fast.
    whole = next_fast_len(n_samples + impulses.shape[-1] - 1, real=True)
    padded = F.pad(impulses, (0, whole + 1 - n_samples - impulses.shape[-1]))
    return fftconvolve(sources, padded)[..., :n_samples]


def direct_part(impulses: Tensor, sample_rate: int) -> Tensor:
    """Impulse responses up to 2.5 ms after their largest peak, zero from there on: (..., K).

    >>> direct_part(torch.tensor([0.0, -1.0, 0.2, 0.7, 0.6, 0.5]), 1000).tolist()
    [0.0, -1.0, 0.20000000298023224, 0.699999988079071, 0.0, 0.0]
    """
    times = torch.arange(impulses.shape[-1], device=impulses.device)
    last = impulses.abs().argmax(-1, keepdim=True) + int(DIRECT_SECONDS * sample_rate)
    return impulses * (times <= last)
