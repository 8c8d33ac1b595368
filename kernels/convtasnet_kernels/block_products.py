"""The 1×1 convolutions of a fused block and their gradients, as products of PyTorch.

Maps are (B, C, F), weights (O, C, 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def product(weight: Tensor, x: Tensor) -> Tensor:
    """weight·x for each item, (B, O, F); x may be the first channels of a larger map."""
    if not x.is_contiguous() and _has_one_precision(x):  # a convolution would copy it
        return torch.bmm(weight[:, :, 0].expand(len(x), -1, -1), x)
    return F.conv1d(x, weight).contiguous()


def add_product(total: Tensor, weight: Tensor, x: Tensor) -> None:
    """Adds weight·x to total (B, O, F) in place; both may be channels of a larger map."""
    if _has_one_precision(x):
        total.baddbmm_(weight[:, :, 0].expand(len(x), -1, -1), x)
    else:
        total += F.conv1d(x, weight)


def input_gradient(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """That of the input x of weight·x."""
    return _gradients(dy, x, weight, (True, False))[0].contiguous()


def weight_gradient(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """That of the weight of weight·x."""
    return _gradients(dy, x, weight, (False, True))[1].contiguous()


def _gradients(
    dy: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    gradients = torch.ops.aten.convolution_backward(
        dy,
        x,
        weight,
        None,  # no bias
        [1],  # stride
        [0],  # padding
        [1],  # dilation
        False,  # not transposed
        [0],  # output padding
        1,  # groups
        [*wanted, False],
    )
    return gradients[0], gradients[1]


def _has_one_precision(x: Tensor) -> bool:
    """Whether a matrix product of x rounds as a convolution does.

    On a GPU, float32 convolutions use TF32 unless told otherwise, matrix products do not.
    """
    if x.dtype != torch.float32 or not x.is_cuda:
        return True
    backends: Any = torch.backends
    precisions = (backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision)
    return len({precision == "tf32" for precision in precisions}) == 1
