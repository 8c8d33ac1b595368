"""Laws of the global norm, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

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

from convtasnet_kernels import global_layer_norm, reference, use_backend

OPS = torch.ops.convtasnet


def shrink_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    set_tiles(monkeypatch, (64, 256, 4), 4096)


@pytest.fixture
def small_tiles(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the interpreter, small inputs take several tiles, steps and spans."""
    if INTERPRET:
        set_tiles(monkeypatch, (8, 16, 4), 32)


def set_tiles(monkeypatch: pytest.MonkeyPatch, tile: tuple[int, int, int], span: int) -> None:
    """Tiles for the interpreter, whose time goes by steps and programs."""
    from convtasnet_kernels import global_, global_backward

    for module in (global_, global_backward):
        for tiles in ("SUMS_TILES", "APPLY_TILES"):
            monkeypatch.setattr(module, tiles, dict.fromkeys((2, 4), tile))
        monkeypatch.setattr(module, "SPAN", span)


@pytest.mark.parametrize("slope", [None, 0.25, -0.5])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_the_float64_reference(device: str, affine: bool, slope: float | None) -> None:
    case = make_case((2, 5, 70), device=device, affine=affine, slope=slope)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


# 8 channels: items begin at multiples of 16 bytes, channels do at 40 frames only.
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(2, 8, 40), (2, 8, 41), (3, 7, 43), (2, 8, 3), (2, 16, 8)])
def test_any_alignment(device: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    case = make_case(shape, mean=1.0, dtype=dtype, device=device)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


@pytest.mark.usefixtures("small_tiles")
def test_more_sums_than_a_program_takes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if INTERPRET:
        from triton.language import constexpr

        from convtasnet_kernels import global_tile

        monkeypatch.setattr(global_tile, "LANES", constexpr(4))
    case = make_case((2, 16, 63 if device == "cpu" else 300000), mean=1.0, device=device)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


def test_a_slice_that_begins_anywhere(device: str) -> None:
    case = make_case((2, 8, 40), device=device)
    expected = case.run(global_layer_norm)
    memory = torch.empty(case.x.numel() + 1, device=device)
    memory[1:] = case.x.flatten()
    case.x = memory[1:].view(2, 8, 40)
    result = case.run(global_layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.parametrize("channels", [1, 3, 96, 129, 257, 384])
def test_padded_lanes_stay_out_of_the_statistics(device: str, channels: int) -> None:
    case = make_case((1, channels, 37), mean=5.0, device=device, slope=None)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


@pytest.mark.parametrize("frames", [1, 2, 31, 32, 33, 1000, 4097, 30000])
def test_any_length(device: str, frames: int) -> None:
    if INTERPRET and frames > 1000:
        pytest.skip("too slow in the interpreter")
    case = make_case((2, 3, frames), device=device)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize("std", [0.1, 0.01])
@pytest.mark.parametrize("mean", [5.0, -1000.0])
def test_a_large_mean_costs_no_digits(device: str, mean: float, std: float, channels: int) -> None:
    case = make_case((2, channels, 70), mean, std, device=device)
    result, expected = case.run(global_layer_norm), case.double().run(reference.global_)
    assert_close(result, expected, case, OFFSET_TOLERANCE)


@pytest.mark.parametrize("value", [0.0, -7.3, 1000.1])
def test_constant_input_gives_the_bias(device: str, value: float) -> None:
    case = make_case((2, 6, 40), device=device)
    case.x = torch.full_like(case.x, value)
    result = case.run(global_layer_norm)
    assert all(torch.isfinite(r).all() for r in result.values())
    assert torch.equal(result["y"], case.bias[:, None].expand(2, 6, 40))


def test_one_element_is_its_own_mean(device: str) -> None:
    case = make_case((3, 1, 1), device=device)
    result = case.run(global_layer_norm)
    assert torch.equal(result["y"], case.bias[:, None].expand(3, 1, 1))
    assert all((result[name] == 0).all() for name in ("x", "weight", "prelu"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_costs_one_rounding(device: str, dtype: torch.dtype) -> None:
    # 70,000 elements: more than fp16 can count.
    case = make_case((1, 70, 1000), mean=0.3, dtype=dtype, device=device)
    result, expected = case.run(global_layer_norm), case.double().run(reference.global_)
    assert result["y"].dtype == result["x"].dtype == dtype
    assert result["weight"].dtype == result["prelu"].dtype == torch.float32
    error = (result["y"].double() - expected["y"]).abs()
    floor = 1e-6 * expected["y"].abs().max()
    assert (error <= ROUNDING[dtype] * expected["y"].abs() + floor).all()
    assert_close(result, expected, case)


def test_half_precision_parameters_get_gradients_of_their_dtype(device: str) -> None:
    case = make_case((2, 4, 33), dtype=torch.bfloat16, device=device)
    case.weight, case.prelu = case.weight.bfloat16(), case.prelu.bfloat16()
    result, expected = case.run(global_layer_norm), case.double().run(reference.global_)
    assert result["weight"].dtype == result["prelu"].dtype == torch.bfloat16
    assert_close(result, expected, case, ROUNDING[torch.bfloat16])


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("place", "poison"),
    [((0, 0), float("-inf")), ((3, 50), float("-inf")), ((3, 50), float("nan"))],
)
def test_a_bad_sample_spoils_its_item_only(
    device: str, place: tuple[int, int], poison: float
) -> None:
    case = make_case((2, 5, 70), device=device)
    clean = case.run(global_layer_norm)
    case.x[0][place] = poison
    poisoned = case.run(global_layer_norm)
    for name in ("y", "x"):
        assert poisoned[name][0].isnan().all()
        assert torch.equal(poisoned[name][1], clean[name][1])


def test_strides_do_not_matter(device: str) -> None:
    case = make_case((2, 5, 33), device=device)
    expected = case.run(global_layer_norm)
    case.x = case.x.transpose(1, 2).contiguous().transpose(1, 2)
    case.dy = case.dy.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    case.weight = torch.stack((case.weight, case.weight), 1)[:, 0]
    result = case.run(global_layer_norm)
    assert result["y"].is_contiguous()
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_expanded_input_and_gradient(device: str) -> None:
    case = make_case((1, 5, 33), device=device)
    case.x = case.x.expand(2, 5, 33)
    case.dy = torch.ones((), device=device).expand(2, 5, 33)
    assert_close(case.run(global_layer_norm), case.double().run(reference.global_), case)


@pytest.mark.parametrize("shape", [(0, 4, 7), (2, 4, 0)])
@pytest.mark.parametrize("with_lengths", [True, False])
def test_empty_input(device: str, with_lengths: bool, shape: tuple[int, int, int]) -> None:
    lengths = torch.zeros(shape[0], dtype=torch.long, device=device) if with_lengths else None
    result = make_case(shape, device=device).run(global_layer_norm, lengths=lengths)
    assert result["y"].shape == result["x"].shape == shape
    assert all((result[name] == 0).all() for name in ("weight", "bias", "prelu"))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias", "prelu"])
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = make_case((2, 4, 33), device=device)
    expected = case.run(global_layer_norm)[wanted]
    arguments = case.parameters()
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    global_layer_norm(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)
    assert all(p.grad is None for name, p in arguments.items() if name != wanted)


def test_bits_repeat_and_items_are_independent(device: str) -> None:
    case = make_case((3, 7, 70), device=device)
    first, second = case.run(global_layer_norm), case.run(global_layer_norm)
    assert all(torch.equal(first[name], second[name]) for name in first)
    for b in range(3):
        one = global_layer_norm(case.x[b : b + 1], case.weight, case.bias, prelu=case.prelu)
        assert torch.equal(one[0], first["y"][b])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, dtype: torch.dtype) -> None:
    case = make_case((2, 4, 33), mean=1000.0, dtype=dtype, device=device)
    expected = case.run(global_layer_norm)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(global_layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_float64_takes_the_torch_path(device: str) -> None:
    case = make_case((2, 5, 70), mean=3.0, dtype=torch.float64, device=device)
    assert_close(case.run(global_layer_norm), case.run(reference.global_), case)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize("shape", [(4, 5, 70), (4, 8, 72), (4, 8, 71)])
def test_lengths_equal_each_item_alone(
    device: str, shape: tuple[int, int, int], mean: float
) -> None:
    if INTERPRET and mean and shape[1] == 8:
        pytest.skip("the mean of one shape is enough for the interpreter, which is slow")
    case = make_case(shape, mean, 0.1 if mean else 1.0, device=device)
    lengths = torch.tensor([70, 13, 1, 32])  # on the CPU, wherever x is
    result = case.run(global_layer_norm, lengths=lengths)
    expected = case.double().run(reference.global_, lengths=lengths)
    assert_close(result, expected, case, OFFSET_TOLERANCE if mean else None)


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8])
def test_lengths_of_any_integer(device: str, kind: torch.dtype) -> None:
    case = make_case((3, 5, 30), device=device)
    lengths = torch.tensor([30, 0, 0, 7, 0], device=device)[::2]
    expected = case.run(global_layer_norm, lengths=lengths)
    result = case.run(global_layer_norm, lengths=lengths.to(kind))
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("frames", [40, 41])
def test_padding_has_no_influence(device: str, frames: int, dtype: torch.dtype) -> None:
    case = make_case((4, 8, frames), dtype=dtype, device=device)
    lengths = torch.tensor([frames, 13, 0, 1], device=device)
    padding = torch.arange(frames, device=device) >= lengths[:, None, None]
    clean = case.run(global_layer_norm, lengths=lengths)
    assert all(torch.isfinite(value).all() for value in clean.values())
    case.x = case.x.masked_fill(padding, float("nan"))
    case.dy = case.dy.masked_fill(padding, float("nan"))
    poisoned = case.run(global_layer_norm, lengths=lengths)
    assert all(torch.equal(poisoned[name], clean[name]) for name in clean)
    outside = padding.expand_as(case.x)
    assert (poisoned["y"][outside] == 0).all()
    assert (poisoned["x"][outside] == 0).all()


def test_full_lengths_equal_no_lengths(device: str) -> None:
    case = make_case((2, 5, 20), device=device)
    whole = case.run(global_layer_norm)
    result = case.run(global_layer_norm, lengths=torch.full((2,), 20, device=device))
    assert all(relative_error(result[n], whole[n].double()) <= 1e-6 for n in whole)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_lengths_on_a_gpu_are_clamped(backend: str) -> None:
    case = make_case((3, 5, 20), device="cuda")
    beyond, clamped = (torch.tensor(v, device="cuda") for v in ([-3, 2**40, 7], [0, 20, 7]))
    with use_backend(backend):
        result = case.run(global_layer_norm, lengths=beyond)
        expected = case.run(global_layer_norm, lengths=clamped)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@pytest.mark.parametrize("lengths", [None, [20, 7]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("full", [True, False])
def test_opcheck(full: bool, dtype: torch.dtype, lengths: list[int] | None) -> None:
    case = make_case((2, 3, 20), dtype=dtype, affine=full, slope=0.25 if full else None)
    frames = None if lengths is None else torch.tensor(lengths)
    given = [case.x, case.weight, case.bias, case.prelu]
    leaves = [p if p is None else p.clone().requires_grad_() for p in given]
    torch.library.opcheck(OPS.global_norm.default, (*leaves, frames, 1e-8, None, "auto"))
    _, stats = OPS.global_norm(*given, frames, 1e-8, None, "auto")
    arguments = (case.dy, case.x, case.weight, case.prelu, stats, frames, full, full, "auto")
    torch.library.opcheck(OPS.global_norm_backward.default, arguments)
