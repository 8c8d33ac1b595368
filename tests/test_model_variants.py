"""What the model can be for other toolkits' weights: framings, norms, reflection, masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_model import TINY
from torch import Tensor

from convtasnet import ConvTasNet
from convtasnet.other_norms import ALL_NORMS, FeaturewiseNorm, LegacyCumulativeNorm
from convtasnet.reflection import reflected

CAUSAL = {"norm": "cumulative", "causal": True}


def tiny(**changes: Any) -> ConvTasNet:
    torch.manual_seed(1)
    model = ConvTasNet(**{**TINY, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("kernel_size", [16, 20])
@pytest.mark.parametrize("length", [*range(1, 41), 203])
def test_dropped_frames_leave_zeros(length: int, kernel_size: int) -> None:
    x = torch.randn(length)
    y = tiny(framing="drop", kernel_size=kernel_size)(x)
    kept = length - max(length - kernel_size, 0) % 8
    expected = tiny(kernel_size=kernel_size)(x[:kept])
    assert torch.equal(y[:, :kept], expected)
    assert y.shape == (2, length)
    assert not y[:, kept:].any()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 100, 203])
@pytest.mark.parametrize("changes", [{}, CAUSAL])
def test_centered_frames_have_a_margin(length: int, changes: dict[str, Any]) -> None:
    x = torch.randn(2, length)
    padded = torch.nn.functional.pad(x, (8, 8))
    expected = tiny(**changes)(padded)[..., 8:-8]
    torch.testing.assert_close(tiny(**changes, framing="centered")(x), expected)


@pytest.mark.parametrize("framing", ["drop", "centered"])
def test_other_framings_are_causal_too(framing: str) -> None:
    model = tiny(**CAUSAL, framing=framing)
    x = torch.randn(500)
    poisoned = x.clone()
    poisoned[300:] = torch.nan
    assert torch.equal(model(poisoned)[:, : 300 - 15], model(x)[:, : 300 - 15])


def test_the_first_norm_can_differ() -> None:
    model = tiny(norm="global", input_norm="channelwise")
    kinds = {name: type(m) for name, m in model.named_modules() if name.endswith(("norm", "_in"))}
    assert kinds["separator.norm"] is ALL_NORMS["channelwise"]
    assert type(model.separator.blocks[0].norm_out) is ALL_NORMS["global"]


def filled(norm: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 1.5)
    return norm.double()


def test_the_legacy_norm_against_loops() -> None:
    norm: Any = filled(LegacyCumulativeNorm(3, prelu=True))
    x = torch.randn(2, 3, 9, dtype=torch.float64)
    y = norm(x)
    x = torch.where(x > 0, x, norm.slope * x)
    for b in range(2):
        for t in range(9):
            past = x[b, :, : t + 1]
            variance = past.square().sum() - past.mean() ** 2
            expected = (x[b, :, t] - past.mean()) / (variance + 1e-8).sqrt()
            torch.testing.assert_close(y[b, :, t], expected * norm.weight + norm.bias)


def test_the_featurewise_norm_against_instance_norm() -> None:
    norm: Any = filled(FeaturewiseNorm(3))
    x = torch.randn(2, 3, 9, dtype=torch.float64)
    expected = torch.nn.functional.instance_norm(x, weight=norm.weight, bias=norm.bias, eps=1e-8)
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize(("n_frames", "left", "right"), [(9, 8, 8), (9, 3, 4), (5, 0, 4)])
def test_reflection_is_torchs(n_frames: int, left: int, right: int) -> None:
    x = torch.randn(2, 3, n_frames)
    expected = torch.nn.functional.pad(x, (left, right), mode="reflect")
    assert torch.equal(reflected(x, None, left, right), expected)
    padded = torch.nn.functional.pad(x, (0, 5), value=torch.nan)
    each = torch.full((2,), n_frames)
    assert torch.equal(reflected(padded, each, left, right)[..., :-5], expected)


def test_a_short_map_is_reflected_to_and_fro() -> None:
    def letters(x: Tensor) -> str:
        return "".join(map(chr, x.flatten().tolist()))

    x = torch.tensor([ord(c) for c in "abc"]).expand(1, 1, 3)
    assert letters(reflected(x, None, 5, 5)) == "babcb" + "abc" + "babcb"
    assert letters(reflected(x[..., :1], None, 2, 1)) == "aaaa"


def test_a_reflecting_block_against_torchs_layers() -> None:
    model = tiny(conv_padding="reflect", norm="channelwise").double()
    block: Any = model.separator.blocks[1]
    x = torch.randn(1, 8, 24, dtype=torch.float64)
    y = torch.nn.functional.pad(block.norm_in(block.conv_in(x)), (2, 2), mode="reflect")
    depthwise = block.depthwise
    y = torch.nn.functional.conv1d(y, depthwise.weight, depthwise.bias, dilation=2, groups=16)
    expected = block.conv_out(block.norm_out(y))
    _, skips = block(x)
    torch.testing.assert_close(skips, expected)  # the last block has no residual
    zeros = tiny(norm="channelwise").double()
    mix = torch.randn(400, dtype=torch.float64)
    assert not torch.allclose(zeros(mix), model(mix))


def test_softmax_over_filters() -> None:
    model = tiny(mask_act="softmax_filters", n_src=3)
    masks = model.separator(torch.randn(2, 16, 10))
    torch.testing.assert_close(masks.sum(2), torch.ones(2, 3, 10))
