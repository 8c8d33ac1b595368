"""The sources of listed mixtures, mixed anew in each epoch: every set that lists mixtures."""

import csv
import itertools
import logging

import pytest
import torch
from tiny_corpus import RATE, voice
from tiny_noisy import write_tree

from convtasnet.audio import write_audio
from convtasnet.data.dataset import MixtureDataset
from convtasnet.data.demo_corpus import DEMO_SPEAKER
from convtasnet.data.librimix import LibriMixData
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import ManifestData, Wsj0MixData
from convtasnet.data.names import wsj0_speakers
from convtasnet.data.wham import WhamData

WSJ0_NAMES = [f"{a}aa010{i}_1.5_{b}bc020{i}_-1.5" for i, (a, b) in
              enumerate(itertools.combinations(["01a", "02b", "03c", "04d"], 2))]  # fmt: skip
LIBRI_NAMES = [f"{a}-10-000{i}_{b}-20-000{i}" for i, (a, b) in
               enumerate(itertools.combinations([11, 22, 33, 44], 2))]  # fmt: skip


def write_set(folder, names, kinds):
    """Every file is its own noise, so that a source tells where it comes from."""
    for i, name in enumerate(names):
        for k, kind in enumerate(kinds):
            wav = voice(7 * i + k, 0.6)
            write_audio(folder / kind / f"{name}.wav", wav.clamp(-1, 1), RATE)


def wsj0(root):
    for split in ("tr", "cv", "tt"):
        write_set(root / "2speakers/wav8k/min" / split, WSJ0_NAMES, ["mix", "s1", "s2"])
    return Wsj0MixData


def wham(root):
    for split in ("tr", "cv", "tt"):
        kinds = ["mix_both", "mix_single", "s1", "s2", "noise"]
        write_set(root / "wav8k/min" / split, WSJ0_NAMES, kinds)
    return WhamData


def librimix(root):
    for split in ("train-100", "dev", "test"):
        kinds = ["mix_clean", "s1", "s2"]
        write_set(root / "Libri2Mix/wav8k/min" / split, LIBRI_NAMES, kinds)
    return LibriMixData


def manifest(root):
    write_set(root, LIBRI_NAMES, ["mix", "s1", "s2"])
    for split in ("train", "valid", "test"):
        with open(root / f"{split}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            sources = [f"source_{k}_{what}" for what in ("path", "speaker") for k in (1, 2)]
            writer.writerow(["mixture_ID", "mixture_path", *sources, "length"])
            for name in LIBRI_NAMES:
                paths = [f"{kind}/{name}.wav" for kind in ("mix", "s1", "s2")]
                who = [part.split("-")[0] for part in name.split("_")]
                writer.writerow([name, *paths, *who, 4800])
    return ManifestData


OWN = {"segment": 0.5, "batch_size": 2, "num_workers": 0}


def data_of(kind, root, **changes):
    return kind(root, **(OWN | {"remix": True} | changes))


def speaker_in(kind, file):
    """Who speaks in ``s1/NAME.wav``, by eye."""
    words = file.removesuffix(".wav").split("_")
    if "-" in words[0]:
        return words[int(kind[1]) - 1].split("-")[0]
    return words[2 * int(kind[1]) - 2][:3]


@pytest.mark.parametrize("write", [wsj0, wham, librimix, manifest])
def test_training_mixes_the_sources_of_the_set(tmp_path, write):
    data = data_of(write(tmp_path), tmp_path)
    data.check()
    dataset = data.dataset("train")
    assert len(dataset) == 6
    paths = [path.split("/")[-2:] for path in dataset.recordings.paths]
    assert sum(kind in ("s1", "s2") for kind, _ in paths) == len(dataset) * 2
    plan = dataset.planner.plan([(epoch, i) for epoch in range(20) for i in range(6)])
    pairs = set()
    for row in plan.members.tolist():
        files = [paths[k] for k in row]
        one, other = (speaker_in(*file) for file in files[:2])
        assert one != other
        pairs.add(tuple(file for _, file in files[:2]))
        assert [kind for kind, _ in files[2:]] == (["noise"] if write is wham else [])
    assert len(pairs) > 20  # not the six that are listed
    assert ("noise" in dataset[0]) is (write is wham)
    for split in ("valid", "test"):  # as they are
        assert isinstance(data.dataset(split), MixtureDataset)


@pytest.mark.parametrize("resident", [False, True])
def test_noisy_sets_are_mixed_with_their_own_noise(tmp_path, resident):
    kind = wham(tmp_path)
    for noise, n_src in (("batch", 2), ("source", 3), ("ignore", 2)):
        data = data_of(kind, tmp_path, noise=noise, n_src=n_src, resident=resident)
        for batch in data.train_dataloader():
            assert batch["sources"].shape == (2, n_src, 4000)
            assert ("noise" in batch) is (noise == "batch")
            rest = batch["mixture"] - batch["sources"].sum(1) - batch.get("noise", 0)
            level = float(rest.abs().max())
            assert (level > 0.01) if noise == "ignore" else (level < 1e-5)
    single = data_of(kind, tmp_path, mixture="mix_single", n_src=1, resident=resident)
    batch = next(iter(single.train_dataloader()))
    assert batch["sources"].shape == (2, 1, 4000)
    assert "noise" in batch


def test_both_ways_agree(tmp_path):
    kind = wham(tmp_path)
    made, read = (
        list(data_of(kind, tmp_path, resident=resident, speed=True).train_dataloader())
        for resident in (True, False)
    )
    for one, other in zip(made, read, strict=True):
        for name in ("mixture", "sources", "noise"):
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=3e-6)


