"""Metrics equal direct formulas and the reference packages; one permutation for all."""

import math
from importlib.metadata import version
from statistics import fmean

import mir_eval
import numpy as np
import pystoi
import pytest
import torch
from metric_signals import ALL, NAMES, RATE, estimates_of, speechlike
from torch.nn.utils.rnn import pad_sequence
from torchmetrics.functional.audio import (
    scale_invariant_signal_distortion_ratio,
    signal_noise_ratio,
)

from convtasnet.metrics import metric_version, score, score_batch
from convtasnet.metrics.bss_eval import bss_eval


def centered(x):
    return (x - x.mean(-1, keepdim=True)).numpy()


def si_sdr_formula(est, ref):
    est, ref = est - est.mean(), ref - ref.mean()
    target = (est @ ref) / (ref @ ref) * ref
    return 10 * np.log10((target @ target) / ((est - target) @ (est - target)))


def snr_formula(est, ref):
    est, ref = est - est.mean(), ref - ref.mean()
    return 10 * np.log10((ref @ ref) / ((est - ref) @ (est - ref)))


GAINS = [1.0, 1e-2, 1e-4]
NOISE = [0.3, 1e-5]  # 10 dB and 100 dB


@pytest.mark.parametrize("level", NOISE)
@pytest.mark.parametrize("gain", GAINS)
def test_si_sdr_equals_the_formula_and_torchmetrics(gain, level):
    sources = speechlike()
    estimates = gain * estimates_of(sources, level) + 0.5 * gain
    values = score(estimates, sources, sources.sum(0), RATE).values
    mixture = sources.sum(0).numpy()
    pairs = zip(estimates.numpy(), sources.numpy(), strict=True)
    expected = np.mean([si_sdr_formula(est, ref) for est, ref in pairs])
    baseline = np.mean([si_sdr_formula(mixture, ref) for ref in sources.numpy()])
    assert values["si_sdr"] == pytest.approx(expected, abs=1e-6)
    assert values["si_sdri"] == pytest.approx(expected - baseline, abs=1e-6)
    # At unit level: the library holds a constant that shows at low ones.
    library = scale_invariant_signal_distortion_ratio(estimates / gain, sources, zero_mean=True)
    assert values["si_sdr"] == pytest.approx(float(library.mean()), abs=1e-4)


@pytest.mark.parametrize("level", NOISE)
@pytest.mark.parametrize("gain", GAINS)
def test_snr_equals_the_formula_and_torchmetrics(gain, level):
    sources = gain * speechlike()
    estimates = estimates_of(sources, level) + 0.5 * gain
    values = score(estimates, sources, sources.sum(0), RATE, ["snr"]).values
    pairs = zip(estimates.numpy(), sources.numpy(), strict=True)
    expected = np.mean([snr_formula(est, ref) for est, ref in pairs])
    assert values["snr"] == pytest.approx(expected, abs=1e-6)
    library = signal_noise_ratio(estimates / gain, sources / gain, zero_mean=True)
    assert values["snr"] == pytest.approx(float(library.mean()), abs=1e-4)
    softer = score(0.5 * estimates, sources, sources.sum(0), RATE, ["snr"]).values
    assert softer["snr"] == pytest.approx(10 * math.log10(4), abs=0.5)  # the level counts


@pytest.mark.parametrize(("gain", "level"), [(1.0, 0.3), (1e-2, 1e-3), (1e-4, 2e-5)])
def test_sdr_sir_and_sar_equal_mir_eval(gain, level):
    sources = speechlike(seconds=1.0)
    leaked = sources + level * sources.flip(0)
    estimates = gain * estimates_of(leaked, level) + 0.5 * gain
    names = ["sdr", "sir", "sar"]
    values = score(estimates, sources, sources.sum(0), RATE, names).values
    signals = map(centered, (sources, estimates))
    with pytest.warns(FutureWarning):
        expected = mir_eval.separation.bss_eval_sources(*signals, compute_permutation=False)
    for name, value in zip(names, expected, strict=False):
        assert values[name] == pytest.approx(value.mean(), abs=0.01), name
    alone = score(estimates, sources, sources.sum(0), RATE, ["sdr"]).values
    assert alone["sdr"] == pytest.approx(values["sdr"], abs=1e-3)


