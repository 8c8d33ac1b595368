"""Laws of the channelwise norm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from norm_cases import OFFSET_TOLERANCE, ROUNDING, assert_close, make_case
from torch import Tensor

from convtasnet_kernels import channelwise_layer_norm, reference

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PAIRS = [
    pytest.param((channelwise_layer_norm, reference.channelwise), id="channelwise"),
]
Pair = tuple[Callable[..., Tensor], Callable[..., Tensor]]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param


@pytest.mark.parametrize("shape", [(2, 5, 1), (2, 3, 31), (1, 129, 33), (3, 384, 5)])
@pytest.mark.parametrize("slope", [None, 0.25])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_the_float64_reference(
    device: str, pair: Pair, affine: bool, slope: float | None, shape: tuple[int, int, int]
) -> None:
    case = make_case(shape, device=device, affine=affine, slope=slope)
    tolerances = {"y": 1e-6, "x": 3e-6, "weight": 2e-6, "bias": 2e-6, "prelu": 1e-6}
    assert_close(case.run(pair[0]), case.double().run(pair[1]), case, tolerances)


@pytest.mark.parametrize("mean", [5.0, 100.0, -1000.0])
def test_a_large_mean_costs_no_digits(device: str, pair: Pair, mean: float) -> None:
    case = make_case((2, 16, 70), mean, 0.1, device=device)
    result, expected = case.run(pair[0]), case.double().run(pair[1])
    assert_close(result, expected, case, OFFSET_TOLERANCE)


@pytest.mark.parametrize("value", [0.0, -7.3, 1000.1])
def test_constant_input_gives_the_bias(device: str, pair: Pair, value: float) -> None:
    case = make_case((2, 6, 40), device=device)
    case.x = torch.full_like(case.x, value)
    result = case.run(pair[0])
    assert all(torch.isfinite(r).all() for r in result.values())
    assert torch.equal(result["y"], case.bias[:, None].expand(2, 6, 40))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_costs_one_rounding(device: str, pair: Pair, dtype: torch.dtype) -> None:
    case = make_case((2, 96, 50), mean=0.3, dtype=dtype, device=device)
    result, expected = case.run(pair[0]), case.double().run(pair[1])
    assert result["y"].dtype == result["x"].dtype == dtype
    floor = 1e-6 * expected["y"].abs().max()
    error = (result["y"].double() - expected["y"]).abs()
    assert (error <= ROUNDING[dtype] * expected["y"].abs() + floor).all()
    assert_close(result, expected, case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, pair: Pair, dtype: torch.dtype) -> None:
    case = make_case((2, 4, 33), mean=100.0, dtype=dtype, device=device)
    expected = case.run(pair[0])
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(pair[0])
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.parametrize("shape", [(0, 4, 7), (2, 4, 0)])
def test_empty_input(device: str, pair: Pair, shape: tuple[int, int, int]) -> None:
    result = make_case(shape, device=device).run(pair[0])
    assert result["y"].shape == result["x"].shape == shape
    assert all((result[name] == 0).all() for name in ("weight", "bias", "prelu"))


def test_channelwise_keeps_frames_apart(device: str) -> None:
    case = make_case((2, 5, 9), device=device)
    clean = channelwise_layer_norm(case.x, case.weight, case.bias)
    case.x[:, 2, 4] = float("nan")
    y = channelwise_layer_norm(case.x, case.weight, case.bias)
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    assert torch.equal(y[:, :, others], clean[:, :, others])
    assert y[:, :, 4].isnan().all()
