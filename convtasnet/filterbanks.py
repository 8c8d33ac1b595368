"""Encoder and decoder filterbanks, from asteroid-filterbanks."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import torch
from asteroid_filterbanks import (
    STFTFB,
    AnalyticFreeFB,
    Decoder,
    Encoder,
    Filterbank,
    FreeFB,
    ParamSincFB,
    multiphase_gammatone_fb,
)
from torch import Tensor

from convtasnet_kernels import overlap_add

MIN_GAMMATONE_FILTERS = 48  # 24 center frequencies, two signs each


class FrameEncoder(Encoder):
    """Features of a waveform as one product of filters and frames, faster than a convolution.

    Example:
        >>> encoder = FrameEncoder(FreeFB(32, 16, stride=8))
        >>> encoder(torch.randn(2, 1, 40)).shape
        torch.Size([2, 32, 4])
    """

    def forward(self, waveform: Tensor) -> Tensor:
        """Map (B, 1, T) of whole frames to (B, n_feats_out, F)."""
        filters = self.get_filters()[:, 0]
        frames = waveform[:, 0].unfold(-1, filters.shape[-1], self.stride)
        # Not matmul, which would put the frames before the features.
        return torch.bmm(filters.expand(frames.shape[0], -1, -1), frames.mT)


class FrameDecoder(Decoder):
    """A waveform as the sum of overlapping frames, each a product of filters and features.

    Example:
        >>> decoder = FrameDecoder(FreeFB(32, 16, stride=8))
        >>> decoder(torch.randn(2, 32, 4)).shape
        torch.Size([2, 1, 40])
    """

    def forward(self, spec: Tensor) -> Tensor:
        """Map (B, n_feats_out, F) to (B, 1, T)."""
        frames = self.frames(spec)
        length = (frames.shape[2] - 1) * self.stride + frames.shape[1]
        return overlap_add(frames, self.stride, length)[:, None]

    def frames(self, spec: Tensor) -> Tensor:
        """Map (B, n_feats_out, F) to the samples of each frame, (B, L, F)."""
        filters = self.get_filters()[:, 0]
        return torch.bmm(filters.mT.expand(spec.shape[0], -1, -1), spec)


class SincFilterbank(ParamSincFB):
    """Band-pass filters with learned cut-offs, of exactly ``kernel_size`` taps.

    The library's filters have an odd number of taps and grow an even ``kernel_size`` by one;
    here the first tap is left out then, so that the latency stays ``kernel_size − 1``.
    """

    def __init__(self, n_filters: int, kernel_size: int, **kwargs: Any) -> None:
        super().__init__(n_filters, kernel_size + 1 - kernel_size % 2, **kwargs)
        self.taps = kernel_size

    def filters(self) -> Tensor:
        """All filters, (n_filters, 1, kernel_size)."""
        return super().filters()[..., -self.taps :]


class GammatoneFilterbank(multiphase_gammatone_fb.MultiphaseGammatoneFB):
    """Multi-phase gammatone filters (Ditter & Gerkmann, ICASSP 2020), fixed.

    The library computes them through two names that NumPy 2 no longer has; they are lent to it
    while it does so.
    """

    def __init__(self, n_filters: int, kernel_size: int, **kwargs: Any) -> None:
        with mock.patch.object(multiphase_gammatone_fb, "np", _LegacyNumpy()):
            super().__init__(n_filters, kernel_size, **kwargs)


class _LegacyNumpy:
    float = float
    math = math

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


FILTERBANKS: dict[str, type[Filterbank]] = {
    "free": FreeFB,
    "stft": STFTFB,
    "analytic_free": AnalyticFreeFB,
    "param_sinc": SincFilterbank,
    "mpgtf": GammatoneFilterbank,
}


def encoder_decoder(
    name: str, n_filters: int, kernel_size: int, stride: int, sample_rate: int
) -> tuple[FrameEncoder, FrameDecoder]:
    """Encoder (B, 1, T) -> (B, n_feats_out, F) and the decoder back, with filters of their own.

    Args:
        name: "free" (learned, the paper's), "stft", "analytic_free", "param_sinc" or "mpgtf".
        n_filters: the paper's N; "stft" makes N + 2 features of it (see ``n_feats_out``).
        kernel_size: L in samples.
        stride: hop in samples.
        sample_rate: Hz, for the filters that are laid out in frequency.

    Raises:
        ValueError: an unknown name, or a size that the filterbank cannot have.

    Example:
        >>> encoder, decoder = encoder_decoder("stft", 64, 16, 8, 8000)
        >>> features = encoder(torch.randn(2, 1, 160))
        >>> features.shape, decoder(features).shape
        (torch.Size([2, 66, 19]), torch.Size([2, 1, 160]))
    """
    if name not in tuple(FILTERBANKS):  # which takes names without a hash, such as lists
        raise ValueError(f"filterbank={name!r} is unknown; choose one of {sorted(FILTERBANKS)}")
    if name != "free" and n_filters % 2:
        raise ValueError(f"filterbank={name!r} needs an even n_filters, got {n_filters}")
    if name == "stft" and n_filters < kernel_size:
        raise ValueError(
            f"filterbank='stft' needs n_filters >= kernel_size, got {n_filters} < {kernel_size}"
        )
    if name == "mpgtf" and n_filters < MIN_GAMMATONE_FILTERS:
        raise ValueError(
            f"filterbank='mpgtf' needs n_filters >= {MIN_GAMMATONE_FILTERS}, got {n_filters}"
        )

    def build() -> Filterbank:
        return FILTERBANKS[name](n_filters, kernel_size, stride=stride, sample_rate=sample_rate)

    return FrameEncoder(build()), FrameDecoder(build())
