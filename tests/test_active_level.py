"""The speech voltmeter: the standard's loop over samples as the reference, and laws."""

import math

import numpy as np
import pytest
from scipy.signal import resample_poly

from convtasnet.active_level import active_speech_level

RATE = 8000
SIX_DB = 20 * math.log10(2)


def tone(seconds, amplitude=0.5, hertz=1000.0):
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)


def bursts(seed, seconds=3.0, rate=RATE):
    """Noise that comes and goes slowly, with pauses longer than the hangover."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    loudness = np.maximum(0, np.sin(2 * np.pi * 0.6 * t + seed)) ** 2
    return 0.1 * rng.standard_normal(t.size) * loudness + 1e-4 * rng.standard_normal(t.size)


def silence(seconds):
    return np.zeros(round(seconds * RATE))


def voltmeter(samples, rate):
    """Sample by sample, with a hangover counter for each threshold, as the standard has it."""
    keep = math.exp(-1 / (0.03 * rate))
    hangover = round(0.2 * rate)
    thresholds = [2.0**-j for j in range(15, 0, -1)]
    active, since = [0] * 15, [hangover] * 15
    energy = first = second = 0.0
    for x in samples:
        energy += x * x
        first = keep * first + (1 - keep) * abs(x)
        second = keep * second + (1 - keep) * first
        for j, threshold in enumerate(thresholds):
            if second >= threshold:
                since[j] = 0
                active[j] += 1
            elif since[j] < hangover:
                since[j] += 1
                active[j] += 1
    before = (math.nan, math.nan)
    for threshold, count in zip(thresholds, active, strict=True):
        level = 10 * math.log10(energy / count)
        margin = level - 20 * math.log10(threshold)
        if margin <= 15.9:
            share = (before[1] - 15.9) / (before[1] - margin)
            return before[0] + share * (level - before[0])
        before = level, margin
    raise AssertionError("no threshold is 15.9 dB below the level")


@pytest.mark.parametrize("seed", range(3))
def test_the_standard_sample_by_sample(seed):
    rate = 8000 if seed else 16000
    samples = bursts(seed, 1.5, rate)
    assert active_speech_level(samples, rate) == pytest.approx(voltmeter(samples, rate), abs=1e-9)


@pytest.mark.parametrize("amplitude", [1.0, 0.3, 1e-3, 1e-6])
def test_a_tone_has_its_own_level(amplitude):
    expected = 20 * math.log10(amplitude / math.sqrt(2))
    assert active_speech_level(tone(8, amplitude), RATE) == pytest.approx(expected, abs=0.02)


def test_pauses_count_for_the_hangover_and_no_longer():
    always = active_speech_level(tone(60), RATE)
    for seconds in (2, 4):
        short = active_speech_level(np.concatenate([tone(seconds), silence(1)]), RATE)
        whole = np.concatenate([silence(30), tone(seconds), silence(30)])
        assert active_speech_level(whole, RATE) == pytest.approx(short, abs=1e-9)
        # 0.2 s, and the short time in which the envelope falls to the threshold.
        lost = 10 ** ((always - short) / 10) * seconds - seconds
        assert 0.23 < lost < 0.35


@pytest.mark.parametrize("seed", range(4))
def test_scaling_moves_the_level(seed):
    samples = bursts(seed)
    level = active_speech_level(samples, RATE)
    for steps in (-20, -1, 3):
        moved = active_speech_level(samples * 2.0**steps, RATE)
        assert moved == pytest.approx(level + steps * SIX_DB, abs=1e-9)
    for gain in (-4.0, -1.7, 2.5):  # the thresholds lie elsewhere, and lines join them
        moved = active_speech_level(samples * 10 ** (gain / 20), RATE)
        assert moved == pytest.approx(level + gain, abs=0.2)
    assert active_speech_level(-samples, RATE) == level


@pytest.mark.parametrize("seed", range(4))
def test_between_the_whole_and_the_loudest_moment(seed):
    samples = bursts(seed)
    level = active_speech_level(samples, RATE)
    assert level > 10 * math.log10(np.mean(samples**2)) + 0.5
    assert level < 10 * math.log10(np.mean(samples.reshape(-1, 800) ** 2, 1).max())


def test_the_rate_does_not_matter():
    samples = bursts(5, 4.0, 16000)
    narrow = resample_poly(resample_poly(samples, 1, 4), 4, 1)[: samples.size]  # no loss at 8 kHz
    expected = active_speech_level(narrow, 16000)
    assert active_speech_level(resample_poly(narrow, 1, 2), 8000) == pytest.approx(
        expected, abs=0.02
    )


def test_silence_and_clicks():
    assert active_speech_level(silence(1), RATE) == -math.inf
    assert active_speech_level(np.zeros(0), RATE) == -math.inf
    click = silence(1)
    click[100] = 1.0
    # Active for the hangover and some more, but not for the whole second.
    assert -10 * math.log10(0.5 * RATE) < active_speech_level(click, RATE) < -10 * math.log10(1600)


@pytest.mark.parametrize(
    ("samples", "rate", "words"),
    [
        (np.zeros((2, 8)), 8000, r"shape \(2, 8\)"),
        (np.zeros(8), 0, "sample_rate is 0"),
        (np.array([0.1, np.nan]), 8000, "NaN"),
    ],
)
def test_refused(samples, rate, words):
    with pytest.raises(ValueError, match=words):
        active_speech_level(samples, rate)
