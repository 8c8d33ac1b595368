"""Adam's update of all parameters in one launch, as long as they lie side by side."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from convtasnet.side_by_side import as_one, laid_out


def join_updates(optimizer: Optimizer) -> None:
    """Let a fused Adam or AdamW on a GPU update its parameters in one launch, to the same bits.

    PyTorch's takes some 36 parameters a launch and gives 65,536 elements to one multiprocessor: a
    few large weights keep all others waiting. Here parameters and moments move to memories that
    they share; where the gradients share one, too, as those of ``graphed_loss.GraphedLoss``, a step
    sees a single tensor of each. Any other step is PyTorch's own, and so are ``state``,
    ``state_dict`` and all the rest. Other optimizers stay as they are.

    Args:
        optimizer: before its parameters are captured in a graph: they get other addresses.

    Example:
        >>> model = torch.nn.Linear(4, 2)
        >>> join_updates(torch.optim.Adam(model.parameters(), fused=True))
    """
    if not isinstance(optimizer, torch.optim.Adam) or len(optimizer.param_groups) != 1:
        return
    group = optimizer.param_groups[0]
    parameters = [p for p in group["params"] if p.requires_grad]
    if not group["fused"] or group["amsgrad"] or not parameters or not gains(parameters[0]):
        return
    lay_side_by_side(parameters)
    setattr(optimizer, "_init_group", _Collector(optimizer))  # noqa: B010 (mypy forbids it)


def gains(parameter: Tensor) -> bool:
    """Whether launches count where the parameter is."""
    return parameter.is_cuda


def lay_side_by_side(parameters: list[Tensor]) -> None:
    """Move parameters to a memory that they share, if one can hold them."""
    places = _copied(parameters)
    if as_one(places) is not None:
        for p, place in zip(parameters, places, strict=True):
            p.data = place


@torch.no_grad()
def _copied(tensors: list[Tensor]) -> list[Tensor]:
    """The same values side by side."""
    places = laid_out(tensors)
    torch._foreach_copy_(places, tensors)
    return places


class _Collector:
    """What a step of Adam is about: called in place of the method that collects its tensors."""

    def __init__(self, optimizer: torch.optim.Adam) -> None:
        self._optimizer = weakref.proxy(optimizer)  # a cycle would keep its memory for a while
        self._collect = type(optimizer)._init_group
        self._known: dict[str, tuple[list[int], Tensor]] = {}  # addresses, and all as one

    def __call__(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        steps: list[Tensor],
    ) -> bool:
        lists = (params, grads, exp_avgs, exp_avg_sqs)
        has_complex: bool = self._collect(self._optimizer, group, *lists, max_exp_avg_sqs, steps)
        if not params or not self._join(*lists, steps):
            self._known.clear()
        return has_complex

    def _join(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        steps: list[Tensor],
    ) -> bool:
        """Make each list one tensor; False where they have to stay as they are."""
        gradients, weights = self._as_one("grad", grads), self._as_one("param", params)
        if gradients is None or weights is None:
            return False
        if not self._is_known("step", steps) and bool((torch.stack(steps) != steps[0]).any()):
            return False
        state = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": steps}
        for key, values in state.items():
            if self._as_one(key, values) is None:  # new, or loaded
                values[:] = _copied(values)
                for p, value in zip(params, values, strict=True):
                    self._optimizer.state[p][key] = value
            values[:] = [self._whole(key, values)]
        params[:], grads[:] = [weights], [gradients]
        steps[0][1:] += 1
        steps[:] = [steps[0][0]]  # which Adam counts up
        return True

    def _as_one(self, key: str, tensors: list[Tensor]) -> Tensor | None:
        """``as_one``, which takes its time, where they are not those of the last step."""
        if not self._is_known(key, tensors):
            memory = as_one(tensors)
            if memory is None:
                return None
            self._known[key] = [tensor.data_ptr() for tensor in tensors], memory
        return self._known[key][1]

    def _whole(self, key: str, tensors: list[Tensor]) -> Tensor:
        memory = self._as_one(key, tensors)
        assert memory is not None
        return memory

    def _is_known(self, key: str, tensors: list[Tensor]) -> bool:
        known = self._known.get(key)
        return known is not None and known[0] == [tensor.data_ptr() for tensor in tensors]
