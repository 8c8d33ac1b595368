"""Scores that have no meaning are NaN, with the reason."""

import builtins
import math

import pytest
import torch
from metric_signals import ALL, NAMES, RATE, estimates_of, needs_pesq, speechlike

from convtasnet.metrics import score


@pytest.mark.parametrize(
    ("which", "value", "reason"),
    [
        ("source", 0.0, "silent reference"),
        ("source", 0.3, "silent reference"),
        ("estimate", 0.0, "silent estimate"),
        ("estimate", 0.5, "silent estimate"),
        ("mixture", 0.0, "silent mixture"),
        ("estimate", math.nan, "estimate holds NaN or infinity"),
    ],
)
def test_silence_makes_the_row_nan_and_says_why(which, value, reason):
    sources = speechlike().float()
    estimates, mixture = estimates_of(sources.double()).float(), sources.sum(0)
    {"source": sources[1], "estimate": estimates[0], "mixture": mixture}[which].fill_(value)
    scores = score(estimates, sources, mixture, RATE, ALL)
    assert all(math.isnan(scores.values[name]) for name in NAMES)
    assert scores.reasons == dict.fromkeys(NAMES, reason)


@pytest.mark.parametrize(("gain", "hiss"), [(1.0, 0.0), (0.3, 0.0), (1.0, 1e-5)])
def test_there_is_no_improvement_over_a_mixture_of_one_source(gain, hiss):
    source = speechlike(1)
    mixture = gain * source[0] + 0.2 + hiss * source.abs().max() * torch.sin(torch.arange(16000.0))
    known = score(source, source, mixture, RATE, ALL).mixture
    for of_mixture in (None, known):
        scores = score(estimates_of(source), source, mixture, RATE, ALL, of_mixture)
        assert scores.values["si_sdr"] == pytest.approx(10, abs=2)
        reason = "the mixture is one of its sources: nothing to improve"
        improvements = {f"{name}i": reason for name in ALL if name != "sir"}
        assert improvements.items() <= scores.reasons.items()
        assert all(math.isnan(scores.values[name]) for name in improvements)
        assert set(scores.reasons) - set(improvements) == {"sir", "siri"}


def test_there_is_an_improvement_over_one_source_in_noise():
    source = speechlike(1)
    noise = 1e-3 * source.abs().max() * torch.randn(16000)
    values = score(source + 0.1 * noise, source, source[0] + noise, RATE).values
    assert values["si_sdri"] == pytest.approx(20, abs=0.1)


def test_a_silent_estimate_leaves_the_permutation_to_the_others():
    sources = speechlike(3)
    estimates = estimates_of(sources)[[2, 0, 1]]
    estimates[0] = 0
    scores = score(estimates, sources, sources.sum(0), RATE)
    assert scores.permutation == (1, 2, 0)


@needs_pesq
@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.3])
def test_short_items_have_no_stoi_and_no_pesq(seconds):
    sources = speechlike(seconds=seconds)
    scores = score(estimates_of(sources), sources, sources.sum(0), RATE, ALL)
    assert scores.reasons["stoi"] == scores.reasons["stoii"] == "less than 384 ms of speech"
    without = {"stoi", "estoi"} | ({"pesq"} if seconds < 0.25 else set())
    without |= {"sdr", "sir", "sar"} if seconds * RATE < 1024 else set()
    assert {name for name in ALL if math.isnan(scores.values[name])} == without
    assert without <= set(scores.reasons)


@pytest.mark.parametrize("n_samples", [2, 100, 128, 300, 1023])
def test_filters_as_long_as_the_sources_tell_nothing(n_samples):
    sources = speechlike()[:, 4000 : 4000 + n_samples]
    for names in (["sdr"], ["sdr", "sir", "sar"]):
        scores = score(estimates_of(sources), sources, sources.sum(0), RATE, ["si_sdr", *names])
        reason = "fewer samples than the filters' 1024 coefficients"
        assert {scores.reasons[name] for name in names} == {reason}
        assert math.isfinite(scores.values["si_sdr"])


def test_equal_sources_are_their_mixture():
    sources = speechlike(1).expand(2, -1)
    scores = score(estimates_of(sources), sources, sources.sum(0), RATE)
    assert scores.reasons == {"si_sdri": "the mixture is one of its sources: nothing to improve"}


def test_mostly_silent_items_have_no_stoi():
    sources = speechlike(seconds=3)
    sources[:, 2000:] = 0
    scores = score(estimates_of(sources), sources, sources.sum(0), RATE, ["stoi"])
    assert math.isnan(scores.values["stoi"])
    assert scores.reasons["stoi"] == "less than 384 ms of speech"


@needs_pesq
@pytest.mark.parametrize(("rate", "valid"), [(16000, True), (11025, False)])
def test_pesq_knows_two_rates(rate, valid):
    sources = speechlike(rate=rate, seconds=1)
    scores = score(estimates_of(sources), sources, sources.sum(0), rate, ["pesq"])
    assert math.isfinite(scores.values["pesq"]) == valid
    assert scores.reasons.get("pesq", "") == (
        "" if valid else "sample rate 11025 is not 8000 or 16000"
    )


def test_pesq_is_not_given_what_crashes_it():
    sources = speechlike(1, seconds=31)
    assert score(sources, sources, sources[0], RATE, ["pesq"]).reasons["pesq"] == "longer than 30 s"


@pytest.mark.parametrize(
    ("package", "metric", "reason"),
    [
        ("fast_bss_eval", "sdr", "install convtasnet[eval]"),
        ("pystoi", "stoi", "install convtasnet[eval]"),
        ("pesq", "pesq", "install convtasnet[pesq]"),
    ],
)
def test_a_missing_package_is_a_reason(monkeypatch, package, metric, reason):
    real_import = builtins.__import__

    def without_package(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_package)
    sources = speechlike(seconds=0.5)
    scores = score(estimates_of(sources), sources, sources.sum(0), RATE, ["si_sdr", metric])
    assert scores.reasons == {metric: reason, f"{metric}i": reason}
    assert math.isfinite(scores.values["si_sdri"])


def test_errors_name_the_value():
    x = torch.randn(2, 100)
    with pytest.raises(ValueError, match="sisdr"):
        score(x, x, x[0], RATE, ["sisdr"])
    with pytest.raises(ValueError, match=r"\(3, 100\)"):
        score(torch.randn(3, 100), x, x[0], RATE)
