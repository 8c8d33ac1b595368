"""LibriMix from a few utterances, noises and lists in the published format."""

from __future__ import annotations

import csv
import doctest
import shutil
import sys

import numpy as np
import pytest
import soundfile as sf
from loading import contents, load_recipe, run_recipe
from scipy.signal import resample_poly
from tiny_corpus import voice

from convtasnet.data.librimix import LibriMixData

prepare = load_recipe("librimix")
MODULES = [prepare, sys.modules["librimix_lists"], sys.modules["librimix_mixing"]]
PARTS = ("train-clean-100", "dev-clean", "test-clean")
NOISES = {"a": 30_000, "b": 9_000}  # the second is repeated, with 8,001 samples of transition
TYPES = ("--types", "mix_clean", "mix_both", "mix_single")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """LibriSpeech/, wham_noise/ and LibriMix/, the folder of the generator."""
    root = tmp_path_factory.mktemp("source")
    for part in PARTS:
        for k in range(4):
            file = root / "LibriSpeech" / utterance(part, k)
            file.parent.mkdir(parents=True, exist_ok=True)
            wav = voice(k, 2 * (0.8 + 0.1 * k)).clamp(-1, 1).numpy()
            sf.write(file, wav, 16000, subtype="PCM_16")
    for name, count in NOISES.items():
        file = root / "wham_noise" / "tr" / f"{name}.wav"
        file.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(count).standard_normal((count, 2)) / 20
        sf.write(file, noise, 16000, subtype="PCM_16")
    for n_src in (2, 3):
        for part in PARTS:
            rows = [(0, 1, 2, "tr/a.wav"), (3, 2, 1, "tr/b.wav"), (1, 3, 0, "tr/asp08.wav")]
            write_list(root / "LibriMix", n_src, part, [(row[:n_src], row[3]) for row in rows])
    return root


def utterance(part, k):
    return f"{part}/{k}/7/{k}-7-0000.flac"


def gain(k):
    return 0.3 + 0.2 * k


def write_list(root, n_src, part, mixtures):
    file = root / "metadata" / f"Libri{n_src}Mix" / f"libri{n_src}mix_{part}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        columns = [f"source_{k + 1}_{what}" for k in range(n_src) for what in ("path", "gain")]
        writer.writerow(["mixture_ID", *columns, "noise_path", "noise_gain"])
        for members, noise in mixtures:
            fields = [field for k in members for field in (utterance(part, k), gain(k))]
            writer.writerow(["_".join(f"{k}-7-0000" for k in members), *fields, noise, 0.8])


def run(source, out, *words):
    folders = ["--librispeech", source, "--noise", source / "wham_noise"]
    run_recipe(prepare, *folders, "--lists", source / "LibriMix", "--out", out, *words)
    return out


def samples(file):
    return sf.read(file, dtype="int16")[0]


@pytest.mark.parametrize(("n_src", "rate", "mode"), [(2, 8000, "min"), (3, 16000, "max")])
def test_what_is_made(source, tmp_path, n_src, rate, mode):
    words = ["--n-src", n_src, "--sample-rate", rate, "--mode", mode, "--sets", "dev", "train-100"]
    run(source, tmp_path, *words, *TYPES)
    folder = tmp_path / f"Libri{n_src}Mix/wav{rate // 1000}k/{mode}/dev"
    kinds = {*(f"s{k + 1}" for k in range(n_src)), "noise", "mix_clean", "mix_both", "mix_single"}
    assert {path.name for path in folder.iterdir()} == kinds
    for members, noise in (((0, 1, 2), "a"), ((3, 2, 1), "b")):
        members = members[:n_src]
        name = "_".join(f"{k}-7-0000" for k in members)
        wavs = [
            gain(k) * sf.read(source / "LibriSpeech" / utterance("dev-clean", k))[0]
            for k in members
        ]
        longest = max(map(len, wavs))
        wavs.append(
            0.8 * extended(sf.read(source / f"wham_noise/tr/{noise}.wav")[0][:, 0], longest)
        )
        wavs = [resample_poly(wav, rate, 16000) if rate != 16000 else wav for wav in wavs]
        length = (min if mode == "min" else max)(map(len, wavs))
        wavs = [np.pad(wav[:length], (0, length - len(wav[:length]))) for wav in wavs]
        expected = {f"s{k + 1}": wavs[k] for k in range(n_src)} | {"noise": wavs[-1]}
        clean = sum(wavs[:-1])
        sums = {"mix_clean": clean, "mix_both": clean + wavs[-1], "mix_single": wavs[0] + wavs[-1]}
        for kind, signal in (expected | sums).items():
            made = samples(folder / kind / f"{name}.wav")
            # Computed in float32, and rounded down.
            assert np.abs(made - (2**15 * signal - 0.5)).max() < 0.52, (kind, name)


def extended(noise, length):
    """The published rule for short noise, sample by sample."""
    half = 8001
    out = list(noise)
    while len(out) < length:
        for i in range(half):
            rising = 0.5 - 0.5 * np.cos(np.pi * i / 8000)
            place = len(out) - half + i
            out[place] = out[place] * (1 - rising) + noise[i] * rising
        out += list(noise[half:])
    return np.array(out[:length])


