"""LibriMix: its folders, its csv files, its noise, and what is said of those that do not fit."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from tiny_noisy import LIBRIMIX, write_metadata, write_tree
from training import TINY, composed, script

from convtasnet.audio import read_audio, write_audio
from convtasnet.data.librimix import LibriMixData
from convtasnet.log_filters import WARNINGS

EVALUATE = str(Path(__file__).parents[2] / "scripts" / "evaluate.py")
MACHINE = "/home/somebody/storage/Libri2Mix/wav8k/min"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Libri2Mix and Libri3Mix without csv files."""
    folder = tmp_path_factory.mktemp("librimix")
    for n in (2, 3):
        write_tree(folder / f"Libri{n}Mix", LIBRIMIX, n)
    return folder


@pytest.fixture
def copied(root, tmp_path):
    """A tree of one's own to spoil."""
    return Path(shutil.copytree(root, tmp_path / "own"))


def data_of(root, **changes):
    return LibriMixData(root, **({"segment": 0.5, "batch_size": 2, "num_workers": 0} | changes))


CASES = [
    ("mix_clean", "ignore", 2, 2, "s1 s2"),
    ("mix_clean", "ignore", 3, 3, "s1 s2 s3"),
    ("mix_both", "ignore", 2, 2, "s1 s2"),
    ("mix_both", "batch", 3, 3, "s1 s2 s3 noise"),
    ("mix_both", "source", 3, 2, "s1 s2 noise"),
    ("mix_both", "source", 4, 3, "s1 s2 s3 noise"),
    ("mix_single", "ignore", 1, 2, "s1"),
    ("mix_single", "source", 2, 2, "s1 noise"),
]


@pytest.mark.parametrize(("mixture", "noise", "n_src", "talkers", "sources"), CASES)
@pytest.mark.parametrize("machine", [None, MACHINE, r"D:\sets\Libri2Mix\wav8k\min"])
def test_rows(copied, mixture, noise, n_src, talkers, sources, machine):
    folder = copied / f"Libri{talkers}Mix/wav8k/min"
    if machine:
        write_metadata(folder, machine)
    data = data_of(copied, mixture=mixture, noise=noise, n_src=n_src)
    for split, name in (("train", "train-100"), ("valid", "dev"), ("test", "test")):
        manifest = data.manifest(split)
        assert [row.id for row in manifest] == [f"{name}_{i}" for i in range(LIBRIMIX[name])]
        for row in manifest:
            file = f"{row.id}.wav"
            assert row.mixture == str(folder / name / mixture / file)
            assert row.files[1:] == tuple(
                str(folder / name / kind / file) for kind in sources.split()
            )
    data.check()


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("train_set", ["train-100", "train-360"])
def test_mode_set_and_rate_choose_folders(tmp_path, mode, train_set):
    for rate in (8000, 16000):
        for other in ("min", "max"):
            write_tree(tmp_path / "Libri2Mix", {"train-100": 1, "train-360": 1}, 2, rate, other)
    for rate, root in ((8000, tmp_path), (16000, tmp_path / "Libri2Mix")):
        data = data_of(root, sample_rate=rate, mode=mode, train_set=train_set)
        expected = f"Libri2Mix/wav{rate // 1000}k/{mode}/{train_set}/mix_clean"
        assert Path(data.manifest("train")[0].mixture).parent == tmp_path / expected


def test_the_csv_decides_what_belongs_to_the_set(copied):
    folder = copied / "Libri2Mix/wav8k/min"
    write_metadata(folder, MACHINE)
    csv = folder / "metadata/mixture_train-100_mix_clean.csv"
    header, *lines = csv.read_text().splitlines()
    csv.write_text("\n".join([header, lines[2], lines[0]]))
    assert [row.id for row in data_of(copied).manifest("train")] == ["train-100_2", "train-100_0"]


def test_one_talker_is_also_in_the_set_of_three(copied):
    shutil.rmtree(copied / "Libri2Mix")
    data = data_of(copied, mixture="mix_single", n_src=1)
    assert "Libri3Mix" in data.manifest("test")[0].mixture


