"""WSJ0-mix from a small corpus in WSJ0's shape."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from scipy.signal import resample_poly
from wsj0_corpus import (
    COUNTS,
    EVERYTHING,
    prepare,
    run,
    write_lists,
    wsj0_levels,
    wsj0_mixing,
)

from convtasnet.active_level import active_speech_level
from convtasnet.data.mixing_list import read_list
from convtasnet.data.module import Wsj0MixData
from convtasnet.generation import wsj0


def contents(out):
    return {file.relative_to(out): file.read_bytes() for file in out.rglob("*.wav")}


def samples(file):
    return sf.read(file, dtype="int16")[0].astype(np.int64)


@pytest.mark.parametrize("n_src", [2, 3])
def test_what_is_made(original, tmp_path, n_src):
    out = run(original, tmp_path, "--draw", *COUNTS, *EVERYTHING, "--n-src", n_src)
    for rate, mode in ((8000, "min"), (8000, "max"), (16000, "min"), (16000, "max")):
        for split, count in (("tr", 4), ("cv", 2), ("tt", 2)):
            folder = out / f"{n_src}speakers/wav{rate // 1000}k/{mode}/{split}"
            mixtures = read_list(out / "lists" / f"mix_{n_src}_spk_{split}.txt", n_src)
            assert len(mixtures) == count
            names = sorted(f"{mixture.name}.wav" for mixture in mixtures)
            for kind in ("mix", *(f"s{k + 1}" for k in range(n_src))):
                assert sorted(file.name for file in (folder / kind).iterdir()) == names
            for mixture in mixtures:
                check_mixture(original, folder, mixture, rate, mode)


def check_mixture(original, folder, mixture, rate, mode):
    name, n_src = f"{mixture.name}.wav", len(mixture.paths)
    mix = samples(folder / "mix" / name)
    sources = [samples(folder / f"s{k + 1}" / name) for k in range(n_src)]
    assert np.abs(mix - sum(sources)).max() <= (n_src + 1) / 2
    assert max(np.abs(signal).max() for signal in (mix, *sources)) == round(0.9 * 2**15)
    utterances = [sf.read(stored(original, path))[0] for path in mixture.paths]
    lengths = [-(-len(wav) * rate // 16000) for wav in utterances]
    assert len(mix) == (min if mode == "min" else max)(lengths)
    # Each source is its utterance, times a factor that gives it its level.
    gains = []
    for source, wav in zip(sources, utterances, strict=True):
        narrow = resample_poly(wav, 1, 2)
        wav = (wav if rate == 16000 else narrow)[: len(source)]
        factor = source[: len(wav)] @ wav / (wav @ wav)
        assert np.abs(source[: len(wav)] - factor * wav).max() < 1
        assert not source[len(wav) :].any()
        gains.append(20 * np.log10(factor) + active_speech_level(narrow, 8000))
    expected = np.subtract(mixture.gains_db, mixture.gains_db[0])
    assert np.subtract(gains, gains[0]) == pytest.approx(expected, abs=0.01)


def stored(original, path):
    (file,) = (original / path).parent.glob(Path(path).stem + ".*")
    return file


def test_the_reader_reads_it(original, tmp_path):
    out = run(original, tmp_path, "--draw", *COUNTS)
    data = Wsj0MixData(out, segment=0.5, num_workers=0)
    data.check()
    assert [len(data.dataset(split)) for split in ("train", "valid", "test")] == [4, 2, 2]
    item = data.dataset("valid")[0]
    assert (item["mixture"] - item["sources"].sum(0)).abs().max() < 2 / 2**15


@pytest.mark.parametrize("power", [1e-3, 4.0])
def test_scaling_of_the_python_port(original, tmp_path, power):
    one, other = "wsj0/si_tr_s/01a/01ao030.wav", "wsj0/si_tr_s/01b/01bo031.wav"
    lists = write_lists(tmp_path / "lists", [f"{one} 1.5 {other} -1.5"])
    (tmp_path / "levels.txt").write_text(f"01ao030 {power}\n01bo031 {3 * power}\n")
    arguments = ["--lists", lists, "--active-levels", tmp_path / "levels.txt"]
    out = run(original, tmp_path / "out", *arguments, "--scaling", "python-port")
    wavs = [sf.read(original / path, dtype="float32")[0] for path in (one, other)]
    wavs = [resample_poly(wav, 1, 2).astype(float) for wav in wavs]
    length = min(map(len, wavs))
    first = wavs[0][:length] / np.sqrt(power) * 10 ** (1.5 / 20)
    second = wavs[1][:length] / np.sqrt(3 * power) * 10 ** (-1.5 / 20)
    peak = max(np.abs(signal).max() for signal in (first + second, first, second))
    assert (peak > 1) == (power < 1)  # both branches
    for kind, signal in (("mix", first + second), ("s1", first), ("s2", second)):
        (file,) = (out / "2speakers/wav8k/min/tr" / kind).iterdir()
        assert file.name == "01ao030_1.5_01bo031_-1.5.wav"
        expected = np.round(2**15 * signal / (max(1, peak) / 0.9))
        assert (samples(file) == expected).all()


def test_a_killed_run_goes_on(original, tmp_path, monkeypatch):
    whole = contents(run(original, tmp_path / "whole", "--draw", *COUNTS))
    out = tmp_path / "out"
    written: list[Path] = []

    def killed(file, *rest):
        if len(written) == 10:  # the fourth mixture has one source
            file.with_name(f".{'a1' * 16}.wav").write_bytes(b"RIFF half")
            raise KeyboardInterrupt
        written.append(file)
        write_audio(file, *rest)

    write_audio = wsj0_mixing.write_audio
    monkeypatch.setattr(wsj0_mixing, "write_audio", killed)
    with pytest.raises(KeyboardInterrupt):
        run(original, out, "--draw", *COUNTS)
    monkeypatch.setattr(wsj0_mixing, "write_audio", write_audio)
    before = {file: file.stat().st_mtime_ns for file in written[:9]}
    made = []

    def counted(job):
        made.append(job.name)
        make_mixture(job)

    make_mixture = wsj0_mixing.make_mixture
    monkeypatch.setattr(prepare, "make_mixture", counted)
    run(original, out, "--draw", *COUNTS)
    assert contents(out) == whole  # the half-written file is gone
    assert before == {file: file.stat().st_mtime_ns for file in before}
    assert len(made) == 8 - 3


def test_processes_make_the_same(original, tmp_path):
    one = run(original, tmp_path / "one", "--draw", *COUNTS)
    two = run(original, tmp_path / "two", "--draw", *COUNTS, "--workers", 2)
    assert contents(one) == contents(two)


def test_lists_drawn_before_are_lists(original, tmp_path):
    out = run(original, tmp_path, "--draw", *COUNTS, "--seed", 3)
    run(original, out, "--lists", out / "lists", "--mode", "max")  # no other settings than before
    assert (out / "2speakers/wav8k/max/tr/mix").is_dir()
    with pytest.raises(ValueError, match=r"begun with other settings \(list_tr, list_cv, list_tt"):
        run(original, out, "--draw", *COUNTS, "--seed", 4)
    with pytest.raises(ValueError, match=r"begun with other settings \(scaling\)"):
        run(original, out, "--lists", out / "lists", "--scaling", "python-port")


def test_any_folder_of_the_corpus(original, tmp_path):
    disks = tmp_path / "disks"
    shutil.copytree(original / "wsj0/si_tr_s", disks / "11-1.1/WSJ0/SI_TR_S")
    shutil.copytree(original / "wsj0/si_et_05", disks / "11-14.1/wsj0/si_et_05")
    listed = "wsj0/si_tr_s/01c/01co030.wav"
    for root in (original, original / "wsj0", disks):
        found = wsj0.Wsj0Corpus(root).find(listed)
        assert found
        assert found.endswith("/01c/01co030.wv1")
    with pytest.raises(FileNotFoundError, match="no utterances si_dt_05/"):
        run(disks, tmp_path / "out", "--draw")


def test_the_second_microphone_is_not_taken(corpus):
    (corpus / "wsj0/si_tr_s/01c/01co030.wv1").rename(corpus / "wsj0/si_tr_s/01c/01co030.wv2")
    assert wsj0.Wsj0Corpus(corpus).find("wsj0/si_tr_s/01c/01co030.wav") is None


@pytest.mark.parametrize("module", [prepare, wsj0_levels, wsj0_mixing])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0
