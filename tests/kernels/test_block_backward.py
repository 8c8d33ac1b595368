"""Laws of the fused block's backward steps, on each path, against float64 autograd.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch
from block_backward_cases import (
    TOLERANCE,
    assert_near,
    coefficients,
    expected_norm,
    expected_taps,
    make_inputs,
    run_norm,
    run_taps,
)
from norm_cases import INTERPRET, ROUNDING

from convtasnet_kernels import backend

KINDS = ("cumulative", "global", "channelwise")
LONG = 72 if INTERPRET else 3000  # frames; the interpreter is slow


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import block_depthwise_gradient as depthwise
    from convtasnet_kernels import block_gradient_sums as sums
    from convtasnet_kernels import block_norm_gradient as norm
    from convtasnet_kernels import block_statistics as statistics
    from convtasnet_kernels import lookback

    for module in (depthwise, sums):
        monkeypatch.setattr(module, "CHUNK", 2)
    for size in (2, 4):
        monkeypatch.setitem(sums.TILES, size, (4, 1, 2, 2))
        monkeypatch.setitem(norm.TILES, size, (2, 4, 1, 2 * 4 * 16 // size, 1))
        monkeypatch.setitem(depthwise.TILES, size, (4, 2, 2, 2))
    monkeypatch.setattr(statistics, "FRAMES", 16)
    monkeypatch.setattr(statistics, "FILL", 8)
    monkeypatch.setattr(statistics, "ALONE", 16)
    monkeypatch.setattr(lookback, "GROUP", 2)


@pytest.fixture
def path(device: str) -> ModuleType:
    """The module of the steps on the path under test."""
    x = torch.empty(1, device=device)
    names = ("block_backward_torch", "block_backward")
    return backend.module("tcn_blocks", backend.requested(), x, *names)


CASES = [
    ((1, 3, 24), "cumulative", None, torch.float32),
    ((2, 3, 24), "cumulative", [21, 0], torch.float32),
    ((2, 3, 24), "global", [24, 13], torch.float32),
    ((1, 3, 40), "global", None, torch.bfloat16),
    ((2, 4, 24), "channelwise", [21, 8], torch.bfloat16),
    ((1, 4, 16), "channelwise", None, torch.float16),
    ((1, 17, 16), "cumulative", None, torch.bfloat16),
    ((2, 3, 24), "global", [20, 1], torch.float16),
    ((5, 3, 16), "global", [16, 9, 0, 1, 2], torch.float32),
    ((6, 3, 16), "cumulative", None, torch.float32),
    ((3, 33, 4000), "cumulative", None, torch.float32),
    ((3, 512, 400), "channelwise", [400, 40, 0], torch.float32),
    ((3, 512, 400), "global", [400, 40, 0], torch.float32),
]


@pytest.mark.parametrize(("shape", "kind", "lengths", "dtype"), CASES)
def test_a_norm_equals_autograd(
    path: ModuleType,
    device: str,
    shape: tuple[int, int, int],
    kind: str,
    lengths: list[int] | None,
    dtype: torch.dtype,
) -> None:
    if INTERPRET and shape[1] * shape[2] > 1000:
        pytest.skip("too slow in the interpreter")
    inputs = make_inputs(device, shape, kind, lengths, dtype)
    result = run_norm(path, inputs)
    assert result["du"].dtype == result["z"].dtype == dtype
    assert_near(result, expected_norm(inputs))
    for name in ("du", "z"):
        assert (result[name][~inputs.valid.expand(shape)] == 0).all(), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_sums_of_frames(path: ModuleType, device: str, kind: str) -> None:
    inputs = make_inputs(device, (2, 3, 16), kind, [16, 9])
    partial = path.norm_gradient_sums(
        inputs.g, inputs.u, inputs.slope, inputs.gamma, inputs.stats, inputs.lengths
    )
    u, slope, gamma, _ = (p.detach() for p in inputs.doubles())
    xhat = inputs.normalized(u, slope, torch.ones_like(gamma), torch.zeros_like(gamma))
    g = torch.where(inputs.valid, inputs.g.double() * gamma[:, None], 0.0)
    assert_near({"g": partial[0].sum(1), "gx": partial[1].sum(1)},
                {"g": g.sum(1), "gx": (g * xhat).sum(1)})  # fmt: skip


@pytest.mark.parametrize("channels", [1, 2])
def test_few_channels_keep_their_digits(path: ModuleType, device: str, channels: int) -> None:
    """The first frame's gradient is what its mean leaves of it: of one channel, nothing."""
    if channels == 1 and path.__name__.endswith("_torch"):
        pytest.skip("PyTorch's path takes float64 for that")
    inputs = make_inputs(device, (1, channels, 16))
    result = run_norm(path, inputs)
    assert_near({"du": result["du"]}, expected_norm(inputs))
    if channels == 1:
        later = expected_norm(inputs)["du"][:, :, 0].abs().max()
        assert (result["du"][:, :, 0].abs() <= 1.01 * later).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_mean_costs_no_more_than_the_input_has(
    path: ModuleType, device: str, kind: str
) -> None:
    if INTERPRET and kind != "cumulative":
        pytest.skip("as cumulative for the interpreter, which is slow")
    inputs = make_inputs(device, (1, 17, 16), kind, mean=-100.0, std=0.1)
    assert_near(run_norm(path, inputs), expected_norm(inputs), 2e-4)


