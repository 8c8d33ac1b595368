"""The valid lengths of a padded batch: their check, and means within them."""

from __future__ import annotations

import torch
from torch import Tensor


def checked_lengths(lengths: Tensor, batch: Tensor) -> Tensor:
    """Lengths as int64 on the batch's device.

    The values are inspected where they lie on the CPU; on a GPU that would wait for the device.

    Args:
        lengths: valid samples of each item, (B,), each from 1 to T.
        batch: (B, ..., T).

    Raises:
        ValueError: another type or shape, or a length out of range.

    Example:
        >>> checked_lengths(torch.tensor([3, 9]), torch.zeros(2, 8))
        Traceback (most recent call last):
            ...
        ValueError: lengths=[3, 9] must lie between 1 and 8
    """
    n_items = batch.shape[0]
    if not isinstance(lengths, Tensor):
        raise ValueError(f"lengths is a {type(lengths).__name__}, must be a tensor of {n_items}")
    whole = not (lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool)
    if not whole or lengths.numel() != n_items or lengths.ndim > 1:
        raise ValueError(
            f"lengths must be {n_items} integers, one an item, got shape "
            f"{tuple(lengths.shape)} of {lengths.dtype}"
        )
    out_of_reach = lengths.device.type != "cpu" or torch.compiler.is_compiling()
    if not out_of_reach and bool(((lengths < 1) | (lengths > batch.shape[-1])).any()):
        raise ValueError(f"lengths={lengths.tolist()} must lie between 1 and {batch.shape[-1]}")
    return lengths.reshape(-1).to(batch.device, torch.int64)


def zero_mean_within(x: Tensor, lengths: Tensor) -> Tensor:
    """Remove the mean of the first samples of each signal.

    Args:
        x: (B, n, T).
        lengths: (B,) valid samples, on the device of ``x``.

    Returns:
        (B, n, T), zero beyond the lengths; what is constant within them becomes exactly zero.

    Example:
        >>> zero_mean_within(torch.tensor([[[1.0, 3.0, 9.0]]]), torch.tensor([2]))
        tensor([[[-1.,  1.,  0.]]])
    """
    valid = torch.arange(x.shape[-1], device=x.device) < lengths[:, None, None]
    x = torch.where(valid, x, torch.zeros_like(x))
    first = x[..., :1]
    constant = ((x == first) | ~valid).all(-1, keepdim=True)
    mean = x.sum(-1, keepdim=True) / lengths[:, None, None]
    return torch.where(valid & ~constant, x - mean, torch.zeros_like(x))
