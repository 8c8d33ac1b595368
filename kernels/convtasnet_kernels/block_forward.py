"""A fused block's steps in Triton, forward; ``block_torch.py`` says what each of them is.

Import this module only where Triton is wanted.
"""

from __future__ import annotations

from convtasnet_kernels.block_depthwise import depthwise_norm
from convtasnet_kernels.block_frame_sums import frame_sums
from convtasnet_kernels.block_normalize import normalize
from convtasnet_kernels.block_rows import joined_rows, taken_rows
from convtasnet_kernels.block_statistics import statistics, workspaces

__all__ = [
    "depthwise_norm",
    "frame_sums",
    "joined_rows",
    "normalize",
    "statistics",
    "taken_rows",
    "workspaces",
]
