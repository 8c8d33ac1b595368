"""Work on a GPU that is launched as one CUDA graph.

Batches of resident audio take dozens of small operators. Launching them one by one takes the host
several times longer than the GPU needs to run them, and keeps it from launching the training step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor

from convtasnet_kernels.capture import GraphMaker, capture_stream

log = logging.getLogger(__name__)
Results = dict[str, Tensor]


class Replayed:
    """A function of numbers, whose launches on a GPU are captured once and replayed.

    The first numbers of a shape run as they are, and a graph is captured; from then on it is
    replayed. On a CPU, and where no graph can be had, all run as they are.

    Args:
        function: of a tensor on the device, which gives tensors there. Its launches may depend on
            the tensor's shape, not on its values; nothing of it may wait for the device.
        device: where it runs.

    >>> double = Replayed(lambda x: {"twice": 2 * x}, torch.device("cpu"))
    >>> double(torch.tensor([1, 2]))
    {'twice': tensor([2, 4])}
    """

    def __init__(self, function: Callable[[Tensor], Results], device: torch.device):
        self.function, self.device = function, device
        self._graphs: dict[torch.Size, _Graph | None] = {}
        self._maker: GraphMaker | None = None

    def __call__(self, numbers: Tensor) -> Results:
        """The function's results, in memory of their own.

        Args:
            numbers: on the host, in pinned memory if the device is a GPU.
        """
        graph = self._graphs.get(numbers.shape)
        if graph is not None:
            return graph(numbers)
        here = numbers.to(self.device, non_blocking=True)
        results = self.function(here)
        if can_capture(self.device) and numbers.shape not in self._graphs:
            self._graphs[numbers.shape] = self._capture(here)
        return results

    def _capture(self, numbers: Tensor) -> _Graph | None:
        start = time.perf_counter()
        if self._maker is None:
            self._maker = GraphMaker(capture_stream(self.device))
        try:
            graph = _Graph(self.function, numbers.clone(), self._maker)
        except RuntimeError as error:  # no memory is left, or whatever else rules it out
            reason = str(error).partition("\n")[0]
            log.warning("training batches are launched kernel by kernel: %s", reason)
            return None
        seconds = time.perf_counter() - start
        log.info("training batches replay a CUDA graph, captured in %.1f s", seconds)
        return graph


class _Graph:
    """The launches for one shape; they read ``numbers`` and write ``results``."""

    def __init__(
        self, function: Callable[[Tensor], Results], numbers: Tensor, maker: GraphMaker
    ) -> None:
        self.function, self.numbers = function, numbers
        self.results: Results = {}
        maker.rehearse(self._run)
        self.graph = maker.capture(self._run)

    def __call__(self, numbers: Tensor) -> Results:
        self.numbers.copy_(numbers, non_blocking=True)
        self.graph.replay()
        # The next replay may come while these are still in use.
        return {name: result.clone() for name, result in self.results.items()}

    def _run(self) -> None:
        self.results = self.function(self.numbers)


def can_capture(device: torch.device) -> bool:
    """Whether there are graphs of work on a device at all."""
    return device.type == "cuda"
