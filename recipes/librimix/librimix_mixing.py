"""Mixtures of LibriMix: read, weight, resample, cut or pad, add, write.

All is computed and written as the published generator does it, in the same precision, so that the
files are the same sample for sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile as sf
from scipy.signal import resample_poly

from convtasnet.data.tree import MIXTURES
from convtasnet.files import replacing
from convtasnet.generation.recordings import at_rate, first_channel
from convtasnet.generation.target import Target

RATE = 16000  # Hz, of LibriSpeech and of WHAM!'s noise
FADE = RATE // 2 + 1  # samples over which noise that is repeated goes over into itself


@dataclass(frozen=True)
class Noise:
    """The noise of a mixture.

    Args:
        path: of the recording.
        gain: its factor.
        speed: (n, d): it is to be played at n/d of its speed; (1, 1) as it is.
    """

    path: str
    gain: float
    speed: tuple[int, int] = (1, 1)


@dataclass(frozen=True)
class Job:
    """One mixture to make.

    Args:
        name: of its files, without ``.wav``.
        paths: utterances.
        gains: factor of each.
        noise: None if no folder of it is to be written.
        targets: what to write of it.
    """

    name: str
    paths: tuple[str, ...]
    gains: tuple[float, ...]
    noise: Noise | None
    targets: tuple[Target, ...]


def make_mixture(job: Job) -> None:
    """Write the files of a mixture, each whole or not at all.

    Raises:
        ValueError, OSError: a recording is damaged, or a file can't be written.
    """
    wavs = [first_channel(path, "float32")[0] for path in job.paths]
    gains = list(job.gains)
    if job.noise:
        wavs.append(noise_of(job.noise, max(map(len, wavs))))
        gains.append(job.noise.gain)
    weighted = [wav * gain for wav, gain in zip(wavs, gains, strict=True)]
    n_src = len(job.paths)
    for target in job.targets:
        signals = fitted([at_rate(wav, RATE, target.sample_rate) for wav in weighted], target.mode)
        for kind, file in target.files(job.name).items():
            write(file, signal_of(kind, signals, n_src), target.sample_rate)


def noise_of(noise: Noise, length: int) -> np.ndarray:
    """The first samples of a noise; a shorter one is repeated."""
    speed, unit = noise.speed
    if speed == unit:
        wav = first_channel(noise.path, "float32", length)[0]
    else:
        wav = resample_poly(first_channel(noise.path, "float32")[0], unit, speed)
    return repeated(wav, length)[:length]


def repeated(wav: np.ndarray, length: int) -> np.ndarray:
    """At least ``length`` samples: the signal, going over into itself in half a second of Hann's.

    Args:
        wav: (T,), T above ``FADE`` unless it is long enough.
        length: samples.

    >>> wav = np.ones(2 * FADE)
    >>> longer = repeated(wav, 5 * FADE)
    >>> len(longer) == 5 * FADE, bool((np.abs(longer - 1) < 1e-6).all())
    (True, True)
    """
    window = np.hanning(2 * FADE - 1)
    rising, falling = window[:FADE], window[FADE - 1 :]
    whole = wav
    while len(whole) < length:
        joint = whole[-FADE:] * falling + wav[:FADE] * rising
        whole = np.concatenate([whole[:-FADE], joint, wav[FADE:]])
    return whole


def fitted(wavs: Sequence[np.ndarray], mode: str) -> list[np.ndarray]:
    """Signals cut to the shortest, or padded with zeros to the longest.

    >>> [len(wav) for wav in fitted([np.ones(3), np.ones(5)], "max")]
    [5, 5]
    """
    length = (min if mode == "min" else max)(map(len, wavs))
    return [np.pad(wav[:length], (0, length - len(wav[:length]))) for wav in wavs]


def signal_of(kind: str, signals: Sequence[np.ndarray], n_src: int) -> np.ndarray:
    """What belongs in a folder: ``s1``, …, ``noise``, or a sum of these."""
    if kind == "noise":
        return signals[-1]
    if kind not in MIXTURES:
        return signals[int(kind[1:]) - 1]
    if kind == "mix_single":
        parts = [signals[0], signals[-1]]
    else:
        parts = list(signals[:n_src] if kind == "mix_clean" else signals)
    total = np.zeros_like(parts[0])  # float32, also where noise that was repeated is float64
    for part in parts:
        total += part
    return total


def write(file: Path, wav: np.ndarray, sample_rate: int) -> None:
    """Write 16 bits as libsndfile makes them of floats (rounded down, cut at full scale)."""
    with replacing(file) as temporary:
        sf.write(temporary, wav, sample_rate, subtype="PCM_16")
