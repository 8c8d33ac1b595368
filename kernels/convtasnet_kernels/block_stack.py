"""Blocks in a row as one PyTorch operator with autograd.

Residual and skip sums are one map (B, R + S, F), to which each block's last product is added in
place; ``block_outer_biases.py`` says where the biases are. Kept for backward are each block's
input, its two maps before the PReLUs and the norms' statistics; the normalized maps are computed
again. Opaque to torch.compile; the backend travels as an argument, as in ``cumulative_op.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from convtasnet_kernels import backend
from convtasnet_kernels.block_outer_biases import first_biases, missing_biases
from convtasnet_kernels.block_parameters import BlockParameters, cast_weights, in_blocks
from convtasnet_kernels.block_products import add_product, product
from convtasnet_kernels.block_stack_backward import other_sizes, stack_backward
from convtasnet_kernels.pointwise import statistics_dtype


@torch.library.custom_op("convtasnet::blocks", mutates_args=())
def blocks(
    x: Tensor,
    skips: Tensor | None,
    parameters: Sequence[Tensor],
    prelu: Tensor | None,
    bias: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    residual: bool,
    eps: float,
    keep: bool,
    wish: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Arguments as in ``tcn_blocks``, rows of whole vectors, parameters in a row.

    Returns:
        The residual and the skip sum, empty where there is none; and, to ``keep`` for backward,
        ``missing_biases``, ``first_biases``, the map (B, R + S, F) of both sums without their
        biases, empty unless there is a prelu, the input (B, R, F) of each block but the first, and
        of each block its map (B, H, F) before the first PReLU, without the bias, that before the
        second, and the statistics (2, B, F) of both norms.
    """
    path = backend.module("tcn_blocks", wish, x, "block_torch", "block_forward")
    stack, R = cast_weights(in_blocks(parameters), x.dtype), x.shape[1]
    outer = _outer_channels(x, stack, residual)
    inputs: list[Tensor] = []
    maps: list[Tensor] = []
    with torch.autocast(x.device.type, enabled=False):
        missing = missing_biases(stack, outer, statistics_dtype(x), bias)
        biases = first_biases(stack, missing)
        total = path.joined_rows(x, skips, x, outer)
        spaces = path.workspaces(x, kind, 2 * len(stack))
        for i, p in enumerate(stack):
            seen = x if i == 0 else path.taken_rows(total, 0, R) if keep else total[:, :R]
            z, found = _inner(
                path, p, biases[i], seen, lengths, kind, dilations[i], causal, eps,
                spaces[2 * i : 2 * i + 2],
            )  # fmt: skip
            add_product(total[:, outer - len(p.weight_out) :], p.weight_out, z)
            if keep:
                inputs.append(seen)
                maps += found
        first, second = missing[-1].split([R, outer - R])
        onward, skips = x.new_empty((0,)), x.new_empty((0,))
        if residual:
            onward = path.taken_rows(total, 0, R, first, None if outer > R else prelu)
        if outer > R:
            skips = path.taken_rows(total, R, outer - R, second, prelu)
    if not keep:
        return onward, skips, []
    before = x.new_empty((0,)) if prelu is None else total
    return onward, skips, [missing, biases, before, *inputs[1:], *maps]


