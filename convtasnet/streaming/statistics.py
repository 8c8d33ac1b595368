"""Cumulative statistics that go on from push to push."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from convtasnet.streaming.folded import FoldedNorm


class Window:
    """The frames of one push, the same for all norms, and room for what goes in and out of a norm.

    Args:
        n_frames: F.
        like: a tensor of the frames' dtype and device.

    Attributes:
        counts: weight of all frames of the stream up to each of these F.
        mean: (F, 1), of all frames of the stream up to each, by the norm that was run last.
        rstd: (F, 1), likewise 1 / standard deviation.
    """

    def __init__(self, n_frames: int, like: Tensor) -> None:
        self.counts: list[float] = []
        self._on_host = torch.empty((2, n_frames, 1), dtype=like.dtype)
        self._array = self._on_host.numpy()[..., 0]
        self._on_device = self._on_host.to(like.device)
        self.mean, self.rstd = self._on_device
        self._moments = self._on_device.new_empty((2, n_frames))
        self._weights: dict[int, Tensor] = {}

    def moments(self, values: Tensor) -> tuple[list[float], list[float]]:
        """Mean and variance of each frame (F, C) alone; by products, which take the least time."""
        n_channels = values.shape[1]
        if n_channels not in self._weights:
            self._weights[n_channels] = values.new_full((n_channels,), 1 / n_channels)
        weights = self._weights[n_channels]
        torch.mv(values, weights, out=self._moments[0])
        torch.mv(values * values, weights, out=self._moments[1])
        means, squares = self._moments.tolist()
        variances = [square - m * m for m, square in zip(means, squares, strict=True)]
        return means, variances

    def write(self, means: list[float], rstds: list[float]) -> None:
        """Set ``mean`` and ``rstd``; through NumPy, which takes lists ten times faster."""
        self._array[...] = means, rstds
        if self._on_device is not self._on_host:
            self._on_device.copy_(self._on_host)


class Statistics:
    """Count, means and deviations of all cumulative norms of a model.

    Each frame moves them on as in Welford's and West's algorithm, whose terms never cancel, in
    Python's floats of 64 bits: nothing is lost, however long the stream is. For so few numbers a
    loop in Python takes less time than operators on arrays do to be called.

    Args:
        n_norms: M.
        decay: what a frame's weight is multiplied by with every later frame: 1 for the paper's
            statistics, of all frames alike; less forgets.

    Attributes:
        count: weight of all frames so far; their number, if none is forgotten.
        means: M means of all values so far.
        deviations: M weighted sums of the frames' squared deviations from the mean.

    Example:
        >>> statistics = Statistics(n_norms=1)
        >>> window = statistics.window(2, like=torch.zeros(0))
        >>> norm = FoldedNorm("cumulative", channels=8, eps=0.0, number=0)
        >>> statistics.advance(norm, [1.0, 3.0], [1.0, 1.0], window)
        >>> statistics.count, statistics.means, statistics.deviations
        (2.0, [2.0], [4.0])
    """

    def __init__(self, n_norms: int, decay: float = 1.0) -> None:
        self.decay, self.count = decay, 0.0
        self.means, self.deviations = [0.0] * n_norms, [0.0] * n_norms
        self._window = Window(0, torch.empty(0))

    def window(self, n_frames: int, like: Tensor) -> Window:
        """Count the next frames; the results will have the dtype and device of ``like``.

        The window before is no longer valid: as most have one length, they share their room.
        """
        if len(self._window.counts) != n_frames:
            self._window = Window(n_frames, like)
        counts = []
        for _ in range(n_frames):
            self.count = self.count * self.decay + 1
            counts.append(self.count)
        self._window.counts = counts
        return self._window

    def advance(
        self, norm: FoldedNorm, means: list[float], variances: list[float], window: Window
    ) -> None:
        """Take in the next frames of a norm.

        It leaves the statistics of all frames up to each in ``window.mean`` and ``window.rstd``.

        Args:
            norm: the norm.
            means: of each of the F frames alone.
            variances: of each frame alone.
            window: of these frames.
        """
        overall, deviation = self.means[norm.number], self.deviations[norm.number]
        decay, eps, legacy = self.decay, norm.eps, norm.kind == "cumulative_legacy"
        overall_means, rstds = [], []
        for mean, own_variance, count in zip(means, variances, window.counts, strict=True):
            before = mean - overall
            overall += before / count
            deviation = deviation * decay + own_variance + before * (mean - overall)
            variance = deviation / count
            if legacy:  # see convtasnet.other_norms
                square = overall * overall
                variance = norm.channels * count * (variance + square) - square
            overall_means.append(overall)
            rstds.append(1 / sqrt(max(variance, 0.0) + eps))
        self.means[norm.number], self.deviations[norm.number] = overall, deviation
        window.write(overall_means, rstds)
