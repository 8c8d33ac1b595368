"""Compiles in many processes at once what one process then measures: the caches are on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from norm_peers import Peer
from norm_timing import Laboratory
from norm_workloads import Workload

Task = tuple[Workload, Peer]


def compile_ahead(tasks: Sequence[Task], jobs: int) -> None:
    """Runs every peer once on its map.

    Args:
        tasks: the maps and peers.
        jobs: processes, at most.
    """
    jobs = min(jobs, len(tasks))
    if jobs > 0:
        context = get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=_compile_alone) as pool:
            for done in [pool.submit(run_once, task, "cuda") for task in tasks]:
                done.result()


def _compile_alone() -> None:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # read when torch.compile is first used


def run_once(task: Task, device: str) -> None:
    """Both passes of a peer on a map. One that cannot run says so when it is measured."""
    stream = torch.cuda.Stream() if device == "cuda" else None
    with contextlib.suppress(RuntimeError, ValueError), torch.cuda.stream(stream):
        for call in Laboratory(device).passes(*task):
            call()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
