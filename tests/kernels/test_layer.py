"""Laws of the layer norm, on each path: PyTorch, Triton's interpreter, Triton on a GPU.

The interpreter wants its environment variable before triton is imported: test_interpreter.py runs
this file again in a process of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from norm_cases import (
    INTERPRET,
    OFFSET_TOLERANCE,
    ROUNDING,
    Case,
    assert_close,
    make_case,
    relative_error,
)
from torch import Tensor

from convtasnet_kernels import layer_norm, reference

OPS = torch.ops.convtasnet
ROWS = 3 if INTERPRET else 9  # the interpreter is slow


def rows(shape: tuple[int, ...], **options: Any) -> Case:
    """A case whose x has any shape (..., N)."""
    M = torch.Size(shape[:-1]).numel()
    case = make_case((M, shape[-1], 1), slope=None, **options)
    case.x, case.dy = case.x.reshape(shape), case.dy.reshape(shape)
    return case


def expected_of(case: Case) -> dict[str, Tensor]:
    """By the channelwise norm's definition: a row is the channels of a frame."""

    def norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return reference.channelwise(x.reshape(-1, x.shape[-1], 1), weight, bias, 1e-5).view(
            x.shape
        )

    return case.double().run(norm)


@pytest.mark.parametrize("shape", [(5, 12), (12,), (2, 3, 4, 12), (70, 3)])
@pytest.mark.parametrize("affine", [True, False])
def test_equals_the_float64_reference(device: str, affine: bool, shape: tuple[int, ...]) -> None:
    case = rows(shape, device=device, affine=affine)
    assert_close(case.run(layer_norm), expected_of(case), case)


def test_equals_pytorch(device: str) -> None:
    case = rows((6, 50), dtype=torch.float64, device=device)
    result = case.run(layer_norm)
    y = torch.nn.functional.layer_norm(case.x, (50,), case.weight, case.bias)
    assert relative_error(result["y"], y) <= 1e-12


