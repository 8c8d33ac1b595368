"""The blocks of the separator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convtasnet.depthwise import DepthwiseConv
from convtasnet.norms import EPS, valid_frames
from convtasnet.other_norms import ALL_NORMS
from convtasnet.reflection import reflected
from convtasnet_kernels import BlockParameters, tcn_blocks
from convtasnet_kernels.backend import runs_in_triton
from convtasnet_kernels.block_parameters import KINDS


class Block(nn.Module):
    """One dilated 1-D convolutional block (the paper's figure 1C), with its sums.

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
        fused: whether all of it runs as one operator, ``convtasnet_kernels.tcn_blocks``, with the
            same numbers up to rounding; None: where that has kernels for the norm and the device.

    Raises:
        ValueError: ``fused=True`` with a norm that the operator does not have.

    Example:
        >>> block = Block(4, 8, 2, kernel_size=3, dilation=2, norm="global", causal=False)
        >>> x, skips = block(torch.randn(3, 4, 16))
        >>> x.shape, skips.shape
        (torch.Size([3, 4, 16]), torch.Size([3, 2, 16]))
    """

    zero_padded = True  # the depthwise convolution finds zeros beyond the ends

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
        fused: bool | None = None,
    ) -> None:
        super().__init__()
        self.split = [bn_chan if residual else 0, skip_chan]
        self.conv_in = nn.Conv1d(bn_chan, hid_chan, 1)
        self.norm_in = ALL_NORMS[norm](hid_chan, prelu=True)
        self.depthwise = DepthwiseConv(hid_chan, kernel_size, dilation, causal)
        self.norm_out = ALL_NORMS[norm](hid_chan, prelu=True)
        self.conv_out = nn.Conv1d(hid_chan, sum(self.split), 1)
        self.norm, self.fusible = norm, norm in KINDS and self.zero_padded
        if fused not in (None, True, False):  # 'no' would count as true
            raise ValueError(f"fused={fused!r} must be true, false or None")
        if fused and not self.fusible:
            raise ValueError(
                f"fused=True needs norm {', '.join(KINDS)} and zeros beyond the ends, got "
                f"norm={norm!r} in a {type(self).__name__}"
            )
        self.fused = fused

    def forward(
        self, x: Tensor, skips: Tensor | None = None, frames: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Add the block's residual and skip to what runs beside the blocks.

        Args:
            x: (B, B', F).
            skips: (B, Sc, F), the skips so far; None where there are none yet.
            frames: valid frames (B,) of each item, or None for all. Those behind are zero before
                the depthwise convolution, as if the item ended there.

        Returns:
            x + residual, x itself without a residual; skips + skip, None for ``skip_chan=0``.
        """
        if self.is_fused(x):
            return run_fused([self], x, skips, frames)
        residual, skip = self.conv_out(self.inner(x, frames)).split(self.split, dim=1)
        if residual.shape[1]:
            x = x + residual
        if skip.shape[1]:
            skips = skip if skips is None else skips + skip
        return x, skips

    def inner(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """What the last convolution gets (B, H, F), step by step."""
        y = self.norm_in(self.conv_in(x), frames)
        if frames is not None and not self.norm_in.clears_padding:
            y = torch.where(valid_frames(y, frames), y, 0.0)
        return self.norm_out(self.depthwise(y), frames)

    def is_fused(self, x: Tensor) -> bool:
        """Whether x (B, B', F) takes the way of one operator."""
        if self.fused is None:
            return self.fusible and x.numel() > 0 and runs_in_triton("tcn_blocks", x)
        return self.fused and x.numel() > 0

    @property
    def fused_parameters(self) -> BlockParameters:
        """As the operator takes them."""
        norm_in, norm_out = self.norm_in, self.norm_out
        return BlockParameters._make(
            [
                *(self.conv_in.weight, self.conv_in.bias),
                *(norm_in.slope, norm_in.weight, norm_in.bias),
                *(self.depthwise.weight, self.depthwise.bias),
                *(norm_out.slope, norm_out.weight, norm_out.bias),
                *(self.conv_out.weight, self.conv_out.bias),
            ]
        )


class ReflectBlock(Block):
    """A block whose depthwise convolution finds the mirrored map beyond the ends (SpeechBrain)."""

    zero_padded = False

    def inner(self, x: Tensor, frames: Tensor | None = None) -> Tensor:
        """As in :class:`Block`; the map is reflected at each item's own ends."""
        y = self.norm_in(self.conv_in(x), frames)
        reach = self.depthwise.dilation[0] * (self.depthwise.kernel_size[0] - 1)
        y = reflected(y, frames, reach // 2, reach - reach // 2)
        y = self.depthwise(y)[..., reach // 2 :][..., : x.shape[-1]]
        return self.norm_out(y, frames)


def run_blocks(
    bottleneck: nn.Conv1d,
    blocks: Sequence[Block],
    prelu: nn.PReLU,
    x: Tensor,
    frames: Tensor | None = None,
) -> Tensor:
    """A 1×1 convolution, blocks in a row and a PReLU.

    Where all blocks are fused, the convolution's bias and the PReLU are part of their operator.

    Args:
        bottleneck: the convolution, of N to B' channels.
        blocks: of the same sizes and norm; only the last may be without a residual.
        prelu: of one slope.
        x: (B, N, F).
        frames: as in :class:`Block`.

    Returns:
        The sum of all skips, or without any the residual's, behind the PReLU.
    """
    skips = None
    if all(block.is_fused(x) for block in blocks):
        x = F.conv1d(x, bottleneck.weight)  # PyTorch would add the bias in a pass of its own
        x, skips = run_fused(blocks, x, skips, frames, prelu.weight, bottleneck.bias)
        return x if skips is None else skips
    x = bottleneck(x)
    for block in blocks:
        x, skips = block(x, skips, frames)
    return prelu(x if skips is None else skips)


def run_fused(
    blocks: Sequence[Block],
    x: Tensor,
    skips: Tensor | None,
    frames: Tensor | None,
    prelu: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What the last of the blocks gives, as one operator, PReLU and bias as in ``tcn_blocks``."""
    first, last = blocks[0], blocks[-1]
    onward, skips = tcn_blocks(
        x,
        skips,
        [block.fused_parameters for block in blocks],
        first.norm,
        [block.depthwise.dilation[0] for block in blocks],
        first.depthwise.causal,
        residual=last.split[0] > 0,
        eps=EPS,
        lengths=frames,
        prelu=prelu,
        bias=bias,
    )
    return x if onward is None else onward, skips
