"""CUDA graphs of calls, and the rehearsal that tells beforehand whether a call can be captured."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch


class GraphMaker:
    """Captures calls as CUDA graphs, which share one pool of memory.

    They must never run at the same time. What a later graph of the pool is not to overwrite has to
    be written to memory from outside of it.

    Args:
        stream: to rehearse and capture on, which gives the device.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self._pool: Any = torch.cuda.graph_pool_handle()

    def rehearse(self, call: Callable[[], object]) -> None:
        """Run a call once, as it is, and refuse it if it waits for the device.

        A capture of such a call would fail, and not always say why. The call should have run
        before: what is done once, such as loading a kernel, may wait.

        Raises:
            RuntimeError: the call waits for the device; also whatever else it raises.
        """
        mode = torch.cuda.get_sync_debug_mode()
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with warnings.catch_warnings(), torch.cuda.stream(self.stream):
            warnings.filterwarnings("ignore", message="Synchronization debug mode")  # a prototype
            torch.cuda.set_sync_debug_mode("error")
            try:
                call()
            except RuntimeError as error:
                if "synchronizing CUDA operation" not in str(error):
                    raise
                raise RuntimeError("it cannot be captured: it waits for the GPU") from error
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        current.wait_stream(self.stream)

    def capture(self, call: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """A graph of what a rehearsed call launches, which is not run.

        Other threads, such as those that load data, may go on using the device. After a failure
        everything is as it was before; graphs that were captured earlier stay good, but those to
        come share another pool.

        Raises:
            RuntimeError: the launches cannot be captured; also whatever the call raises.
        """
        torch.cuda.synchronize(self.stream.device)
        torch.cuda.empty_cache()  # as much memory as there is for the graph
        graph = torch.cuda.CUDAGraph()
        # Around the capture, not in it as with torch.cuda.graph, which stays on its stream when
        # the end of a capture fails.
        with torch.cuda.stream(self.stream):
            try:
                graph.capture_begin(self._pool, capture_error_mode="thread_local")
                try:
                    call()
                except BaseException:
                    with contextlib.suppress(RuntimeError):  # it hides the reason
                        graph.capture_end()
                    raise
                graph.capture_end()
            except BaseException:
                self._forget_pool()
                _renew_generator(self.stream.device_index)
                raise
        return graph

    def _forget_pool(self) -> None:
        """Leave the pool of a failed capture, which may count as being recorded to for good."""
        with contextlib.suppress(RuntimeError):  # its capture has been ended as it should
            torch._C._cuda_endAllocateToPool(self.stream.device_index, self._pool)
        self._pool = torch.cuda.graph_pool_handle()


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures: libraries keep a workspace of tens of MB for every stream they saw."""
    return torch.cuda.Stream(device)


def _renew_generator(device: int) -> None:
    """Give the device's random generator a state that no failed capture holds."""
    generator = torch.cuda.default_generators[device]
    fresh = torch.Generator(f"cuda:{device}")
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