@pytest.mark.parametrize("columns", [1, 3, 96, 129, 257, 384, 2560, 8704])
def test_padded_lanes_stay_out_of_the_statistics(device: str, columns: int) -> None:
    if INTERPRET and columns > 2560:
        pytest.skip("too slow in the interpreter, which sees rows of three chunks anyway")
    case = rows((ROWS, columns), mean=5.0, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_all_row_lengths_of_the_tables(dtype: torch.dtype) -> None:
    for columns in (*range(512, 16_385, 512), 8703, 16_385, 32_769):
        case = rows((150, columns), mean=-2.3, std=0.5, dtype=dtype, device="cuda")
        assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_that_registers_cannot_hold(
    device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRET:
        from convtasnet_kernels import layer, layer_backward, layer_wide

        for module in (layer, layer_backward):
            monkeypatch.setattr(module, "TILES", {2: (), 4: ()})
        for name, value in (("BLOCK", 64), ("COLUMNS", 64), ("PROGRAMS", 8)):
            monkeypatch.setattr(layer_wide, name, value)
    case = rows((5, 200 if device == "cpu" else 1_000_001), mean=5.0, dtype=dtype, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_scale_and_shift_may_be_read_late(
    device: str, late: bool, affine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks so short that a row has four, the last of them ragged."""
    if INTERPRET or device == "cuda":
        from convtasnet_kernels import layer

        line = layer.Tile(256, 1, 64, 1, 1, layer.EACH, late)
        monkeypatch.setattr(layer, "TILES", {2: (line,), 4: (line,)})
    case = rows((ROWS, 201), mean=5.0, affine=affine, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.parametrize("columns", [3, 700])
@pytest.mark.parametrize("std", [0.1, 0.01])
@pytest.mark.parametrize("mean", [100.0, -1000.0])
def test_a_large_mean_costs_no_digits(device: str, mean: float, std: float, columns: int) -> None:
    case = rows((ROWS, columns), mean=mean, std=std, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case, OFFSET_TOLERANCE)


@pytest.mark.parametrize("value", [0.0, 1e-3, -7.3, 1000.1])
def test_constant_input_gives_the_bias(device: str, value: float) -> None:
    case = rows((4, 70), device=device)
    case.x = torch.full_like(case.x, value)
    result = case.run(layer_norm)
    assert all(torch.isfinite(r).all() for r in result.values())
    torch.testing.assert_close(result["y"], case.bias.expand(4, 70), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [96, 1100])
def test_half_precision_costs_one_rounding(device: str, columns: int, dtype: torch.dtype) -> None:
    case = rows((ROWS, columns), mean=0.3, dtype=dtype, device=device)
    result, expected = case.run(layer_norm), expected_of(case)
    assert result["y"].dtype == result["x"].dtype == dtype
    assert result["weight"].dtype == torch.float32
    error = (result["y"].double() - expected["y"]).abs()
    floor = 1e-6 * expected["y"].abs().max()
    assert (error <= ROUNDING[dtype] * expected["y"].abs() + floor).all()
    assert_close(result, expected, case)


@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float32])
def test_parameters_get_gradients_of_their_dtype(device: str, bias_dtype: torch.dtype) -> None:
    case = rows((7, 40), dtype=torch.bfloat16, device=device)
    case.weight, case.bias = case.weight.bfloat16(), case.bias.to(bias_dtype)
    result = case.run(layer_norm)
    assert result["weight"].dtype == torch.bfloat16
    assert result["bias"].dtype == bias_dtype
    assert_close(result, expected_of(case), case, ROUNDING[torch.bfloat16])


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bad_row_stays_alone(device: str, dtype: torch.dtype, poison: float) -> None:
    case = rows((9, 50), dtype=dtype, device=device)
    clean = case.run(layer_norm)
    case.x[5, 2] = poison
    result = case.run(layer_norm)
    good = [0, 1, 2, 3, 4, 6, 7, 8]
    for name in ("y", "x"):
        assert torch.equal(result[name][good], clean[name][good])
        assert result[name][5].isnan().all()


def test_strides_do_not_matter(device: str) -> None:
    case = rows((6, 4, 33), device=device)
    expected = case.run(layer_norm)
    case.x = case.x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    case.dy = case.dy.transpose(0, 1).contiguous().transpose(0, 1)
    case.weight = torch.stack((case.weight, case.weight), 1)[:, 0]
    for name, value in case.run(layer_norm).items():
        assert torch.equal(value, expected[name]), name


def test_expanded_input_and_gradient(device: str) -> None:
    case = rows((1, 33), device=device)
    case.x = case.x.expand(5, 33)
    case.dy = torch.ones((), device=device).expand(5, 33)
    case.x = case.x * torch.linspace(0.5, 2, 33, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.parametrize("shape", [(0, 7), (3, 0, 7)])
def test_empty_input(device: str, shape: tuple[int, ...]) -> None:
    result = rows(shape, device=device).run(layer_norm)
    assert result["y"].shape == result["x"].shape == shape
    assert all((result[name] == 0).all() for name in ("weight", "bias"))


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_gradients_only_where_asked(device: str, wanted: str) -> None:
    case = rows((7, 33), device=device)
    expected = case.run(layer_norm)[wanted]
    arguments = case.parameters()
    arguments[wanted] = arguments[wanted].detach().requires_grad_()
    layer_norm(**arguments).backward(case.dy)
    assert torch.equal(arguments[wanted].grad, expected)
    assert all(p.grad is None for name, p in arguments.items() if name != wanted)


def test_bits_repeat_and_rows_are_independent(device: str) -> None:
    case = rows((ROWS, 300), device=device)
    first, second = case.run(layer_norm), case.run(layer_norm)
    assert all(torch.equal(first[name], second[name]) for name in first)
    case.x = case.x.flip(0)
    assert torch.equal(case.run(layer_norm)["y"].flip(0), first["y"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_nothing(device: str, dtype: torch.dtype) -> None:
    case = rows((4, 33), mean=1000.0, dtype=dtype, device=device)
    expected = case.run(layer_norm)
    with torch.autocast(device, dtype=torch.bfloat16):
        result = case.run(layer_norm)
    assert all(torch.equal(result[name], expected[name]) for name in expected)


def test_float64_takes_the_torch_path(device: str) -> None:
    case = rows((6, 33), mean=3.0, dtype=torch.float64, device=device)
    assert_close(case.run(layer_norm), expected_of(case), case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("affine", [True, False])
def test_opcheck(affine: bool, dtype: torch.dtype) -> None:
    case = rows((5, 12), dtype=dtype, affine=affine)
    given = [case.x, case.weight, case.bias]
    leaves = [p if p is None else p.clone().requires_grad_() for p in given]
    torch.library.opcheck(OPS.layer_norm.default, (*leaves, 1e-5, "auto"))
    _, stats = OPS.layer_norm(*given, 1e-5, "auto")
    arguments = (case.dy, case.x, case.weight, stats, affine, stats.dtype, "auto")
    torch.library.opcheck(OPS.layer_norm_backward.default, arguments)


def test_gradcheck() -> None:
    case = rows((3, 4), mean=1.0, dtype=torch.float64)
    leaves = [p.requires_grad_() for p in (case.x, case.weight, case.bias)]
    assert torch.autograd.gradcheck(lambda x, w, b: layer_norm(x, w, b, 1e-3), leaves)


def test_compiled_equals_eager_for_two_shapes() -> None:
    torch.compiler.reset()
    compiled = torch.compile(layer_norm, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((5, 40), (9, 40)):
        case = rows(shape, mean=2.0)
        eager, result = case.run(layer_norm), case.run(compiled)
        assert all(torch.equal(result[name], eager[name]) for name in eager)
        with torch.inference_mode():
            assert torch.equal(compiled(**case.parameters()), eager["y"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(())}, r"x must be \(\.\.\., N\) with N > 0, got shape \(\)"),
        ({"x": torch.zeros(4, 0)}, r"x must be \(\.\.\., N\) with N > 0, got shape \(4, 0\)"),
        ({"x": torch.zeros(2, 5, dtype=torch.long)}, "x must be float16.*int64"),
        ({"weight": torch.ones(3)}, r"weight must be .* \(4,\), got \(3,\)"),
        ({"bias": torch.ones(1, 4)}, r"bias must be .* \(4,\), got \(1, 4\)"),
        ({"weight": torch.ones(4, device="meta")}, "weight is on meta, x on cpu"),
        ({"x": [[[1.0]]]}, "x must be a tensor, got list"),
        ({"bias": 0.25}, "bias must be a tensor, got float"),
        ({"eps": -1e-8}, "eps must be a finite number >= 0, got -1e-08"),
        ({"eps": float("nan")}, "eps must be a finite number >= 0, got nan"),
        ({"eps": "1e-8"}, "eps must be a finite number >= 0, got '1e-8'"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer_norm(**{"x": torch.zeros(2, 4), **arguments})
