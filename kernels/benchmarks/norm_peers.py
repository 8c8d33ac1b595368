"""Who is measured: this project's norms, and what else computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet_kernels import (
    channelwise_layer_norm,
    cumulative_layer_norm,
    global_layer_norm,
    layer_norm,
    reference,
)

OURS = "ours"
EPS = 1e-8
LAYER_EPS = 1e-5

# (x, weight, bias, the PReLU's slope or None) -> y
Norm = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Peer:
    """An implementation of a norm.

    Args:
        name: heading of its column.
        norm: computes it.
        compiled: whether torch.compile takes it, for each shape anew.
        like_input: whether its parameters have x's dtype, as PyTorch's own norms want; else
            float32.
        package: what has to be installed for it.
        plotted: whether it is a line of the plots.
    """

    name: str
    norm: Norm
    compiled: bool = False
    like_input: bool = False
    package: str | None = None
    plotted: bool = True

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return self.package is None or find_spec(self.package) is not None

    @property
    def builds(self) -> bool:
        """Whether its first call on a map compiles kernels."""
        return self.compiled or self.name == OURS or self.package is not None

    def callable(self) -> Norm:
        """The norm, to be compiled at its first call if it is a compiled peer."""
        if not self.compiled:
            return self.norm
        torch.compiler.reset()  # else the limit of recompilations sends later shapes to eager mode
        return torch.compile(self.norm, dynamic=False, fullgraph=True)


def formula(
    x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None, eps: float = EPS
) -> Tensor:
    """The cumulative norm as toolkits write it: mean and mean square by two sums over time.

    In float32 at least, as autocast would run it: a count in float16 overflows at frame 128.

    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])
    >>> formula(x, torch.ones(2), torch.zeros(2), None)
    tensor([[[-1.0000, -0.5345],
             [ 1.0000,  1.6036]]])
    """
    v = x.to(torch.promote_types(x.dtype, torch.float32))
    if prelu is not None:
        v = F.prelu(v, prelu)
    n = v.shape[1] * torch.arange(1, v.shape[2] + 1, dtype=v.dtype, device=v.device)
    mean = v.sum(1).cumsum(1) / n
    var = v.square().sum(1).cumsum(1) / n - mean.square()
    y = (v - mean[:, None]) / torch.sqrt(var + eps)[:, None]
    return (y * weight[:, None] + bias[:, None]).to(x.dtype)


def cumulative_reference(x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None) -> Tensor:
    """``reference.cumulative`` in float32 at least."""
    v = x.to(torch.promote_types(x.dtype, torch.float32))
    return reference.cumulative(v, weight, bias, EPS, prelu).to(x.dtype)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None) -> Tensor:
    """The global norm: PyTorch's group norm with one group, behind its PReLU."""
    v = x if prelu is None else F.prelu(x, prelu)
    return F.group_norm(v, 1, weight, bias, EPS)


def transposed_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None) -> Tensor:
    """The channelwise norm: PyTorch's layer norm of the transposed map, and back."""
    v = x if prelu is None else F.prelu(x, prelu)
    y = F.layer_norm(v.transpose(1, 2), (x.shape[1],), weight, bias, EPS)
    return y.transpose(1, 2).contiguous()


def torch_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, LAYER_EPS)


def liger_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None) -> Tensor:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return LigerLayerNormFunction.apply(x, weight, bias, LAYER_EPS)


def apex_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None) -> Tensor:
    from apex.normalization.fused_layer_norm import fused_layer_norm_affine

    return fused_layer_norm_affine(x, weight, bias, x.shape[-1:], LAYER_EPS)


def _ours(
    norm: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None
) -> Tensor:
    return norm(x, weight, bias, EPS, prelu)


def _our_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, _: Tensor | None) -> Tensor:
    return layer_norm(x, weight, bias, LAYER_EPS)


PEERS = {
    "cumulative": [
        Peer(OURS, partial(_ours, cumulative_layer_norm)),
        Peer("formula", formula),
        Peer("formula, compiled", formula, compiled=True),
        Peer("reference, compiled", cumulative_reference, compiled=True, plotted=False),
    ],
    "global": [
        Peer(OURS, partial(_ours, global_layer_norm)),
        Peer("torch", group_norm, like_input=True),
        Peer("torch, compiled", group_norm, compiled=True, like_input=True),
    ],
    "channelwise": [
        Peer(OURS, partial(_ours, channelwise_layer_norm)),
        Peer("torch", transposed_layer_norm, like_input=True),
        Peer("torch, compiled", transposed_layer_norm, compiled=True, like_input=True),
    ],
    "layer": [
        Peer(OURS, _our_layer_norm, like_input=True),
        Peer("torch", torch_layer_norm, like_input=True),
        Peer("torch, compiled", torch_layer_norm, compiled=True, like_input=True),
        Peer("Liger-Kernel", liger_layer_norm, like_input=True, package="liger_kernel"),
        Peer("Apex", apex_layer_norm, like_input=True, package="apex"),
    ],
}
