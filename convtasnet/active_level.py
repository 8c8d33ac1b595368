"""The level of speech while somebody speaks: ITU-T P.56, method B."""

from __future__ import annotations

import math

import numpy as np
from scipy.signal import lfilter

TIME_CONSTANT = 0.03  # seconds, of both smoothing stages of the envelope
HANGOVER = 0.2  # seconds that still count as speech after the envelope has fallen
MARGIN_DB = 15.9  # by which the active level lies above the threshold that defines activity


def active_speech_level(samples: np.ndarray, sample_rate: int) -> float:
    """Active speech level in dB, by the speech voltmeter of ITU-T P.56 (03/2011), method B.

    The envelope is the rectified signal, smoothed twice with a time constant of 30 ms. For each
    of several thresholds, 6.02 dB apart, speech is active where the envelope reaches the threshold
    and for 200 ms after; the energy of the whole signal divided by that time is a level A. A lower
    threshold C gives more activity and a lower A. The active level is the A that lies 15.9 dB above
    its C, interpolated linearly (in dB) between the two thresholds around it.

    The thresholds are the powers of two of the standard, as many as the signal needs, so that
    quiet floating-point signals are measured like loud ones. There is no band-pass filter before
    the measurement (the standard leaves it to the user). ITU-T's own program interpolates to
    within half a decibel of the margin only, so it differs by some hundredths of a decibel.

    Args:
        samples: (T,), full scale is 1.
        sample_rate: in Hz.

    Returns:
        dB relative to an RMS of 1 (a square wave of full scale has 0 dB); ``-inf`` for silence. A
        click too short for the envelope to come within 15.9 dB of it has the highest A there is.

    Raises:
        ValueError: not one channel, samples that are NaN or infinite, or a rate below 1 Hz.

    Example:
        A pause does not lower the level, as it lowers that of the whole:

        >>> speech = np.sin(np.arange(32000) * 0.7)
        >>> paused = np.concatenate([speech, np.zeros(64000)])
        >>> round(active_speech_level(speech, 8000), 1), round(active_speech_level(paused, 8000), 1)
        (-3.0, -3.3)
        >>> round(10 * math.log10(np.mean(paused**2)), 1)
        -7.8
    """
    samples = np.asarray(samples, dtype=np.float64)
    if samples.ndim != 1:
        raise ValueError(f"samples have shape {samples.shape}, expected (T,)")
    if sample_rate < 1:
        raise ValueError(f"sample_rate is {sample_rate}, expected at least 1 Hz")
    if not np.isfinite(samples).all():
        raise ValueError("samples hold NaN or infinity")
    energy = float(np.square(samples).sum())
    if energy == 0:
        return -math.inf
    envelope = _envelope(samples, sample_rate)
    exponents = np.arange(*_exponents(energy / samples.size, envelope.max()))
    times = [_active_time(envelope >= 2.0**e, sample_rate) for e in exponents]
    levels = 10 * np.log10(energy / np.array(times))
    margins = levels - 20 * math.log10(2) * exponents
    above = int(np.argmax(margins <= MARGIN_DB))  # the first threshold that is too high
    if margins[above] > MARGIN_DB:
        return float(levels[-1])
    if above == 0:
        return float(levels[0])
    around = [above, above - 1]
    return float(np.interp(MARGIN_DB, margins[around], levels[around]))


def _envelope(samples: np.ndarray, sample_rate: int) -> np.ndarray:
    """The rectified samples after two equal smoothing stages: (T,) -> (T,)."""
    keep = math.exp(-1 / (sample_rate * TIME_CONSTANT))
    envelope = np.abs(samples)
    for _ in range(2):
        envelope = lfilter([1 - keep], [1, -keep], envelope)
    return envelope


def _exponents(power: float, top: float) -> tuple[int, int]:
    """Range of the exponents of two: from the margin below the RMS up to the highest envelope.

    A is never below the RMS, so the lowest threshold is at least the margin below its A.
    """
    lowest = math.floor((10 * math.log10(power) - MARGIN_DB) / (20 * math.log10(2)))
    highest = math.floor(math.log2(top))
    return min(lowest, highest), highest + 1


def _active_time(loud: np.ndarray, sample_rate: int) -> int:
    """Samples that are loud, or at most the hangover after one that is."""
    starts = np.flatnonzero(loud)
    until_next = np.diff(starts, append=loud.size)
    return int(np.minimum(until_next, 1 + round(HANGOVER * sample_rate)).sum())
