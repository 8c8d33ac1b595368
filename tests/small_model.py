"""A small model, none of whose parameters have the values that they begin with."""

from __future__ import annotations

from typing import Any

import torch

from convtasnet import ConvTasNet

SMALL: dict[str, Any] = {
    "n_filters": 32,
    "bn_chan": 8,
    "hid_chan": 16,
    "skip_chan": 8,
    "n_blocks": 3,
    "n_repeats": 2,
}
CAUSAL: dict[str, Any] = {"norm": "cumulative", "causal": True}


def small(**changes: Any) -> ConvTasNet:
    torch.manual_seed(1)
    model = ConvTasNet(**{**SMALL, **changes})
    with torch.no_grad():  # defaults of 0 and 1 would hide a mistake
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()
