"""Metrics in processes beside the model, in order, a bounded number of items ahead."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
import torch

from convtasnet.cores import available_cores
from convtasnet.evaluation.facts import Facts, signal_facts
from convtasnet.metrics import Measured, Scores, score, value_names

log = logging.getLogger(__name__)

MAX_WORKERS = 16  # each takes about half a gigabyte
ITEMS_PER_WORKER = 20  # fewer would not repay the start of a process
AHEAD = 2  # items that wait for each process
CRASHED = "its program crashed"  # PESQ's, the only one in C that has no bounds


@dataclass(frozen=True)
class Job:
    """What a process needs to score one mixture.

    Args:
        index: of the item in the data set.
        id: of the mixture.
        estimates: (n_src, T) float32.
        sources: (n_src, T) float32.
        mixture: (T,) float32.
        sample_rate: Hz.
        metrics: names.
        of_mixture: what is known of the mixture's own scores.
        key: of the samples, under which these scores are kept.
    """

    # Arrays travel by copy; tensors would take shared memory and file handles.
    index: int
    id: str
    estimates: np.ndarray
    sources: np.ndarray
    mixture: np.ndarray
    sample_rate: int
    metrics: Sequence[str]
    of_mixture: Measured
    key: str = ""


Outcome = tuple[Scores, Facts]


def run_job(job: Job) -> Outcome:
    """Score one mixture."""
    estimates, sources, mixture = map(torch.from_numpy, (job.estimates, job.sources, job.mixture))
    scores = score(estimates, sources, mixture, job.sample_rate, job.metrics, job.of_mixture)
    return scores, signal_facts(mixture, sources, job.sample_rate)


def default_workers(count: int) -> int:
    """Processes for so many items: one for every 20, at most 16 and at most one a core."""
    return min(MAX_WORKERS, available_cores(), count // ITEMS_PER_WORKER)


def _prepare_process() -> None:
    """One thread a process; and no process outlives the evaluation, however that ends."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class ScoringPool:
    """Processes that score; a context manager.

    A process that dies takes no other item along: the items that were under way are done again one
    by one, and the one that kills its process is done without PESQ, whose program has no bounds.

    Args:
        num_workers: processes; 0 scores in this one.
        function: what is done with a job; has to be importable by its name.
    """

    def __init__(self, num_workers: int, function: Callable[[Job], Outcome] = run_job) -> None:
        self.num_workers = num_workers
        self._function = function
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> ScoringPool:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        if self.num_workers:
            # spawn: a forked child could use neither CUDA nor OpenMP's threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.num_workers, context, _prepare_process)

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Outcomes in the order of the jobs, which are asked for as they are needed."""
        waiting: deque[tuple[Job, Future[Outcome]]] = deque()
        for job in jobs:
            if self._pool is None:
                yield job, self._function(job)
                continue
            waiting.append((job, self._submit(job)))
            if len(waiting) > AHEAD * self.num_workers:
                yield self._next(waiting)
        while waiting:
            yield self._next(waiting)

    def _submit(self, job: Job) -> Future[Outcome]:
        assert self._pool is not None
        try:
            return self._pool.submit(self._function, job)
        except BrokenProcessPool as error:
            failed: Future[Outcome] = Future()
            failed.set_exception(error)
            return failed

    def _next(self, waiting: deque[tuple[Job, Future[Outcome]]]) -> tuple[Job, Outcome]:
        job, future = waiting.popleft()
        try:
            return job, future.result()
        except BrokenProcessPool:
            log.warning("a scoring process died: the items under way are scored again")
        self._start()
        outcome = self._alone(job)
        again = [(other, self._submit(other)) for other, _ in waiting]
        waiting.clear()
        waiting.extend(again)
        return job, outcome

    def _alone(self, job: Job) -> Outcome:
        """Score the one job that is under way, if need be without PESQ."""
        try:
            return self._submit(job).result()
        except BrokenProcessPool:
            self._start()
        others = [name for name in job.metrics if name != "pesq"]
        if len(others) == len(job.metrics):
            raise RuntimeError(f"scoring mixture {job.id} kills its process: out of memory?")
        log.warning("mixture %s: PESQ crashes and is left out", job.id)
        scores, facts = self._submit(replace(job, metrics=others or ["si_sdr"])).result()
        asked = value_names(job.metrics)
        values = {name: scores.values.get(name, math.nan) for name in asked}
        reasons = {
            name: scores.reasons.get(name, CRASHED) for name in asked if math.isnan(values[name])
        }
        return replace(scores, values=values, reasons=reasons), facts
