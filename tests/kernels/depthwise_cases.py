"""Depthwise convolutions and their float64 references."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from norm_cases import Case, assert_close, make_case
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import depthwise_conv


def taps_case(shape: tuple[int, int, int], taps: int = 3, **kwargs: object) -> Case:
    """A norm's case whose weight is (C, 1, taps)."""
    case = make_case(shape, slope=None, **kwargs)
    case.weight = torch.randn(shape[1], 1, taps, dtype=case.weight.dtype).to(case.x.device)
    return case


def convolution(dilation: int = 1, causal: bool = False) -> Callable[..., Tensor]:
    return partial(depthwise_conv, dilation=dilation, causal=causal)


def reference(dilation: int = 1, causal: bool = False) -> Callable[..., Tensor]:
    def padded(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        reach = dilation * (weight.shape[2] - 1)
        left = reach if causal else reach // 2
        x = F.pad(x, (left, reach - left))
        return F.conv1d(x, weight, bias, dilation=dilation, groups=x.shape[1])

    return padded


def check(case: Case, dilation: int = 1, causal: bool = False) -> None:
    result = case.run(convolution(dilation, causal))
    assert_close(result, case.double().run(reference(dilation, causal)), case)
