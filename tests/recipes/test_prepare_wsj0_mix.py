"""WSJ0-mix from a small corpus in WSJ0's shape."""

from __future__ import annotations

import doctest
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from loading import load_recipe, run_recipe
from scipy.signal import resample_poly
from tiny_corpus import RATE as TINY_RATE
from tiny_corpus import voice

from convtasnet.active_level import active_speech_level
from convtasnet.data.mixing_list import read_list
from convtasnet.data.module import Wsj0MixData
from convtasnet.generation import wsj0

prepare = load_recipe("wsj0_mix")
wsj0_levels, wsj0_mixing = sys.modules["wsj0_levels"], sys.modules["wsj0_mixing"]

SPEAKERS = {
    "si_tr_s": ("01a", "01b", "01c", "01d"),
    "si_dt_05": ("05e",),
    "si_et_05": ("06f", "06g"),
}
UTTERANCES = 5
COUNTS = ("--counts", "4", "2", "2")
EVERYTHING = ("--sample-rate", "8000", "16000", "--mode", "min", "max")


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    """Utterances of 0.8 to 1.2 s at 16 kHz: wav, and two speakers in the format of WSJ0."""
    root = tmp_path_factory.mktemp("wsj0")
    seed = 0
    for name, speakers in SPEAKERS.items():
        for speaker in speakers:
            for k in range(UTTERANCES):
                seed += 1
                seconds = 0.8 + 0.4 * (7 * seed % 10) / 10
                wav = voice(seed, seconds * wsj0.RATE / TINY_RATE) * (0.1 + 0.3 * k)
                sphere = speaker in ("01c", "06g")
                suffix, kind = ("wv1", "NIST") if sphere else ("wav", "WAV")
                file = root / "wsj0" / name / speaker / f"{speaker}o03{k}.{suffix}"
                file.parent.mkdir(parents=True, exist_ok=True)
                sf.write(file, wav.clamp(-1, 1).numpy(), 16000, format=kind, subtype="PCM_16")
    return root


@pytest.fixture
def corpus(original, tmp_path):
    """A copy, to spoil."""
    return Path(shutil.copytree(original, tmp_path / "corpus"))


def run(corpus, out, *arguments):
    run_recipe(prepare, "--corpus", corpus, "--out", out, *arguments)
    return out


def write_lists(folder, lines, n_src=2):
    folder.mkdir(exist_ok=True)
    for split in ("tr", "cv", "tt"):
        (folder / f"mix_{n_src}_spk_{split}.txt").write_text("".join(f"{x} \n" for x in lines))
    return folder


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


