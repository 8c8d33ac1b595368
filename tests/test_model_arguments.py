"""What the model refuses: arguments, shapes, dtypes, lengths."""

from __future__ import annotations

import pytest
import torch
from small_model import CAUSAL, SMALL, small
from torch import Tensor

from convtasnet import ConvTasNet


def test_the_global_norm_refuses_to_be_causal() -> None:
    with pytest.raises(ValueError, match=r"norm='global' cannot be causal.*future.*cumulative"):
        ConvTasNet(norm="global", causal=True)
    with pytest.raises(ValueError, match=r"input_norm='featurewise' cannot be causal"):
        ConvTasNet(**CAUSAL, input_norm="featurewise")
    with pytest.raises(ValueError, match="reflect"):
        ConvTasNet(**CAUSAL, conv_padding="reflect")


@pytest.mark.parametrize("shape", [(2, 2, 100), (1, 1, 1, 100), (), (2, 0)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        small()(torch.zeros(shape))


def test_integer_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="int16"):
        small()(torch.zeros(100, dtype=torch.int16))


@pytest.mark.parametrize("mix", [torch.zeros(9, dtype=torch.float64), [0.0], torch.zeros(9).half()])
def test_another_type_than_the_models_is_refused(mix: object) -> None:
    with pytest.raises(ValueError, match="mix"):
        small()(mix)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_src", 0),
        ("n_filters", 1.5),
        ("stride", 17),
        ("norm", "gLN"),
        ("mask_act", "tanh"),
        ("encoder_act", "gelu"),
        ("filterbank", "mel"),
        ("skip_chan", -1),
        ("sample_rate", 0),
        ("framing", "centre"),
        ("input_norm", "cLN"),
        ("conv_padding", "same"),
        ("causal", "no"),
        ("fused", "no"),
    ],
)
def test_wrong_arguments_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        ConvTasNet(**{**SMALL, name: value})


def test_an_unknown_argument_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no argument heads, depth; it has n_src, .*, fused$"):
        ConvTasNet(**SMALL, heads=4, depth=2)


@pytest.mark.parametrize(
    "lengths", [torch.tensor([10, 101]), torch.tensor([0, 5]), torch.tensor([5]), torch.ones(2)]
)
def test_wrong_lengths_are_refused(lengths: Tensor) -> None:
    with pytest.raises(ValueError, match="lengths"):
        small()(torch.randn(2, 100), lengths)
