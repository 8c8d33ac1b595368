"""Timings of the norms: the passes of each implementation, beside a copy of the map."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from norm_peers import OURS, Peer
from norm_workloads import DTYPES, Workload
from torch._functorch import config as aot_config

from convtasnet_kernels.timing.stopwatch import graph_time, wall_time

PASSES = {"forward": 2, "backward": 3}  # over the map, at least; a copy makes 2
COPY = "copy"
Call = Callable[[], object]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """Microseconds of the two passes of a peer; a copy has no backward.

    Args:
        workload: the map.
        peer: name of the peer, or ``COPY``.
        forward: as in training: what backward needs is saved.
        backward: gradients of the input, the weight, the bias and the slope.
    """

    workload: Workload
    peer: str
    forward: float
    backward: float | None = None

    def gb_per_s(self, direction: str) -> float:
        """Billions of bytes a second, counting only the passes that cannot be done without."""
        return PASSES[direction] * self.workload.bytes / (getattr(self, direction) * 1e3)

    def record(self, copy: Timing) -> dict[str, object]:
        """For a JSON file: the workload, and each time in microseconds and in copies."""
        fields: dict[str, object] = {**asdict(self.workload), "peer": self.peer}
        for direction in PASSES:
            time = getattr(self, direction)
            fields[f"{direction}_us"] = time
            fields[f"{direction}_copies"] = None if time is None else time / copy.forward
        return fields


class Laboratory:
    """Measures each workload at most once.

    Args:
        device: ``"cpu"``, or ``"cuda"``; the latter only under ``with torch.cuda.stream(...)``, as
            ``graph_time`` says.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.clock: Callable[[Call], float] = graph_time if device == "cuda" else wall_time
        self._copies: dict[Workload, Timing] = {}
        self._timings: dict[tuple[Workload, Peer], Timing | None] = {}
        # A compiled backward must leave intact what it needs to run again.
        aot_config.donated_buffer = False

    def copy(self, workload: Workload) -> Timing:
        """``y.copy_(x)``, the yardstick."""
        if workload not in self._copies:
            self._prepare(workload)
            x = torch.randn(workload.shape, device=self.device).to(DTYPES[workload.dtype])
            y = torch.empty_like(x)
            self._copies[workload] = Timing(workload, COPY, self.clock(lambda: y.copy_(x)))
        return self._copies[workload]

    def timing(self, workload: Workload, peer: Peer) -> Timing | None:
        """Both passes of a peer; None, with a warning, where one of the others cannot run."""
        key = workload, peer
        if key not in self._timings:
            self._prepare(workload)
            try:
                forward, backward = self.passes(workload, peer)
                late = self.clock(backward)  # first: the forward pass is warm already
                self._timings[key] = Timing(workload, peer.name, self.clock(forward), late)
            except (RuntimeError, ValueError) as error:  # out of memory, or not for such a map
                if peer.name == OURS:
                    raise
                reason = str(error).strip().partition("\n")[0]
                logger.warning("%s cannot run %s: %s", peer.name, workload, reason)
                self._timings[key] = None
        return self._timings[key]

    def passes(self, workload: Workload, peer: Peer) -> tuple[Call, Call]:
        """Calls that run the forward and the backward pass of a peer."""
        parameters = DTYPES[workload.dtype] if peer.like_input else torch.float32
        leaves, dy = workload.tensors(self.device, parameters)
        arguments = leaves if workload.prelu else [*leaves, None]
        norm = peer.callable()
        y = norm(*arguments)
        return (
            lambda: norm(*arguments),
            lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True),
        )

    def _prepare(self, workload: Workload) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()  # of earlier graphs
        else:
            torch.set_num_threads(workload.threads)
