"""Two evaluations of the same mixtures, compared mixture by mixture."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import wilcoxon

from convtasnet.evaluation.rows import Row
from convtasnet.evaluation.spread import mean_interval
from convtasnet.report.evaluations import Evaluation

SAME_SCORE = 0.01  # in a metric's unit: devices and versions of libraries round differently
ROUNDING = ("sar",)  # of a mixture without noise it is that of rounding, so it tells nothing


@dataclass(frozen=True)
class Difference:
    """How much better one evaluation is than another, in one value.

    Args:
        name: of the value.
        differences: one a mixture that has the value in both.
        mean: of the differences; positive where the first is better.
        interval: of the mean, at 95 % (percentile bootstrap over the mixtures); None for fewer
            than two mixtures.
        wins: share of the mixtures in which the first is better; ties count half.
        p_value: of Wilcoxon's signed-rank test, two-sided: how likely differences at least as
            lopsided are if neither is better; NaN for no mixtures.
    """

    name: str
    differences: list[float]
    mean: float
    interval: tuple[float, float] | None
    wins: float
    p_value: float

    @property
    def n(self) -> int:
        """Mixtures compared."""
        return len(self.differences)


def shared(one: Evaluation, other: Evaluation) -> list[str]:
    """IDs of the mixtures in both: of the same length, with the same scores of their own.

    A mixture's own score is a value minus its improvement: other sources, noise or rooms under the
    same ID give another.
    """
    rows = {row.id: row for row in other.rows}
    return [row.id for row in one.rows if row.id in rows and _is_same(row, rows[row.id])]


def _is_same(row: Row, other: Row) -> bool:
    if row.n_samples != other.n_samples:
        return False
    own = [
        [r.values.get(name, math.nan) - r.values.get(f"{name}i", math.nan) for r in (row, other)]
        for name in row.values
        if name not in ROUNDING
    ]
    return not any(abs(mine - theirs) > SAME_SCORE for mine, theirs in own)  # NaN: not known


def compare(one: Evaluation, other: Evaluation, name: str) -> Difference:
    """Paired differences ``one - other`` of a value.

    Args:
        one: an evaluation.
        other: another one, of the same mixtures or some of them.
        name: of the value, which both have.

    Source: Wilcoxon, "Individual comparisons by ranking methods", 1945.

    Example:
        >>> from pathlib import Path
        >>> from convtasnet.evaluation import Row
        >>> def made(name, gain):
        ...     rows = [Row(str(i), 8, {"sdr": i % 7 + gain * (i % 3)}) for i in range(60)]
        ...     return Evaluation(name, Path(name), ["sdr"], {}, rows)
        >>> difference = compare(made("new", 0.5), made("old", 0.0), "sdr")
        >>> difference.n, difference.mean, difference.p_value < 1e-6
        (60, 0.5, True)
    """
    before = {row.id: row.values[name] for row in other.rows}
    ids = shared(one, other)
    mine = {row.id: row.values[name] for row in one.rows}
    pairs = [(mine[i], before[i]) for i in ids]
    differences = [a - b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not differences:
        return Difference(name, [], math.nan, None, math.nan, math.nan)
    values = np.asarray(differences)
    p_value = float(wilcoxon(values).pvalue) if np.any(values != 0) else 1.0
    wins = float(np.mean(values > 0) + np.mean(values == 0) / 2)
    interval = mean_interval(differences, seed=0)
    return Difference(name, differences, float(values.mean()), interval, wins, p_value)
