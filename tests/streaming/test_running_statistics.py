"""The statistics of long streams against NumPy, under good and bad conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from convtasnet.streaming.folded import FoldedNorm
from convtasnet.streaming.statistics import Statistics


def run(means: np.ndarray, stds: np.ndarray, piece: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and 1 / standard deviation of all frames up to each, in pieces."""
    statistics, norm = Statistics(n_norms=1), FoldedNorm("cumulative", 512, 1e-8, 0)
    found = []
    for start in range(0, len(means), piece):
        mean, std = (x[start : start + piece] for x in (means, stds))
        window = statistics.window(len(mean), like=torch.from_numpy(mean))
        statistics.advance(norm, mean.tolist(), (std * std).tolist(), window)
        found.append(torch.cat((window.mean, window.rstd), 1).numpy())
    overall, rstd = np.concatenate(found).T
    return overall - means.mean(), rstd


def reference(means: np.ndarray, stds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums in 80 bits around the mean of all frames, so that nothing is lost."""
    count = np.arange(1, len(means) + 1)
    off = (means - means.mean()).astype(np.longdouble)
    mean = off.cumsum() / count
    variance = (off**2 + stds.astype(np.longdouble) ** 2).cumsum() / count - mean**2
    return mean.astype(float), (1 / np.sqrt(variance + 1e-8)).astype(float)


@pytest.mark.parametrize(("level", "spread"), [(0.3, 0.5), (100.0, 0.01)])
def test_nothing_is_lost_in_long_streams(level: float, spread: float) -> None:
    rng, n_frames = np.random.default_rng(0), 300_000
    drift = np.sin(np.arange(n_frames) / 5e4)
    means = level + spread * (drift + rng.standard_normal(n_frames))
    stds = spread * (1.2 + drift + 0.1 * rng.random(n_frames))
    for found, expected in zip(run(means, stds, 1000), reference(means, stds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
