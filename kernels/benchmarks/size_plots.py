"""GB/s against the size of the map, drawn by Triton's ``perf_report``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import triton.testing
from norm_peers import Peer
from norm_timing import COPY, PASSES, Laboratory
from norm_workloads import sized

NEEDS = ("matplotlib", "pandas")  # of perf_report


def missing() -> list[str]:
    """Packages that plots need and that are not installed."""
    return [name for name in NEEDS if find_spec(name) is None]


def draw(
    laboratory: Laboratory, family: str, sizes: Sequence[int], peers: Sequence[Peer], folder: Path
) -> None:
    """Writes ``FAMILY_forward.png`` and ``FAMILY_backward.png``, and their numbers as CSV.

    Args:
        laboratory: measures what it has not measured yet.
        family: of the norms.
        sizes: N of the layer norm, T of the others.
        peers: the lines, beside the copy.
        folder: is made if it does not exist.
    """
    axis = "N" if family == "layer" else "T"
    by_name = {peer.name: peer for peer in peers}

    def rate(line: str, direction: str, **size: int) -> float:
        workload = sized(family, size[axis])
        if line == COPY:
            return laboratory.copy(workload).gb_per_s("forward")
        timing = laboratory.timing(workload, by_name[line])
        return float("nan") if timing is None else timing.gb_per_s(direction)

    lines = [*by_name, COPY]
    benchmarks = [
        triton.testing.Benchmark(
            x_names=[axis],
            x_vals=list(sizes),
            line_arg="line",
            line_vals=lines,
            line_names=lines,
            plot_name=f"{family}_{direction}",
            args={"direction": direction},
            ylabel="GB/s",
            x_log=axis == "T",
        )
        for direction in PASSES
    ]
    folder.mkdir(parents=True, exist_ok=True)
    triton.testing.perf_report(benchmarks)(rate).run(save_path=str(folder))
