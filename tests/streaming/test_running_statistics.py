"""The statistics of long streams against NumPy, under good and bad conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from convtasnet.streaming.folded import FoldedNorm
from convtasnet.streaming.statistics import Statistics


def run(means: np.ndarray, stds: np.ndarray, piece: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of every frame, in pieces."""
    statistics, norm = Statistics(n_norms=1), FoldedNorm("cumulative", 512, 1e-8, 0)
    scales, shifts = [], []
    for start in range(0, len(means), piece):
        mean, std = (torch.from_numpy(x[start : start + piece, None]) for x in (means, stds))
        window = statistics.window(len(mean), like=mean)
        statistics.advance(norm, mean, 1 / std, window)
        scales.append(window.scale.numpy().copy())
        shifts.append(window.shift.numpy().copy())
    return np.concatenate(scales)[:, 0], np.concatenate(shifts)[:, 0]


def reference(means: np.ndarray, stds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums in 80 bits around the overall mean, so that nothing is lost."""
    count = np.arange(1, len(means) + 1)
    off = (means - means.mean()).astype(np.longdouble)
    mean = off.cumsum() / count
    variance = (off**2 + stds.astype(np.longdouble) ** 2).cumsum() / count - mean**2
    std = np.sqrt(variance + 1e-8)
    return (stds / std).astype(float), ((off - mean) / std).astype(float)


@pytest.mark.parametrize(("level", "spread"), [(0.3, 0.5), (100.0, 0.01)])
def test_nothing_is_lost_in_long_streams(level: float, spread: float) -> None:
    rng, n_frames = np.random.default_rng(0), 300_000
    drift = np.sin(np.arange(n_frames) / 5e4)
    means = level + spread * (drift + rng.standard_normal(n_frames))
    stds = spread * (1.2 + drift + 0.1 * rng.random(n_frames))
    for found, expected in zip(run(means, stds, 1000), reference(means, stds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
