"""Inputs, float64 references and tolerances of the norm tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

INTERPRET = os.environ.get("TRITON_INTERPRET") == "1"

# Relative errors, max|error| / max|reference|, of the output and of each gradient. Half precision
# adds one rounding of the output and of dx; statistics and parameter gradients stay float32.
TOLERANCES = {
    torch.float64: {"y": 1e-12, "x": 1e-11, "weight": 1e-11, "bias": 1e-12, "prelu": 1e-12},
    torch.float32: {"y": 1e-6, "x": 1e-6, "weight": 2e-6, "bias": 2e-6, "prelu": 1e-6},
    torch.bfloat16: {"weight": 2e-6, "bias": 2e-6, "prelu": 1e-6},
    torch.float16: {"weight": 2e-6, "bias": 2e-6, "prelu": 1e-6},
}
OFFSET_TOLERANCE = 1e-5  # float32 around a large mean: the input itself is rounded
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
if INTERPRET:  # whose bfloat16 is cut off, not rounded
    ROUNDING[torch.bfloat16] = 2**-7
for dtype, rounding in ROUNDING.items():
    TOLERANCES[dtype].update(y=rounding, x=rounding)


@dataclass
class Case:
    """Arguments of a norm and the gradient of its output."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    prelu: Tensor | None
    dy: Tensor

    def parameters(self) -> dict[str, Tensor]:
        named = {"x": self.x, "weight": self.weight, "bias": self.bias, "prelu": self.prelu}
        return {name: p for name, p in named.items() if p is not None}

    def run(self, norm: Callable[..., Tensor], **kwargs: Any) -> dict[str, Tensor]:
        """The output under "y" and the gradient of each argument under its name."""
        arguments = {name: p.detach().requires_grad_() for name, p in self.parameters().items()}
        y = norm(**arguments, **kwargs)
        grads = torch.autograd.grad(y, list(arguments.values()), self.dy.to(y.dtype))
        return {"y": y.detach(), **dict(zip(arguments, grads, strict=True))}

    def double(self) -> Case:
        parts = (self.x, self.weight, self.bias, self.prelu, self.dy)
        return Case(*(None if p is None else p.double() for p in parts))


def make_case(
    shape: tuple[int, int, int],
    mean: float = 0.0,
    std: float = 1.0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    affine: bool = True,
    slope: float | None = 0.25,
) -> Case:
    x = (torch.randn(shape, dtype=torch.float64) * std + mean).to(device, dtype)
    dy = torch.randn(shape).to(device, dtype)
    parameter = torch.float64 if dtype == torch.float64 else torch.float32
    weight, bias = (torch.randn(shape[1], dtype=parameter).to(device) for _ in range(2))
    prelu = None if slope is None else torch.tensor([slope], dtype=parameter, device=device)
    return Case(x, weight if affine else None, bias if affine else None, prelu, dy)


def relative_error(value: Tensor, reference: Tensor) -> float:
    if value.numel() == 0:
        return 0.0
    scale = reference.abs().max().clamp_min(1e-300)
    return ((value.double() - reference).abs().max() / scale).item()


def weight_error(value: Tensor, case: Case, reference: Tensor) -> float:
    """Error of the weight's gradient against the largest of it.

    A single channel has one sum, which may cancel by chance: it counts no less than the root of its
    squared terms, what a sum of random signs comes to.
    """
    scale = reference.abs().max()
    if reference.numel() == 1:
        scale = scale.clamp_min((case.dy.double().square().sum()).sqrt())
    return ((value.double() - reference).abs().max() / scale.clamp_min(1e-300)).item()


def slope_error(value: Tensor, case: Case, reference: dict[str, Tensor]) -> float:
    """Error of the slope's gradient against the sum of its terms' magnitudes.

    ``reference`` comes from ``case.double()``, whose dx is slope·(gradient of the PReLU's output)
    where x <= 0.
    """
    assert case.prelu is not None
    terms = (reference["x"] / case.prelu.double() * case.x.double().clamp_max(0)).abs().sum()
    return ((value.double() - reference["prelu"]).abs() / terms.clamp_min(1e-300)).item()


def assert_close(
    result: dict[str, Tensor],
    reference: dict[str, Tensor],
    case: Case,
    tolerances: dict[str, float] | float | None = None,
) -> None:
    """Output and gradients within the table, with a message that names the worst offender."""
    table = TOLERANCES[case.x.dtype] if tolerances is None else tolerances
    for name, value in result.items():
        limit = table[name] if isinstance(table, dict) else table
        if name == "prelu":
            error = slope_error(value, case, reference)
        elif name == "weight":
            error = weight_error(value, case, reference[name])
        else:
            error = relative_error(value, reference[name])
        assert error <= limit, f"{name}: relative error {error:.2e} > {limit:.0e}"
