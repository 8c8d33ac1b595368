"""How many programs share the tiles of a launch whose programs stay for several of them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

EACH = 2**20  # so many programs on a multiprocessor that each has one tile


@triton.jit
def _nothing_kernel():
    pass


INTERPRETED = not isinstance(_nothing_kernel, triton.runtime.jit.JITFunction)


def share(tiles: int, programs: int, x: Tensor) -> tuple[int, Any]:
    """Spreads tiles evenly over the device of x.

    Args:
        tiles: to be worked on.
        programs: at most, on each multiprocessor.
        x: a tensor on the device.

    Returns:
        The programs to launch, and the tiles of each, for a loop ``tl.range(0, steps)``.
    """
    count = 1
    if x.is_cuda:
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
    programs = min(tiles, programs * count)
    steps = triton.cdiv(tiles, programs)
    # The interpreter of triton 3.6 cannot count to a runtime number under numpy 2.4.
    return programs, tl.constexpr(steps) if INTERPRETED else steps