def test_other_noise_and_more_items(tmp_path):
    kind = librimix(tmp_path)
    for k in range(3):
        write_audio(tmp_path / "cafe" / f"{k}.flac", voice(k, 0.2), RATE)
    data = data_of(kind, tmp_path, noise_root=tmp_path / "cafe", epoch_size=100)
    dataset = data.dataset("train")
    assert len(dataset) == 100
    item = dataset[99]
    torch.testing.assert_close(item["mixture"], item["sources"].sum(0) + item["noise"])


def test_names_that_tell_no_speakers(tmp_path, caplog):
    write_tree(tmp_path / "Libri2Mix", {"train-100": 4, "dev": 1, "test": 1})
    with caplog.at_level(logging.INFO):
        dataset = data_of(LibriMixData, tmp_path).dataset("train")
    assert "4 of 4 mixtures don't say who speaks: a new mixture may hold a speaker" in caplog.text
    assert "mixes the sources of" in caplog.text
    assert "8 speakers, 8 utterances" in caplog.text
    assert dataset[0]["sources"].shape[0] == 2


def test_speakers_of_a_manifest_are_kept(tmp_path):
    manifest(tmp_path)
    read = Manifest.from_csv(tmp_path / "train.csv")
    assert read[0].speakers == ("11", "22")
    read.to_csv(tmp_path / "again.csv")
    assert Manifest.from_csv(tmp_path / "again.csv").rows == read.rows


def test_the_demo_tells_its_voices():
    name = "m4a00_1.6266_quincyc12_-1.6266_Annieb07_0.0000"
    assert wsj0_speakers(name, DEMO_SPEAKER) == ("m4", "quincy", "Annie")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"remix": False, "speed": True}, "speed is True, but .*: set data.remix=true"),
        ({"remix": False, "epoch_size": 5}, "epoch_size is 5, but .*: set data.remix=true"),
        ({"noise": "source", "n_src": 3}, "noise is 'source', but mix_clean has none"),
        ({"epoch_size": 0}, "epoch_size is 0, expected 1 or more"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        data_of(librimix(tmp_path), tmp_path, **changes).dataset("train")


def test_too_few_speakers_are_counted(tmp_path):
    for split in ("train-100", "dev", "test"):
        write_set(
            tmp_path / "Libri2Mix/wav8k/min" / split, ["1-1-1_1-1-2"], ["mix_clean", "s1", "s2"]
        )
    with pytest.raises(ValueError, match=r"has 1 speakers \(1\), a mixture needs 2"):
        data_of(LibriMixData, tmp_path).dataset("train")
