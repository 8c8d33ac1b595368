"""The parameters of a fused block, and the checks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from convtasnet_kernels.checks import (
    DTYPES,
    check_eps,
    check_parameter,
    check_taps,
    check_tensor,
)

KINDS = ("cumulative", "global", "channelwise")


class BlockParameters(NamedTuple):
    """The parameters of a block of H channels inside, between B' channels outside.

    Args:
        weight_in: (H, B', 1) of the first 1×1 convolution.
        bias_in: (H,).
        slope_1: (1,) of the PReLU behind it.
        gamma_1: (H,) of the norm behind that.
        beta_1: (H,).
        taps: (H, 1, P) of the depthwise convolution.
        bias_taps: (H,).
        slope_2: (1,) of the PReLU behind it.
        gamma_2: (H,) of the norm behind that.
        beta_2: (H,).
        weight_out: (B' + S, H, 1) of the last 1×1 convolution, residual rows, then S skip rows;
            without a residual S rows.
        bias_out: (B' + S,) or (S,).
    """

    weight_in: Tensor
    bias_in: Tensor
    slope_1: Tensor
    gamma_1: Tensor
    beta_1: Tensor
    taps: Tensor
    bias_taps: Tensor
    slope_2: Tensor
    gamma_2: Tensor
    beta_2: Tensor
    weight_out: Tensor
    bias_out: Tensor


def in_blocks(parameters: Sequence[Tensor]) -> list[BlockParameters]:
    """Those of each block, out of those of all in a row."""
    n = len(BlockParameters._fields)
    return [BlockParameters(*parameters[i : i + n]) for i in range(0, len(parameters), n)]


def cast_weights(stack: list[BlockParameters], dtype: torch.dtype) -> list[BlockParameters]:
    """The same with the products' weights in the dtype of the maps, all cast in one launch."""
    weights = [weight for p in stack for weight in (p.weight_in, p.weight_out)]
    if all(weight.dtype == dtype for weight in weights):
        return stack
    cast = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(cast, weights)
    return [
        p._replace(weight_in=weight_in, weight_out=weight_out)
        for p, weight_in, weight_out in zip(stack, cast[::2], cast[1::2], strict=True)
    ]


def check_stack(
    x: Tensor,
    skips: Tensor | None,
    stack: Sequence[BlockParameters],
    kind: str,
    dilations: Sequence[int],
    causal: bool,
    residual: bool,
    eps: float,
    prelu: Tensor | None,
    bias: Tensor | None,
) -> None:
    """Raises a ValueError that names the argument of ``tcn_blocks`` that does not fit."""
    if x.dim() != 3 or x.dtype not in DTYPES or 0 in x.shape[1:]:
        raise ValueError(
            f"x must be a floating (batch, channels, frames), got {tuple(x.shape)} of {x.dtype}"
        )
    check_eps(eps)
    check_parameter("prelu", prelu, 1, x)
    check_parameter("bias", bias, x.shape[1], x)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not isinstance(stack, Sequence) or not isinstance(dilations, Sequence):
        kinds = f"{type(stack).__name__} and {type(dilations).__name__}"
        raise ValueError(f"parameters and dilations must be those of each block, got {kinds}")
    if not stack or len(dilations) != len(stack):
        raise ValueError(f"{len(stack)} blocks need as many dilations, got {len(dilations)}")
    for dilation in dilations:
        check_taps(dilation, causal)
    for p in stack:
        _check_tensors(p)
    outer, inner = x.shape[1], stack[0].gamma_1.numel()
    out = stack[-1].bias_out.numel()
    skip = out - outer if residual else out
    _check_skips(skips, x, skip, out)
    for p in stack[:-1]:
        _check_block(p, x, inner, outer + skip)
    _check_block(stack[-1], x, inner, out)


def _check_tensors(p: BlockParameters) -> None:
    if not isinstance(p, BlockParameters):
        raise ValueError(f"parameters must be BlockParameters, got {type(p).__name__}")
    for name, value in zip(BlockParameters._fields, p, strict=True):
        check_tensor(name, value)


def _check_skips(skips: Tensor | None, x: Tensor, skip: int, out: int) -> None:
    items, _, frames = x.shape
    if skips is not None:
        check_tensor("skips", skips)
    if skip < 0 or (skips is not None and skips.shape != (items, skip, frames)):
        raise ValueError(
            f"weight_out has {out} rows, so that skips must be {(items, skip, frames)}, "
            f"got {None if skips is None else tuple(skips.shape)}"
        )
    if skips is not None and (skips.dtype not in DTYPES or skips.device != x.device):
        raise ValueError(
            f"skips must be floating and on {x.device}, got {skips.dtype} on {skips.device}"
        )


def _check_block(p: BlockParameters, x: Tensor, inner: int, out: int) -> None:
    vector, one, taps = (inner,), (1,), max([1, *p.taps.shape[-1:]])
    expected: tuple[tuple[int, ...], ...] = (
        (inner, x.shape[1], 1), vector, one, vector, vector,
        (inner, 1, taps), vector, one, vector, vector,
        (out, inner, 1), (out,),
    )  # fmt: skip
    for name, value, shape in zip(BlockParameters._fields, p, expected, strict=True):
        if value.shape != shape or value.dtype not in DTYPES or value.device != x.device:
            raise ValueError(
                f"{name} must be floating, {shape} and on {x.device}, "
                f"got {tuple(value.shape)} of {value.dtype} on {value.device}"
            )
