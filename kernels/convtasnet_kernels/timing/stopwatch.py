"""How it is measured: the median time of a call, by CUDA events or on a CPU by the clock.

Calls of one graph follow one another on the same tensors, which for small maps stay in the L2; the
copy that a norm's time is divided by is measured in the same way and sees the same cache.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch

from convtasnet_kernels.capture import GraphMaker

GRAPH_MS, TOTAL_MS = 1.0, 40.0  # of one replay, so that its launch does not count; of all
WARM_UP = 3  # calls: they compile, tune, load modules and workspaces, record graphs of their own
CPU_CALLS, CPU_SECONDS = 7, 0.4


def graph_time(call: Callable[[], object], least: int = 5) -> float:
    """Median microseconds of a call, replayed from a CUDA graph.

    The work must be issued to the current stream, which must not be the default one. A backward
    pass runs on the stream of its forward pass, so that both belong under one
    ``with torch.cuda.stream(...)``.

    Args:
        call: what is captured.
        least: replays, at least; more where they are short.

    Raises:
        ValueError: the current stream is the default one, which cannot be captured.
        RuntimeError: the call waits for the GPU.
    """
    if torch.cuda.current_stream() == torch.cuda.default_stream():
        raise ValueError("graph_time needs a current stream that is not the default stream")
    for _ in range(WARM_UP):
        call()
    GraphMaker(torch.cuda.current_stream()).rehearse(call)
    once = statistics.median(_replays(call, 1, 3))
    calls = max(1, min(300, math.ceil(GRAPH_MS / once)))
    replays = max(least, min(50, math.ceil(TOTAL_MS / (calls * once))))
    return 1e3 * statistics.median(_replays(call, calls, replays)) / calls


def event_time(call: Callable[[], object], least: int = 5) -> float:
    """Median microseconds from call to call on the current stream, their launches included.

    Args:
        call: what is timed; it may replay graphs of its own.
        least: calls, at least; more where they are short.
    """
    for _ in range(WARM_UP):
        call()
    once = statistics.median(_between(call, 3))
    return 1e3 * statistics.median(_between(call, max(least, min(50, math.ceil(TOTAL_MS / once)))))


def _replays(call: Callable[[], object], calls: int, replays: int) -> list[float]:
    """Milliseconds of each replay of a graph of some calls."""
    maker = GraphMaker(torch.cuda.current_stream())
    graph = maker.capture(lambda: [call() for _ in range(calls)])
    graph.replay()
    return _between(graph.replay, replays)


def _between(call: Callable[[], object], calls: int) -> list[float]:
    """Milliseconds of each of some calls in a row, on the current stream."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    marks[-1].synchronize()
    return [start.elapsed_time(end) for start, end in pairwise(marks)]


def wall_time(call: Callable[[], object]) -> float:
    """Median microseconds of a call on the CPU, by the clock.

    Example:
        >>> wall_time(lambda: time.sleep(0.002)) >= 2000
        True
    """
    call()
    times: list[float] = []
    while len(times) < CPU_CALLS or sum(times) < CPU_SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)