@pytest.mark.parametrize("kind", ["cumulative", "global"])
def test_sums_over_a_long_time(path: ModuleType, device: str, kind: str) -> None:
    from convtasnet_kernels import block_backward_torch

    partial = torch.randn(2, 2, 3, LONG, device=device)
    stats = torch.randn(2, 2, LONG if kind == "cumulative" else 1, device=device).abs() + 0.1
    lengths = torch.tensor([LONG, LONG - 20], device=device)
    stats = torch.where(torch.arange(LONG, device=device) < lengths[:, None], stats, 0.0)
    partial[:, 1, :, LONG - 20 :] = 0.0
    coeff = path.gradient_statistics(partial, stats, kind, lengths, 48)
    expected = block_backward_torch.gradient_statistics(
        partial.double(), stats.double(), kind, lengths, 48
    )
    for row, name in enumerate(("shift", "scale")):
        assert_near({name: coeff[row]}, {name: expected[row]}, 1e-6)


TAPS = [  # taps, dilation, causal, lengths, shape, dtype
    (3, 1, True, None, (1, 3, 24), torch.float32),
    (3, 2, False, [23, 24], (2, 2, 24), torch.float32),
    (3, 8, False, [32, 0], (2, 1, 40), torch.bfloat16),
    (3, 1, True, None, (1, 2, 24), torch.bfloat16),
    (2, 4, True, [16], (1, 2, 16), torch.float32),
    (2, 3, False, None, (1, 2, 16), torch.float32),
    (5, 3, False, None, (1, 1, 24), torch.float16),
    (1, 1, True, None, (1, 2, 16), torch.float32),
    (3, 128, True, None, (1, 2, 16), torch.float32),
    *((3, 2**i, causal, None, (2, 33, 2000), torch.bfloat16)
      for i in range(8) for causal in (True, False)),
    *((taps, 2**i, False, [1999, 1000], (2, 33, 2000), torch.float32)
      for i in range(8) for taps in (1, 2, 3, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("taps", "dilation", "causal", "lengths", "shape", "dtype"), TAPS)
def test_the_taps_equal_autograd(
    path: ModuleType,
    device: str,
    taps: int,
    dilation: int,
    causal: bool,
    lengths: list[int] | None,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
) -> None:
    if device == "cpu" and shape[2] > 1000:
        pytest.skip("for a GPU, where it costs nothing")
    inputs = make_inputs(device, shape, "cumulative", lengths, dtype)
    weight = torch.randn(shape[1], 1, taps, device=device)
    result = run_taps(path, inputs, weight, dilation, causal)
    expected = expected_taps(inputs, weight, dilation, causal)
    assert result["dz"].dtype == dtype
    assert (result["dz"][~inputs.valid.expand(shape)] == 0).all()
    if path.__name__.endswith("_torch"):  # which adds up the dz that it has rounded
        for name in ("sum", "product"):
            assert_near({name: result.pop(name)}, expected, ROUNDING.get(dtype, TOLERANCE))
    assert_near(result, expected)


def test_a_bias_still_to_be_added(path: ModuleType, device: str) -> None:
    inputs = make_inputs(device, (1, 3, 16), lengths=[13])
    bias = torch.randn(3, device=device)
    weight = torch.randn(3, 1, 2, device=device)
    expected = {**run_norm(path, inputs), **run_taps(path, inputs, weight, 2, True)}
    stats, coeff = inputs.stats, coefficients(path, inputs)
    norm = (inputs.slope, inputs.gamma, inputs.beta, stats)
    without = inputs.u - bias[:, None]
    du, z, rows = path.norm_gradient(
        inputs.g, without, *norm, coeff, inputs.lengths, True, bias=bias
    )
    g = torch.where(inputs.valid, inputs.g, 0.0)
    dz, taps, partial = path.depthwise_gradient(
        g, without, *norm, weight, 2, True, inputs.lengths, bias=bias
    )
    sums = rows.sum(0).view(4, 3)
    result = {"du": du, "z": z, "gamma": sums[0], "beta": sums[1], "bias": sums[2], "dz": dz,
              "weight": taps.sum(0).view(weight.shape), "sum": partial[0].sum(1),
              "product": partial[1].sum(1)}  # fmt: skip
    assert_near(result, {name: value.double() for name, value in expected.items()})


@pytest.mark.parametrize("kind", KINDS)
def test_frames_beyond_the_lengths_have_no_influence(
    path: ModuleType, device: str, kind: str
) -> None:
    inputs = make_inputs(device, (2, 2, 16), kind, [13, 0])
    other = replace(
        inputs, **{k: torch.where(inputs.valid, getattr(inputs, k), 1e4) for k in ("u", "g")}
    )
    clean, result = run_norm(path, inputs), run_norm(path, other)
    if kind == "cumulative":  # the taps do not know the kind
        weight = torch.randn(2, 1, 3, device=device)
        clean.update(run_taps(path, inputs, weight, 2, False))
        result.update(run_taps(path, other, weight, 2, False))
    for name in clean:
        assert torch.equal(result[name], clean[name]), name


def test_the_future_does_not_feel_the_past(path: ModuleType, device: str) -> None:
    """A gradient flows back in time: NaN at one frame stays out of those behind it."""
    inputs = make_inputs(device, (1, 2, 24))
    weight = torch.randn(2, 1, 2, device=device)
    clean, taps = run_norm(path, inputs), run_taps(path, inputs, weight, 3, True)
    inputs.g[:, :, 9] = float("nan")
    other, other_taps = run_norm(path, inputs), run_taps(path, inputs, weight, 3, True)
    assert torch.equal(other["du"][..., 10:], clean["du"][..., 10:])
    assert torch.equal(other_taps["dz"][..., 10:], taps["dz"][..., 10:])
    assert other["du"][..., :10].isnan().all()


@pytest.mark.skipif(INTERPRET, reason="programs run one after the other there")
def test_bits_repeat_and_items_are_independent(path: ModuleType, device: str) -> None:
    inputs = make_inputs(device, (2, 2, 16), "cumulative", [16, 11])
    weight = torch.randn(2, 1, 2, device=device)
    first, second = (
        {**run_norm(path, inputs), **run_taps(path, inputs, weight, 1, True)} for _ in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert inputs.lengths is not None
    alone = replace(inputs, u=inputs.u[1:], g=inputs.g[1:], lengths=inputs.lengths[1:])
    result = {**run_norm(path, alone), **run_taps(path, alone, weight, 1, True)}
    for name in ("du", "z", "dz", "sum", "product"):
        assert torch.equal(result[name][0], first[name][1]), name


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 4, 0)])
def test_empty_maps(path: ModuleType, device: str, shape: tuple[int, int, int]) -> None:
    inputs = make_inputs(device, shape)
    stats = inputs.u.new_zeros((2, shape[0], shape[2]))
    norm = (inputs.u, inputs.slope, inputs.gamma)
    partial = path.norm_gradient_sums(inputs.g, *norm, stats, None)
    coeff = path.gradient_statistics(partial, stats, "cumulative", None, 4)
    du, z, rows = path.norm_gradient(inputs.g, *norm, inputs.beta, stats, coeff, None, True)
    assert du.shape == z.shape == shape
    assert rows.shape == (1, 16)
    assert (rows == 0).all()
    weight = torch.randn(4, 1, 3, device=device)
    arguments = (inputs.g, *norm, inputs.beta, stats, weight, 1, True, None)
    dz, rows, partial = path.depthwise_gradient(*arguments)
    assert dz.shape == shape
    assert rows.shape == (1, 12)
    assert (rows == 0).all()


@pytest.mark.parametrize(("channels", "taps", "counts"), [
    (5, 3, (1, 1, 1)), (40, 1, (3, 70, 130)), (512, 3, (8, 128, 8)),
])  # fmt: skip
def test_the_parameters_rows_are_added_up(
    path: ModuleType, device: str, channels: int, taps: int, counts: tuple[int, ...]
) -> None:
    if INTERPRET and channels > 100:
        pytest.skip("too slow in the interpreter")
    columns = (4 * channels, channels * taps, 4 * channels)
    rows = [torch.randn(r, k, device=device) for r, k in zip(counts, columns, strict=True)]
    result = path.parameter_gradients(*rows)
    first, middle, second = (r.double().sum(0) for r in rows)
    slopes = torch.stack([norm[3 * channels :].sum() for norm in (first, second)])
    parts = (first[: 3 * channels], second[: 3 * channels], middle)
    scale = max(r.double().abs().sum().item() for r in rows)
    assert ((result[:-2] - torch.cat(parts)).abs() <= 1e-6 * max(counts)).all()
    assert ((result[-2:] - slopes).abs() <= 1e-7 * scale).all()
