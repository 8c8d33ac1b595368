"""Recordings that stay in a device's memory, and stretches cut out of them there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from convtasnet.data.pieces import read_pieces
from convtasnet.data.recordings import Recordings


class ResidentAudio:
    """Recordings as 16-bit samples on one device.

    Samples of 16-bit files of the right rate are kept exactly, others are rounded to 2^-15 of
    their file's peak. A file of another rate is resampled as a whole.

    Args:
        recordings: the files.
        window: samples of the longest crop.
        device: whose memory holds them.
        num_workers: processes that read the files.
        show: whether to show the progress.

    Attributes:
        scales: (n,) float64 on the host: what a file's integers are to be multiplied by.

    Raises:
        FileNotFoundError, ValueError: files are missing or damaged.

    >>> import tempfile
    >>> from convtasnet.audio import write_audio
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/a.wav", torch.arange(80) / 2**15, 8000)
    ...     files = Recordings([f"{folder}/a.wav"], np.array([80]), np.array([8000]), 8000)
    ...     audio = ResidentAudio(files, window=4, device=torch.device("cpu"))
    >>> places = torch.from_numpy(audio.places(np.array([0, 0]), np.array([5, 76])))
    >>> audio.crops(places, torch.tensor([4, 2]), window=4).tolist()
    [[5, 6, 7, 8], [76, 77, 0, 0]]
    """

    def __init__(
        self,
        recordings: Recordings,
        window: int,
        device: torch.device,
        num_workers: int = 0,
        show: bool = False,
    ):
        self.device = device
        lengths = recordings.file_lengths
        self._offsets = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        self._samples = torch.zeros(total + window, dtype=torch.int16, device=device)
        scales, end = [], 0
        title = f"Loading speech to {device}"
        for samples, own in read_pieces(recordings, num_workers, title, show):
            self._samples[end : end + len(samples)] = torch.from_numpy(samples)
            scales.append(own)
            end += len(samples)
        self.scales = np.concatenate(scales)

    def places(self, members: np.ndarray, starts: np.ndarray | int) -> np.ndarray:
        """Where stretches of recordings begin among all samples.

        Args:
            members: (...) which recordings.
            starts: first samples; shapes broadcast.

        Returns:
            (...) int64.
        """
        return self._offsets[members] + starts

    def crops(self, places: Tensor, counts: Tensor, window: int) -> Tensor:
        """Stretches of recordings, with zeros after their end.

        Args:
            places: (...) int64 where they begin, on the device.
            counts: (...) int64 samples wanted, on the device, at most ``window``.
            window: samples of the result, at most those of the longest crop.

        Returns:
            (..., window) int16, on the device.
        """
        windows = self._samples.unfold(0, window, 1)  # row i: the samples from i on, not copied
        inside = torch.arange(window, device=self.device) < counts[..., None]
        return windows[places] * inside
