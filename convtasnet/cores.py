"""How many processors there are to use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores that this process may use: fewer than the machine's under taskset and schedulers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
