"""Exports against the models that they came from, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.export import ExportedProgram

from convtasnet.model import ConvTasNet

TOLERANCE = 1e-4  # of the peak; rounding alone makes 1e-6
SECONDS = 4.0


def check_program(model: ConvTasNet, program: ExportedProgram) -> float:
    """Largest difference between ``program`` and ``model``, over the outputs' peak.

    Raises:
        RuntimeError: it is more than rounding.
    """
    shortest = model.kernel_size + model.stride
    shapes = [(1, shortest), (3, 1003), (1, round(SECONDS * model.sample_rate))]
    return compare(model, program.module(), shapes)


def babble(n_samples: int) -> Tensor:
    """Noise (n_samples,) whose level comes and goes as that of speech does."""
    generator = torch.Generator().manual_seed(0)
    level = (torch.arange(n_samples) / 1000).sin().clamp(min=0.01)
    return 0.2 * level * torch.randn(n_samples, generator=generator)


def compare(
    model: ConvTasNet, run: Callable[[Tensor], Tensor], shapes: Iterable[tuple[int, int]]
) -> float:
    """Largest difference of ``run`` from the model on mixtures of these shapes, over the peak.

    Also on quiet ones, where the norms' eps counts.
    """
    model.eval()
    worst = 0.0
    for level in (1.0, 1e-3):
        errors, peak = [], 0.0
        for shape in shapes:
            mixture = level * babble(shape[0] * shape[1]).view(shape)
            with torch.no_grad():
                expected, found = model(mixture), run(mixture)
            if found.shape != expected.shape:
                raise RuntimeError(f"{tuple(found.shape)} instead of {tuple(expected.shape)}")
            errors.append(float((found - expected).abs().max()))
            peak = max(peak, float(expected.abs().max()))
        worst = max(worst, within_tolerance(errors, peak))
    return worst


def within_tolerance(errors: list[float], peak: float) -> float:
    """The largest error over the peak, or a RuntimeError where it is no rounding."""
    error = max(errors) / peak if peak else max(errors)
    if not error < TOLERANCE:
        raise RuntimeError(f"the export differs from PyTorch by {error:.1e} of the peak")
    return error
