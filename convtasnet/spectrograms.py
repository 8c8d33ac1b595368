"""Spectrograms as pictures; needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

WINDOW_SECONDS = 0.032
RANGE_DB = 70.0  # below the loudest point of the first signal
MISSING = "matplotlib draws spectrograms: install convtasnet[eval]"


def decibels(wav: Tensor, sample_rate: int) -> np.ndarray:
    """(T,) -> (frequencies, frames); a signal shorter than a window is padded.

    Example:
        >>> decibels(torch.ones(8000), 8000).shape
        (129, 126)
    """
    n_fft = round(WINDOW_SECONDS * sample_rate)
    window = torch.hann_window(n_fft)
    spectrum = torch.stft(
        wav, n_fft, n_fft // 4, window=window, pad_mode="constant", return_complex=True
    )
    return 20 * np.log10(spectrum.abs().numpy() + 1e-8)


def draw_spectrograms(
    signals: Mapping[str, Tensor], sample_rate: int, title: str, out: Path
) -> None:
    """Write a picture with the spectrograms of some signals on one scale of time and level.

    Args:
        signals: title -> (T,); the first one's loudest point is the top of the scale.
        sample_rate: Hz.
        title: of the picture.
        out: the file; its ending names the format, its folder is made.

    Raises:
        ValueError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(MISSING) from None
    pictures = {name: decibels(wav, sample_rate) for name, wav in signals.items()}
    top = next(iter(pictures.values())).max()
    height = 1.6 * len(pictures) + 0.9
    figure = Figure(figsize=(8, height))
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(pictures), sharex=True, squeeze=False)[:, 0]
    # Fixed margins: a layout that looks at what is drawn would draw everything twice.
    figure.subplots_adjust(0.08, 0.45 / height, 0.98, 1 - 0.65 / height, hspace=0.35)
    seconds = max(map(len, signals.values())) / sample_rate
    for axis, (name, picture) in zip(axes, pictures.items(), strict=True):
        axis.imshow(
            picture,
            origin="lower",
            aspect="auto",
            extent=(0, seconds, 0, sample_rate / 2000),
            vmin=top - RANGE_DB,
            vmax=top,
        )
        axis.set(title=name, ylabel="kHz")
    axes[-1].set_xlabel("seconds")
    figure.suptitle(title, y=1 - 0.12 / height)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=80)
