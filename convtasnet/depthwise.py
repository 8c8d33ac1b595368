"""The depthwise convolution of a block, by the project's own kernel where there is one."""

from __future__ import annotations

from torch import Tensor, nn

from convtasnet_kernels import depthwise_conv


class DepthwiseConv(nn.Conv1d):
    """Dilated convolution of each channel by itself; as many frames out as in.

    The weights are those of an ``nn.Conv1d`` with ``groups=channels``.

    Args:
        channels: H.
        kernel_size: P.
        dilation: distance of the taps, in frames.
        causal: the taps reach back only; otherwise they lie around each frame.

    Example:
        >>> import torch
        >>> DepthwiseConv(4, 3, dilation=2, causal=True)(torch.randn(2, 4, 10)).shape
        torch.Size([2, 4, 10])
    """

    def __init__(self, channels: int, kernel_size: int, dilation: int, causal: bool) -> None:
        super().__init__(channels, channels, kernel_size, dilation=dilation, groups=channels)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, H, F) to (B, H, F); frames outside x count as zero."""
        return depthwise_conv(x, self.weight, self.bias, self.dilation[0], self.causal)
