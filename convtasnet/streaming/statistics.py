"""Cumulative statistics that go on from push to push."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from convtasnet.streaming.folded import FoldedNorm

LEAST_RSTD = 1e-150  # in place of 0, that of infinite values, which nothing can be divided by


class Window:
    """The frames of one push, the same for all norms, and room for the results of a norm.

    Args:
        n_frames: F.
        like: a tensor of the frames' dtype and device.

    Attributes:
        counts: weight of all frames of the stream up to each of these F.
        scale: (F, 1).
        shift: (F, 1).
    """

    def __init__(self, n_frames: int, like: Tensor) -> None:
        self.counts: list[float] = []
        self._on_host = torch.empty((2, n_frames, 1), dtype=like.dtype)
        self._array = self._on_host.numpy()[..., 0]
        self._on_device = self._on_host.to(like.device)
        self.scale, self.shift = self._on_device

    def write(self, scales: list[float], shifts: list[float]) -> None:
        """Set ``scale`` and ``shift``; through NumPy, which takes lists ten times faster."""
        self._array[...] = scales, shifts
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
        >>> statistics.advance(norm, torch.tensor([[1.0], [3.0]]), torch.ones(2, 1), window)
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

    def advance(self, norm: FoldedNorm, mean: Tensor, rstd: Tensor, window: Window) -> None:
        """Take in the next frames of a norm.

        It leaves in ``window.scale`` and ``window.shift`` what turns a frame normalized by its own
        statistics into the frame normalized by those of all frames up to it.

        Args:
            norm: the norm.
            mean: (F, 1) of each frame alone.
            rstd: (F, 1), 1 / standard deviation of each frame alone.
            window: of these frames.
        """
        overall, deviation = self.means[norm.number], self.deviations[norm.number]
        decay, eps, legacy = self.decay, norm.eps, norm.kind == "cumulative_legacy"
        scales, shifts = [], []
        frames = zip(mean.tolist(), rstd.tolist(), window.counts, strict=True)
        for (own_mean,), (own_rstd,), count in frames:
            own_rstd = own_rstd or LEAST_RSTD
            before = own_mean - overall
            overall += before / count
            after = own_mean - overall
            deviation = deviation * decay + 1 / (own_rstd * own_rstd) + before * after
            variance = deviation / count
            if legacy:  # see convtasnet.other_norms
                square = overall * overall
                variance = max(norm.channels * count * (variance + square) - square, 0.0)
            rstd_so_far = 1 / sqrt(variance + eps)
            scales.append(rstd_so_far / own_rstd)
            shifts.append(after * rstd_so_far)
        self.means[norm.number], self.deviations[norm.number] = overall, deviation
        window.write(scales, shifts)
