"""Many files to make, by several processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import torch
from rich.progress import track

Job = TypeVar("Job")


def run_jobs(make: Callable[[Job], None], jobs: Sequence[Job], workers: int) -> None:
    """Call ``make`` for each job in this process, or in several, with a progress bar.

    Args:
        make: a function of a module, so that other processes find it.
        jobs: what it takes, to be pickled.
        workers: processes.

    Raises:
        ValueError, OSError: what ``make`` raises first; the other jobs are given up.
    """
    if workers < 2 or len(jobs) < 2:
        for job in track(jobs, "Mixing", transient=True):
            make(job)
        return
    context = multiprocessing.get_context("spawn")  # torch has threads: no forks
    with ProcessPoolExecutor(workers, context, _start_worker) as pool:
        chunk = max(1, min(16, len(jobs) // (4 * workers)))
        made = pool.map(make, jobs, chunksize=chunk)
        try:
            for _ in track(made, "Mixing", len(jobs), transient=True):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no process behind when the first one is killed: a pool's wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
