"""Norms, depthwise convolution, blocks, masked decoder for maps (batch, channels, time); a loss."""

from convtasnet_kernels.backend import use_backend
from convtasnet_kernels.block_op import tcn_block, tcn_blocks
from convtasnet_kernels.block_parameters import BlockParameters
from convtasnet_kernels.channelwise_op import channelwise_layer_norm
from convtasnet_kernels.cumulative_op import cumulative_layer_norm
from convtasnet_kernels.depthwise_op import depthwise_conv
from convtasnet_kernels.global_op import global_layer_norm
from convtasnet_kernels.layer_op import layer_norm
from convtasnet_kernels.masked_decode_op import decode_masked
from convtasnet_kernels.overlap_op import overlap_add
from convtasnet_kernels.pit_si_sdr_op import pit_si_sdr_loss

__all__ = [
    "BlockParameters",
    "channelwise_layer_norm",
    "cumulative_layer_norm",
    "decode_masked",
    "depthwise_conv",
    "global_layer_norm",
    "layer_norm",
    "overlap_add",
    "pit_si_sdr_loss",
    "tcn_block",
    "tcn_blocks",
    "use_backend",
]