def _inner(
    path: ModuleType,
    p: BlockParameters,
    bias: Tensor,
    x: Tensor,
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    eps: float,
    spaces: Sequence[Tensor | None],
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What the last product takes, and what a block keeps."""
    channels = len(p.gamma_1)
    u1 = product(p.weight_in, x)
    sums = path.frame_sums(u1, p.slope_1, bias)
    stats1 = path.statistics(sums, channels, kind, lengths, eps, spaces[0])
    u2, sums = path.depthwise_norm(
        u1, p.slope_1, p.gamma_1, p.beta_1, stats1,
        p.taps, p.bias_taps, dilation, causal, p.slope_2, bias,
    )  # fmt: skip
    stats2 = path.statistics(sums, channels, kind, lengths, eps, spaces[1])
    z = path.normalize(u2, p.slope_2, p.gamma_2, p.beta_2, stats2)
    return z, (u1, u2, stats1, stats2)


def _outer_channels(x: Tensor, stack: Sequence[BlockParameters], residual: bool) -> int:
    """R + S, which the last block's last product has as rows, but for a residual that it lacks."""
    return len(stack[-1].bias_out) + (0 if residual else x.shape[1])


@blocks.register_fake
def _(
    x: Tensor,
    skips: Tensor | None,
    parameters: Sequence[Tensor],
    prelu: Tensor | None,
    bias: Tensor | None,
    lengths: Tensor | None,
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    residual: bool,
    eps: float,
    keep: bool,
    wish: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    items, R, frames = x.shape
    stack = in_blocks(parameters)
    n, outer, inner = len(stack), _outer_channels(x, stack, residual), len(stack[0].gamma_1)
    onward = x.new_empty(x.shape) if residual else x.new_empty((0,))
    total = x.new_empty((items, outer - R, frames)) if outer > R else x.new_empty((0,))
    kept = []
    if keep:
        dtype = statistics_dtype(x)
        kept = [x.new_empty((n + 1, outer), dtype=dtype), x.new_empty((n, inner), dtype=dtype)]
        kept.append(x.new_empty((0,) if prelu is None else (items, outer, frames)))
        kept += [x.new_empty(x.shape) for _ in range(n - 1)]
        for _ in range(n):
            kept += [x.new_empty((items, inner, frames)) for _ in range(2)]
            kept += [x.new_empty((2, items, frames), dtype=dtype) for _ in range(2)]
    return onward, total, kept


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, skips, parameters, prelu, bias, lengths, *others = inputs
    ctx.kind, ctx.dilations, ctx.causal, ctx.residual, *_ = others
    *_, keep, ctx.wish = inputs
    *_, kept = output
    if not keep:
        raise ValueError("gradients need a call that keeps what they are made of")
    ctx.has_skips, ctx.count = skips is not None, len(parameters)
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, prelu, bias, lengths, *parameters, *kept)


def _gradients(
    ctx: Any, d_onward: Tensor | None, d_skips: Tensor | None, *_: None
) -> tuple[Any, ...]:
    x, prelu, bias, lengths, *others = ctx.saved_tensors
    parameters, kept = others[: ctx.count], others[ctx.count :]
    stack, rest = in_blocks(parameters), (None,) * 8
    if d_onward is None and d_skips is None:
        return (None, None, [None] * ctx.count, None, None, *rest)
    dx, d_total, d_prelu, weights_in, biases, weights_out, flat = stack_backward(
        d_onward if ctx.residual else None, d_skips, x, kept, parameters, prelu, lengths,
        ctx.kind, ctx.dilations, ctx.causal, ctx.wish,
    )  # fmt: skip
    found: list[Tensor] = []
    for p, *each in zip(stack, weights_in, biases[1:], weights_out, flat, strict=True):
        grads = _block_gradients(p, *each)
        found += [grad.to(value.dtype) for grad, value in zip(grads, p, strict=True)]
    d_skips = d_total[:, x.shape[1] :] if ctx.has_skips else None
    d_prelu, d_bias = (
        None if value is None else grad.to(value.dtype)
        for grad, value in ((d_prelu, prelu), (biases[0, : x.shape[1]], bias))
    )
    return (dx, d_skips, found, d_prelu, d_bias, *rest)


def _block_gradients(
    p: BlockParameters, weight_in: Tensor, bias_out: Tensor, weight_out: Tensor, flat: Tensor
) -> BlockParameters:
    gamma_1, beta_1, bias_in, gamma_2, beta_2, bias_taps, taps, slope_1, slope_2 = flat.split(
        other_sizes(p)
    )
    return BlockParameters(
        weight_in, bias_in, slope_1, gamma_1, beta_1,
        taps.view(p.taps.shape), bias_taps, slope_2, gamma_2, beta_2,
        weight_out, bias_out[len(bias_out) - len(p.bias_out) :],
    )  # fmt: skip


blocks.register_autograd(_gradients, setup_context=_setup_context)
