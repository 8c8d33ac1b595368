"""A job for worker processes to die of; apart from the tests, for a process imports all of it."""

from __future__ import annotations

import os

from convtasnet.evaluation.workers import Job, Outcome, run_job


def fragile(job: Job) -> Outcome:
    """As ``run_job``, but PESQ of the item "bad" kills the process."""
    if job.id == "bad" and "pesq" in job.metrics:
        os._exit(1)
    return run_job(job)