def test_noise_at_another_speed_is_made_or_taken(source, tmp_path):
    name, words = "1-7-0000_3-7-0000.wav", ("--sets", "dev", *TYPES)
    made = samples(run(source, tmp_path / "out", *words) / f"Libri2Mix/wav8k/min/dev/noise/{name}")
    whole = sf.read(source / "wham_noise/tr/a.wav")[0][:, 0]
    slow = resample_poly(resample_poly(whole, 5, 4), 1, 2)[: len(made)]
    assert np.abs(made - (2**15 * 0.8 * slow - 0.5)).max() < 2
    own = tmp_path / "source"
    shutil.copytree(source, own)
    sf.write(own / "wham_noise/tr/asp08.wav", np.full(40_000, 0.25), 16000)
    taken = samples(run(own, tmp_path / "own", *words) / f"Libri2Mix/wav8k/min/dev/noise/{name}")
    assert np.abs(taken[100:-100] - 0.2 * 2**15).max() < 10


def test_the_reader_reads_it_with_its_metadata(source, tmp_path):
    out = run(source, tmp_path, *TYPES)
    for mixture, n_src in (("mix_clean", 2), ("mix_both", 2), ("mix_single", 1)):
        data = LibriMixData(out, mixture=mixture, n_src=n_src, segment=0.5, num_workers=0)
        data.check()
        assert [len(data.dataset(split)) for split in ("train", "valid", "test")] == [3, 3, 3]
        assert str(data.manifest("train").origin).endswith(f"mixture_train-100_{mixture}.csv")
        item = data.dataset("valid")[0]
        rest = item["mixture"] - item["sources"].sum(0) - item.get("noise", 0)
        assert rest.abs().max() < 4 / 2**15


def test_clean_mixtures_need_no_noise(source, tmp_path):
    words = ["--librispeech", source / "LibriSpeech", "--lists", source / "LibriMix" / "metadata"]
    run_recipe(prepare, *words, "--out", tmp_path, "--sets", "test")
    folder = tmp_path / "Libri2Mix/wav8k/min/test"
    assert {path.name for path in folder.iterdir()} == {"s1", "s2", "mix_clean"}
    with pytest.raises(ValueError, match="--types mix_both: name the --noise folder"):
        run_recipe(prepare, *words, "--out", tmp_path, "--types", "mix_both")


def test_a_run_goes_on_and_types_can_be_added(source, tmp_path, monkeypatch):
    whole = contents(run(source, tmp_path / "whole", *TYPES))
    out = run(source, tmp_path / "out")
    (out / "Libri2Mix/wav8k/min/dev/s2/0-7-0000_1-7-0000.wav").unlink()
    half = out / f"Libri2Mix/wav8k/min/dev/s1/.{'a1' * 16}.wav"
    half.write_bytes(b"RIFF")
    made = []
    original = prepare.make_mixture
    monkeypatch.setattr(prepare, "make_mixture", lambda job: (made.append(job.name), original(job)))
    run(source, out)
    assert made == ["0-7-0000_1-7-0000"]
    assert not half.exists()
    run(source, out, *TYPES)
    assert contents(out) == whole
    write_list(tmp_path / "LibriMix", 2, "dev-clean", [((0, 2), "tr/a.wav")])
    with pytest.raises(ValueError, match=r"begun with other settings \(list_dev\)"):
        run_recipe(prepare, "--librispeech", source, "--lists", tmp_path / "LibriMix", "--out", out,
                   "--sets", "dev")  # fmt: skip


def test_a_dry_run_lists_all_that_is_wrong(source, tmp_path, capsys):
    own = tmp_path / "source"
    shutil.copytree(source, own)
    gone = own / "LibriSpeech" / utterance("dev-clean", 0)
    gone.unlink()
    slow = own / "LibriSpeech" / utterance("test-clean", 1)
    sf.write(slow, np.zeros(100), 8000)
    short = own / "wham_noise/tr/b.wav"
    sf.write(short, np.zeros(8001), 16000)
    with pytest.raises(ValueError, match="problems with the"):
        run(own, tmp_path / "out", *TYPES, "--dry-run")
    shown = capsys.readouterr().out
    for path, reason in ((gone, "no such file"), (slow, "8000 Hz, expected 16000"),
                         (short, "8001 samples are too few to be repeated")):  # fmt: skip
        (line,) = {line for line in shown.splitlines() if line.startswith(str(path))}
        assert reason in line
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "out", "--dry-run")
    assert "all 12 recordings needed are there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("source_2_gain", "gain", r"no columns \['source_2_gain'\]"),
        ("mixture_ID", "id", r"no columns \['mixture_ID'\]"),
        ("0.5,tr/a.wav", "loud,tr/a.wav", "1 wrong lines:\n  line 2: gain 'loud' is not a number"),
        ("tr/a.wav", "", "line 2: a name or a path is empty"),
    ],
)
def test_lists_that_are_wrong(source, tmp_path, old, new, words):
    for part in PARTS:
        write_list(tmp_path, 2, part, [((0, 1), "tr/a.wav")])
    file = tmp_path / "metadata/Libri2Mix/libri2mix_dev-clean.csv"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=words) as error:
        run_recipe(prepare, "--librispeech", source, "--lists", tmp_path, "--out", tmp_path)
    assert str(file) in str(error.value)


def test_a_list_that_is_missing(source, tmp_path):
    words = ["--lists", source / "LibriMix", "--out", tmp_path, "--sets", "train-360"]
    with pytest.raises(FileNotFoundError, match=r"no list libri2mix_train-clean-360.csv in it"):
        run_recipe(prepare, "--librispeech", source, *words)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0
