"""Mixtures of WHAM!: read, scale, place in the noise, add, write.

All is computed as the published scripts do it, in the same precision, and written as 32-bit float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from wham_lists import Scales

from convtasnet.audio import write_audio
from convtasnet.generation.recordings import at_rate, first_channel
from convtasnet.generation.target import Target

RATE = 16000  # Hz, of WSJ0 and the noise


@dataclass(frozen=True)
class Part:
    """What is written into one folder.

    Args:
        target: the folder.
        talkers: files of the two talkers: WSJ0's utterances, or wsj0-2mix's sources.
        scales: their factors and the noise's.
        from_wsj0: whether they are utterances.
    """

    target: Target
    talkers: tuple[str, ...]
    scales: Scales
    from_wsj0: bool


@dataclass(frozen=True)
class Job:
    """One mixture to make: its name, its noise, where in it the talkers begin, what is written."""

    name: str
    noise: str
    start: int
    parts: tuple[Part, ...]


def make_mixture(job: Job) -> None:
    """Write the files of a mixture, each whole or not at all.

    Raises:
        ValueError, OSError: a recording is damaged, or a file can't be written.
    """
    noise, noise_rate = first_channel(job.noise, "float64")
    for part in job.parts:
        rate, mode = part.target.sample_rate, part.target.mode
        talkers = [talker_of(part, k) for k in range(len(part.talkers))]
        weighted = at_rate(noise, noise_rate, rate) * part.scales.noise
        signals = placed(talkers, weighted, job.start * rate // RATE, mode)
        for kind, file in part.target.files(job.name).items():
            write_audio(file, signal_of(kind, signals), rate, "FLOAT")


def talker_of(part: Part, k: int) -> np.ndarray:
    """A talker at the folder's rate, as loud as in the mixture."""
    wav, rate = first_channel(part.talkers[k], "float64")
    if not part.from_wsj0:
        return wav * part.scales.speech
    # What wsj0-2mix has of it, in 16 bits.
    scaled = 2.0**15 * at_rate(wav, rate, part.target.sample_rate) * part.scales.utterances[k]
    if np.abs(scaled).max() >= 2**15 - 0.5:
        raise ValueError(f"{part.talkers[k]}: passes full scale: is it the utterance of the list?")
    return np.round(scaled) / 2**15 * part.scales.speech


def placed(
    talkers: Sequence[np.ndarray], noise: np.ndarray, start: int, mode: str
) -> list[np.ndarray]:
    """Talkers and noise of one length.

    Args:
        talkers: signals (T_i,).
        noise: (T,), which goes on to the end of the talkers at least.
        start: sample of the noise at which they begin.
        mode: "min" cuts the talkers to the shortest and the noise to where they are; "max" pads
            them to the whole noise.

    >>> [wav.tolist() for wav in placed([np.ones(2), np.ones(1)], np.arange(4.0), 1, "max")]
    [[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]]
    """
    if mode == "min":
        length = min(map(len, talkers))
        return [*(wav[:length] for wav in talkers), noise[start : start + length]]
    signals = []
    for wav in talkers:
        padded = np.zeros_like(noise)
        padded[start : start + len(wav)] = wav
        signals.append(padded)
    return [*signals, noise]


def signal_of(kind: str, signals: Sequence[np.ndarray]) -> np.ndarray:
    """What belongs in a folder, of the talkers and, last, the noise."""
    one, other, noise = signals
    if kind == "mix_clean":
        return one + other
    if kind == "mix_single":
        return noise + one
    if kind == "mix_both":
        return noise + one + other
    return {"s1": one, "s2": other, "noise": noise}[kind]
