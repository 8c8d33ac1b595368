"""A training loss whose forward and backward passes are replayed from CUDA graphs.

Launching the kernels of a step one by one takes the host several times longer than they run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from convtasnet.leaf_loss import LeafLoss, LossOfBatch
from convtasnet.side_by_side import laid_out
from convtasnet_kernels.capture import GraphMaker, capture_stream

log = logging.getLogger(__name__)
Batch = tuple[Tensor, Tensor, Tensor | None]  # mixture, sources, lengths
MAX_SHAPES = 8
ATTEMPTS = 2
SLOW = "training steps are launched kernel by kernel"


class GraphedLoss:
    """A loss of a batch that is launched, forward and backward, as a CUDA graph each.

    The first batch of a shape runs as it is, the second is captured, and from then on the graphs
    are replayed: one when the loss is asked for, one when autograd comes to it. All the rest stays
    as it was: scaling of the loss, accumulation of gradients, hooks, optimizers. Where no graph
    can be had, batches run as they are; the log says once which way is taken.

    One batch at a time: its backward pass, ``loss.backward()``, has to come before the next batch.
    A gradient in ``p.grad`` is good until the next backward pass that finds it None, as
    ``zero_grad()`` leaves it: the same memory serves all batches. Unless some parameter has a hook,
    autograd knows one of them only, which saves the host a millisecond or two a step, and
    ``torch.autograd.grad`` finds none.

    Args:
        function: ``function(mixture, sources, lengths)`` gives the loss, a scalar. Its launches
            may depend on shapes, not on values.
        model: whose parameters get gradients; ``function`` takes them from their modules.
        max_shapes: shapes of batches that are captured; further ones run as they are.

    Example:
        >>> model = nn.Linear(8, 8)
        >>> loss = GraphedLoss(lambda mix, sources, _: (model(mix) - sources).abs().sum(), model)
        >>> loss(torch.zeros(2, 8), torch.zeros(2, 8), None).requires_grad  # as it is: no GPU
        True
    """

    def __init__(
        self, function: LossOfBatch, model: nn.Module, max_shapes: int = MAX_SHAPES
    ) -> None:
        self.function, self.model, self.max_shapes = function, model, max_shapes
        self._parameters = list(model.parameters())
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, _Graphs | None] = {}
        self._memory: _Memory | None = None
        self._said: set[str] = set()

    @property
    def captured(self) -> int:
        """Shapes of batches whose steps are replayed."""
        return sum(graphs is not None for graphs in self._graphs.values())

    def __call__(self, mixture: Tensor, sources: Tensor, lengths: Tensor | None) -> Tensor:
        """The loss of a batch, a scalar that autograd can differentiate once."""
        graphs = self._graphs_of((mixture, sources, lengths))
        if graphs is None:
            return self.function(mixture, sources, lengths)
        return _Replay.apply(graphs, (mixture, sources, lengths), *graphs.known())

    def _graphs_of(self, batch: Batch) -> _Graphs | None:
        """None where the batch is to run as it is."""
        if not can_capture(batch[0]):
            self._say(logging.INFO, f"{SLOW}: the batch is not on a GPU")
            return None
        if is_distributed():
            self._say(logging.INFO, f"{SLOW}: several processes train together")
            return None
        if not torch.is_grad_enabled() or batch[0].requires_grad or batch[1].requires_grad:
            return None
        key = self._key(batch)
        if key in self._graphs:
            return self._graphs[key]
        if key not in self._seen:
            self._seen.add(key)
            return None
        if len(self._graphs) >= self.max_shapes:
            reason = f"batches have more than {self.max_shapes} different shapes"
            self._say(logging.WARNING, f"{SLOW} for further shapes: {reason}")
            return None
        self._graphs[key] = self._capture(batch)
        return self._graphs[key]

    def _key(self, batch: Batch) -> Hashable:
        """Whatever a graph holds for good."""
        kind = batch[0].device.type
        autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
        return (
            *((t.shape, t.dtype, t.device) if t is not None else None for t in batch),
            autocast,
            self.model.training,
            # A model may travel between devices, and parameters may be frozen.
            self._parameters[0].data_ptr(),
            *[p.requires_grad for p in self._parameters],
        )

    def _capture(self, batch: Batch) -> _Graphs | None:
        start = time.perf_counter()
        graphs, reason = None, ""
        for attempt in range(ATTEMPTS):
            try:
                if self._memory is None or not self._memory.fits(self._parameters):
                    self._memory = _Memory(self._parameters)
                # No memory left, an operator that waits, weights that are not to be cast ahead: a
                # second time without that, and then as it is, which shows errors of the loss.
                loss = LeafLoss(self.function, self.model, None if attempt else _narrow(batch))
                graphs = _Graphs(loss, self.model.buffers(), batch, self._memory)
                break
            except (RuntimeError, TypeError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                log.debug("capture %d of training steps: %s", attempt + 1, reason)
        if graphs is None:
            self._say(logging.WARNING, f"{SLOW}: {reason}")
            return None
        shape = tuple(batch[0].shape)
        seconds = time.perf_counter() - start
        log.info("training steps of %s replay CUDA graphs, captured in %.1f s", shape, seconds)
        return graphs

    def _say(self, level: int, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            log.log(level, message)


def can_capture(x: Tensor) -> bool:
    """Whether work on x can be captured at all."""
    return x.is_cuda


def is_distributed() -> bool:
    """Whether gradients are averaged over processes, with which graphs are yet to be tried."""
    group = torch.distributed
    return group.is_available() and group.is_initialized() and group.get_world_size() > 1


def _narrow(batch: Batch) -> torch.dtype | None:
    """What autocast would cast weights to now."""
    kind = batch[0].device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


class _Memory:
    """What the graphs of all shapes share: they never run at the same time.

    Gradients lie outside the pool, in which one graph may use what another has freed.
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


class _Graphs:
    """The graphs of one shape: ``forward`` writes the loss, ``backward`` the gradients."""

    def __init__(
        self, loss_of: LeafLoss, buffers: Iterable[Tensor], batch: Batch, memory: _Memory
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

    def known(self) -> list[Tensor]:
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
    def forward(ctx: Any, graphs: _Graphs, batch: Batch, *parameters: Tensor) -> Tensor:
        graphs.load(batch)
        graphs.forward.replay()
        graphs.memory.batches += 1
        ctx.graphs, ctx.batch, ctx.known = graphs, graphs.memory.batches, len(parameters)
        return graphs.loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        graphs: _Graphs = ctx.graphs
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
