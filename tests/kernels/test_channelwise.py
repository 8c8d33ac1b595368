"""Laws of the channelwise norm, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

import pytest
import torch
from norm_cases import (
    INTERPRET,
    OFFSET_TOLERANCE,
    ROUNDING,
    assert_close,
    make_case,
    relative_error,
)

from convtasnet_kernels import channelwise_layer_norm, reference

OPS = torch.ops.convtasnet


@pytest.mark.parametrize("slope", [None, 0.25, -0.5])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_the_float64_reference(device: str, affine: bool, slope: float | None) -> None:
    case = make_case((2, 5, 70), device=device, affine=affine, slope=slope)
    assert_close(case.run(channelwise_layer_norm), case.double().run(reference.channelwise), case)


@pytest.mark.parametrize("channels", [1, 3, 96, 129, 257, 384])
def test_padded_lanes_stay_out_of_the_statistics(device: str, channels: int) -> None:
    case = make_case((2, channels, 37), mean=5.0, device=device)
    assert_close(case.run(channelwise_layer_norm), case.double().run(reference.channelwise), case)


@pytest.mark.parametrize("frames", [1, 2, 15, 16, 17, 1000, 30_001])
def test_any_length(device: str, frames: int) -> None:
    if INTERPRET and frames > 17:
        pytest.skip("too slow in the interpreter")
    case = make_case((2, 4, frames), device=device)
    assert_close(case.run(channelwise_layer_norm), case.double().run(reference.channelwise), case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_channels_than_registers_hold(
    device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRET:
        from convtasnet_kernels import channelwise, channelwise_backward

        for module in (channelwise, channelwise_backward):
            monkeypatch.setattr(module, "CHANNELS", 128)
    channels = 150 if INTERPRET else 4100
    case = make_case((2, channels, 70), mean=5.0, std=4.0, dtype=dtype, device=device)
    assert_close(case.run(channelwise_layer_norm), case.double().run(reference.channelwise), case)


@pytest.mark.parametrize("channels", [3, 70])
@pytest.mark.parametrize("std", [0.1, 0.01])
@pytest.mark.parametrize("mean", [100.0, -1000.0])
def test_a_large_mean_costs_no_digits(device: str, mean: float, std: float, channels: int) -> None:
    case = make_case((2, channels, 40), mean, std, device=device)
    result, expected = case.run(channelwise_layer_norm), case.double().run(reference.channelwise)
    assert_close(result, expected, case, OFFSET_TOLERANCE)


@pytest.mark.parametrize("value", [0.0, 1e-3, -7.3, 1000.1])
def test_constant_input_gives_the_bias(device: str, value: float) -> None:
    case = make_case((2, 6, 40), device=device)
    case.x = torch.full_like(case.x, value)
    result = case.run(channelwise_layer_norm)
    assert all(torch.isfinite(r).all() for r in result.values())
    torch.testing.assert_close(result["y"], case.bias[:, None].expand(2, 6, 40), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_costs_one_rounding(device: str, dtype: torch.dtype) -> None:
    case = make_case((2, 96, 50), mean=0.3, dtype=dtype, device=device)
    result, expected = case.run(channelwise_layer_norm), case.double().run(reference.channelwise)
    assert result["y"].dtype == result["x"].dtype == dtype
    assert result["weight"].dtype == result["prelu"].dtype == torch.float32
    error = (result["y"].double() - expected["y"]).abs()
    floor = 1e-6 * expected["y"].abs().max()
    assert (error <= ROUNDING[dtype] * expected["y"].abs() + floor).all()
    assert_close(result, expected, case)


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bad_frame_stays_alone(device: str, dtype: torch.dtype, poison: float) -> None:
    case = make_case((2, 5, 21), dtype=dtype, device=device)
    clean = case.run(channelwise_layer_norm)
    case.x[1, 2, 17] = poison
    result = case.run(channelwise_layer_norm)
    good = torch.ones(2, 5, 21, dtype=torch.bool, device=device)
    good[1, :, 17] = False
    for name in ("y", "x"):
        assert torch.equal(result[name][good], clean[name][good])
        assert result[name][~good].isnan().all()


def test_strides_do_not_matter(device: str) -> None:
    case = make_case((2, 5, 33), device=device)
    expected = case.run(channelwise_layer_norm)
    case.x = case.x.transpose(1, 2).contiguous().transpose(1, 2)
    case.dy = case.dy.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    case.weight = torch.stack((case.weight, case.weight), 1)[:, 0]
    for name, value in case.run(channelwise_layer_norm).items():
        assert relative_error(value, expected[name].double()) <= 1e-6, name
        assert value.is_contiguous() or name == "weight"


def test_expanded_input_and_gradient(device: str) -> None:
    case = make_case((1, 5, 33), device=device)
    case.x = case.x.expand(2, 5, 33)
    case.dy = torch.ones((), device=device).expand(2, 5, 33)
    assert_close(case.run(channelwise_layer_norm), case.double().run(reference.channelwise), case)


@pytest.mark.parametrize("shape", [(0, 4, 7), (2, 4, 0)])
def test_empty_input(device: str, shape: tuple[int, int, int]) -> None:
    result = make_case(shape, device=device).run(channelwise_layer_norm)
    assert result["y"].shape == result["x"].shape == shape
    assert all((result[name] == 0).all() for name in ("weight", "bias", "prelu"))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias", "prelu"])
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = make_case((2, 4, 33), device=device)
    expected = case.run(channelwise_layer_norm)[wanted]
    arguments = case.parameters()
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    channelwise_layer_norm(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)
    assert all(p.grad is None for name, p in arguments.items() if name != wanted)


def test_bits_repeat_and_frames_are_independent(device: str) -> None:
    case = make_case((2, 7, 70), device=device)
    first, second = case.run(channelwise_layer_norm), case.run(channelwise_layer_norm)
    assert all(torch.equal(first[name], second[name]) for name in first)
    case.x = case.x.flip(2)
    flipped = case.run(channelwise_layer_norm)["y"].flip(2)
    assert relative_error(flipped, first["y"].double()) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, dtype: torch.dtype) -> None:
    case = make_case((2, 4, 33), mean=1000.0, dtype=dtype, device=device)
    expected = case.run(channelwise_layer_norm)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(channelwise_layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_float64_takes_the_torch_path(device: str) -> None:
    case = make_case((2, 5, 33), mean=3.0, dtype=torch.float64, device=device)
    assert_close(case.run(channelwise_layer_norm), case.run(reference.channelwise), case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("full", [True, False])
def test_opcheck(full: bool, dtype: torch.dtype) -> None:
    case = make_case((2, 3, 20), dtype=dtype, affine=full, slope=0.25 if full else None)
    given = [case.x, case.weight, case.bias, case.prelu]
    leaves = [p if p is None else p.clone().requires_grad_() for p in given]
    torch.library.opcheck(OPS.channelwise_norm.default, (*leaves, 1e-8, None, "auto"))
    _, stats = OPS.channelwise_norm(*given, 1e-8, None, "auto")
    arguments = (case.dy, case.x, case.weight, case.prelu, stats, full, full, "auto")
    torch.library.opcheck(OPS.channelwise_norm_backward.default, arguments)