def test_a_dry_run_lists_all_that_is_wrong(corpus, tmp_path, capsys):
    base = corpus / "wsj0/si_tr_s"
    (base / "01a/01ao030.wav").unlink()
    sf.write(base / "01a/01ao031.wav", np.ones(100), 8000)
    sf.write(base / "01a/01ao032.wav", np.ones((100, 2)), 16000)
    sphere = base / "01c/01co030.wv1"
    sphere.write_bytes(sphere.read_bytes()[:3000])
    compressed = base / "01c/01co031.wv1"
    header = compressed.read_bytes()[:1024].replace(b"-s3 pcm", b"-s26 pcm,embedded-shorten-v2.00")
    compressed.write_bytes(header[:1024] + b"ajkg" + bytes(200))
    names = ["01a/01ao030", "01a/01ao031", "01a/01ao032", "01c/01co030", "01c/01co031"]
    lines = [f"wsj0/si_tr_s/{name}.wav 1 wsj0/si_tr_s/01d/01do030.wav -1" for name in names]
    arguments = ["--lists", write_lists(tmp_path / "lists", lines)]
    with pytest.raises(ValueError, match="5 problems with the 6 recordings"):
        run(corpus, tmp_path / "out", *arguments, "--dry-run")
    shown = capsys.readouterr().out
    for path, reason in (
        ("wsj0/si_tr_s/01a/01ao030.wav", "no such utterance"),
        ("wsj0/si_tr_s/01a/01ao031.wav", "8000 Hz, WSJ0 has 16000"),
        ("wsj0/si_tr_s/01a/01ao032.wav", "2 channels"),
        ("wsj0/si_tr_s/01c/01co030.wv1", "truncated: 988 samples of"),
        ("wsj0/si_tr_s/01c/01co031.wv1", "decode it with sph2pipe"),
    ):
        (line,) = (line for line in shown.splitlines() if line.startswith(str(corpus / path)))
        assert reason in line
    with pytest.raises(ValueError, match="5 problems in the data"):
        run(corpus, tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_without_problems(original, tmp_path, capsys):
    run(original, tmp_path / "out", "--draw", *COUNTS, "--dry-run")
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_lists_that_are_wrong_or_missing(original, tmp_path):
    lists = write_lists(tmp_path / "lists", ["wsj0/si_tr_s/01a/01ao030.wav 1"])
    (lists / "mix_2_spk_tt.txt").unlink()
    with pytest.raises(
        ValueError, match=r"spk_tr.txt, line 1: 2 fields(.|\n)*spk_cv.*(.|\n)*no su"
    ):
        run(original, tmp_path / "out", "--lists", lists)
    with pytest.raises(FileNotFoundError, match=r"(?s)3_spk_tr.*3_spk_cv.*3_spk_tt.*--draw makes"):
        run(original, tmp_path / "out", "--lists", lists, "--n-src", 3)


def test_more_mixtures_than_there_can_be(original, tmp_path):
    # Three test speakers of five utterances: 3 · 25 pairs.
    with pytest.raises(ValueError, match=r"tt: n_mixtures=76 .* 15 utterances of 3 .* 75"):
        run(original, tmp_path, "--draw", "--counts", 4, 2, 76)


def test_silence_is_named(corpus, tmp_path, capsys):
    silent = corpus / "wsj0/si_tr_s/01a/01ao030.wav"
    sf.write(silent, np.zeros(16000), 16000)
    broken = corpus / "wsj0/si_tr_s/01b/01bo031.wav"
    sf.write(broken, np.full(16000, np.nan), 16000, subtype="FLOAT")
    pairs = [("01ao030", "01bo030"), ("01ao031", "01bo031"), ("01ao031", "01bo030")]
    lines = [f"wsj0/si_tr_s/01a/{a}.wav 1 wsj0/si_tr_s/01b/{b}.wav -1" for a, b in pairs]
    arguments = ["--lists", write_lists(tmp_path / "lists", lines)]
    run(corpus, tmp_path / "out", *arguments, "--dry-run")
    assert "with the right headers" in capsys.readouterr().out
    with pytest.raises(ValueError, match="2 problems with the 4 recordings"):
        run(corpus, tmp_path / "out", *arguments, "--dry-run", "--decode")
    shown = capsys.readouterr().out
    assert f"{silent} (mixture '01ao030_1_01bo030_-1'): silent" in shown
    assert f"{broken} (mixture '01ao031_1_01bo031_-1'): holds NaN" in shown
    with pytest.raises(ValueError, match="2 problems in the data"):
        run(corpus, tmp_path / "out", *arguments, "--decode")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="cannot be made, the others are") as error:
        run(corpus, tmp_path / "out", *arguments)
    assert f"{silent}: silent" in str(error.value)
    assert f"{broken}: holds NaN" in str(error.value)
    (made,) = (tmp_path / "out/2speakers/wav8k/min/tr/mix").iterdir()
    assert made.name.startswith("01ao031_1_01bo030_")


def test_levels_that_are_wrong_or_missing(original, tmp_path):
    levels = tmp_path / "levels.txt"
    arguments = ["--draw", *COUNTS, "--active-levels", levels]
    levels.write_text("01ao030 1e-3\n")
    with pytest.raises(ValueError, match=r"01bo03\d.wav .*no active level in the files given"):
        run(original, tmp_path / "out", *arguments)
    levels.write_text("01ao030 1e-3\n\n01ao031 -26\n")
    with pytest.raises(ValueError, match=r"levels.txt, line 3: '01ao031 -26' is not"):
        run(original, tmp_path / "out", *arguments)


def test_the_last_look_finds_what_is_wrong(original, tmp_path):
    out = run(original, tmp_path, "--draw", *COUNTS)
    folder = out / "2speakers/wav8k/min/tr"
    first, second = sorted((folder / "mix").iterdir())[:2]
    for kind in ("mix", "s1", "s2"):
        shutil.copy(folder / kind / first.name, folder / kind / "extra.wav")
    sf.write(first, np.zeros(77), 8000)
    second.write_bytes(b"")
    with pytest.raises(ValueError, match="3 problems") as error:
        run(original, out, "--draw", *COUNTS)
    message = str(error.value)
    assert f"{first} " in message
    assert "77 samples at 8000 Hz" in message
    assert f"{second} " in message
    assert message.count("(delete it and start again)") == 2
    assert "extra.wav (mixture 'extra'): not in the list" in message


@pytest.mark.parametrize("kind", ["mix", "s1", "s2"])
def test_the_last_look_finds_a_file_too_many(original, tmp_path, kind):
    out = run(original, tmp_path, "--draw", *COUNTS)
    extra = out / "2speakers/wav8k/min/cv" / kind / "extra.wav"
    sf.write(extra, np.zeros(77), 8000)
    with pytest.raises(ValueError, match=rf"{extra} .*not in the list"):
        run(original, out, "--draw", *COUNTS)


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


def test_errors_are_one_line(original, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        prepare.main(["--corpus", str(tmp_path / "none"), "--out", str(tmp_path), "--draw"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none'}: no such folder\n"


@pytest.mark.parametrize("module", [prepare, wsj0_levels, wsj0_mixing])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0
