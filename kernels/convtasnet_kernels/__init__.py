"""Normalization kernels for maps shaped (batch, channels, time)."""

from convtasnet_kernels.backend import use_backend
from convtasnet_kernels.channelwise import channelwise_layer_norm
from convtasnet_kernels.cumulative_op import cumulative_layer_norm
from convtasnet_kernels.global_op import global_layer_norm

__all__ = [
    "channelwise_layer_norm",
    "cumulative_layer_norm",
    "global_layer_norm",
    "use_backend",
]
