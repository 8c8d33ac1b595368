"""A loss as a function of leaves of its own, which stand in for the parameters of a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

LossOfBatch = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of mixture, sources, lengths


class LeafLoss:
    """A loss whose backward pass never comes near the parameters themselves.

    Autograd treats a leaf on the stream where it was first used, for as long as a loss of it lives
    (or DistributedDataParallel holds it). For a parameter that is mostly the default stream, which
    cannot be captured: a capture that has to do with it fails.

    Args:
        function: ``function(mixture, sources, lengths)`` gives the loss, a scalar.
        model: whose parameters the loss takes from their modules.
        narrow: dtype of autocast; the weights of 1-D convolutions are cast to it all at once,
            where autocast would launch a kernel for each. None leaves that to autocast.

    Example:
        >>> model = nn.Linear(2, 1, bias=False)
        >>> loss = LeafLoss(lambda mix, sources, _: (model(mix) - sources).sum(), model)
        >>> loss.gradients(loss(torch.ones(3, 2), torch.ones(3, 1), None), torch.ones(()))
        [tensor([[3., 3.]])]
    """

    def __init__(
        self, function: LossOfBatch, model: nn.Module, narrow: torch.dtype | None = None
    ) -> None:
        self._bound = _Bound(function, model)
        named = {name: p for name, p in self._bound.named_parameters() if p.requires_grad}
        self._parameters = list(named.values())
        self._leaves = {name: p.detach() for name, p in named.items()}
        self._wide: list[Tensor] = []
        self._narrow: list[Tensor] = []
        for name in _weights_of_convolutions(self._bound) if narrow else ():
            if name in self._leaves:
                self._wide.append(self._leaves[name])
                self._narrow.append(self._leaves[name].to(narrow))
                self._leaves[name] = self._narrow[-1].detach()
        for leaf in self._leaves.values():
            leaf.requires_grad_()

    def __call__(self, mixture: Tensor, sources: Tensor, lengths: Tensor | None) -> Tensor:
        """The loss of a batch, for ``gradients``."""
        if self._narrow:
            with torch.no_grad():
                torch._foreach_copy_(self._narrow, self._wide)
        loss: Tensor = functional_call(self._bound, self._leaves, (mixture, sources, lengths))
        return loss

    def gradients(self, loss: Tensor, upstream: Tensor) -> list[Tensor | None]:
        """Those of the parameters that require any; None for one without a part in the loss.

        Raises:
            RuntimeError: the loss has a parameter from elsewhere than its module.
        """
        leaves = list(self._leaves.values())
        found = torch.autograd.grad(loss, [*leaves, *self._parameters], upstream, allow_unused=True)
        if any(gradient is not None for gradient in found[len(leaves) :]):
            raise RuntimeError("the loss uses parameters that it keeps outside of their modules")
        return list(found[: len(leaves)])


class _Bound(nn.Module):
    """What ``functional_call`` wants: a module of the model that gives the loss."""

    def __init__(self, function: LossOfBatch, model: nn.Module) -> None:
        super().__init__()
        self.function, self.model = function, model

    def forward(self, mixture: Tensor, sources: Tensor, lengths: Tensor | None) -> Tensor:
        return self.function(mixture, sources, lengths)


def _weights_of_convolutions(module: nn.Module) -> list[str]:
    """Of plain ones: those of other classes may do without a cast."""
    return [f"{name}.weight" for name, m in module.named_modules() if type(m) is nn.Conv1d]