@pytest.mark.parametrize("rate", [8000, 10000, 16000])
def test_stoi_and_estoi_equal_pystoi(rate):
    sources = speechlike(rate=rate)
    sources[:, rate // 2 : rate] *= 1e-4  # frames to leave out
    estimates = estimates_of(sources)
    mixture = sources.sum(0)
    scores = score(estimates, sources, mixture, rate, ["stoi", "estoi"])
    refs, ests, mixtures = map(centered, (sources, estimates, mixture.expand(2, -1)))
    for name, extended in (("stoi", False), ("estoi", True)):
        for got, signals in ((scores.values, ests), (scores.mixture.values, mixtures)):
            pairs = zip(refs, signals, strict=True)
            expected = fmean(pystoi.stoi(ref, est, rate, extended) for ref, est in pairs)
            assert got[name] == pytest.approx(expected, abs=1e-9), name


def test_no_metric_depends_on_the_mean_and_only_snr_on_the_level():
    sources = speechlike()
    estimates = estimates_of(sources)
    plain = score(estimates, sources, sources.sum(0), RATE, ALL)
    offset = score(estimates + 0.5, sources - 0.5, sources.sum(0) + 0.5, RATE, ALL)
    moved = score(1e-4 * estimates + 0.5, 10 * sources - 0.5, sources.sum(0) + 0.5, RATE, ALL)
    assert list(plain.values) == NAMES
    assert not plain.reasons
    for name in NAMES:
        # The mixture has no artifacts but those of rounding.
        tolerance = 5 if name == "sari" else 0.02
        assert offset.values[name] == pytest.approx(plain.values[name], abs=tolerance), name
        if not name.startswith("snr"):
            assert moved.values[name] == pytest.approx(plain.values[name], abs=tolerance), name


def test_a_batch_scores_as_its_items_alone():
    lengths = [8000, 5000, 6001]
    sources = [speechlike(3, n / RATE, seed) for seed, n in enumerate(lengths)]
    estimates = [estimates_of(item).flip(0) for item in sources]
    names = ["si_sdr", "snr", "stoi"]
    alone = [
        score(est, ref, ref.sum(0), RATE, names)
        for est, ref in zip(estimates, sources, strict=True)
    ]

    def padded(items):
        return pad_sequence([x.movedim(-1, 0) for x in items], True, math.nan).movedim(1, -1)

    batch = [padded(x) for x in (estimates, sources, [ref.sum(0) for ref in sources])]
    together = score_batch(*batch, RATE, torch.tensor(lengths), names)
    for one, other in zip(together, alone, strict=True):
        assert one.values == pytest.approx(other.values, abs=1e-9)
        assert one.permutation == other.permutation == (2, 1, 0)
        assert not one.reasons


def test_what_is_known_of_the_mixture_is_not_computed_again():
    sources = speechlike()
    signals = (estimates_of(sources), sources, sources.sum(0), RATE)
    once = score(*signals, ["si_sdr", "stoi"])
    again = score(*signals, ["si_sdr", "estoi", "stoi"], once.mixture)
    assert list(again.mixture.values) == ["si_sdr", "stoi", "estoi"]
    assert {name: again.values[name] for name in once.values} == once.values
    once.mixture.values["stoi"] = 0.25
    other = score(*signals, ["stoi"], once.mixture).values
    assert other["stoii"] == other["stoi"] - 0.25


def test_a_single_source_has_no_interference():
    sources = speechlike(1)
    mixture = estimates_of(sources, seed=2)[0]
    scores = score(estimates_of(sources), sources, mixture, RATE, ["sdr", "sir", "sar"])
    assert scores.reasons == dict.fromkeys(["sir", "siri"], "a single source has no interference")
    assert scores.values["sdr"] == pytest.approx(scores.values["sar"])


def test_a_version_names_the_package():
    assert metric_version("stoi") == f"1, pystoi {version('pystoi')}"


def test_float32_and_float64_agree():
    sources = speechlike()
    estimates = estimates_of(sources)
    double = score(estimates, sources, sources.sum(0), RATE, ALL).values
    single = score(estimates.float(), sources.float(), sources.sum(0).float(), RATE, ALL).values
    assert single == pytest.approx(double, abs=1e-2)


def test_one_permutation_by_si_sdr_for_all_metrics():
    # A delay is a whole error in SI-SDR and none in SDR: each prefers its own permutation.
    sources = torch.from_numpy(centered(speechlike(seed=3)))
    estimates = sources.roll(40, dims=1) + 0.5 * sources.flip(0)
    scores = score(estimates, sources, sources.sum(0), RATE, ALL)
    assert scores.permutation == score(estimates, sources, sources.sum(0), RATE).permutation
    swapped = score(estimates.flip(0), sources, sources.sum(0), RATE, ALL)
    assert swapped.permutation == tuple(1 - index for index in scores.permutation)
    assert swapped.values == pytest.approx(scores.values)
    in_order = estimates[list(scores.permutation)]
    by_sdr = [fmean(bss_eval(x, sources, ["sdr"])["sdr"]) for x in (in_order, in_order.flip(0))]
    assert scores.values["sdr"] == pytest.approx(by_sdr[0])
    assert by_sdr[0] < by_sdr[1]


@pytest.mark.parametrize("n_src", [1, 3])
def test_any_number_of_sources(n_src):
    sources = speechlike(n_src)
    noisy = estimates_of(sources, seed=2).sum(0)
    scores = score(estimates_of(sources).flip(0), sources, noisy, RATE, ALL)
    assert scores.permutation == tuple(reversed(range(n_src)))
    without = {"sir", "siri"} if n_src == 1 else set()
    assert set(scores.reasons) == without
    assert all(math.isfinite(scores.values[name]) for name in set(NAMES) - without)


def test_a_perfect_estimate_is_finite():
    sources = speechlike()
    scores = score(sources, sources, sources.sum(0), RATE, ALL)
    assert not scores.reasons
    assert scores.values["sdr"] == pytest.approx(100, abs=1)
