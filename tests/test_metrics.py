import builtins
import math
from importlib.util import find_spec

import mir_eval
import numpy as np
import pytest
import torch
from torchmetrics.functional.audio import scale_invariant_signal_distortion_ratio

from convtasnet import metrics
from convtasnet.metrics import score

HAS_PESQ = find_spec("pesq") is not None  # it needs a C compiler to be installed
needs_pesq = pytest.mark.skipif(not HAS_PESQ, reason="convtasnet[pesq] is not installed")
ALL = ("si_sdr", "sdr", "stoi", "pesq")[: 4 if HAS_PESQ else 3]
NAMES = [name for metric in ALL for name in (metric, f"{metric}i")]
RATE = 8000


def speechlike(n_src=2, seconds=2.0, seed=0, rate=RATE):
    """Noise through a two-pole low-pass, with syllables of 4 Hz: (n_src, T)."""
    generator = np.random.default_rng(seed)
    n = int(seconds * rate)
    noise = generator.standard_normal((n_src, n))
    for _ in range(2):
        noise[:, 1:] += 0.7 * noise[:, :-1]
    phase = generator.uniform(0, 6, (n_src, 1))
    syllables = np.maximum(np.sin(2 * np.pi * 4 * np.arange(n) / rate + phase), 0) + 0.01
    return torch.tensor(0.05 * noise * syllables)


def estimates_of(sources, level=0.3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(sources.shape, generator=generator, dtype=torch.float64)
    return sources + level * sources.std() * noise


def si_sdr_formula(est, ref):
    est, ref = est - est.mean(), ref - ref.mean()
    target = (est @ ref) / (ref @ ref) * ref
    return 10 * np.log10((target @ target) / ((est - target) @ (est - target)))


@pytest.mark.parametrize("gain", [1e-3, 1.0, 30.0])
def test_si_sdr_equals_the_formula_and_torchmetrics(gain):
    sources = speechlike()
    estimates = gain * estimates_of(sources)
    values = score(estimates, sources, sources.sum(0), RATE).values
    mixture = sources.sum(0).numpy()
    pairs = zip(estimates.numpy(), sources.numpy(), strict=True)
    expected = np.mean([si_sdr_formula(est, ref) for est, ref in pairs])
    baseline = np.mean([si_sdr_formula(mixture, ref) for ref in sources.numpy()])
    assert values["si_sdr"] == pytest.approx(expected, abs=1e-6)
    assert values["si_sdri"] == pytest.approx(expected - baseline, abs=1e-6)
    library = scale_invariant_signal_distortion_ratio(estimates, sources, zero_mean=True)
    assert values["si_sdr"] == pytest.approx(float(library.mean()), abs=1e-4)


@pytest.mark.parametrize("gain", [1e-3, 1.0, 30.0])
def test_sdr_equals_mir_eval(gain):
    sources = speechlike(seconds=1.0)
    estimates = gain * estimates_of(sources)
    values = score(estimates, sources, sources.sum(0), RATE, ["sdr"]).values
    centered = [(x - x.mean(-1, keepdim=True)).numpy() for x in (sources, estimates)]
    with pytest.warns(FutureWarning):
        sdr = mir_eval.separation.bss_eval_sources(*centered, compute_permutation=False)[0]
    assert values["sdr"] == pytest.approx(sdr.mean(), abs=0.01)


def test_no_metric_depends_on_level_or_mean():
    sources = speechlike()
    estimates = estimates_of(sources)
    plain = score(estimates, sources, sources.sum(0), RATE, ALL)
    moved = score(1e-4 * estimates + 0.5, 10 * sources - 0.5, sources.sum(0) + 0.5, RATE, ALL)
    assert list(plain.values) == NAMES
    assert not plain.reasons
    for name in NAMES:
        assert moved.values[name] == pytest.approx(plain.values[name], abs=0.02), name


def test_float32_and_float64_agree():
    sources = speechlike()
    estimates = estimates_of(sources)
    double = score(estimates, sources, sources.sum(0), RATE, ALL).values
    single = score(estimates.float(), sources.float(), sources.sum(0).float(), RATE, ALL).values
    assert single == pytest.approx(double, abs=1e-2)


def test_one_permutation_by_si_sdr_for_all_metrics():
    # A delay is a whole error in SI-SDR and none in SDR: each prefers its own permutation.
    sources = speechlike(seed=3)
    estimates = sources.roll(40, dims=1) + 0.5 * sources.flip(0)
    scores = score(estimates, sources, sources.sum(0), RATE, ALL)
    assert scores.permutation == score(estimates, sources, sources.sum(0), RATE).permutation
    swapped = score(estimates.flip(0), sources, sources.sum(0), RATE, ALL)
    assert swapped.permutation == tuple(1 - index for index in scores.permutation)
    assert swapped.values == pytest.approx(scores.values)
    in_order = estimates[list(scores.permutation)]
    by_sdr = [metrics._mean("sdr", x, sources, RATE) for x in (in_order, in_order.flip(0))]
    assert scores.values["sdr"] == pytest.approx(by_sdr[0])
    assert by_sdr[0] < by_sdr[1]


@pytest.mark.parametrize("n_src", [1, 3])
def test_any_number_of_sources(n_src):
    sources = speechlike(n_src)
    scores = score(estimates_of(sources).flip(0), sources, sources.sum(0), RATE, ALL)
    assert scores.permutation == tuple(reversed(range(n_src)))
    assert not scores.reasons
    assert all(math.isfinite(value) for value in scores.values.values())


def test_a_perfect_estimate_is_finite():
    sources = speechlike()
    scores = score(sources, sources, sources.sum(0), RATE, ALL)
    assert not scores.reasons
    assert scores.values["sdr"] == pytest.approx(100, abs=1)


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


def test_a_silent_estimate_leaves_the_permutation_to_the_others():
    sources = speechlike(3)
    estimates = estimates_of(sources)[[2, 0, 1]]
    estimates[0] = 0
    scores = score(estimates, sources, sources.sum(0), RATE)
    assert scores.permutation == (1, 2, 0)


@needs_pesq
@pytest.mark.parametrize(("seconds", "valid"), [(0.05, 2), (0.1, 2), (0.3, 3)])
def test_short_items_have_no_stoi_and_no_pesq(seconds, valid):
    sources = speechlike(seconds=seconds)
    scores = score(estimates_of(sources), sources, sources.sum(0), RATE, ALL)
    assert scores.reasons["stoi"] == scores.reasons["stoii"] == "less than 384 ms of speech"
    assert ("pesq" in scores.reasons) == (valid == 2)
    assert sum(math.isfinite(scores.values[name]) for name in ALL) == valid


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
