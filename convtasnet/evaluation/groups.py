"""Means over parts of a data set: by gender, speakers, levels and overlap."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from convtasnet.evaluation.rows import Row, is_valid

# Edges of the groups; what is beyond the last is one more.
LEVELS_DB = (-60.0, -40.0, -35.0, -30.0, -25.0, -20.0, -15.0)
DIFFERENCES_DB = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
OVERLAPS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)

Group = tuple[float, str]  # what it is sorted by, and its name
KINDS: dict[str, Callable[[Row], Group | None]] = {
    "genders": lambda row: _named(row.facts.genders),
    "speakers": lambda row: _named(row.facts.speakers),
    "level_db": lambda row: _between(row.facts.level_db, LEVELS_DB),
    "level_difference_db": lambda row: _between(row.facts.level_difference_db, DIFFERENCES_DB),
    "overlap": lambda row: _between(row.facts.overlap, OVERLAPS, closed=True),
}


def by_group(rows: Sequence[Row], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Means of the groups of each kind.

    Args:
        rows: the evaluated mixtures.
        names: of values.

    Returns:
        Kind (``genders``, ``speakers``, ``level_db``, ``level_difference_db``, ``overlap``) -> name
        of the group -> ``n``, ``n_valid`` and the means of the values, None where there is none.
        Kinds of which nothing is known are left out.

    Example:
        >>> from convtasnet.evaluation.facts import Facts
        >>> rows = [Row(str(g), 8, {"sdr": g}, {}, Facts(overlap=g / 10)) for g in (1.0, 9.0, 10.0)]
        >>> by_group(rows, ["sdr"])["overlap"]["0.8 to 1"]
        {'n': 2, 'n_valid': 2, 'sdr': 9.5}
    """
    result: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        groups = members(rows, kind)
        if groups:
            result[kind] = {group[1]: _means(groups[group], names) for group in sorted(groups)}
    return result


def members(rows: Sequence[Row], kind: str) -> dict[Group, list[Row]]:
    """Rows of each group of a kind, a key of ``KINDS``; those of no group are left out."""
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        group = KINDS[kind](row)
        if group is not None:
            groups.setdefault(group, []).append(row)
    return groups


def mean(values: Sequence[float]) -> float | None:
    """Mean of the finite values, or None.

    Example:
        >>> mean([1.0, math.nan, 2.0]), mean([math.nan])
        (1.5, None)
    """
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else None


def _means(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    counts = {"n": len(rows), "n_valid": sum(map(is_valid, rows))}
    return counts | {name: mean([row.values[name] for row in rows]) for name in names}


def _named(name: str | None) -> Group | None:
    return None if name is None else (0.0, name)


def _between(value: float | None, edges: Sequence[float], closed: bool = False) -> Group | None:
    """The group between two edges; an edge belongs to the group above it, or ``closed``."""
    if value is None:
        return None
    place = bisect_right(edges, value)
    if closed and value == edges[-1]:
        place -= 1
    if place == 0:
        return -math.inf, f"below {edges[0]:g}"
    if place == len(edges):
        return edges[-1], f"from {edges[-1]:g}"
    return edges[place - 1], f"{edges[place - 1]:g} to {edges[place]:g}"
