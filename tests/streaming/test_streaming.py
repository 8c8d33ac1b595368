"""A stream equals one pass of the model, whatever the model, the pieces and the interruptions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamed import VARIANTS, causal, relative_error, streamed
from torch import Tensor, nn

from convtasnet import ConvTasNet, StreamingSeparator
from convtasnet.norms import EPS, CumulativeNorm

INTEROP = Path(__file__).parents[1] / "assets" / "interop"
SIZES = [0, 1, 3, 8, 40, 701, 17]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_stream_equals_one_pass(changes: dict[str, Any]) -> None:
    model = causal(**changes)
    stream = StreamingSeparator(model)
    for length in (1, 7, 15, 16, 17, 24, 25, 2003):
        mixture = torch.randn(length)
        whole = model(mixture)
        pieces = streamed(stream, mixture, SIZES)  # each time from the beginning: flush resets
        assert pieces.shape == whole.shape
        assert relative_error(pieces, whole) < 1e-5


def test_the_only_difference_is_rounding() -> None:
    model, mixture = causal().double(), torch.randn(2003, dtype=torch.float64)
    assert relative_error(streamed(StreamingSeparator(model), mixture, SIZES), model(mixture)) < (
        1e-13
    )


@pytest.mark.parametrize("size", [8, 80, 800])
def test_a_longer_stream_equals_one_pass(size: int) -> None:
    """Level and offset change, so that old statistics matter."""
    model = causal()
    seconds = torch.arange(6 * 8000) / 8000
    mixture = torch.randn(len(seconds)) * (0.01 + (seconds / 3).sin().square()) + seconds / 20
    mixture = mixture[: 500 * size]
    assert relative_error(streamed(StreamingSeparator(model), mixture, [size]), model(mixture)) < (
        1e-5
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_output_hears_more_than_the_latency_ahead(value: float) -> None:
    model, mixture = causal(), torch.randn(1000)
    broken = mixture.clone()
    broken[600:] = value
    whole, pieces = model(mixture), streamed(StreamingSeparator(model), broken, [333])
    safe = 600 - model.latency
    assert relative_error(pieces[:, :safe], whole[:, :safe]) < 1e-5
    assert pieces[:, 616:].isnan().any()


def test_silence_gives_what_the_model_gives() -> None:
    model, mixture = causal(), torch.zeros(1000)
    mixture[500:] = torch.randn(500)
    assert relative_error(streamed(StreamingSeparator(model), mixture, [64]), model(mixture)) < 1e-5


@pytest.mark.parametrize("changes", [{}, {"norm": "channelwise"}, {"framing": "centered"}], ids=str)
@pytest.mark.parametrize("at", [0, 5, 700])
def test_a_saved_state_goes_on(changes: dict[str, Any], at: int, tmp_path: Path) -> None:
    model, mixture = causal(**changes), torch.randn(1500)
    stream = StreamingSeparator(model)
    stream.push(mixture[:at])
    torch.save(stream.state_dict(), tmp_path / "state.pt")
    copied, shallow = stream.copy(), copy.copy(stream)
    expected = [stream.push(mixture[at:]), stream.flush()]
    restored = StreamingSeparator(model)
    restored.push(mixture[:333])  # is overwritten
    restored.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for other in (copied, shallow, restored):
        assert torch.equal(
            torch.cat([other.push(mixture[at:]), other.flush()], 1), torch.cat(expected, 1)
        )


def test_states_do_not_touch_each_other() -> None:
    model, mixture = causal(), torch.randn(1500)
    stream = StreamingSeparator(model)
    stream.push(mixture[:500])
    saved = stream.state_dict()
    before = copy.deepcopy(saved)
    other = stream.copy()
    other.push(mixture[500:])
    stream.load_state_dict(saved)
    stream.push(mixture)
    assert all(torch.equal(saved[name], before[name]) for name in before)


def test_the_size_of_a_state_does_not_grow() -> None:
    stream = StreamingSeparator(causal())
    sizes = []
    for _ in range(5):
        stream.push(torch.randn(8000))
        sizes.append(sum(value.numel() for value in stream.state_dict().values()))
    assert len(set(sizes)) == 1


def test_reset_begins_anew() -> None:
    model, mixture = causal(), torch.randn(500)
    stream = StreamingSeparator(model)
    first = stream.push(mixture)
    stream.push(torch.randn(77))
    stream.reset()
    assert torch.equal(stream.push(mixture), first)


def test_arrays_give_arrays() -> None:
    model, mixture = causal(), np.random.default_rng(0).standard_normal(500, dtype=np.float32)
    out = StreamingSeparator(model).push(mixture)
    assert isinstance(out, np.ndarray)
    np.testing.assert_array_equal(
        out, StreamingSeparator(model).push(torch.tensor(mixture)).numpy()
    )


def test_outputs_are_ordinary_tensors() -> None:
    stream = StreamingSeparator(causal())
    for out in (stream.push(torch.randn(100)), stream.flush()):
        out += 1
        assert not out.is_inference()
        assert (out * torch.ones(1, requires_grad=True)).requires_grad


def test_autocast_changes_nothing() -> None:
    model, mixture = causal(), torch.randn(500)
    with torch.autocast("cpu", torch.bfloat16):
        out = StreamingSeparator(model).push(mixture)
    assert torch.equal(out, StreamingSeparator(model).push(mixture))


class Forgetful(nn.Module):
    """The cumulative norm with weights that halve, in float64 and quadratic in time."""

    def __init__(self, norm: CumulativeNorm, half_life: float) -> None:
        super().__init__()
        self.norm, self.half_life = norm, half_life

    def forward(self, x: Tensor, frames: object = None) -> Tensor:
        if self.norm.slope is not None:
            x = nn.functional.prelu(x, self.norm.slope)
        age = torch.arange(x.shape[2])[:, None] - torch.arange(x.shape[2])  # of frame j at frame i
        weight = torch.where(age >= 0, 0.5 ** (age.double() / self.half_life), 0.0)
        weight /= weight.sum(1, keepdim=True)
        mean = x.mean(1) @ weight.T
        variance = x.square().mean(1) @ weight.T - mean.square()
        y = (x - mean[:, None]) / (variance[:, None] + EPS).sqrt()
        return y * self.norm.weight[:, None] + self.norm.bias[:, None]


def forgetful(model: ConvTasNet, half_life: float) -> ConvTasNet:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, CumulativeNorm):
                setattr(module, name, Forgetful(child, half_life))
    return model


def test_a_half_life_forgets() -> None:
    model, mixture = causal().double(), torch.randn(3000, dtype=torch.float64)
    mixture[:1000] *= 20
    pieces = streamed(StreamingSeparator(model, half_life=0.05), mixture, [160])
    plain = model(mixture)
    reference = forgetful(model, 0.05 * 8000 / 8)(mixture)
    assert relative_error(pieces, reference) < 1e-10
    assert relative_error(plain, reference) > 0.01


@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("asteroid_cgln_causal/best_model.pth", {}),
        ("kaituoxu_cln_causal/final.pth.tar", {}),
        (
            "speechbrain_cln_causal",
            {"norm_type": "cLN", "causal": True, "mask_nonlinear": "relu"},
        ),
    ],
)
def test_causal_models_of_other_toolkits_stream(name: str, hparams: dict[str, Any]) -> None:
    model = ConvTasNet.from_pretrained(INTEROP / name, hparams)
    mixture = torch.randn(1003)
    assert (
        relative_error(streamed(StreamingSeparator(model), mixture, SIZES), model(mixture)) < 1e-5
    )


def test_others_are_refused() -> None:
    hparams = {"norm_type": "gLN", "causal": True, "mask_nonlinear": "relu"}
    model = ConvTasNet.from_pretrained(INTEROP / "speechbrain_extra_gln_causal", hparams)
    with pytest.raises(ValueError, match="only causal models"):
        StreamingSeparator(model)
    with pytest.raises(ValueError, match="only causal models"):
        StreamingSeparator(causal(norm="global", causal=False))
    with pytest.raises(ValueError, match="model is a str: a causal ConvTasNet is needed"):
        StreamingSeparator("best.ckpt")  # type: ignore[arg-type]


def test_batch_norms_must_not_be_training() -> None:
    with pytest.raises(ValueError, match="norm is a batch norm in training"):
        StreamingSeparator(causal(norm="batch").train())


@pytest.mark.filterwarnings("error")
def test_arrays_may_be_read_only_or_run_backwards() -> None:
    model, mixture = causal(), torch.randn(300)
    expected = StreamingSeparator(model).push(mixture)
    for array in (
        np.frombuffer(mixture.numpy().tobytes(), np.float32),
        mixture.flip(0).numpy()[::-1],
        mixture.repeat_interleave(2).numpy()[::2],
    ):
        found = StreamingSeparator(model).push(array)
        assert torch.equal(torch.from_numpy(found), expected)


def test_what_is_no_samples_is_refused() -> None:
    stream = StreamingSeparator(causal())
    for samples, message in [
        (torch.zeros(1, 100), r"shape \(1, 100\)"),
        (torch.zeros(100, dtype=torch.float64), "dtype torch.float64"),
        (torch.zeros(100, dtype=torch.int16), "divided by 32768"),
        ([0.0] * 100, "samples is a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            stream.push(samples)  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"dtype torch\.bfloat16"):
        StreamingSeparator(causal().bfloat16())


@pytest.mark.parametrize("half_life", [0.0, 0.009, -1.0, float("nan")])
def test_a_half_life_is_not_too_short(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life="):
        StreamingSeparator(causal(), half_life=half_life)


def test_a_half_life_is_a_number() -> None:
    with pytest.raises(ValueError, match="half_life='5' must be a number of seconds"):
        StreamingSeparator(causal(), half_life="5")  # type: ignore[arg-type]


def test_the_state_of_another_model_is_refused() -> None:
    stream, other = StreamingSeparator(causal()), StreamingSeparator(causal(hid_chan=10))
    with pytest.raises(ValueError, match=r"history\.0 \(2, 10\) instead of \(2, 12\)"):
        stream.load_state_dict(other.state_dict())
    saved = stream.state_dict()
    del saved["tail"]
    with pytest.raises(ValueError, match="another model: tail"):
        stream.load_state_dict(saved)
    for pending in (torch.zeros(16), torch.zeros(1, 8), torch.tensor(0.0)):
        with pytest.raises(ValueError, match=r"another model: pending \("):
            stream.load_state_dict(stream.state_dict() | {"pending": pending})


@pytest.mark.gpu
@pytest.mark.parametrize("changes", VARIANTS[:5], ids=str)
def test_a_gpu_streams_too(changes: dict[str, Any]) -> None:
    model, mixture = causal(**changes), torch.randn(40_000)
    whole = model(mixture)
    stream = StreamingSeparator(model.cuda())
    assert relative_error(streamed(stream, mixture, [1000, 12_345]).cpu(), whole) < 1e-5
