"""A whole block of the separator as one PyTorch operator with autograd, and its public function.

What is kept for backward are the block's input, its two maps before the PReLUs and the norms'
statistics; the normalized maps are computed again. Opaque to torch.compile; the backend travels as
an argument, as in ``cumulative_op.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import backend
from convtasnet_kernels.block_parameters import BlockParameters, check_block
from convtasnet_kernels.checks import check_lengths
from convtasnet_kernels.pointwise import statistics_dtype


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
    """One dilated block of Conv-TasNet with its residual and skip sums.

    1×1 convolution, PReLU, norm, depthwise convolution, PReLU, norm, 1×1 convolution (Luo and
    Mesgarani, 2019, arXiv:1809.07454, figure 1C). Under autocast the maps have its dtype, the
    statistics and sums float32.

    Args:
        x: (B, B', F) float16, bfloat16, float32 or float64.
        skips: (B, S, F) sum of the skips so far, or None where there are none yet.
        parameters: see ``BlockParameters``.
        kind: of both norms: "cumulative", "global" or "channelwise".
        dilation: frames between two taps, at least 1.
        causal: whether the taps reach back only.
        residual: whether the last convolution has residual rows.
        eps: added to the variances, inside the roots.
        lengths: (B,) integers, valid frames of each item, or None for all. Frames beyond them must
            be finite; they have no influence on the others, and behind the norms count as zero.

    Returns:
        x + residual (B, B', F), or x itself without a residual; skips + skip (B, S, F), or None
        where S is 0.

    Raises:
        ValueError: an argument of another shape or dtype, or a backend that cannot run.

    >>> parameters = BlockParameters(
    ...     torch.randn(6, 4, 1), *(torch.randn(n) for n in (6, 1, 6, 6)),
    ...     torch.randn(6, 1, 3), *(torch.randn(n) for n in (6, 1, 6, 6)),
    ...     torch.randn(4 + 2, 6, 1), torch.randn(4 + 2),
    ... )
    >>> x, skips = tcn_block(torch.randn(2, 4, 16), None, parameters, "global", 2, causal=False)
    >>> x.shape, skips.shape
    (torch.Size([2, 4, 16]), torch.Size([2, 2, 16]))
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    check_block(x, skips, parameters, kind, dilation, residual)
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
    onward, total, *_ = block(
        x, skips, [*parameters.at(x.dtype)], lengths, kind, dilation, causal, residual, eps,
        backend.requested(),
    )  # fmt: skip
    onward = onward if residual else x
    return onward[..., :frames], total[..., :frames] if total.dim() == 3 else None


def runs_in_triton(x: Tensor) -> bool:
    """Whether ``tcn_block`` of x would run in Triton kernels; compiled functions keep the answer.

    >>> runs_in_triton(torch.zeros(1, 2, 8, dtype=torch.float64))
    False
    """
    return backend.runs_in_triton("tcn_block", x)


@torch.library.custom_op("convtasnet::block", mutates_args=())
def block(
    x: Tensor,
    skips: Tensor | None,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    residual: bool,
    eps: float,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Arguments as in ``tcn_block``, rows of whole vectors, ``BlockParameters.at(x.dtype)``.

    Returns:
        The residual and the skip sum, empty where there is none; the maps (B, H, F) before the
        first PReLU, without bias_in, and before the second; the statistics (2, B, F) of the first
        and the second norm.
    """
    path = backend.module("tcn_block", wish, x, "block_torch", "block_forward")
    p = BlockParameters(*parameters)
    with torch.autocast(x.device.type, enabled=False):
        u1 = F.conv1d(x, p.weight_in).contiguous()
        sums = path.frame_sums(u1, p.slope_1, p.bias_in)
        stats1 = path.statistics(sums, u1, p.slope_1, kind, lengths, eps, p.bias_in)
        u2, sums = path.depthwise_norm(
            u1, p.slope_1, p.gamma_1, p.beta_1, stats1,
            p.taps, p.bias_taps, dilation, causal, lengths, p.slope_2, p.bias_in,
        )  # fmt: skip
        stats2 = path.statistics(sums, u2, p.slope_2, kind, lengths, eps)
        z2 = path.normalize(u2, p.slope_2, p.gamma_2, p.beta_2, stats2, lengths)
        y = F.conv1d(z2, p.weight_out).contiguous()
        onward, skips = path.add_outputs(y, p.bias_out, x, skips, residual)
    return onward, skips, u1, u2, stats1, stats2


@block.register_fake
def _(
    x: Tensor,
    skips: Tensor | None,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    residual: bool,
    eps: float,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    items, outer, frames = x.shape
    p = BlockParameters(*parameters)
    skip = p.bias_out.shape[0] - (outer if residual else 0)
    u = x.new_empty((items, p.gamma_1.shape[0], frames))
    stats = x.new_empty((2, items, frames), dtype=statistics_dtype(x))
    return (
        x.new_empty(x.shape) if residual else x.new_empty((0,)),
        x.new_empty((items, skip, frames)) if skip else x.new_empty((0,)),
        u,
        torch.empty_like(u),
        stats,
        torch.empty_like(stats),
    )


@torch.library.custom_op("convtasnet::block_backward", mutates_args=())
def block_backward(
    d_onward: Tensor | None,
    d_skips: Tensor | None,
    x: Tensor,
    u1: Tensor,
    u2: Tensor,
    stats1: Tensor,
    stats2: Tensor,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``block``.

    Args:
        d_onward: (B, B', F) of the residual sum, or None where there is no residual.
        d_skips: (B, S, F) of the skip sum, or None where there is none.
        x: as in ``block``, and so ``parameters`` and all that follows.
        u1: what ``block`` gave, and so ``u2``, ``stats1`` and ``stats2``.
        u2: see u1.
        stats1: see u1.
        stats2: see u1.
        parameters: see x.
        lengths: see x.
        kind: see x.
        dilation: see x.
        causal: see x.
        wish: see x.

    Returns:
        The gradients of x, weight_in and weight_out; all others as ``parameter_gradients`` gives
        them.
    """
    path = backend.module("tcn_block", wish, x, "block_backward_torch", "block_backward")
    p = BlockParameters(*parameters)
    with torch.autocast(x.device.type, enabled=False):
        dy, bias_rows = path.join_gradients(d_onward, d_skips)
        norm1 = (u1, p.slope_1, p.gamma_1, p.beta_1, stats1)
        norm2 = (u2, p.slope_2, p.gamma_2, p.beta_2, stats2)
        dz = _input_gradient(dy, u2, p.weight_out)
        sums = path.norm_gradient_sums(dz, u2, p.slope_2, p.gamma_2, stats2, lengths)
        coefficients = path.gradient_statistics(sums, stats2, kind, lengths, u2.shape[1])
        du, z, rows2 = path.norm_gradient(dz, *norm2, coefficients, lengths, needs_z=True)
        d_weight_out = _weight_gradient(dy, z, p.weight_out)
        dz, taps_rows, sums = path.depthwise_gradient(
            du, *norm1, p.taps, dilation, causal, lengths, p.bias_in
        )
        coefficients = path.gradient_statistics(sums, stats1, kind, lengths, u1.shape[1])
        du, _, rows1 = path.norm_gradient(
            dz, *norm1, coefficients, lengths, needs_z=False, bias=p.bias_in
        )
        d_weight_in = _weight_gradient(du, x, p.weight_in)
        dx = _input_gradient(du, x, p.weight_in)
        if d_onward is not None:
            dx += d_onward
        others = path.parameter_gradients(rows1, taps_rows, rows2, bias_rows)
    return dx, d_weight_in, d_weight_out, others


def _input_gradient(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """That of the 1×1 convolution's input x."""
    return _convolution_gradients(dy, x, weight, (True, False))[0].contiguous()


def _weight_gradient(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return _convolution_gradients(dy, x, weight, (False, True))[1].contiguous()


def _convolution_gradients(
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


@block_backward.register_fake
def _(
    d_onward: Tensor | None,
    d_skips: Tensor | None,
    x: Tensor,
    u1: Tensor,
    u2: Tensor,
    stats1: Tensor,
    stats2: Tensor,
    parameters: Sequence[Tensor],
    lengths: Tensor | None,
    kind: str,
    dilation: int,
    causal: bool,
    wish: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p = BlockParameters(*parameters)
    return (
        x.new_empty(x.shape),
        torch.empty_like(p.weight_in),
        torch.empty_like(p.weight_out),
        stats1.new_empty((sum(_other_sizes(p)),)),
    )


def _other_sizes(p: BlockParameters) -> list[int]:
    """Elements of the parts of ``parameter_gradients``."""
    inner = len(p.gamma_1)
    return [*[inner] * 6, p.taps.numel(), len(p.bias_out), 1, 1]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, skips, parameters, lengths, ctx.kind, ctx.dilation, ctx.causal, ctx.residual, _, ctx.wish = (
        inputs
    )
    ctx.has_skips = skips is not None
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, *output[2:], lengths, *parameters)


def _gradients(
    ctx: Any, d_onward: Tensor | None, d_skips: Tensor | None, *_: None
) -> tuple[Any, ...]:
    x, u1, u2, stats1, stats2, lengths, *parameters = ctx.saved_tensors
    p = BlockParameters(*parameters)
    skip = p.bias_out.shape[0] - (x.shape[1] if ctx.residual else 0)
    rest = (None,) * 7
    if d_onward is None and d_skips is None:
        return (None, None, [None] * len(p), *rest)
    if ctx.residual and d_onward is None:
        d_onward = torch.zeros_like(x)
    if skip and d_skips is None:
        d_skips = x.new_zeros((x.shape[0], skip, x.shape[2]))
    dx, weight_in, weight_out, others = block_backward(
        d_onward if ctx.residual else None, d_skips if skip else None,
        x, u1, u2, stats1, stats2, parameters, lengths,
        ctx.kind, ctx.dilation, ctx.causal, ctx.wish,
    )  # fmt: skip
    gamma_1, beta_1, bias_in, gamma_2, beta_2, bias_taps, taps, bias_out, slope_1, slope_2 = (
        others.split(_other_sizes(p))
    )
    grads = BlockParameters(
        weight_in, bias_in, slope_1, gamma_1, beta_1,
        taps.view(p.taps.shape), bias_taps, slope_2, gamma_2, beta_2,
        weight_out, bias_out,
    )  # fmt: skip
    typed = [grad.to(value.dtype) for grad, value in zip(grads, p, strict=True)]
    return (dx, d_skips if ctx.has_skips else None, typed, *rest)


block.register_autograd(_gradients, setup_context=_setup_context)
