"""The summary of an evaluation: means and how sure they are, what is missing and why."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from convtasnet.evaluation.groups import by_group, mean
from convtasnet.evaluation.rows import Row, is_valid
from convtasnet.evaluation.spread import mean_interval
from convtasnet.files import replacing
from convtasnet.metrics import METRICS, ordered, value_names

SHOWN_GROUPS = ("genders", "level_difference_db", "overlap")


def summarize(
    rows: Sequence[Row], metrics: Sequence[str] = tuple(METRICS), seed: int = 0
) -> dict[str, Any]:
    """Means over the valid rows, as plain data for JSON.

    Args:
        rows: of one data set.
        metrics: names.
        seed: of the bootstrap.

    Returns:
        ``n`` (mixtures), ``n_valid`` (with at least one valid value), then each value's mean over
        its valid rows, or None; and, each by value, ``median``, ``ci95`` (of the mean), ``valid``
        (number of rows) and ``reasons`` (reason -> rows left out); and ``groups``
        (:func:`convtasnet.evaluation.groups.by_group`).

    Example:
        >>> row = Row("a", 8000, {"si_sdr": 10.0, "si_sdri": math.nan}, {"si_sdri": "why"})
        >>> summary = summarize([row], ["si_sdr"])
        >>> summary["si_sdr"], summary["reasons"], summary["ci95"]["si_sdr"]
        (10.0, {'si_sdri': {'why': 1}}, None)
    """
    names = value_names(metrics)
    valid = {name: [v for row in rows if math.isfinite(v := row.values[name])] for name in names}
    counts = {name: Counter(r.reasons[name] for r in rows if name in r.reasons) for name in names}
    return {
        "n": len(rows),
        "n_valid": sum(map(is_valid, rows)),
        **{name: mean(values) for name, values in valid.items()},
        "median": {name: median(values) if values else None for name, values in valid.items()},
        "ci95": {name: mean_interval(values, seed) for name, values in valid.items()},
        "valid": {name: len(values) for name, values in valid.items()},
        "reasons": {name: dict(counter) for name, counter in counts.items() if counter},
        "groups": by_group(rows, names),
    }


def write_json(path: Path, summary: dict[str, Any]) -> None:
    """Write the summary whole or not at all; it must hold neither NaN nor infinity."""
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False, default=str)
    with replacing(path) as temporary:
        temporary.write_bytes(f"{text}\n".encode(errors="surrogateescape"))


def summary_table(summary: dict[str, Any], metrics: Sequence[str] = tuple(METRICS)) -> Table:
    """The summary for a terminal, a line a metric, and why rows are left out."""
    table = Table(title=f"{summary['n']} mixtures, {summary['n_valid']} valid")
    for header in ("metric", "mean", "95 % interval", "median", "improvement", "valid"):
        table.add_column(header, justify="left" if header == "metric" else "right")
    for name in ordered(metrics):
        digits = 2 if METRICS[name].unit else 3
        unit = f" {METRICS[name].unit}".rstrip()

        def shown(value: float | None, unit: str = unit, digits: int = digits) -> str:
            return "–" if value is None else f"{value:.{digits}f}{unit}"

        interval = summary["ci95"][name]
        ends = "–" if interval is None else " to ".join(shown(end, "") for end in interval)
        cells = [shown(summary[name]), ends, shown(summary["median"][name])]
        valid = f"{summary['valid'][name]}/{summary['n']}"
        table.add_row(name, *cells, shown(summary[f"{name}i"]), valid)
    for name, reasons in summary["reasons"].items():
        if name in METRICS:
            for reason, count in reasons.items():
                text = f"[dim]{name}: {escape(reason)}[/dim]"
                table.add_row(text, "", "", "", "", f"[dim]-{count}[/dim]")
    return table


def groups_table(summary: dict[str, Any], name: str) -> Table | None:
    """Means of one value by group for a terminal; None if there are no groups to compare."""
    shown = {kind: summary["groups"].get(kind, {}) for kind in SHOWN_GROUPS}
    compared = {kind: groups for kind, groups in shown.items() if len(groups) > 1}
    if not compared:
        return None
    table = Table(title=f"mean {name} by group")
    for header in ("", "group", "mixtures", name):
        table.add_column(header, justify="right" if header else "left")
    for kind, groups in compared.items():
        for group, means in groups.items():
            cell = "–" if means[name] is None else f"{means[name]:.2f}"
            table.add_row(kind, escape(group), str(means["n"]), cell)
    return table
