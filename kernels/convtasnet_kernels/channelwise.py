"""The channelwise norm in PyTorch operators."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels.backend import log_torch_only
from convtasnet_kernels.checks import check_arguments
from convtasnet_kernels.pointwise import activate, affine


def channelwise_layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-8,
    prelu: Tensor | None = None,
) -> Tensor:
    """Each frame over its own channels: a layer norm over axis 1.

    Asteroid, SpeechBrain and ESPnet call this one "cLN"; the paper's cLN is
    ``cumulative_layer_norm``. It has a PyTorch path only, on every device; compile it for speed.
    Statistics are float32 (float64 for float64 input) around the first channel of the frame.

    Args:
        x: (B, C, T) float16, bfloat16, float32 or float64; B and T may be 0.
        weight: (C,) scale, or None for 1.
        bias: (C,) shift, or None for 0.
        eps: added to the variance, inside the root.
        prelu: (1,) slope of a PReLU applied to x first, or None for none.

    Returns:
        (B, C, T) of x's dtype and device.

    Raises:
        ValueError: an argument of another shape, dtype or device.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> channelwise_layer_norm(x)
    tensor([[[-1., -1.],
             [ 1.,  1.]]])
    """
    check_arguments(x, weight, bias, prelu)
    log_torch_only("channelwise_layer_norm", x)
    v = activate(x, prelu)
    d = v - v[:, :1].detach()
    if x.numel() == 0:  # no statistics of nothing; the graph stays whole
        return affine(d, weight, bias).to(x.dtype)
    var, mean = torch.var_mean(d, dim=1, correction=0, keepdim=True)
    return affine((d - mean) * torch.rsqrt(var + eps), weight, bias).to(x.dtype)
