"""Levels of separated voices: what files get, without clipping."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

log = logging.getLogger(__name__)
NORMALIZE = ("mixture", "peak", "none")


class Levels:
    """Gathers, piece by piece, what the gains of the voices depend on.

    Args:
        n_src: number of voices.

    Example:
        >>> levels = Levels(2)
        >>> voices = torch.tensor([[10.0, 0.0], [0.0, -3.0]])
        >>> levels.add(voices, mixture=torch.tensor([0.5, 0.4]))
        >>> levels.gains()[:, None] * voices
        tensor([[0.5000, 0.0000],
                [-0.0000, 0.4000]], dtype=torch.float64)
    """

    def __init__(self, n_src: int) -> None:
        self._energy, self._projection, self._peak = torch.zeros(3, n_src, dtype=torch.float64)

    def add(self, voices: Tensor, mixture: Tensor) -> None:
        """Take a piece of the voices (n_src, k), and of the mixture (k,), into account."""
        parts = voices.detach().double().cpu()
        self._energy += parts.square().sum(1)
        self._projection += parts @ mixture.detach().double().cpu()
        if parts.shape[1]:
            self._peak = torch.maximum(self._peak, parts.abs().amax(1))

    def gains(self, normalize: str = "mixture", full_scale: bool = True) -> Tensor:
        """Factors for the voices, (n_src,) float64.

        Args:
            normalize: "mixture" scales each voice by its least-squares fit to the mixture,
                ``<x, s>/<s, s>``: a model trained on SI-SDR leaves scale and sign open. "peak" does
                so and then scales all voices by one factor, so that the loudest sample is at full
                scale. "none" keeps the model's own scale.
            full_scale: whether samples beyond 1 cannot be written: then all voices are attenuated
                by one factor, with a warning, so that nothing clips and their balance stays.

        Raises:
            ValueError: an unknown ``normalize``, or NaN or infinity in the voices or the mixture.
        """
        if normalize not in NORMALIZE:
            raise ValueError(f"normalize={normalize!r} is unknown; choose one of {NORMALIZE}")
        if not bool(self._energy.isfinite().all()):
            raise ValueError("the separated voices hold NaN or infinity")
        if not bool(self._projection.isfinite().all()):
            raise ValueError("the mixture holds NaN or infinity")
        silent = self._energy == 0
        if normalize == "none":
            gains = torch.ones_like(self._energy)
        else:
            gains = torch.where(silent, 1.0, self._projection / self._energy.where(~silent, 1.0))
        peak = float((gains.abs() * self._peak).max())
        if normalize == "peak":
            return gains / peak if peak > 0 else gains
        if full_scale and peak > 1:
            log.warning("outputs reach %.3g of full scale: all attenuated by %.3g", peak, 1 / peak)
            gains = gains / peak
        return gains
