"""The blocks of the separator as one operator, as functions.

What they run is ``block_stack.py``; what runs where says ``backend.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import backend
from convtasnet_kernels.block_parameters import BlockParameters, check_stack
from convtasnet_kernels.block_stack import blocks
from convtasnet_kernels.checks import check_lengths, check_tensor


def tcn_blocks(
    x: Tensor,
    skips: Tensor | None,
    parameters: Sequence[BlockParameters],
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    residual: bool = True,
    eps: float = 1e-8,
    lengths: Tensor | None = None,
    prelu: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Dilated blocks of Conv-TasNet in a row, with their residual and skip sums.

    Each is 1×1 convolution, PReLU, norm, depthwise convolution, PReLU, norm, 1×1 convolution (Luo
    and Mesgarani, 2019, arXiv:1809.07454, figure 1C). Under autocast the maps have its dtype, the
    statistics and sums float32.

    Args:
        x: (B, B', F) float16, bfloat16, float32 or float64.
        skips: (B, S, F) sum of the skips so far, or None where there are none yet.
        parameters: of each block, see ``BlockParameters``.
        kind: of all norms: "cumulative", "global" or "channelwise".
        dilations: of each block, frames between two taps, at least 1.
        causal: whether the taps reach back only.
        residual: whether the last convolution of the last block has residual rows.
        eps: added to the variances, inside the roots.
        lengths: (B,) integers, valid frames of each item, or None for all. Frames beyond them must
            be finite; they have no influence on the others, and behind the norms count as zero.
        prelu: slope (1,) of a PReLU behind the skip sum, or, where S is 0, behind the residual sum;
            None for no PReLU.
        bias: (B',) still to be added to x, or None.

    Returns:
        x + bias + all residuals (B, B', F), or None without the last one; skips + all skips
        (B, S, F), or None where S is 0; one of them behind the PReLU.

    Raises:
        ValueError: an argument of another shape or dtype, or a backend that cannot run.

    >>> def draw(*sizes):
    ...     return [torch.randn(size) for size in sizes]
    >>> inner = draw((6, 4, 1), 6, 1, 6, 6, (6, 1, 3), 6, 1, 6, 6)
    >>> stack = [BlockParameters(*inner, *draw((4 + 2, 6, 1), 4 + 2)) for _ in range(3)]
    >>> x, skips = tcn_blocks(torch.randn(2, 4, 16), None, stack, "global", (1, 2, 4), causal=False)
    >>> x.shape, skips.shape
    (torch.Size([2, 4, 16]), torch.Size([2, 2, 16]))
    """
    check_tensor("x", x)
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    check_stack(x, skips, parameters, kind, dilations, causal, residual, eps, prelu, bias)
    if lengths is not None:
        check_lengths(lengths, x)
        lengths = lengths.to(x.device, torch.int64, non_blocking=True)
    frames = x.shape[2]
    padding = -frames % (16 // x.element_size())
    if padding:  # rows are whole vectors of 16 bytes
        lengths = x.new_full((len(x),), frames, dtype=torch.int64) if lengths is None else lengths
        x = F.pad(x, (0, padding))
    if skips is not None:
        skips = F.pad(skips.to(x.dtype), (0, padding)) if padding else skips.to(x.dtype)
    given = [value for p in parameters for value in p]
    leaves = [leaf for leaf in (x, skips, prelu, bias, *given) if leaf is not None]
    keep = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves)
    onward, total, _ = blocks(
        x, skips, given, prelu, bias, lengths, kind, dilations, causal, residual, eps, keep,
        backend.requested(),
    )  # fmt: skip
    return (
        onward[..., :frames] if residual else None,
        total[..., :frames] if total.dim() == 3 else None,
    )


def tcn_block(
    x: Tensor,
    skips: Tensor | None,
    parameters: BlockParameters,
    kind: str,
    dilation: int,
    causal: bool,
    residual: bool = True,
    eps: float = 1e-8,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """One of ``tcn_blocks``, which share what they add to; without a residual x is itself.

    >>> parameters = BlockParameters(
    ...     torch.randn(6, 4, 1), *(torch.randn(n) for n in (6, 1, 6, 6)),
    ...     torch.randn(6, 1, 3), *(torch.randn(n) for n in (6, 1, 6, 6)),
    ...     torch.randn(2, 6, 1), torch.randn(2),
    ... )
    >>> x = torch.randn(2, 4, 16)
    >>> onward, skips = tcn_block(x, None, parameters, "global", 2, causal=False, residual=False)
    >>> onward is x, skips.shape
    (True, torch.Size([2, 2, 16]))
    """
    onward, skips = tcn_blocks(
        x, skips, [parameters], kind, [dilation], causal, residual, eps, lengths
    )
    return x if onward is None else onward, skips
