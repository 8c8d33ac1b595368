"""Tables of the norms: maps down, implementations across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from norm_timing import Timing
from norm_workloads import Workload

from convtasnet_kernels.timing.table import NOTHING, markdown


@dataclass(frozen=True)
class Row:
    """Timings of one map: of its copy, and of each peer, None where it was not measured."""

    copy: Timing
    timings: Sequence[Timing | None]

    @property
    def workload(self) -> Workload:
        """The map."""
        return self.copy.workload


def norm_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Copies of the map, ``forward / backward``; for the layer norm GB/s.

    Args:
        rows: of one family.
        names: of the peers, in the order of each row's timings.
    """
    first = rows[0].workload
    cells = [
        [
            *labels(row.workload).values(),
            rates(row.copy) if first.is_matrix else f"{row.copy.forward:.1f}",
            *(rates(t) if first.is_matrix else ratios(t, row.copy) for t in row.timings),
        ]
        for row in rows
    ]
    copy = "copy, GB/s" if first.is_matrix else "copy, µs"
    return markdown([*labels(first), copy, *names], cells)


def labels(workload: Workload) -> dict[str, str]:
    """The cells that name a map, by their headings."""
    found = {"shape": "×".join(map(str, workload.shape)), "dtype": workload.dtype}
    if not workload.is_matrix:
        found["PReLU"] = "yes" if workload.prelu else "no"
    return found | ({"threads": str(workload.threads)} if workload.threads else {})


def ratios(timing: Timing | None, copy: Timing) -> str:
    """``forward / backward``, each in times of the copy."""
    if timing is None or timing.backward is None:
        return NOTHING
    return f"{timing.forward / copy.forward:.2f} / {timing.backward / copy.forward:.2f}"


def rates(timing: Timing | None) -> str:
    """``forward / backward`` in GB/s; of a copy, which has no backward, one number."""
    if timing is None:
        return NOTHING
    passes = ["forward"] if timing.backward is None else ["forward", "backward"]
    return " / ".join(f"{timing.gb_per_s(each):.0f}" for each in passes)
