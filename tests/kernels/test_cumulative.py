"""Laws of the cumulative norm, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

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

from convtasnet_kernels import cumulative_layer_norm, reference
from convtasnet_kernels.backend import triton_import_error

ITEMS, FRAMES = (1, 40) if INTERPRET else (2, 70)  # the interpreter is slow


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convtasnet_kernels import (
        cumulative,
        cumulative_backward,
        cumulative_item,
        cumulative_rows,
        cumulative_rows_backward,
    )

    monkeypatch.setattr(cumulative_item, "ELEMENTS", 0)
    monkeypatch.setattr(cumulative, "HELD", cumulative.HELD._replace(frames=16))
    tile = {"frames": 16, "channels": 256}  # few, large steps
    rows = {"vectors": 8, "channels": 256}
    for module, name, sizes in (
        (cumulative, "STREAMED", tile),
        (cumulative_backward, "TILES", tile),
        (cumulative_rows, "SUMS_TILES", {**rows, "step": 256}),
        (cumulative_rows, "MAP_TILES", rows),
        (cumulative_rows_backward, "SUMS_TILES", {**rows, "step": 256}),
        (cumulative_rows_backward, "MAP_TILES", rows),
    ):
        tiles = {key: old._replace(**sizes) for key, old in getattr(module, name).items()}
        monkeypatch.setattr(module, name, tiles)
    for module in (cumulative, cumulative_rows):
        monkeypatch.setattr(module, "GROUP", 2)
    for module in (cumulative_rows, cumulative_rows_backward):
        monkeypatch.setattr(module, "SCAN_FRAMES", 16)


@pytest.mark.parametrize("slope", [None, 0.25, -0.5])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_the_float64_reference(device: str, affine: bool, slope: float | None) -> None:
    case = make_case((ITEMS, 5, FRAMES), device=device, affine=affine, slope=slope)
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("elements", [0, 2**15])  # of an item that one program takes
@pytest.mark.parametrize("frames", [40, 37])  # rows that vectors divide, and others
@pytest.mark.parametrize("channels", [1, 80])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_way_through_the_kernels(
    device: str,
    dtype: torch.dtype,
    channels: int,
    frames: int,
    elements: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if triton_import_error() is None:
        from convtasnet_kernels import cumulative_item

        monkeypatch.setattr(cumulative_item, "ELEMENTS", elements)
    case = make_case((ITEMS, channels, frames), dtype=dtype, device=device)
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("channels", [1, 3, 96, 129, 257, 384])
def test_padded_lanes_stay_out_of_the_statistics(device: str, channels: int) -> None:
    case = make_case((ITEMS, channels, 37), mean=5.0, device=device, slope=None)
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("frames", [1, 2, 31, 32, 33, 1000, 4097, 30000])
def test_any_length(device: str, frames: int) -> None:
    if INTERPRET and frames > 33:
        pytest.skip("too slow in the interpreter")
    case = make_case((ITEMS, 3, frames), device=device)
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("std", [0.1, 0.01])
@pytest.mark.parametrize("mean", [100.0, -1000.0])
def test_a_large_mean_costs_no_digits(device: str, mean: float, std: float, channels: int) -> None:
    case = make_case((ITEMS, channels, FRAMES), mean, std, device=device)
    result, expected = case.run(cumulative_layer_norm), case.double().run(reference.cumulative)
    assert_close(result, expected, case, OFFSET_TOLERANCE)


@pytest.mark.parametrize("value", [0.0, 1e-3, -7.3, 1000.1])
def test_constant_input_gives_the_bias(device: str, value: float) -> None:
    case = make_case((1, 6, 40), device=device)
    case.x = torch.full_like(case.x, value)
    result = case.run(cumulative_layer_norm)
    assert all(torch.isfinite(r).all() for r in result.values())
    torch.testing.assert_close(result["y"], case.bias[:, None].expand(1, 6, 40), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_leading_silence(device: str, dtype: torch.dtype) -> None:
    case = make_case((ITEMS, 6, FRAMES), dtype=dtype, device=device)
    case.x[:, :, :20] = 0
    result, expected = case.run(cumulative_layer_norm), case.double().run(reference.cumulative)
    assert_close(result, expected, case)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_costs_one_rounding(device: str, dtype: torch.dtype) -> None:
    # 512 channels: an fp16 count would overflow at frame 128.
    case = make_case((1, 512, 144), mean=0.3, dtype=dtype, device=device)
    result, expected = case.run(cumulative_layer_norm), case.double().run(reference.cumulative)
    assert result["y"].dtype == result["x"].dtype == dtype
    assert result["weight"].dtype == result["prelu"].dtype == torch.float32
    error = (result["y"].double() - expected["y"]).abs()
    floor = 1e-6 * expected["y"].abs().max()
    assert (error <= ROUNDING[dtype] * expected["y"].abs() + floor).all()
    assert_close(result, expected, case)


def test_half_precision_parameters_get_gradients_of_their_dtype(device: str) -> None:
    case = make_case((ITEMS, 4, 33), dtype=torch.bfloat16, device=device)
    case.weight, case.prelu = case.weight.bfloat16(), case.prelu.bfloat16()
    result, expected = case.run(cumulative_layer_norm), case.double().run(reference.cumulative)
    assert result["weight"].dtype == result["prelu"].dtype == torch.bfloat16
    assert_close(result, expected, case, 2**-8)


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
@pytest.mark.parametrize("start", [1, 33])
def test_the_past_does_not_feel_the_future(device: str, start: int, poison: float) -> None:
    case = make_case((ITEMS, 5, FRAMES), device=device)
    clean = case.run(cumulative_layer_norm)["y"]
    case.x[:, :, start:] = poison
    poisoned = case.run(cumulative_layer_norm)["y"]
    assert torch.equal(poisoned[:, :, :start], clean[:, :, :start])
    assert poisoned[:, :, start:].isnan().all()


def test_one_bad_channel_spoils_its_frame_and_the_future_only(device: str) -> None:
    case = make_case((2, 5, FRAMES), device=device)
    clean = case.run(cumulative_layer_norm)["y"]
    case.x[0, 3, 35] = float("nan")
    poisoned = case.run(cumulative_layer_norm)["y"]
    assert torch.equal(poisoned[0, :, :35], clean[0, :, :35])
    assert torch.equal(poisoned[1], clean[1])
    assert poisoned[0, :, 35:].isnan().all()


def test_strides_do_not_matter(device: str) -> None:
    case = make_case((ITEMS, 5, 33), device=device)
    expected = case.run(cumulative_layer_norm)
    case.x = case.x.transpose(1, 2).contiguous().transpose(1, 2)
    case.dy = case.dy.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    case.weight = torch.stack((case.weight, case.weight), 1)[:, 0]
    for name, value in case.run(cumulative_layer_norm).items():
        assert relative_error(value, expected[name].double()) <= 1e-6, name
        assert value.is_contiguous() or name == "weight"


def test_expanded_input_and_gradient(device: str) -> None:
    case = make_case((1, 5, 33), device=device)
    case.x = case.x.expand(2, 5, 33)
    case.dy = torch.ones((), device=device).expand(2, 5, 33)
    assert_close(case.run(cumulative_layer_norm), case.double().run(reference.cumulative), case)


@pytest.mark.parametrize("shape", [(0, 4, 7), (2, 4, 0)])
def test_empty_input(device: str, shape: tuple[int, int, int]) -> None:
    result = make_case(shape, device=device).run(cumulative_layer_norm)
    assert result["y"].shape == result["x"].shape == shape
    assert all((result[name] == 0).all() for name in ("weight", "bias", "prelu"))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias", "prelu"])
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = make_case((ITEMS, 4, 33), device=device)
    expected = case.run(cumulative_layer_norm)[wanted]
    arguments = case.parameters()
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    cumulative_layer_norm(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)
    assert all(p.grad is None for name, p in arguments.items() if name != wanted)


def test_bits_repeat_and_items_are_independent(device: str) -> None:
    case = make_case((2, 7, FRAMES), device=device)
    first, second = case.run(cumulative_layer_norm), case.run(cumulative_layer_norm)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for b in range(2):
        one = cumulative_layer_norm(case.x[b : b + 1], case.weight, case.bias, prelu=case.prelu)
        assert torch.equal(one[0], first["y"][b])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, dtype: torch.dtype) -> None:
    case = make_case((ITEMS, 4, 33), mean=1000.0, dtype=dtype, device=device)
    expected = case.run(cumulative_layer_norm)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(cumulative_layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_float64_takes_the_torch_path(device: str) -> None:
    case = make_case((ITEMS, 5, FRAMES), mean=3.0, dtype=torch.float64, device=device)
    assert_close(case.run(cumulative_layer_norm), case.run(reference.cumulative), case)


def test_an_hour_of_frames_keeps_its_digits() -> None:
    # 1e7 frames: a float32 running sum would be off by 1e-2.
    x = torch.randn(1, 1, 10_000_000) * 0.1 + 100
    y = cumulative_layer_norm(x)
    d = x[0, 0, :].double() - 100
    tail = d[-1000:]
    expected = (tail - d.mean()) / d.std(correction=0)
    assert relative_error(y[0, 0, -1000:], expected) <= OFFSET_TOLERANCE
