"""ONNX files against the models that they came from."""

from __future__ import annotations

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from convtasnet.export.onnx_stream import OnnxStream
from convtasnet.export.verify import SECONDS, babble, compare, within_tolerance
from convtasnet.model import ConvTasNet
from convtasnet.streaming import StreamingSeparator


def check_offline(model: ConvTasNet, file: bytes) -> float:
    """Largest difference between an ONNX file's bytes and the model, over the outputs' peak.

    Raises:
        RuntimeError: it is more than rounding, or the file fails at some length.
    """
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(mixture: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"mixture": mixture.numpy()})[0])

    for length in (1, model.stride, model.kernel_size + 1):  # too short for some norms' digits
        found = run(babble(2 * length).view(2, -1))
        if found.shape != (2, model.n_src, length) or not found.isfinite().all():
            raise RuntimeError(f"the ONNX file fails at {length} samples: {tuple(found.shape)}")
    return compare(model, run, [(3, 1003), (1, round(SECONDS * model.sample_rate))])


def check_streaming(model: ConvTasNet, file: bytes, half_life: float | None) -> float:
    """As :func:`check_offline`, for a streaming file and pushes of all lengths."""
    expected, found = both_streams(model, file, half_life)
    return within_tolerance([float((found - expected).abs().max())], float(expected.abs().max()))


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
