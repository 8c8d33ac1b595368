"""The gradients of blocks in a row, as one PyTorch operator.

The gradient of the map beside the blocks is one map (B, R + S, F), too: what the skips' rows hold
is the same for all blocks, and each block's first product is added to the residual's rows in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.block_outer_biases import add_missing_inputs, outer_bias_gradients
from convtasnet_kernels.block_parameters import BlockParameters, cast_weights, in_blocks
from convtasnet_kernels.block_products import add_product, input_gradient, weight_gradient


class Kept(NamedTuple):
    """What a block keeps for backward.

    Args:
        x: (B, R, F) its input, without the biases that the outer map lacks.
        bias: (H,) to be added to u1.
        u1: (B, H, F) before the first PReLU.
        u2: (B, H, F) before the second.
        stats1: (2, B, F) of the first norm.
        stats2: (2, B, F) of the second.
    """

    x: Tensor
    bias: Tensor
    u1: Tensor
    u2: Tensor
    stats1: Tensor
    stats2: Tensor


def kept_by_blocks(x: Tensor, kept: Sequence[Tensor]) -> list[Kept]:
    """What each block keeps, of what ``blocks`` of x gave."""
    _, biases, _, *others = kept
    n = len(biases)
    inputs, maps = [x, *others[: n - 1]], others[n - 1 :]
    return [
        Kept(seen, bias, *maps[4 * i : 4 * i + 4])
        for i, (seen, bias) in enumerate(zip(inputs, biases, strict=True))
    ]


@torch.library.custom_op("convtasnet::blocks_backward", mutates_args=())
def stack_backward(
    d_onward: Tensor | None,
    d_skips: Tensor | None,
    x: Tensor,
    kept: Sequence[Tensor],
    parameters: Sequence[Tensor],
    prelu: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Gradients of n ``blocks``.

    Args:
        d_onward: (B, R, F) of the residual sum, or None where there is none or it is not used.
        d_skips: (B, S, F) of the skip sum, or None likewise.
        x: as in ``blocks``, and so ``parameters`` and all that follows.
        kept: what ``blocks`` gave.
        parameters: see x.
        prelu: see x.
        lengths: see x.
        kind: see x.
        dilations: see x.
        causal: see x.
        wish: see x.

    Returns:
        The gradients of x, of what runs beside the blocks in front of them (B, R + S, F), of prelu,
        empty without one, of all weight_in (n, H, R, 1), of bias and all bias_out (n + 1, R + S),
        rows that they lack included, and of each weight_out; of each block all others as
        ``parameter_gradients`` gives them.
    """
    path = backend.module("tcn_blocks", wish, x, "block_backward_torch", "block_backward")
    stack, R, missing = cast_weights(in_blocks(parameters), x.dtype), x.shape[1], kept[0]
    weights_in, weights_out, others = [], [], []
    with torch.autocast(x.device.type, enabled=False):
        behind = (None,) * 3 if prelu is None else (kept[2], missing[-1], prelu)
        total, d_outer, d_prelu = path.joined_gradients(
            d_onward, d_skips, x, missing.shape[1], *behind
        )
        spaces = path.workspaces(x, kind, 2 * len(stack))
        for i, (p, k, dilation) in reversed(
            [*enumerate(zip(stack, kept_by_blocks(x, kept), dilations, strict=True))]
        ):
            dy = total[:, missing.shape[1] - len(p.weight_out) :]
            du, weight_out, rest = _inner(
                path, p, k, dy, lengths, kind, dilation, causal, spaces[2 * i : 2 * i + 2]
            )
            weights_in.append(weight_gradient(du, k.x, p.weight_in))
            add_product(total[:, :R], p.weight_in.transpose(0, 1), du)
            weights_out.append(weight_out)
            others.append(rest)
        inner = len(stack[0].gamma_1)
        d_first = torch.stack([each[2 * inner : 3 * inner] for each in others[::-1]])
        d_weights = torch.stack(weights_in[::-1])
        add_missing_inputs(d_weights, d_first, missing)
        biases = outer_bias_gradients(stack, d_first, d_outer)
    dx = path.taken_rows(total, 0, R)
    return dx, total, d_prelu, d_weights, biases, weights_out[::-1], others[::-1]


def _inner(
    path: ModuleType,
    p: BlockParameters,
    k: Kept,
    dy: Tensor,
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    spaces: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of u1, of weight_out and, as ``parameter_gradients``, of what is between."""
    channels = len(p.gamma_1)
    norm1 = (k.u1, p.slope_1, p.gamma_1, p.beta_1, k.stats1)
    norm2 = (k.u2, p.slope_2, p.gamma_2, p.beta_2, k.stats2)
    dz = input_gradient(dy, k.u2, p.weight_out)
    sums = path.norm_gradient_sums(dz, k.u2, p.slope_2, p.gamma_2, k.stats2, lengths)
    coefficients = path.gradient_statistics(sums, k.stats2, kind, lengths, channels, spaces[1])
    du, z, rows2 = path.norm_gradient(dz, *norm2, coefficients, lengths, needs_z=True)
    d_weight_out = weight_gradient(dy, z, p.weight_out)
    dz, taps_rows, sums = path.depthwise_gradient(
        du, *norm1, p.taps, dilation, causal, lengths, k.bias
    )
    coefficients = path.gradient_statistics(sums, k.stats1, kind, lengths, channels, spaces[0])
    du, _, rows1 = path.norm_gradient(dz, *norm1, coefficients, lengths, needs_z=False, bias=k.bias)
    return du, d_weight_out, path.parameter_gradients(rows1, taps_rows, rows2)


@stack_backward.register_fake
def _(
    d_onward: Tensor | None,
    d_skips: Tensor | None,
    x: Tensor,
    kept: Sequence[Tensor],
    parameters: Sequence[Tensor],
    prelu: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    stack, missing = in_blocks(parameters), kept[0]
    return (
        x.new_empty(x.shape),
        x.new_empty((len(x), missing.shape[1], x.shape[2])),
        missing.new_empty((0 if prelu is None else 1,)),
        x.new_empty((len(stack), *stack[0].weight_in.shape)),
        missing.new_empty(missing.shape),
        [x.new_empty(p.weight_out.shape) for p in stack],
        [missing.new_empty((sum(other_sizes(p)),)) for p in stack],
    )


def other_sizes(p: BlockParameters) -> list[int]:
    """Elements of the parts of ``parameter_gradients``."""
    return [*[len(p.gamma_1)] * 6, p.taps.numel(), 1, 1]
