"""The parameters of a fused block, and the checks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from convtasnet_kernels.checks import DTYPES

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

    def at(self, dtype: torch.dtype) -> BlockParameters:
        """The same with the products' weights in the dtype of the maps."""
        return self._replace(
            weight_in=self.weight_in.to(dtype), weight_out=self.weight_out.to(dtype)
        )


def in_blocks(parameters: Sequence[Tensor]) -> list[BlockParameters]:
    """Those of each block, out of those of all in a row."""
    n = len(BlockParameters._fields)
    return [BlockParameters(*parameters[i : i + n]) for i in range(0, len(parameters), n)]


def check_stack(
    x: Tensor,
    skips: Tensor | None,
    stack: Sequence[BlockParameters],
    kind: str,
    dilations: Sequence[int],
    residual: bool,
) -> None:
    """Raises a ValueError that names the argument of ``tcn_blocks`` that does not fit."""
    if x.dim() != 3 or x.dtype not in DTYPES:
        raise ValueError(
            f"x must be a floating (batch, channels, frames), got {tuple(x.shape)} of {x.dtype}"
        )
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if not stack or len(dilations) != len(stack):
        raise ValueError(f"{len(stack)} blocks need as many dilations, got {len(dilations)}")
    for dilation in dilations:
        if dilation < 1:
            raise ValueError(f"dilation must be at least 1, got {dilation}")
    items, outer, frames = x.shape
    inner, out = len(stack[0].gamma_1), len(stack[-1].bias_out)
    skip = out - outer if residual else out
    if skip < 0 or (skips is not None and skips.shape != (items, skip, frames)):
        raise ValueError(
            f"weight_out has {out} rows, so that skips must be {(items, skip, frames)}, "
            f"got {None if skips is None else tuple(skips.shape)}"
        )
    for p in stack[:-1]:
        _check_block(p, x, inner, outer + skip)
    _check_block(stack[-1], x, inner, out)


def _check_block(p: BlockParameters, x: Tensor, inner: int, out: int) -> None:
    vector, one = (inner,), (1,)
    expected: tuple[tuple[int, ...], ...] = (
        (inner, x.shape[1], 1), vector, one, vector, vector,
        (inner, 1, p.taps.shape[-1]), vector, one, vector, vector,
        (out, inner, 1), (out,),
    )  # fmt: skip
    for name, value, shape in zip(BlockParameters._fields, p, expected, strict=True):
        if value.shape != shape or value.dtype not in DTYPES or value.device != x.device:
            raise ValueError(
                f"{name} must be floating, {shape} and on {x.device}, "
                f"got {tuple(value.shape)} of {value.dtype} on {value.device}"
            )