@pytest.mark.parametrize(("mixture", "noise", "n_src", "talkers", "sources"), CASES)
@pytest.mark.parametrize("resident", [False, True])
def test_items_and_batches(root, mixture, noise, n_src, talkers, sources, resident):
    data = data_of(root, mixture=mixture, noise=noise, n_src=n_src, resident=resident)
    item = data.dataset("valid")[1]
    assert item["sources"].shape == (n_src, 5600)
    assert ("noise" in item) is (noise == "batch")
    base = root / f"Libri{talkers}Mix/wav8k/min/dev"
    wavs = [read_audio(base / kind / "dev_1.wav")[0] for kind in sources.split()]
    parts = [*item["sources"], *([item["noise"]] if noise == "batch" else [])]
    assert torch.equal(torch.stack(parts), torch.stack(wavs))
    assert torch.equal(item["mixture"], read_audio(base / mixture / "dev_1.wav")[0])
    for batch in (*data.train_dataloader(), *data.val_dataloader()):
        assert batch["sources"].shape[:2] == (2, n_src)
        assert batch["lengths"].tolist() in ([4000, 4000], [5600, 4800])
        everything = batch["sources"].sum(1)
        if noise == "batch":
            assert batch["noise"].shape == batch["mixture"].shape
            assert batch["noise"].is_contiguous()
            everything = everything + batch["noise"]
        rest = (batch["mixture"] - everything).abs().max()
        rounding = 3 * 2**-15
        whole = noise != "ignore" or mixture == "mix_clean"
        assert (rest < rounding) if whole else (rest > 100 * rounding)


def test_lengths_that_differ_by_a_sample_are_cut_and_by_half_refused(copied, caplog):
    noise = copied / "Libri2Mix/wav8k/min/test/noise/test_1.wav"
    wav = read_audio(noise)[0]
    data = data_of(copied, mixture="mix_both", noise="batch")
    write_audio(noise, wav[:-1], 8000)
    with caplog.at_level(logging.WARNING):
        data.check(["test"])
    assert "1 rows differ in length" in caplog.text
    item = data.dataset("test")[1]
    assert item["noise"].shape == item["mixture"].shape == (5599,)
    write_audio(noise, wav[: len(wav) // 2], 8000)
    with pytest.raises(ValueError, match=r"has 2800 samples, its mixture .* has 5600") as error:
        data_of(copied, mixture="mix_both", noise="source", n_src=3).check(["test"])
    assert str(noise) in str(error.value)


def test_a_higher_rate_is_resampled(tmp_path, caplog):
    write_tree(tmp_path / "Libri2Mix", LIBRIMIX, rate=16000)
    with caplog.at_level(logging.INFO):
        item = data_of(tmp_path, mixture="mix_both", noise="batch").dataset("test")[0]
    assert item["mixture"].shape == item["noise"].shape == (4800,)
    assert "is resampled to 8000 Hz" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "mid"}, r"mode is 'mid', expected one of \('min', 'max'\)"),
        ({"mixture": "mix"}, "mixture is 'mix', expected one of .*mix_both"),
        ({"noise": "remove"}, "noise is 'remove', expected one of .*'source'"),
        ({"train_set": "train-clean-100"}, "train_set is 'train-clean-100', expected .*train-360"),
        ({"noise": "source"}, "noise is 'source', but mix_clean has none: .*mix_both"),
    ],
)
def test_arguments_out_of_range_are_named(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        LibriMixData(tmp_path, **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mixture": "mix_single"}, "n_src is 2, which counts the talkers .* has one talker"),
        ({"n_src": 1}, "n_src is 1, .*mix_clean has two talkers or more"),
        (
            {"mixture": "mix_both", "noise": "source"},
            r"n_src is 2, which counts the talkers and the noise \(noise is 'source'\)",
        ),
    ],
)
def test_a_number_of_sources_that_no_mixture_has_is_refused(root, arguments, words):
    with pytest.raises(ValueError, match=words):
        data_of(root, **arguments).check()


