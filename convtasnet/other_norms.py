"""Norms that only models of other toolkits have. New models should take one of ``norms.py``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from convtasnet.norms import EPS, NORMS, Norm, valid_frames


class LegacyCumulativeNorm(Norm):
    """asteroid's ``cgLN`` up to version 0.6.0, whose variance lacks a division.

    The mean is that of all channels and all frames so far; what stands for the variance is the
    *sum* of their squares minus the squared mean, so that outputs shrink with time. Models trained
    with it need it; asteroid 0.6.1 and later, and ``norm="cumulative"``, divide by the count.

    Example:
        >>> norm = LegacyCumulativeNorm(1).requires_grad_(False)
        >>> norm(torch.tensor([[[3.0, 1.0]]])).square()  # variance 10 - 2², not 10/2 - 2²
        tensor([[[0.0000, 0.1667]]])
    """

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F), with sums in float64; padding comes after the valid frames."""
        with torch.autocast(x.device.type, enabled=False):
            y = _activated(x, self.slope).double()
            count = y.shape[1] * torch.arange(1, y.shape[2] + 1, device=y.device)
            mean = y.sum(1).cumsum(-1) / count
            power = y.square().sum(1).cumsum(-1)
            y = (y - mean[:, None]) * (power - mean.square() + EPS).rsqrt()[:, None]
            return (y * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


class FeaturewiseNorm(Norm):
    """Statistics of each channel over the valid frames of the item (asteroid's ``fgLN``).

    Example:
        >>> FeaturewiseNorm(1).requires_grad_(False)(torch.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.,  1.]]])
    """

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F)."""
        with torch.autocast(x.device.type, enabled=False):
            y = _activated(x, self.slope).double()
            valid: Tensor | float = 1.0
            count: Tensor | int = y.shape[-1]
            if frames is not None:
                valid, count = valid_frames(y, frames).double(), frames[:, None, None]
            mean = (y * valid).sum(-1, keepdim=True) / count
            y = y - mean
            variance = (y.square() * valid).sum(-1, keepdim=True) / count
            y = y * (variance + EPS).rsqrt()
            return (y * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


ALL_NORMS: dict[str, type[Norm]] = {
    **NORMS,
    "cumulative_legacy": LegacyCumulativeNorm,
    "featurewise": FeaturewiseNorm,
}
# Their statistics contain later frames.
LOOK_AHEAD = ("global", "featurewise")


def _activated(x: Tensor, slope: nn.Parameter | None) -> Tensor:
    return x if slope is None else nn.functional.prelu(x, slope.to(x.dtype))
