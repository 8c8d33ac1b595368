"""The biases of convolutions whose outputs run beside the blocks, where nobody adds them.

Those are the blocks' last ones, and one in front of all blocks. What runs beside the blocks,
residual and skip sums (B, R + S, F), lacks all of these biases until the end: what block i reads of
it lacks ``missing[i]``, which its own first bias makes up for. All of it are a few small operators
for a whole stack, none of which passes over a map.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels.block_parameters import BlockParameters


def missing_biases(
    stack: Sequence[BlockParameters], outer: int, dtype: torch.dtype, bias: Tensor | None
) -> Tensor:
    """What the outer map lacks in front of each block and behind the last, (n + 1, R + S).

    Args:
        stack: of n blocks; the last may lack the residual rows.
        outer: R + S.
        dtype: of the sums.
        bias: (R,) that the residual sum lacks from the beginning, or None.
    """
    *others, last = [p.bias_out for p in stack]
    if len(last) < outer:  # a padding by nothing would be a copy
        last = F.pad(last, (outer - len(last), 0))
    biases = torch.stack([*others, last]).to(dtype)
    before = torch.ones(len(stack) + 1, len(stack), device=biases.device, dtype=dtype).tril(-1)
    # A sum over a mask, as cumsum has no fixed order on a GPU.
    missing = (before[:, :, None] * biases).sum(1)
    if bias is not None:
        missing[:, : len(bias)] += bias
    return missing


def first_biases(stack: Sequence[BlockParameters], missing: Tensor) -> Tensor:
    """bias_in of each block with its part of what the residual sum lacks, (n, H)."""
    weights = torch.stack([p.weight_in[:, :, 0] for p in stack])
    residual = missing[:-1, None, : weights.shape[2]]
    return torch.stack([p.bias_in for p in stack]).to(missing.dtype) + (weights * residual).sum(2)


def outer_bias_gradients(
    stack: Sequence[BlockParameters], d_first: Tensor, d_outer: Tensor
) -> Tensor:
    """Gradients of the bias in front and of the blocks' last biases, (n + 1, R + S).

    Args:
        stack: of n blocks, as in ``missing_biases``.
        d_first: (n, H) of ``first_biases``.
        d_outer: (R + S,) of what the last row of ``missing_biases`` is added to, summed over items
            and frames.
    """
    weights = torch.stack([p.weight_in[:, :, 0] for p in stack])
    n = len(stack)
    later = torch.ones(n + 1, n, device=d_first.device, dtype=d_first.dtype).triu()
    through = (later[:, :, None] * (weights * d_first[:, :, None]).sum(1)).sum(1)
    gradients = d_outer.repeat(n + 1, 1)
    gradients[:, : through.shape[1]] += through
    return gradients


def add_missing_inputs(d_weights: Tensor, d_first: Tensor, missing: Tensor) -> None:
    """Adds to gradients of weight_in (n, H, R, 1), in place, what the maps that they saw lacked."""
    residual = missing[:-1, None, : d_weights.shape[2], None]
    d_weights.addcmul_(d_first[:, :, None, None], residual)
