"""Signals to score, and the metrics that are installed."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from convtasnet.metrics import METRICS

HAS_PESQ = find_spec("pesq") is not None  # it needs a C compiler to be installed
needs_pesq = pytest.mark.skipif(not HAS_PESQ, reason="convtasnet[pesq] is not installed")
ALL = [name for name in METRICS if name != "pesq" or HAS_PESQ]
NAMES = [name for metric in ALL for name in (metric, f"{metric}i")]
RATE = 8000


def speechlike(n_src=2, seconds=2.0, seed=0, rate=RATE):
    """Noise through a two-pole low-pass, with syllables of 4 Hz: (n_src, T)."""
    generator = np.random.default_rng(seed)
    n = int(seconds * rate)
    noise = generator.standard_normal((n_src, n))
    for _ in range(2):
        noise[:, 1:] += 0.7 * noise[:, :-1]
    phase = generator.uniform(0, 6, (n_src, 1))
    syllables = np.maximum(np.sin(2 * np.pi * 4 * np.arange(n) / rate + phase), 0) + 0.01
    return torch.tensor(0.05 * noise * syllables)


def estimates_of(sources, level=0.3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(sources.shape, generator=generator, dtype=torch.float64)
    return sources + level * sources.std() * noise
