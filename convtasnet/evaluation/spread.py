"""How sure a mean is: confidence intervals from resampled mixtures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
_BLOCK = 1 << 22  # numbers drawn at a time


def mean_interval(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """Interval that holds the mean over mixtures like these, by the percentile bootstrap.

    The mixtures are what is drawn anew: the interval says nothing of other speakers or rooms.

    Args:
        values: one a mixture, finite.
        seed: of the draws.

    Returns:
        Lower and upper end at 95 %; None with fewer than two values.

    Source: Efron & Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.

    Example:
        >>> low, high = mean_interval([1.0, 2.0, 3.0, 2.0] * 100, seed=0)
        >>> low < 2 < high, round(high - low, 2)
        (True, 0.14)
    """
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return None
    rng = np.random.default_rng(seed)
    means: list[np.ndarray] = []
    step = max(1, _BLOCK // len(data))
    for start in range(0, RESAMPLES, step):
        drawn = rng.integers(len(data), size=(min(step, RESAMPLES - start), len(data)))
        means.append(data[drawn].mean(1))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)
