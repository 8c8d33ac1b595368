"""CUDA graphs of a loss and its gradients, for one shape of batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from convtasnet.leaf_loss import LeafLoss
from convtasnet.side_by_side import laid_out
from convtasnet_kernels.capture import GraphMaker, capture_stream

Batch = tuple[Tensor, Tensor, Tensor | None]  # mixture, sources, lengths


class SharedMemory:
    """What the graphs of all shapes share: they never run at the same time.

    Gradients lie outside the pool, in which one graph may use what another has freed.

    Args:
        parameters: of the model; those that require gradients get them.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.gradients = laid_out(self.parameters)  # see flat_adam.join_updates
        self.maker = GraphMaker(capture_stream(self.parameters[0].device))
        self.batches = 0  # whose forward pass was replayed

    def fits(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these parameters are still those that get the gradients."""
        wanted = [p for p in parameters if p.requires_grad]
        return len(wanted) == len(self.parameters) and all(
            a is b and a.device == g.device
            for a, b, g in zip(wanted, self.parameters, self.gradients, strict=True)
        )

    def release(self) -> None:
        """Give gradients that are going to be added to memory of their own."""
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            if p.grad is not None and p.grad.data_ptr() == gradient.data_ptr():
                p.grad = p.grad.clone()


class LossGraphs:
    """The graphs of one shape: ``forward`` writes the loss, ``backward`` the gradients.

    Args:
        loss_of: the loss of a batch.
        buffers: of the model, which keep their values while the graphs are captured.
        batch: one of the shape.
        memory: what the graphs of other shapes use, too.

    Raises:
        RuntimeError: the loss cannot be captured.
    """

    def __init__(
        self, loss_of: LeafLoss, buffers: Iterable[Tensor], batch: Batch, memory: SharedMemory
    ) -> None:
        self.loss_of, self.memory, self.parameters = loss_of, memory, memory.parameters
        mixture, sources, lengths = batch
        self.batch: Batch = (
            mixture.clone(),
            sources.clone(),
            None if lengths is None else lengths.clone(),
        )
        kind = mixture.device.type
        # Cached casts of the weights would be those of the first step for good.
        self._autocast: dict[str, Any] = {
            "device_type": kind,
            "dtype": torch.get_autocast_dtype(kind),
            "enabled": torch.is_autocast_enabled(kind),
            "cache_enabled": False,
        }
        self.loss, self.upstream = torch.empty(0), torch.empty(0)
        self._live = torch.empty(0)
        self._used: list[bool] = []
        before = [(buffer, buffer.clone()) for buffer in buffers]
        try:
            memory.maker.rehearse(self._both)
        finally:
            for buffer, value in before:
                buffer.copy_(value)
        self.forward = memory.maker.capture(self._forward)
        self.backward = memory.maker.capture(self._backward)

    def load(self, batch: Batch) -> None:
        """Take another batch."""
        for own, given in zip(self.batch, batch, strict=True):
            if own is not None and given is not None:
                own.copy_(given, non_blocking=True)

    def replay(self, batch: Batch) -> Tensor:
        """The loss of another batch; its backward pass adds to the parameters' gradients."""
        return _Replay.apply(self, batch, *self._known())

    def _known(self) -> list[Tensor]:
        """The parameters that autograd is told of: all if it has to call a hook, else one."""
        hooked = any(p._backward_hooks or p._post_accumulate_grad_hooks for p in self.parameters)
        return self.parameters if hooked else self.parameters[:1]

    def hand_over(self, known: int) -> list[Tensor | None]:
        """Add gradients to the parameters'; returns those that autograd is to add to the known."""
        pairs = zip(self.memory.gradients, self._used, strict=True)
        if known == len(self.parameters):
            # By a name of its own autograd takes each as it is: else it would copy it.
            return [gradient.detach() if used else None for gradient, used in pairs]
        sums: list[Tensor] = []
        terms: list[Tensor] = []
        for p, (gradient, used) in zip(self.parameters, pairs, strict=True):
            if used and p.grad is not None:
                sums.append(p.grad)
                terms.append(gradient)
            elif used:
                p.grad = gradient
        if sums:
            torch._foreach_add_(sums, terms)
        return [None] * known

    def _both(self) -> None:
        self._forward()
        self._backward()

    @torch.enable_grad()
    def _forward(self) -> None:
        with torch.autocast(**self._autocast):
            self._live = self.loss_of(*self.batch)
        result = self._live.detach()
        if not self.loss.numel():
            self.loss, self.upstream = torch.empty_like(result), torch.ones_like(result)
        self.loss.copy_(result)

    def _backward(self) -> None:
        loss, self._live = self._live, torch.empty(0)
        with torch.autocast(self._autocast["device_type"], enabled=False):
            found = self.loss_of.gradients(loss, self.upstream)
        self._used = [gradient is not None for gradient in found]
        self._keep(found)

    @torch.no_grad()
    def _keep(self, found: Sequence[Tensor | None]) -> None:
        """Copy gradients, with one launch for all of a dtype."""
        pairs = [
            (own, gradient)
            for own, gradient in zip(self.memory.gradients, found, strict=True)
            if gradient is not None
        ]
        for dtype in {gradient.dtype for _, gradient in pairs}:
            some = [pair for pair in pairs if pair[1].dtype == dtype]
            torch._foreach_copy_([own for own, _ in some], [gradient for _, gradient in some])


class _Replay(torch.autograd.Function):
    """The graphs as a function of the parameters, or of one that stands for all."""

    @staticmethod
    def forward(ctx: Any, graphs: LossGraphs, batch: Batch, *parameters: Tensor) -> Tensor:
        graphs.load(batch)
        graphs.forward.replay()
        graphs.memory.batches += 1
        ctx.graphs, ctx.batch, ctx.known = graphs, graphs.memory.batches, len(parameters)
        return graphs.loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        graphs: LossGraphs = ctx.graphs
        if ctx.batch != graphs.memory.batches:
            raise RuntimeError(
                "the backward pass of a captured training loss comes too late or twice: run it "
                "once, before the next batch's forward pass"
            )
        graphs.memory.batches += 1
        graphs.memory.release()
        graphs.upstream.copy_(upstream)
        graphs.backward.replay()
        return None, None, *graphs.hand_over(ctx.known)
