"""A fused block's steps in Triton, backward; ``block_backward_torch.py`` says what each of them is.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

from convtasnet_kernels.block_depthwise_gradient import depthwise_gradient
from convtasnet_kernels.block_gradient_statistics import gradient_statistics
from convtasnet_kernels.block_gradient_sums import norm_gradient_sums
from convtasnet_kernels.block_norm_gradient import norm_gradient
from convtasnet_kernels.block_parameter_gradients import parameter_gradients
from convtasnet_kernels.block_rows import joined_gradients, taken_rows
from convtasnet_kernels.block_statistics import workspaces

__all__ = [
    "depthwise_gradient",
    "gradient_statistics",
    "joined_gradients",
    "norm_gradient",
    "norm_gradient_sums",
    "parameter_gradients",
    "taken_rows",
    "workspaces",
]
