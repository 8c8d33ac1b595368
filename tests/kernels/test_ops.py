"""The norms as operators: registration, gradients, compilation, arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from norm_cases import make_case, relative_error
from torch import Tensor

from convtasnet_kernels import channelwise_layer_norm, cumulative_layer_norm, global_layer_norm

NORMS = [cumulative_layer_norm, global_layer_norm, channelwise_layer_norm]
OPS = torch.ops.convtasnet


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("full", [True, False])
def test_opcheck(full: bool, dtype: torch.dtype) -> None:
    case = make_case((2, 3, 20), dtype=dtype, affine=full, slope=0.25 if full else None)
    given = [case.x, case.weight, case.bias, case.prelu]
    leaves = [p if p is None else p.clone().requires_grad_() for p in given]
    torch.library.opcheck(OPS.cumulative_norm.default, (*leaves, 1e-8, None, "auto"))
    _, stats = OPS.cumulative_norm(*given, 1e-8, None, "auto")
    arguments = (case.dy, case.x, case.weight, case.prelu, stats, full, full, "auto")
    torch.library.opcheck(OPS.cumulative_norm_backward.default, arguments)


@pytest.mark.parametrize("norm", NORMS)
def test_gradcheck(norm: Callable[..., Tensor]) -> None:
    case = make_case((2, 3, 6), mean=1.0, dtype=torch.float64)
    leaves = [p.requires_grad_() for p in (case.x, case.weight, case.bias, case.prelu)]
    assert torch.autograd.gradcheck(lambda x, w, b, a: norm(x, w, b, 1e-3, a), leaves)


def test_gradcheck_with_lengths() -> None:
    case = make_case((3, 3, 6), dtype=torch.float64)
    lengths = torch.tensor([6, 2, 0])
    leaves = [p.requires_grad_() for p in (case.x, case.weight, case.bias, case.prelu)]
    assert torch.autograd.gradcheck(
        lambda x, w, b, a: global_layer_norm(x, w, b, 1e-3, a, lengths), leaves
    )


@pytest.mark.parametrize(
    ("norm", "compiler"),  # aot_eager spares the C++ compiler
    [
        (cumulative_layer_norm, "inductor"),
        (global_layer_norm, "inductor"),
        (channelwise_layer_norm, "aot_eager"),
    ],
)
def test_compiled_equals_eager_for_two_lengths(norm: Callable[..., Tensor], compiler: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(norm, fullgraph=True, dynamic=True, backend=compiler)
    for frames in (40, 57):
        case = make_case((2, 4, frames), mean=2.0)
        eager, result = case.run(norm), case.run(compiled)
        for name, value in result.items():
            assert relative_error(value, eager[name].double()) <= 3e-6, name
        with torch.inference_mode():
            y = compiled(**case.parameters())
        assert relative_error(y, eager["y"].double()) <= 1e-6


def test_compiled_with_lengths() -> None:
    torch.compiler.reset()
    compiled = torch.compile(global_layer_norm, fullgraph=True, backend="aot_eager")
    case, lengths = make_case((3, 4, 20)), torch.tensor([20, 7, 1])
    eager = case.run(global_layer_norm, lengths=lengths)
    result = case.run(compiled, lengths=lengths)
    assert all(relative_error(result[n], eager[n].double()) <= 3e-6 for n in eager)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(4, 5)}, r"x must be .* got shape \(4, 5\)"),
        ({"x": torch.zeros(2, 0, 5)}, "x must have at least one channel"),
        ({"x": torch.zeros(2, 4, 5, dtype=torch.long)}, "x must be float16.*int64"),
        ({"weight": torch.ones(3)}, r"weight must be .* \(4,\), got \(3,\)"),
        ({"bias": torch.ones(1, 4)}, r"bias must be .* \(4,\), got \(1, 4\)"),
        ({"prelu": torch.ones(4)}, r"prelu must be .* \(1,\), got \(4,\)"),
        ({"weight": torch.ones(4, device="meta")}, "weight is on meta, x on cpu"),
        ({"x": [[[1.0]]]}, "x must be a tensor, got list"),
        ({"prelu": 0.25}, "prelu must be a tensor, got float"),
        ({"eps": -1e-8}, "eps must be a finite number >= 0, got -1e-08"),
        ({"eps": float("nan")}, "eps must be a finite number >= 0, got nan"),
        ({"eps": "1e-8"}, "eps must be a finite number >= 0, got '1e-8'"),
        ({"out_dtype": torch.int32}, r"out_dtype must be float16, .* got torch.int32"),
        ({"out_dtype": "half"}, r"out_dtype must be float16, .* got 'half'"),
    ],
)
def test_wrong_arguments_are_named(
    norm: Callable[..., Tensor], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        norm(**{"x": torch.zeros(2, 4, 5), **arguments})


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([1, 2, 3]), r"lengths must be \(2,\), got shape \(3,\)"),
        (torch.tensor([1.0, 2.0]), "lengths must hold integers.*float32"),
        (torch.tensor([1, 6]), r"lengths must lie in \[0, 5\], got \[1, 6\]"),
        (torch.tensor([-1, 5]), r"lengths must lie in \[0, 5\], got \[-1, 5\]"),
    ],
)
def test_wrong_lengths_are_named(lengths: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        global_layer_norm(torch.zeros(2, 4, 5), lengths=lengths)
