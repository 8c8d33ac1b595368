"""Mixtures of WSJ0-mix: read, level, mix, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import resample_poly

from convtasnet.active_level import active_speech_level
from convtasnet.audio import read_audio, write_audio
from convtasnet.data.mixing import PEAK
from convtasnet.generation.target import Target
from convtasnet.generation.wsj0 import RATE

LEVEL_RATE = 8000  # Hz: the published recipe levels the 16 kHz files by the levels at 8 kHz too
SCALINGS = ("published", "python-port")


@dataclass(frozen=True)
class Job:
    """One mixture to make.

    Args:
        name: of its files, without ``.wav``.
        paths: utterances at 16 kHz.
        gains_db: relative level of each.
        powers: active power of each (mean square), or None to measure them.
        targets: what to write of it.
        scaling: one of ``SCALINGS``.
    """

    name: str
    paths: tuple[str, ...]
    gains_db: tuple[float, ...]
    powers: tuple[float, ...] | None
    targets: tuple[Target, ...]
    scaling: str


def make_mixture(job: Job) -> None:
    """Write a mixture and its sources, each file whole or not at all.

    Raises:
        ValueError, OSError: an utterance is silent or damaged, or a file can't be written.
    """
    wavs = {RATE: [read_audio(path)[0].numpy() for path in job.paths]}
    wavs[LEVEL_RATE] = [resample_poly(wav, LEVEL_RATE, RATE) for wav in wavs[RATE]]
    powers = job.powers or [
        active_power(path, wav) for path, wav in zip(job.paths, wavs[LEVEL_RATE], strict=True)
    ]
    for target in job.targets:
        signals = mixed(wavs[target.sample_rate], powers, job.gains_db, target.mode, job.scaling)
        for file, signal in zip(target.files(job.name).values(), signals, strict=True):
            write_audio(file, signal, target.sample_rate)


def active_power(path: str, wav: np.ndarray) -> float:
    """Mean square of an utterance while it is active, from its samples at 8 kHz."""
    power = 10 ** (active_speech_level(wav, LEVEL_RATE) / 10)
    if power == 0:
        raise ValueError(f"{path}: silent")
    return power


def mixed(
    wavs: Sequence[np.ndarray],
    powers: Sequence[float],
    gains_db: Sequence[float],
    mode: str,
    scaling: str,
) -> np.ndarray:
    """Level, cut or pad, add and scale.

    Args:
        wavs: n_src signals (T_i,).
        powers: active power of each.
        gains_db: level of each after leveling.
        mode: "min" or "max".
        scaling: "published" brings the largest absolute sample of all to 0.9, "python-port" divides
            by ``max(1, largest) / 0.9``.

    Returns:
        (n_src + 1, T) float64: the sources and, last, their sum.

    >>> signals = mixed([np.ones(3), -np.ones(5)], [1.0, 4.0], [0.0, 0.0], "max", "published")
    >>> signals.round(2).tolist()[1:]
    [[-0.45, -0.45, -0.45, -0.45, -0.45], [0.45, 0.45, 0.45, -0.45, -0.45]]
    """
    length = (min if mode == "min" else max)(map(len, wavs))
    sources = np.zeros((len(wavs), length))
    for source, wav, power, gain in zip(sources, wavs, powers, gains_db, strict=True):
        cut = wav[:length].astype(np.float64)
        source[: len(cut)] = cut / np.sqrt(power) * 10 ** (gain / 20)
    signals = np.concatenate([sources, sources.sum(0, keepdims=True)])
    largest = float(np.abs(signals).max())
    if scaling == "python-port":
        largest = max(1.0, largest)
    return signals / (largest / PEAK)