@pytest.mark.parametrize(
    ("gone", "arguments", "words"),
    [
        ("", {}, "data.root=.*own: no such folder"),
        ("Libri2Mix", {}, "own holds Libri3Mix: expected in it Libri2Mix or wav8k and wav16k"),
        ("", {"mode": "max"}, r"wav8k/max/train-100: no such folder; .*wav8k holds min$"),
        ("", {"train_set": "train-360"}, "train-360: no such .*min holds dev, test, train-100$"),
        ("Libri2Mix/wav8k/min/dev", {}, "min/dev: no such folder; .*min holds test, train-100"),
        ("", {"sample_rate": 16000}, r"nothing above 4000 Hz: set data.sample_rate=8000, or gen"),
        ("Libri2Mix/wav8k/min/test/s2", {}, r"test: folders \['s2'\] are missing, there holds mix"),
        (
            "Libri2Mix/wav8k/min/train-100/noise",
            {"mixture": "mix_both", "noise": "batch"},
            r"train-100: folders \['noise'\] are missing, there holds mix_both, mix_clean",
        ),
        (
            "Libri2Mix/wav8k/min/train-100/mix_both",
            {"mixture": "mix_both"},
            r"folders \['mix_both'\] are missing, there holds mix_clean, mix_single, noise, s1, s2",
        ),
    ],
)
def test_what_is_absent_is_named_with_what_is_there(copied, gone, arguments, words):
    if gone:
        shutil.rmtree(copied / gone)
    elif not arguments:
        shutil.rmtree(copied)
    with pytest.raises(FileNotFoundError, match=words):
        data_of(copied, **arguments).check()


def test_the_set_of_another_number_of_talkers_is_refused(root):
    with pytest.raises(ValueError, match=r"2 talkers are wanted, but there holds .*s3"):
        data_of(root / "Libri3Mix").check()
    with pytest.raises(FileNotFoundError, match=r"folders \['s3'\] are missing"):
        data_of(root / "Libri2Mix", n_src=3).check()
    with pytest.raises(FileNotFoundError, match="holds dev, test, train-100: expected in it Libri"):
        data_of(root / "Libri2Mix/wav8k/min").check()


def test_files_that_the_csv_lists_and_the_tree_lacks_are_all_named(copied):
    folder = copied / "Libri2Mix/wav8k/min"
    write_metadata(folder, MACHINE)
    gone = [folder / "train-100/s2/train-100_3.wav", folder / "test/mix_clean/test_0.wav"]
    for file in gone:
        file.unlink()
    with pytest.raises(FileNotFoundError, match="2 problems") as error:
        data_of(copied).check()
    assert all(str(file) in str(error.value) for file in gone)
    assert MACHINE not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("noise_path", "unknown", "mixture 'test_0' has no noise_path"),
        ("source_2_path", "source_3_path", r"columns \['source_2_path'\] are missing"),
        ("/s1/", "/s2/", "test/s2/test_0.wav is in no folder s1; .*data=manifest"),
        ("/noise/test_1", "/wham/test_1", "wham/test_1.wav is in no folder noise"),
    ],
)
def test_a_csv_that_does_not_fit_is_named(copied, old, new, words):
    folder = copied / "Libri2Mix/wav8k/min"
    write_metadata(folder, MACHINE)
    csv = folder / "metadata/mixture_test_mix_both.csv"
    csv.write_text(csv.read_text().replace(old, new))
    with pytest.raises(ValueError, match=words) as error:
        data_of(copied, mixture="mix_both", noise="source", n_src=3).check(["test"])
    assert str(csv) in str(error.value)


@pytest.mark.filterwarnings(*[f"ignore:{message}" for message in WARNINGS])
@pytest.mark.parametrize("resident", ["false", "true"])
def test_training_and_evaluation(copied, tmp_path, run_script, resident):
    write_metadata(copied / "Libri2Mix/wav8k/min", MACHINE)
    run = tmp_path / "run"
    own = ["data=librimix", "data.mixture=mix_both", f"data.root={copied}", f"run_dir={run}"]
    own += ["logger=none", "trainer.max_steps=2", f"data.resident={resident}"]
    script.train(composed(*(item for item in TINY if item != "data=manifest"), *own))
    common = [f"checkpoint={run}/checkpoints/last.ckpt", "metrics=[si_sdr]"]
    code, _, err = run_script(EVALUATE, *common, f"hydra.run.dir={tmp_path / 'own_data'}")
    assert code == 0, err
    summary = json.loads((tmp_path / "own_data" / "summary.json").read_text())
    assert (summary["n"], summary["n_valid"]) == (2, 2)
    assert summary["data"]["mixture"] == "mix_both"
    named = ["data=librimix", f"data.root={copied / 'Libri2Mix'}", "data.mixture=mix_clean"]
    code, _, err = run_script(EVALUATE, *common, *named, f"hydra.run.dir={tmp_path / 'named'}")
    assert code == 0, err
    other = json.loads((tmp_path / "named" / "summary.json").read_text())
    assert other["n"] == 2
    assert other["si_sdr"] != summary["si_sdr"]
    code, _, err = run_script(EVALUATE, *common, "data=librimix", "data.root=/not/there")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "data.root=/not/there: no such folder" in err
