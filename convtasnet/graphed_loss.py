"""A training loss whose forward and backward passes are replayed from CUDA graphs.

Launching the kernels of a step one by one takes the host several times longer than they run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from convtasnet.leaf_loss import LeafLoss, LossOfBatch
from convtasnet.loss_graphs import Batch, LossGraphs, SharedMemory

log = logging.getLogger(__name__)
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
        self._graphs: dict[Hashable, LossGraphs | None] = {}
        self._memory: SharedMemory | None = None
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
        return graphs.replay((mixture, sources, lengths))

    def _graphs_of(self, batch: Batch) -> LossGraphs | None:
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

    def _capture(self, batch: Batch) -> LossGraphs | None:
        start = time.perf_counter()
        graphs, reason = None, ""
        for attempt in range(ATTEMPTS):
            try:
                if self._memory is None or not self._memory.fits(self._parameters):
                    self._memory = SharedMemory(self._parameters)
                # No memory left, an operator that waits, weights that are not to be cast ahead: a
                # second time without that, and then as it is, which shows errors of the loss.
                loss = LeafLoss(self.function, self.model, None if attempt else _narrow(batch))
                graphs = LossGraphs(loss, self.model.buffers(), batch, self._memory)
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
