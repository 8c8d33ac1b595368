"""What a block's backward steps are given, and what they have to give in float64."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
from block_cases import NORMS
from norm_cases import ROUNDING, relative_error
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import block_torch, reference

# max|error| / max|reference|; a map of 16 bits adds its rounding.
TOLERANCE = 2e-6


@dataclass
class Inputs:
    """A PReLU and a norm of a map u, and the gradient of what comes of it."""

    u: Tensor
    slope: Tensor
    gamma: Tensor
    beta: Tensor
    lengths: Tensor | None
    kind: str
    g: Tensor

    @property
    def valid(self) -> Tensor:
        """(B, 1, F)."""
        return block_torch.valid_frames(self.u, self.lengths)[:, None]

    @property
    def stats(self) -> Tensor:
        """float32 of the statistics in float64."""
        u, slope = self.u.double(), self.slope.double()
        sums = block_torch.frame_sums(u, slope)
        return block_torch.statistics(sums, u.shape[1], self.kind, self.lengths, 1e-8).float()

    def doubles(self) -> list[Tensor]:
        return [p.double().requires_grad_() for p in (self.u, self.slope, self.gamma, self.beta)]

    def normalized(self, u: Tensor, slope: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        """The norm's output, zero beyond the lengths."""
        clean = torch.where(self.valid, u, 0.0)
        if self.kind == "global":
            return reference.global_(clean, gamma, beta, 1e-8, slope, self.lengths)
        return torch.where(self.valid, NORMS[self.kind](clean, gamma, beta, 1e-8, slope), 0.0)


def make_inputs(
    device: str,
    shape: tuple[int, int, int] = (1, 3, 24),
    kind: str = "cumulative",
    lengths: list[int] | None = None,
    dtype: torch.dtype = torch.float32,
    mean: float = 0.0,
    std: float = 1.0,
) -> Inputs:
    u = (torch.randn(shape, dtype=torch.float64) * std + mean).to(device, dtype)
    g = torch.randn(shape).to(device, dtype)
    gamma, beta = (torch.randn(shape[1]).to(device) for _ in range(2))
    slope = torch.tensor([0.25], device=device)
    frames = None if lengths is None else torch.tensor(lengths, device=device)
    return Inputs(u, slope, gamma, beta, frames, kind, g)


def coefficients(path: ModuleType, inputs: Inputs) -> Tensor:
    """The first two steps of a norm's backward."""
    i = inputs
    partial = path.norm_gradient_sums(i.g, i.u, i.slope, i.gamma, i.stats, i.lengths)
    return path.gradient_statistics(partial, i.stats, i.kind, i.lengths, i.u.shape[1])


def run_norm(path: ModuleType, inputs: Inputs) -> dict[str, Tensor]:
    """All three."""
    i = inputs
    norm = (i.u, i.slope, i.gamma, i.beta, i.stats)
    du, z, rows = path.norm_gradient(i.g, *norm, coefficients(path, i), i.lengths, True)
    sums = rows.sum(0).view(4, -1)
    return {"du": du, "z": z, "gamma": sums[0], "beta": sums[1], "bias": sums[2],
            "slope": sums[3].sum()[None]}  # fmt: skip


def expected_norm(inputs: Inputs) -> dict[str, Tensor]:
    leaves = inputs.doubles()
    z = inputs.normalized(*leaves)
    g = torch.where(inputs.valid, inputs.g.double(), 0.0)
    du, slope, gamma, beta = torch.autograd.grad(z, leaves, g)
    return {"du": du, "z": z.detach(), "gamma": gamma, "beta": beta, "bias": du.sum((0, 2)),
            "slope": slope, "slope terms": _slope_terms(du, inputs)}  # fmt: skip


def _slope_terms(du: Tensor, inputs: Inputs) -> Tensor:
    """The magnitudes of what the slope's gradient is the sum of."""
    terms = du / inputs.slope.double() * inputs.u.double().clamp_max(0)
    return terms.abs().sum()


def assert_near(
    result: dict[str, Tensor], expected: dict[str, Tensor], limit: float = TOLERANCE
) -> None:
    for name, value in result.items():
        rounding = ROUNDING.get(value.dtype, 0.0)
        error = relative_error(value, expected[name])
        if name == "slope":  # which cancels: against the magnitudes of its terms
            error *= float(expected[name].abs() / expected["slope terms"])
        assert error <= limit + rounding, f"{name}: relative error {error:.2e}"


def run_taps(
    path: ModuleType, inputs: Inputs, weight: Tensor, dilation: int, causal: bool
) -> dict[str, Tensor]:
    i = inputs
    g = torch.where(i.valid, i.g, 0.0)
    dz, rows, partial = path.depthwise_gradient(
        g, i.u, i.slope, i.gamma, i.beta, i.stats, weight, dilation, causal, i.lengths
    )
    return {
        "dz": dz,
        "weight": rows.sum(0).view(weight.shape),
        "sum": partial[0].sum(1),
        "product": partial[1].sum(1),
    }


def expected_taps(inputs: Inputs, weight: Tensor, dilation: int, causal: bool) -> dict[str, Tensor]:
    u, slope, gamma, beta = (p.detach() for p in inputs.doubles())
    z = inputs.normalized(u, slope, gamma, beta).requires_grad_()
    taps = weight.double().requires_grad_()
    reach = dilation * (weight.shape[2] - 1)
    left = reach if causal else reach // 2
    y = F.conv1d(F.pad(z, (left, reach - left)), taps, dilation=dilation, groups=z.shape[1])
    g = torch.where(inputs.valid, inputs.g.double(), 0.0)
    dz, dweight = torch.autograd.grad(y, (z, taps), g)
    dz = torch.where(inputs.valid, dz, 0.0)
    xhat = inputs.normalized(u, slope, torch.ones_like(gamma), torch.zeros_like(gamma))
    scaled = dz * gamma[:, None]
    return {
        "dz": dz,
        "weight": dweight,
        "sum": scaled.sum(1),
        "product": (scaled * xhat).sum(1),
    }
