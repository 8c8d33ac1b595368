"""Maps continued beyond their ends by reflection."""

from __future__ import annotations

import torch
from torch import Tensor


def reflected(x: Tensor, frames: Tensor | None, left: int, right: int) -> Tensor:
    """Continue the valid frames of x on both sides by their mirror image, to and fro.

    As ``torch.nn.functional.pad(..., mode="reflect")``, but for any number of frames from 1 on.

    Args:
        x: (B, C, F).
        frames: valid frames of each item, (B,), or None where all F are.
        left: frames to add in front.
        right: frames to add behind.

    Returns:
        (B, C, left + F + right); what lies beyond the ``right`` frames after an item's last valid
        one has no meaning.

    Example:
        >>> reflected(torch.tensor([[[1, 2, 3, 0]]]), torch.tensor([3]), 3, 2)
        tensor([[[2, 3, 2, 1, 2, 3, 2, 1, 2]]])
    """
    n_frames = x.shape[-1]
    at = torch.arange(-left, n_frames + right, device=x.device)
    if frames is None:
        # A tensor: ONNX has no operator for a remainder of a length that is not known yet.
        period = at.new_full((), max(1, 2 * (n_frames - 1)))
        at = at.remainder(period)
        return x[..., torch.minimum(at, period - at)]
    periods = (2 * (frames[:, None] - 1)).clamp(min=1)
    at = at.remainder(periods)
    at = torch.minimum(at, periods - at)
    return x.gather(-1, at[:, None].expand(-1, x.shape[1], -1))
