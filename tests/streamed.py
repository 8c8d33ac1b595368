"""Causal models of all kinds, whose every parameter matters, and their streams in pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convtasnet import ConvTasNet, StreamingSeparator
from convtasnet.norms import BatchNorm, Norm

CAUSAL: dict[str, Any] = {
    "n_filters": 16,
    "bn_chan": 8,
    "hid_chan": 12,
    "skip_chan": 6,
    "n_blocks": 3,
    "n_repeats": 2,
    "norm": "cumulative",
    "causal": True,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "channelwise"},
    {"norm": "batch"},
    {"norm": "cumulative_legacy"},
    {"input_norm": "channelwise"},
    {"skip_chan": 0},
    {"encoder_act": "relu"},
    {"n_src": 1},
    {"n_src": 3, "mask_act": "softmax"},
    {"mask_act": "softmax_filters"},
    {"mask_act": "sigmoid"},
    {"filterbank": "stft"},
    {"filterbank": "analytic_free"},
    {"filterbank": "param_sinc"},
    {"filterbank": "mpgtf", "n_filters": 48},
    {"kernel_size": 20},
    {"kernel_size": 21, "stride": 5},
    {"kernel_size": 8},
    {"framing": "drop"},
    {"framing": "drop", "kernel_size": 21, "stride": 5},
    {"framing": "centered"},
    {"framing": "centered", "kernel_size": 8},
    {"conv_kernel_size": 1},
    {"conv_kernel_size": 4},
]


def causal(**changes: Any) -> ConvTasNet:
    """A model with random norms, a gain of zero and a tiny one among them."""
    torch.manual_seed(1)
    model = ConvTasNet(**{**CAUSAL, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, Norm):
                module.weight[:2] = torch.tensor([0.0, 1e-20])
            if isinstance(module, BatchNorm):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def streamed(stream: StreamingSeparator, mixture: Tensor, sizes: list[int]) -> Tensor:
    """All outputs for the mixture in pieces of these sizes, over and over; checks the latency."""
    outputs, taken, given = [], 0, 0
    while taken < len(mixture):
        for size in sizes:
            outputs.append(stream.push(mixture[taken : taken + size]))
            taken = min(taken + size, len(mixture))
            given += outputs[-1].shape[1]
            assert taken - stream.latency <= given <= taken
    return torch.cat([*outputs, stream.flush()], 1)


def relative_error(value: Tensor, reference: Tensor) -> float:
    """Largest error over the reference's peak; zeros are equal to zeros."""
    value, reference = value.detach(), reference.detach()
    return float((value - reference).abs().max() / reference.abs().max().clamp(min=1e-30))
