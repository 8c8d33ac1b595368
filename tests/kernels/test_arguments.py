"""Arguments of a wrong type are refused by a ValueError that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from convtasnet_kernels import (
    BlockParameters,
    channelwise_layer_norm,
    cumulative_layer_norm,
    decode_masked,
    depthwise_conv,
    global_layer_norm,
    layer_norm,
    tcn_blocks,
)

SHAPES = [(6, 4, 1), (6,), (1,), (6,), (6,), (6, 1, 3), (6,), (1,), (6,), (6,), (6, 6, 1), (6,)]
BLOCK = BlockParameters._make(map(torch.zeros, SHAPES))
UNFIT: Any = 0.25
MAP = torch.zeros(2, 4, 5)
ARGUMENTS: dict[Callable[..., Any], dict[str, Any]] = {
    cumulative_layer_norm: {"x": MAP},
    global_layer_norm: {"x": MAP},
    channelwise_layer_norm: {"x": MAP},
    layer_norm: {"x": MAP},
    depthwise_conv: {"x": MAP, "weight": torch.ones(4, 1, 3)},
    decode_masked: {"scores": MAP, "features": MAP, "filters": torch.zeros(4, 2)},
    tcn_blocks: {
        **{"x": MAP, "skips": torch.zeros(2, 2, 5), "parameters": [BLOCK], "kind": "global"},
        **{"dilations": [1], "causal": False},
    },
}
TENSORS = [
    (function, name)
    for function, arguments in ARGUMENTS.items()
    for name, value in arguments.items()
    if isinstance(value, torch.Tensor)
]


def refused(function: Callable[..., Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(**{**ARGUMENTS[function], **changes})


@pytest.mark.parametrize("function", ARGUMENTS)
def test_the_arguments_are_right_as_they_are(function: Callable[..., Any]) -> None:
    function(**ARGUMENTS[function])


@pytest.mark.parametrize(("function", "name"), TENSORS)
def test_what_is_no_tensor_is_named(function: Callable[..., Any], name: str) -> None:
    refused(function, {name: [1.0]}, f"{name} must be a tensor, got list")


@pytest.mark.parametrize(("function", "name"), TENSORS)
def test_forward_mode_is_refused(function: Callable[..., Any], name: str) -> None:
    """Its derivative would be zero without a word."""
    value = ARGUMENTS[function][name]

    def output(changed: torch.Tensor) -> torch.Tensor:
        found = function(**{**ARGUMENTS[function], name: changed})
        return found if isinstance(found, torch.Tensor) else found[0]

    with pytest.raises(ValueError, match=f"{name} has a forward-mode tangent"):
        torch.func.jvp(output, (value,), (torch.ones_like(value),))
    with forward_ad.dual_level():
        output(value)


@pytest.mark.parametrize(
    ("function", "changes", "message"),
    [
        (depthwise_conv, {"weight": None}, "weight must be a tensor, got NoneType"),
        (depthwise_conv, {"dilation": 1.5}, "dilation must be a whole number, got 1.5"),
        (depthwise_conv, {"dilation": "2"}, "dilation must be a whole number, got '2'"),
        (depthwise_conv, {"causal": "no"}, "causal must be True or False, got 'no'"),
        (tcn_blocks, {"dilations": [1.5]}, "dilation must be a whole number, got 1.5"),
        (tcn_blocks, {"dilations": 1}, "dilations must be those of each block, got list and int"),
        (tcn_blocks, {"parameters": None}, "must be those of each block, got NoneType and list"),
        (tcn_blocks, {"parameters": [tuple(BLOCK)]}, "must be BlockParameters, got tuple"),
        (tcn_blocks, {"parameters": [BLOCK._replace(slope_1=UNFIT)]}, "slope_1 must be .* float"),
        (
            tcn_blocks,
            {"parameters": [BLOCK._replace(taps=torch.zeros(6, 1, 0))]},
            r"taps must be .* \(6, 1, 1\) .* got \(6, 1, 0\)",
        ),
        (tcn_blocks, {"skips": torch.zeros(2, 2, 5).int()}, "skips must be floating .*int32"),
        (tcn_blocks, {"skips": torch.zeros(2, 2, 5, device="meta")}, "skips must .* on meta"),
        (tcn_blocks, {"bias": torch.zeros(2)}, r"bias must be a floating .* \(4,\), got \(2,\)"),
        (tcn_blocks, {"prelu": torch.zeros(2)}, r"prelu must be a floating .* \(1,\), got \(2,\)"),
        (tcn_blocks, {"causal": None}, "causal must be True or False, got None"),
        (tcn_blocks, {"eps": float("nan")}, "eps must be a finite number >= 0, got nan"),
        (tcn_blocks, {"x": MAP[..., :0], "skips": None}, r"x must be .* got \(2, 4, 0\)"),
    ],
)
def test_values_without_a_meaning_are_named(
    function: Callable[..., Any], changes: dict[str, Any], message: str
) -> None:
    refused(function, changes, message)
