"""Measurements of samples against their definitions, and what counts as a fault."""

import os

import numpy as np
import pytest
import soundfile
import torch

from convtasnet.audio import write_audio
from convtasnet.data import scan
from convtasnet.data.scan import decibels, find_faults, measure, scan_files

RATE = 8000


pytestmark = pytest.mark.usefixtures("empty_cache")


def speech(n=4000, seed=0, level=0.05):
    return level * np.random.default_rng(seed).standard_normal(n)


def written(path, wav, subtype="FLOAT"):
    soundfile.write(path, wav, RATE, subtype=subtype)
    return path


@pytest.mark.parametrize("n", [1, 2, 3, 4000, (1 << 18) + 17])  # the last takes two blocks
def test_numbers_are_those_of_the_definitions(tmp_path, n):
    wav = (speech(n) + 0.01).astype(np.float32)
    found = measure(written(tmp_path / "a.wav", wav))
    exact = wav.astype(np.float64)
    assert found.n_samples == n
    assert found.seconds == n / RATE
    assert found.peak == np.abs(wav).max()
    assert found.level == pytest.approx(np.sqrt(np.mean(exact**2)), rel=1e-12)
    assert found.offset == pytest.approx(exact.mean(), rel=1e-9)
    assert (found.n_bad, found.n_flat) == (0, 0)


def test_channels_are_averaged(tmp_path):
    left = speech().astype(np.float32)
    soundfile.write(tmp_path / "a.wav", np.stack([left, -left], 1), RATE, subtype="FLOAT")
    assert measure(tmp_path / "a.wav").faults().keys() == {"silence"}


@pytest.mark.parametrize("scale", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("sign", [1, -1])
def test_clipping_is_seen_at_any_scale_and_on_either_side(tmp_path, scale, sign):
    wav = speech(level=0.2)
    wav[100:105] = [0.8, 0.85, 0.9, 0.85, 0.8]
    wav[200:202] = 0.9  # two alike happen by chance
    limit = 1 - 2**-15
    cut = sign * np.minimum(wav / np.abs(wav).max() * 2, limit) * 0.999
    found = measure(written(tmp_path / "a.wav", scale * cut, "PCM_16"))
    assert found.n_flat >= 3
    assert "clipping" in found.faults()
    whole = measure(written(tmp_path / "b.wav", scale * sign * wav / np.abs(wav).max(), "PCM_24"))
    assert "clipping" not in whole.faults()


def test_three_alike_at_the_peak_of_one_block_only(tmp_path):
    wav = speech(2 * (1 << 18), level=0.01)
    wav[10:13] = 0.5
    assert measure(written(tmp_path / "a.wav", wav)).n_flat == 1
    wav[(1 << 18) + 10 : (1 << 18) + 15] = 0.5
    assert measure(written(tmp_path / "a.wav", wav)).n_flat == 4
    wav[-1] = 0.6  # a higher one: what was flat lies below the peak
    assert measure(written(tmp_path / "a.wav", wav)).n_flat == 0


def test_quiet_sixteen_bit_files_are_not_called_clipped(tmp_path):
    wav = np.round(speech(level=2.0)) / 2**15
    wav[7:12] = np.abs(wav).max()
    found = measure(written(tmp_path / "a.wav", wav, "PCM_16"))
    assert found.n_flat > 0
    assert found.faults().keys() == {"silence"}


@pytest.mark.parametrize(
    ("wav", "kinds"),
    [
        (speech(), set()),
        (np.zeros(4000), {"silence"}),
        (speech(level=1e-4), {"silence"}),
        (speech() + 0.01, {"DC offset"}),
        (speech() + 0.004, set()),
        (np.where(np.arange(4000) == 9, np.nan, speech()), {"NaN"}),
        (np.where(np.arange(4000) == 9, -np.inf, 0.0), {"NaN"}),
    ],
)
def test_faults(tmp_path, wav, kinds):
    found = measure(written(tmp_path / "a.wav", wav))
    assert found.faults().keys() == kinds
    assert np.isfinite([found.peak, found.level, found.offset]).all()
    problems = find_faults([("/a.wav", "row", found)])
    assert {kind for kind, _ in problems} == kinds
    assert all(str(problem).startswith("/a.wav (mixture 'row'): ") for _, problem in problems)


def test_a_clean_offset_is_told_in_numbers(tmp_path):
    wav = np.tile([0.3, -0.1], 500)  # level sqrt(0.05), mean 0.1
    sentence = measure(written(tmp_path / "a.wav", wav)).faults()["DC offset"]
    assert sentence == "has a DC offset of 0.1000, 45% of its level"
    assert decibels(0.1) == pytest.approx(-20)


def test_files_are_measured_once_until_they_change(tmp_path, monkeypatch):
    paths = [str(tmp_path / f"{i}.wav") for i in range(20)]
    for i, path in enumerate(paths):
        write_audio(path, torch.full((100,), 0.01 * i), RATE)
    (tmp_path / "3.wav").write_bytes(b"")
    (tmp_path / "4.wav").unlink()
    calls = []
    monkeypatch.setattr(scan, "measure", lambda path: (calls.append(path), measure(path))[1])
    owner = {path: f"row{i}" for i, path in enumerate(paths)}
    first, problems = scan_files(owner, "set")
    assert sorted(calls) == sorted(paths)
    assert [(p.path, p.row, p.missing) for p in problems] == [
        (paths[3], "row3", False),
        (paths[4], "row4", True),
    ]
    assert len(first) == 18
    calls.clear()
    write_audio(paths[7], torch.full((100,), 0.5), RATE)
    os.utime(paths[7], ns=(1, 10**18))
    again, _ = scan_files(owner, "set")
    assert sorted(calls) == sorted([paths[3], paths[4], paths[7]])
    assert again[paths[7]].level == pytest.approx(0.5, abs=1e-4)
    assert {path: again[path] for path in paths if path not in calls} == {
        path: first[path] for path in paths if path not in calls
    }
