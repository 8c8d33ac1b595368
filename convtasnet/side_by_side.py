"""Tensors that lie side by side in one memory, where one launch reaches all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ALIGNMENT = 512  # bytes from start to start are a multiple of it, as from PyTorch's allocator


def laid_out(like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros of these shapes, side by side; apart where dtypes, devices or layouts differ.

    Example:
        >>> a, b = laid_out([torch.ones(3), torch.ones(2, 2)])
        >>> a.shape, b.shape, (b.data_ptr() - a.data_ptr()) % ALIGNMENT
        (torch.Size([3]), torch.Size([2, 2]), 0)
    """
    kinds = {(tensor.dtype, tensor.device, tensor.is_contiguous()) for tensor in like}
    if len(kinds) != 1 or not like[0].is_contiguous():
        return [torch.zeros_like(tensor) for tensor in like]
    sizes = [_room(tensor) for tensor in like]
    memory = like[0].new_zeros(sum(sizes))
    places = zip(memory.split(sizes), like, strict=True)
    return [place[: tensor.numel()].view(tensor.shape) for place, tensor in places]


def as_one(tensors: Sequence[Tensor]) -> Tensor | None:
    """The memory (elements,) of tensors that ``laid_out`` gave, in its order; None for others.

    Between them there is what operations on all have made of zeros.

    Example:
        >>> as_one(laid_out([torch.ones(3), torch.ones(2)])).shape
        torch.Size([256])
        >>> as_one([torch.ones(3), torch.ones(2)]) is None
        True
    """
    first = tensors[0].detach()
    storage, place = first.untyped_storage(), first.data_ptr()
    if place != storage.data_ptr():
        return None
    for tensor in tensors:
        if tensor.data_ptr() != place or tensor.dtype != first.dtype or not tensor.is_contiguous():
            return None
        place += _room(tensor) * first.element_size()
    elements = (place - first.data_ptr()) // first.element_size()
    if storage.nbytes() != elements * first.element_size():
        return None
    return first.as_strided((elements,), (1,))


def _room(tensor: Tensor) -> int:
    """Elements up to the next start."""
    step = ALIGNMENT // tensor.element_size()
    return -(-tensor.numel() // step) * step
