"""The separator: a temporal convolutional network that estimates the masks."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from convtasnet.block import Block, ReflectBlock, run_blocks
from convtasnet.other_norms import ALL_NORMS

MASK_ACTIVATIONS = ("relu", "sigmoid", "softmax", "softmax_filters")
CONV_PADDINGS = ("zeros", "reflect")


class Separator(nn.Module):
    """Masks from features: norm, bottleneck, R × X blocks, PReLU, 1×1 convolution, activation.

    The dilations of a repeat are 1, 2, 4, …, 2^(X−1). With a skip path the masks come from the
    sum of the blocks' skips, and the last block has no residual convolution, since nothing would
    use it; without one (``skip_chan=0``) they come from the last residual sum.

    Args:
        n_src: number of sources.
        in_chan: features of the encoder.
        bn_chan: B.
        hid_chan: H.
        skip_chan: Sc.
        conv_kernel_size: P.
        n_blocks: X.
        n_repeats: R.
        norm: a key of ``convtasnet.other_norms.ALL_NORMS``.
        causal: whether the depthwise convolutions are causal.
        mask_act: a name of ``MASK_ACTIVATIONS``.
        input_norm: the norm before the bottleneck, None for the blocks' own.
        conv_padding: a name of ``CONV_PADDINGS``.
        fused: see :class:`convtasnet.block.Block`.

    Example:
        >>> import torch
        >>> separator = Separator(2, 32, 8, 16, 8, 3, 2, 1, "global", False, "relu")
        >>> separator(torch.randn(4, 32, 50)).shape
        torch.Size([4, 2, 32, 50])
    """

    def __init__(
        self,
        n_src: int,
        in_chan: int,
        bn_chan: int,
        hid_chan: int,
        skip_chan: int,
        conv_kernel_size: int,
        n_blocks: int,
        n_repeats: int,
        norm: str,
        causal: bool,
        mask_act: str,
        input_norm: str | None = None,
        conv_padding: str = "zeros",
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.n_src, self.mask_act = n_src, mask_act
        self.norm = ALL_NORMS[input_norm or norm](in_chan)
        self.bottleneck = nn.Conv1d(in_chan, bn_chan, 1)
        last = n_blocks * n_repeats - 1
        block = ReflectBlock if conv_padding == "reflect" else Block
        self.blocks = nn.ModuleList(
            block(
                bn_chan,
                hid_chan,
                skip_chan,
                conv_kernel_size,
                2 ** (i % n_blocks),
                norm,
                causal,
                residual=i < last or not skip_chan,
                fused=fused,
            )
            for i in range(last + 1)
        )
        self.mask_prelu = nn.PReLU()
        self.mask_conv = nn.Conv1d(skip_chan or bn_chan, n_src * in_chan, 1)

    def forward(self, features: Tensor, frames: Tensor | None = None) -> Tensor:
        """Map features (B, N, F) to masks (B, n_src, N, F); ``frames`` (B,) are valid, or all."""
        scores = self.mask_conv(self._skips(features, frames))
        scores = scores.unflatten(1, (self.n_src, -1))
        if self.mask_act.startswith("softmax"):
            return scores.softmax(1 if self.mask_act == "softmax" else 2)
        return getattr(scores, self.mask_act)()

    def scores(self, features: Tensor, frames: Tensor | None = None) -> Tensor:
        """What becomes the masks, (B, n_src·N, F), without the bias of ``mask_conv``."""
        return F.conv1d(self._skips(features, frames), self.mask_conv.weight)

    def _skips(self, features: Tensor, frames: Tensor | None) -> Tensor:
        """What the last convolution gets: the blocks' sum behind the PReLU."""
        x = self.norm(features, frames)
        blocks: list[Any] = [*self.blocks]
        return run_blocks(self.bottleneck, blocks, self.mask_prelu, x, frames)
