"""Norms and the depthwise convolution of maps shaped (batch, channels, time)."""

from convtasnet_kernels.backend import use_backend
from convtasnet_kernels.channelwise_op import channelwise_layer_norm
from convtasnet_kernels.cumulative_op import cumulative_layer_norm
from convtasnet_kernels.depthwise_op import depthwise_conv
from convtasnet_kernels.global_op import global_layer_norm
from convtasnet_kernels.layer_op import layer_norm

__all__ = [
    "channelwise_layer_norm",
    "cumulative_layer_norm",
    "depthwise_conv",
    "global_layer_norm",
    "layer_norm",
    "use_backend",
]
