"""CUDA graphs of calls, and the rehearsal that tells beforehand whether a call can be captured."""

from __future__ import annotations

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

        A capture of such a call would fail and leave PyTorch's allocator in its state for good.
        The call should have run before: what is done once, such as loading a kernel, may wait.

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

        Other threads, such as those that load data, may go on using the device.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(
                graph, self._pool, self.stream, capture_error_mode="thread_local"
            ):
                call()
        except BaseException:
            _renew_generator(self.stream.device_index)
            raise
        return graph


def _renew_generator(device: int) -> None:
    """Give the device's random generator a state that no failed capture holds."""
    generator = torch.cuda.default_generators[device]
    fresh = torch.Generator(f"cuda:{device}")
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())
