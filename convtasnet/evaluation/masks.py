"""Ideal masks: how far masks on a spectrogram could reach, with the sources known."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WINDOW_SECONDS, HOP_SECONDS = 0.032, 0.008


def ideal_ratio(magnitudes: Tensor) -> Tensor:
    """IRM: a part's share of the sum of all magnitudes."""
    return _share(magnitudes)


def ideal_binary(magnitudes: Tensor) -> Tensor:
    """IBM: 1 for the part that is loudest in a bin, else 0."""
    loudest = magnitudes.argmax(0, keepdim=True)
    return torch.zeros_like(magnitudes).scatter_(0, loudest, 1.0)


def wiener_like(magnitudes: Tensor) -> Tensor:
    """WFM: a part's share of the sum of all powers."""
    return _share(magnitudes.square())


MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "irm": ideal_ratio,
    "ibm": ideal_binary,
    "wfm": wiener_like,
}


def masked(mixture: Tensor, sources: Tensor, sample_rate: int, mask: str) -> Tensor:
    """Sources as an ideal mask takes them out of the mixture.

    The mask multiplies the mixture's short-time Fourier transform (Hann window of 32 ms, hop of
    8 ms), whose phase stays. What the mixture holds besides its sources, such as noise, is one more
    part, which is masked out.

    Args:
        mixture: (T,).
        sources: (n_src, T).
        sample_rate: Hz.
        mask: "irm", "ibm" or "wfm".

    Returns:
        (n_src, T).

    Source: the masks and the transform that the Conv-TasNet paper compares with (Luo &
    Mesgarani, 2019).

    Example:
        >>> sources = torch.randn(2, 8000)
        >>> masked(sources.sum(0), sources, 8000, "irm").shape
        torch.Size([2, 8000])
    """
    size, hop = round(WINDOW_SECONDS * sample_rate), round(HOP_SECONDS * sample_rate)
    window = torch.hann_window(size, device=mixture.device)
    rest = mixture - sources.sum(0)
    # Zeros around instead of reflections: an item may be shorter than half a window.
    spectra = torch.stft(
        torch.cat([sources, rest[None], mixture[None]]),
        size,
        hop,
        window=window,
        pad_mode="constant",
        return_complex=True,
    )
    kept = MASKS[mask](spectra[:-1].abs())[:-1] * spectra[-1]
    return torch.istft(kept, size, hop, window=window, length=mixture.shape[-1])


def _share(x: Tensor) -> Tensor:
    total = x.sum(0, keepdim=True)
    return x / torch.where(total > 0, total, torch.ones_like(total))
