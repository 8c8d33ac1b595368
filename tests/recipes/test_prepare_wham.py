"""WHAM! from a few utterances and noises, and lists in the published format."""

from __future__ import annotations

import csv
import doctest
import pickle
import shutil
import sys

import numpy as np
import pytest
import soundfile as sf
from loading import contents, load_recipe, run_recipe
from scipy.signal import resample_poly
from tiny_corpus import voice

from convtasnet.data.wham import WhamData

prepare = load_recipe("wham")
MODULES = [prepare, *(sys.modules[f"wham_{name}"] for name in ("lists", "mixing", "talkers"))]
FOLDERS = [(rate, mode) for rate in (8000, 16000) for mode in ("min", "max")]
EVERYTHING = ("--sample-rate", 8000, 16000, "--mode", "min", "max")
KINDS = ("s1", "s2", "noise", "mix_clean", "mix_both", "mix_single")
NAMES = {
    split: [f"{a}o01_1.5_{b}o02_-1.5", f"{b}o01_0.3_{a}o02_-0.3"]
    for split, (a, b) in {"tr": ("01a", "01b"), "cv": ("01b", "01a"), "tt": ("05c", "06d")}.items()
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """corpus/wsj0/…, lists/, wham_noise/."""
    root = tmp_path_factory.mktemp("wham")
    seed = 0
    for speaker, inner in (("01a", "si_tr_s"), ("01b", "si_tr_s"), ("05c", "si_dt_05"),
                           ("06d", "si_et_05")):  # fmt: skip
        for k in (1, 2):
            seed += 1
            file = root / utterance(speaker, inner, k)
            file.parent.mkdir(parents=True, exist_ok=True)
            wav = voice(seed, 2 * (0.5 + 0.07 * seed)).clamp(-1, 1).numpy()
            sf.write(file, wav, 16000, subtype="PCM_16")
    (root / "lists").mkdir()
    (root / "wham_noise" / "metadata").mkdir(parents=True)
    for split, names in NAMES.items():
        write_lists(root, split, names)
    return root


def utterance(speaker, inner, k):
    return f"corpus/wsj0/{inner}/{speaker}/{speaker}o0{k}.wav"


def talkers(split, name):
    words, inner = name.split("_")[::2], "si_tr_s"
    found = []
    for word in words:
        inner = {"05c": "si_dt_05", "06d": "si_et_05"}.get(word[:3], "si_tr_s")
        found.append(f"wsj0/{inner}/{word[:3]}/{word}.wav")
    return found


def write_lists(root, split, names):
    with (root / f"lists/mix_2_spk_filenames_{split}.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["output_filename", "s1_path", "s2_path"])
        writer.writerows([f"{name}.wav", *talkers(split, name)] for name in names)
    rng = np.random.default_rng(len(split))
    arrays = {
        "utterance_id": np.array([f"{name}.wav" for name in names], dtype=object),
        "speech_start_sample_16k": np.array([1001, 2000]),
    }
    for rate, mode in FOLDERS:
        end = f"{rate // 1000}k_{mode}"
        arrays[f"scaling_wsjmix_{end}"] = rng.uniform(0.2, 0.6, (2, 2))
        arrays[f"scaling_wham_speech_{end}"] = rng.uniform(0.4, 1.1, 2)
        arrays[f"scaling_wham_noise_{end}"] = rng.uniform(0.4, 1.1, 2)
    np.savez(root / f"wham_noise/metadata/scaling_{split}.npz", **arrays)
    (root / "wham_noise" / split).mkdir(exist_ok=True)
    for i, name in enumerate(names):
        lengths = [sf.info(root / "corpus" / path).frames for path in talkers(split, name)]
        noise = rng.standard_normal((2000 + max(lengths) + 500 * i, 2)) / 20
        sf.write(root / f"wham_noise/{split}/{name}.wav", noise, 16000, subtype="PCM_16")


def run(source, out, *words):
    own = ["--corpus", source / "corpus", "--lists", source / "lists"]
    run_recipe(prepare, *own, "--noise", source / "wham_noise", "--out", out, *words)
    return out


def expected(source, split, index, rate, mode):
    """Signals by the rule, written from its description: each step of 64 bits."""
    name = NAMES[split][index]
    scaling = np.load(source / f"wham_noise/metadata/scaling_{split}.npz", allow_pickle=True)
    end = f"{rate // 1000}k_{mode}"

    def at_rate(file):
        wav = sf.read(file, always_2d=True)[0][:, 0]
        return wav if rate == 16000 else resample_poly(wav, 1, 2)

    sources = []
    for k, path in enumerate(talkers(split, name)):
        mixed = at_rate(source / "corpus" / path) * scaling[f"scaling_wsjmix_{end}"][index][k]
        sixteen_bits = np.round(mixed * 2**15) / 2**15
        sources.append(sixteen_bits * scaling[f"scaling_wham_speech_{end}"][index])
    noise = at_rate(source / f"wham_noise/{split}/{name}.wav")
    noise = noise * scaling[f"scaling_wham_noise_{end}"][index]
    start = int(scaling["speech_start_sample_16k"][index]) * rate // 16000
    if mode == "min":
        length = min(map(len, sources))
        sources = [wav[:length] for wav in sources]
        noise = noise[start : start + length]
    else:
        sources = [np.pad(w, (start, len(noise) - start - len(w))) for w in sources]
    one, other = sources
    sums = {"mix_clean": one + other, "mix_both": one + other + noise, "mix_single": one + noise}
    return {"s1": one, "s2": other, "noise": noise} | sums


def test_what_is_made(source, tmp_path):
    out = run(source, tmp_path, *EVERYTHING)
    for (rate, mode), split, index in (
        (folder, split, index) for folder in FOLDERS for split in NAMES for index in (0, 1)
    ):
        folder = out / f"wav{rate // 1000}k/{mode}/{split}"
        assert {path.name for path in folder.iterdir()} == set(KINDS)
        for kind, signal in expected(source, split, index, rate, mode).items():
            file = folder / kind / f"{NAMES[split][index]}.wav"
            made, found = sf.read(file, dtype="float32")
            assert (found, sf.info(file).subtype) == (rate, "FLOAT")
            np.testing.assert_allclose(made, signal, rtol=0, atol=1e-7)


def test_wsj0_2mix_gives_the_same(source, tmp_path):
    """Sources of wsj0-2mix hold the 16 bits that WSJ0's utterances are rounded to."""
    for split, names in NAMES.items():
        scaling = np.load(source / f"wham_noise/metadata/scaling_{split}.npz", allow_pickle=True)
        for i, name in enumerate(names):
            signals = expected(source, split, i, 8000, "min")
            for kind in ("s1", "s2"):
                speech = signals[kind] / scaling["scaling_wham_speech_8k_min"][i]
                file = tmp_path / f"mix/2speakers/wav8k/min/{split}/{kind}/{name}.wav"
                file.parent.mkdir(parents=True, exist_ok=True)
                sf.write(file, np.round(speech * 2**15).astype(np.int16), 8000)
    words = ["--mixtures", tmp_path / "mix", "--noise", source / "wham_noise"]
    run_recipe(prepare, *words, "--out", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(run(source, tmp_path / "own"))
    with pytest.raises(FileNotFoundError, match=r"wav16k/min/tr/s1/01ao01_1\.5_01bo02_-1\.5\.wav"):
        run_recipe(prepare, *words, "--out", tmp_path / "out", "--sample-rate", 16000)


def test_the_reader_reads_it(source, tmp_path):
    data = WhamData(run(source, tmp_path), segment=0.3, num_workers=0, remix=True)
    data.check()
    item = data.dataset("valid")[1]
    rest = item["mixture"] - item["sources"].sum(0) - item["noise"]
    assert rest.abs().max() < 1e-6
    assert "noise" in data.dataset("train")[0]


def test_a_run_goes_on_with_the_same_lists_only(source, tmp_path, monkeypatch):
    whole = contents(run(source, tmp_path / "whole", "--types", "mix_both"))
    out = run(source, tmp_path / "out", "--types", "mix_both")
    (out / "wav8k/min/cv/noise" / f"{NAMES['cv'][1]}.wav").unlink()
    made = []
    original = prepare.make_mixture
    monkeypatch.setattr(prepare, "make_mixture", lambda job: (made.append(job.name), original(job)))
    run(source, out, "--types", "mix_both")
    assert made == [NAMES["cv"][1]]
    assert contents(out) == whole
    own = tmp_path / "own"
    shutil.copytree(source, own)
    file = own / "wham_noise/metadata/scaling_tt.npz"
    arrays = dict(np.load(file, allow_pickle=True))
    arrays["scaling_wham_noise_8k_min"][0] += 0.1
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=r"begun with other settings \(scaling_tt_8000_min\)"):
        run(own, out)


def test_a_dry_run_lists_all_that_is_wrong(source, tmp_path, capsys):
    own = tmp_path / "source"
    shutil.copytree(source, own)
    gone = own / utterance("01a", "si_tr_s", 1)
    gone.unlink()
    early = own / f"wham_noise/cv/{NAMES['cv'][0]}.wav"
    sf.write(early, np.zeros(5000), 16000)
    slow = own / f"wham_noise/tt/{NAMES['tt'][0]}.wav"
    sf.write(slow, np.zeros(50000), 8000)
    with pytest.raises(ValueError, match="problems with the"):
        run(own, tmp_path / "out", "--dry-run")
    shown = capsys.readouterr().out
    for path, reason in ((gone, "no such utterance"), (early, "ends before the talkers, which go"),
                         (slow, "8000 Hz, expected 16000")):  # fmt: skip
        lines = {line for line in shown.splitlines() if line.startswith(str(path))}
        assert lines
        assert all(reason in line for line in lines)
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "out", "--dry-run")
    assert "nothing was written" in capsys.readouterr().out


def test_lists_that_are_missing_or_wrong(source, tmp_path):
    own = tmp_path / "source"
    shutil.copytree(source, own)
    metadata = own / "wham_noise/metadata"
    with pytest.raises(ValueError, match="--corpus: name the --lists folder"):
        run_recipe(prepare, "--corpus", own, "--noise", own / "wham_noise", "--out", tmp_path)
    write_lists(own, "tt", [NAMES["tt"][0], "05co01_2_06do01_-2"])
    shutil.copy(source / "wham_noise/metadata/scaling_tt.npz", metadata)
    with pytest.raises(ValueError, match=r"filenames_tt.csv lacks 1 of the mixtures in scaling_tt"):
        run(own, tmp_path / "out")
    (metadata / "scaling_cv.npz").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"scaling_cv.npz: not an archive of arrays"):
        run(own, tmp_path / "out")
    np.savez(metadata / "scaling_cv.npz", utterance_id=np.array(["a"]))
    with pytest.raises(ValueError, match=r"scaling_cv.npz: holds no \['speech_start_sample_16k'"):
        run(own, tmp_path / "out")
    (metadata / "scaling_tr.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"scaling_tr.npz: no such file; it comes with"):
        run(own, tmp_path / "out")


class Malicious:
    def __reduce__(self):
        return (sys.exit, ("code of the file was run",))


def test_an_archive_runs_no_code(source, tmp_path):
    own = tmp_path / "source"
    shutil.copytree(source, own)
    file = own / "wham_noise/metadata/scaling_tr.npz"
    arrays = dict(np.load(file, allow_pickle=True))
    arrays["utterance_id"] = np.array([Malicious(), Malicious()])
    np.savez(file, **arrays)
    assert pickle.dumps(Malicious())
    with pytest.raises(ValueError, match=r"scaling_tr.npz: .*it names (sys|builtins).exit"):
        run(own, tmp_path / "out")


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0
