"""Many files to make, by several processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

import torch
from rich.progress import track

from convtasnet.data.shown import some_lines

Job = TypeVar("Job")


def run_jobs(make: Callable[[Job], None], jobs: Sequence[Job], workers: int) -> None:
    """Call ``make`` for each job in this process, or in several, with a progress bar.

    Args:
        make: a function of a module, so that other processes find it.
        jobs: what it takes, to be pickled.
        workers: processes.

    Raises:
        ValueError: ``make`` raised it for some jobs, such as those of a silent recording; all
            others are done, and all messages are listed.
        OSError: what ``make`` raises first, such as a full disk; the other jobs are given up.
    """
    failed = [message for message in _messages(make, jobs, workers) if message]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(jobs)} mixtures cannot be made, the others are:"
            + some_lines(list(dict.fromkeys(failed)))
        )


def _messages(make: Callable[[Job], None], jobs: Sequence[Job], workers: int) -> list[str]:
    """What is wrong with each job, "" where it is done."""
    attempt = partial(_attempt, make)
    if workers < 2 or len(jobs) < 2:
        return [attempt(job) for job in track(jobs, "Mixing", transient=True)]
    context = multiprocessing.get_context("spawn")  # torch has threads: no forks
    with ProcessPoolExecutor(workers, context, _start_worker) as pool:
        chunk = max(1, min(16, len(jobs) // (4 * workers)))
        made = pool.map(attempt, jobs, chunksize=chunk)
        try:
            return list(track(made, "Mixing", len(jobs), transient=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _attempt(make: Callable[[Job], None], job: Job) -> str:
    try:
        make(job)
    except ValueError as error:
        return str(error)
    return ""


def _start_worker() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave no process behind when the first one is killed: a pool's wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
