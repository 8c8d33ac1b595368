"""The norms as modules: what they are under autocast. Their values are tests/kernels'."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from convtasnet.norms import NORMS


@pytest.mark.parametrize("name", ["cumulative", "global", "channelwise"])
def test_autocast_rounds_as_a_cast_in_front_of_the_convolution(name: str) -> None:
    norm, convolution = NORMS[name](6), nn.Conv1d(6, 4, 1)
    x = torch.randn(2, 6, 16, requires_grad=True)
    leaves = [x, *norm.parameters()]

    def results(y: Tensor) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            z = convolution(y)
        return [z, *torch.autograd.grad(z.float().square().sum(), leaves)]

    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x)
    assert y.dtype == torch.bfloat16
    assert all(map(torch.equal, results(y), results(norm(x))))  # the second from float32


@pytest.mark.parametrize("name", NORMS)
def test_autocast_leaves_float64_alone(name: str) -> None:
    norm, x = NORMS[name](6).double(), torch.randn(2, 6, 16, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x).dtype == torch.float64
