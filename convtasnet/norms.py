"""Normalization modules of the separator, each with an optional PReLU in front.

Shapes are (B, C, F): batch, channels, frames.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from convtasnet_kernels import (
    channelwise_layer_norm,
    cumulative_layer_norm,
    global_layer_norm,
)

EPS = 1e-8
BATCH_EPS = 1e-5


class Norm(nn.Module):
    """Base of the norms: gain ``weight`` (C,), offset ``bias`` (C,), PReLU ``slope`` (1,) or None.

    Args:
        channels: C.
        prelu: apply a PReLU with one learned slope before the norm.

    Attributes:
        clears_padding: whether frames that are not valid are zero in the output.
    """

    slope: nn.Parameter | None
    clears_padding = False

    def __init__(self, channels: int, prelu: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.slope = nn.Parameter(torch.full((1,), 0.25)) if prelu else None

    def extra_repr(self) -> str:
        """Shown by ``print(model)``."""
        return f"{self.weight.numel()}, prelu={self.slope is not None}"

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F), of which ``frames`` (B,) are valid in each item, or all."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")


class CumulativeNorm(Norm):
    """Statistics over all channels and all frames so far (the paper's cLN, eq. 9 and 10).

    Example:
        >>> CumulativeNorm(4)(torch.randn(2, 4, 10)).shape
        torch.Size([2, 4, 10])
    """

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Padding comes after the valid frames, so their statistics never see it."""
        dtype = autocast_dtype(x)
        return cumulative_layer_norm(x, self.weight, self.bias, EPS, self.slope, dtype)


class GlobalNorm(Norm):
    """Statistics over all channels and all valid frames of the item (the paper's gLN, eq. 7)."""

    clears_padding = True

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F)."""
        dtype = autocast_dtype(x)
        return global_layer_norm(x, self.weight, self.bias, EPS, self.slope, frames, dtype)


class ChannelwiseNorm(Norm):
    """Statistics over the channels of one frame alone (called cLN in asteroid and SpeechBrain)."""

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F); frames are independent of each other."""
        dtype = autocast_dtype(x)
        return channelwise_layer_norm(x, self.weight, self.bias, EPS, self.slope, dtype)


class BatchNorm(Norm):
    """Statistics of each channel over batch and valid frames (Ioffe & Szegedy 2015).

    Running statistics, with momentum 0.1, serve evaluation; padding never enters them.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, prelu: bool = False) -> None:
        super().__init__(channels, prelu)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """Normalize x (B, C, F)."""
        if self.slope is not None:
            x = nn.functional.prelu(x, self.slope.to(x.dtype))
        if self.training and frames is not None:
            return self._masked(x, frames)
        return nn.functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            eps=BATCH_EPS,
        )

    def _masked(self, x: Tensor, frames: Tensor) -> Tensor:
        valid = valid_frames(x, frames)
        values = torch.where(valid, x.to(self.running_mean.dtype), 0.0)
        count = frames.sum()
        mean = values.sum((0, 2), keepdim=True) / count
        squares = torch.where(valid, values - mean, 0.0).square().sum((0, 2), keepdim=True)
        with torch.no_grad():
            self.running_mean.lerp_(mean.flatten(), 0.1)
            self.running_var.lerp_((squares / (count - 1).clamp(min=1)).flatten(), 0.1)
        y = (values - mean) * (squares / count + BATCH_EPS).rsqrt()
        return (y * self.weight[:, None] + self.bias[:, None]).to(x.dtype)


NORMS: dict[str, type[Norm]] = {
    "cumulative": CumulativeNorm,
    "global": GlobalNorm,
    "channelwise": ChannelwiseNorm,
    "batch": BatchNorm,
}


def valid_frames(x: Tensor, frames: Tensor) -> Tensor:
    """Mask (B, 1, F) of the frames of x (B, C, F) that are not padding.

    Example:
        >>> valid_frames(torch.zeros(2, 4, 3), torch.tensor([3, 1])).int()[:, 0].tolist()
        [[1, 1, 1], [1, 0, 0]]
    """
    return torch.arange(x.shape[-1], device=x.device) < frames[:, None, None]


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """What autocast makes of x before a convolution of it; None where it leaves x alone.

    A norm that writes its output so, spares the convolution a pass over the map.

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16):
        ...     autocast_dtype(torch.zeros(1))
        torch.bfloat16
    """
    kind = x.device.type
    if x.is_meta or x.dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)
