"""The separator: a temporal convolutional network that estimates the masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from convtasnet.depthwise import DepthwiseConv
from convtasnet.norms import valid_frames
from convtasnet.other_norms import ALL_NORMS
from convtasnet.reflection import reflected

MASK_ACTIVATIONS = ("relu", "sigmoid", "softmax", "softmax_filters")
CONV_PADDINGS = ("zeros", "reflect")


class Block(nn.Module):
    """One dilated 1-D convolutional block (the paper's figure 1C).

    1×1 convolution, PReLU, norm, depthwise convolution, PReLU, norm, then the residual and the
    skip 1×1 convolutions, computed as one product.

    Args:
        bn_chan: B, channels between blocks.
        hid_chan: H, channels inside.
        skip_chan: Sc, channels of the skip path, 0 for none.
        kernel_size: P, taps of the depthwise convolution.
        dilation: distance of its taps, in frames.
        norm: a key of ``convtasnet.other_norms.ALL_NORMS``.
        causal: the taps reach back only.
        residual: whether a next block needs the residual path.
    """

    def __init__(
        self,
        bn_chan: int,
        hid_chan: int,
        skip_chan: int,
        kernel_size: int,
        dilation: int,
        norm: str,
        causal: bool,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.split = [bn_chan if residual else 0, skip_chan]
        self.conv_in = nn.Conv1d(bn_chan, hid_chan, 1)
        self.norm_in = ALL_NORMS[norm](hid_chan, prelu=True)
        self.depthwise = DepthwiseConv(hid_chan, kernel_size, dilation, causal)
        self.norm_out = ALL_NORMS[norm](hid_chan, prelu=True)
        self.conv_out = nn.Conv1d(hid_chan, sum(self.split), 1)

    def forward(self, x: Tensor, frames: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map x (B, B', F) to the residual (B, B' or 0, F) and the skip (B, Sc, F).

        Frames from ``frames`` (B,) on are padding and are zero before the depthwise convolution, as
        if the item ended there.
        """
        y = self.norm_in(self.conv_in(x), frames)
        if frames is not None and not self.norm_in.clears_padding:
            y = torch.where(valid_frames(y, frames), y, 0.0)
        y = self.norm_out(self.depthwise(y), frames)
        residual, skip = self.conv_out(y).split(self.split, dim=1)
        return residual, skip


class ReflectBlock(Block):
    """A block whose depthwise convolution finds the mirrored map beyond the ends (SpeechBrain)."""

    def forward(self, x: Tensor, frames: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As in :class:`Block`; the map is reflected at each item's own ends."""
        y = self.norm_in(self.conv_in(x), frames)
        reach = self.depthwise.dilation[0] * (self.depthwise.kernel_size[0] - 1)
        y = reflected(y, frames, reach // 2, reach - reach // 2)
        y = self.depthwise(y)[..., reach // 2 :][..., : x.shape[-1]]
        residual, skip = self.conv_out(self.norm_out(y, frames)).split(self.split, dim=1)
        return residual, skip


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

    Example:
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
    ) -> None:
        super().__init__()
        self.n_src, self.skip_chan, self.mask_act = n_src, skip_chan, mask_act
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
            )
            for i in range(last + 1)
        )
        self.mask_prelu = nn.PReLU()
        self.mask_conv = nn.Conv1d(skip_chan or bn_chan, n_src * in_chan, 1)

    def forward(self, features: Tensor, frames: Tensor | None = None) -> Tensor:
        """Map features (B, N, F) to masks (B, n_src, N, F); ``frames`` (B,) are valid, or all."""
        x = self.bottleneck(self.norm(features, frames))
        skips: Tensor | None = None
        for block in self.blocks:
            residual, skip = block(x, frames)
            if residual.shape[1]:
                x = x + residual
            if self.skip_chan:
                skips = skip if skips is None else skips + skip
        scores = self.mask_conv(self.mask_prelu(x if skips is None else skips))
        scores = scores.unflatten(1, (self.n_src, -1))
        if self.mask_act.startswith("softmax"):
            return scores.softmax(1 if self.mask_act == "softmax" else 2)
        return getattr(scores, self.mask_act)()
