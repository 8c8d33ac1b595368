"""Levels of voices that are not complete yet."""

from __future__ import annotations

import numpy as np

HALF_LIFE = 10.0  # seconds


class RunningLevels:
    """Gives each voice the level that it has in the mixture, by what is known so far.

    A model trained on SI-SDR leaves the scale and the sign of its outputs open. As
    :func:`convtasnet.inference.rescale` does with whole recordings, each voice is scaled by its
    least-squares fit to the mixture, ⟨x, s⟩ / ⟨s, s⟩, here with sums over the past that halve every
    ten seconds. The gain goes from one block's value to the next in a straight line.

    Args:
        n_src: voices.
        sample_rate: Hz.

    Example:
        >>> levels = RunningLevels(1, 8000)
        >>> mixture = np.ones(4, np.float32)
        >>> levels(-5 * mixture[None], mixture)
        array([[1., 1., 1., 1.]], dtype=float32)
    """

    def __init__(self, n_src: int, sample_rate: int) -> None:
        self.half_life = HALF_LIFE * sample_rate
        self.projection, self.energy = np.zeros(n_src), np.zeros(n_src)
        self.gain: np.ndarray | None = None

    def __call__(self, voices: np.ndarray, mixture: np.ndarray) -> np.ndarray:
        """Scale the next voices (n_src, m) of the mixture (m,)."""
        n_samples = voices.shape[1]
        decay = 0.5 ** (n_samples / self.half_life)
        self.projection = decay * self.projection + voices.astype(float) @ mixture.astype(float)
        self.energy = decay * self.energy + np.square(voices, dtype=float).sum(1)
        gain = np.divide(
            self.projection, self.energy, out=np.ones_like(self.energy), where=self.energy > 0
        )
        before = gain if self.gain is None else self.gain
        self.gain = gain
        ramp = np.arange(1, n_samples + 1) / max(n_samples, 1)
        return (voices * (before[:, None] + np.outer(gain - before, ramp))).astype(voices.dtype)
