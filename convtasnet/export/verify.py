"""Exports against the models that they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnxruntime
import torch
from torch import Tensor
from torch.export import ExportedProgram

from convtasnet.export.onnx_stream import OnnxStream
from convtasnet.model import ConvTasNet
from convtasnet.streaming import StreamingSeparator

TOLERANCE = 1e-4  # of the peak; rounding alone makes 1e-6
SECONDS = 4.0


def check_program(model: ConvTasNet, program: ExportedProgram) -> float:
    """Largest difference between ``program`` and ``model``, over the outputs' peak.

    Raises:
        RuntimeError: it is more than rounding.
    """
    shortest = model.kernel_size + model.stride
    shapes = [(1, shortest), (3, 1003), (1, round(SECONDS * model.sample_rate))]
    return _check(model, program.module(), shapes)


def check_offline(model: ConvTasNet, file: bytes) -> float:
    """As :func:`check_program`, for the bytes of an ONNX file, down to one sample."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(mixture: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"mixture": mixture.numpy()})[0])

    for length in (1, model.stride, model.kernel_size + 1):  # too short for some norms' digits
        found = run(babble(2 * length).view(2, -1))
        if found.shape != (2, model.n_src, length) or not found.isfinite().all():
            raise RuntimeError(f"the ONNX file fails at {length} samples: {tuple(found.shape)}")
    return _check(model, run, [(3, 1003), (1, round(SECONDS * model.sample_rate))])


def check_streaming(model: ConvTasNet, file: bytes, half_life: float | None) -> float:
    """As :func:`check_program`, for a streaming ONNX file and pushes of all lengths."""
    expected, found = both_streams(model, file, half_life)
    return _within_tolerance([float((found - expected).abs().max())], float(expected.abs().max()))


def int8_noise(model: ConvTasNet, file: bytes, half_life: float | None) -> float:
    """Power of the voices over that of what 8 bits change in them, in dB."""
    expected, found = both_streams(model, file, half_life)
    return float(10 * (expected.square().sum() / (found - expected).square().sum()).log10())


def both_streams(model: ConvTasNet, file: bytes, half_life: float | None) -> tuple[Tensor, Tensor]:
    """The voices (n_src, T) of the model's own stream and of the file's."""
    own, exported = StreamingSeparator(model, half_life), OnnxStream(file)
    mixture = babble(round(SECONDS * model.sample_rate))
    sizes = torch.randint(0, 3 * exported.frames * exported.stride, (len(mixture),)).tolist()
    expected, found = [own.push(mixture), own.flush()], []
    for size in sizes:
        block, mixture = mixture[:size], mixture[size:]
        found.append(exported.push(block.numpy()))
    found.append(exported.flush())
    return torch.cat(expected, 1), torch.from_numpy(np.concatenate(found, 1))


def babble(n_samples: int) -> Tensor:
    """Noise (n_samples,) whose level comes and goes as that of speech does."""
    generator = torch.Generator().manual_seed(0)
    level = (torch.arange(n_samples) / 1000).sin().clamp(min=0.01)
    return 0.2 * level * torch.randn(n_samples, generator=generator)


def _check(
    model: ConvTasNet, run: Callable[[Tensor], Tensor], shapes: Iterable[tuple[int, int]]
) -> float:
    """Also on a quiet mixture, where the norms' eps counts."""
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
        worst = max(worst, _within_tolerance(errors, peak))
    return worst


def _within_tolerance(errors: list[float], peak: float) -> float:
    error = max(errors) / peak if peak else max(errors)
    if not error < TOLERANCE:
        raise RuntimeError(f"the export differs from PyTorch by {error:.1e} of the peak")
    return error
