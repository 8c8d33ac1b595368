"""Laws of the sum over programs, in Triton's interpreter (by test_interpreter.py) and on a GPU."""

from __future__ import annotations

import pytest
import torch
from norm_cases import INTERPRET

SHAPES = [(1, 1), (1000, 3), (1025, 16), (5000, 1)]
# A last step in two launches, for few and for many columns; many programs are slow to interpret.
SHAPES += [(4097, 5)] if INTERPRET else [(30_000, 9), (1030, 5000), (132, 31_744)]
pytest.importorskip("triton")


@pytest.fixture(
    params=[
        pytest.param(
            "cpu",
            id="interpreter",
            marks=pytest.mark.skipif(not INTERPRET, reason="runs in test_interpreter.py"),
        ),
        pytest.param("cuda", id="triton", marks=pytest.mark.gpu),
    ]
)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_float64_sum(device: str, shape: tuple[int, int]) -> None:
    from convtasnet_kernels.partials import sum_rows

    rows = torch.randn(shape).to(device)
    expected = rows.double().sum(0)
    scale = rows.double().abs().sum(0)
    assert ((sum_rows(rows).double() - expected).abs() <= 1e-6 * scale).all()
    assert torch.equal(sum_rows(rows), sum_rows(rows.clone()))
    half = sum_rows(rows, torch.half)
    assert half.dtype == torch.half
    assert torch.equal(half, sum_rows(rows).half())


def test_rows_may_lie_apart_and_be_none(device: str) -> None:
    from convtasnet_kernels.partials import sum_rows

    wide = torch.randn(40, 24).to(device)
    wide[:, 17:] = float("nan")  # belongs to another
    assert torch.equal(sum_rows(wide[:, :17]), sum_rows(wide[:, :17].clone()))
    assert torch.equal(sum_rows(wide[:0]), torch.zeros(24, device=device))
    with pytest.raises(ValueError, match="columns side by side"):
        sum_rows(wide.t())
    with pytest.raises(ValueError, match="rows must be float32"):
        sum_rows(wide.half())
