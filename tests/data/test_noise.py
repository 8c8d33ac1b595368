"""The noise that a manifest names: beside the sources, one of them, or left out."""

import dataclasses
import json

import pytest
import torch
from tiny_corpus import RATE, voice

from convtasnet.audio import write_audio
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.module import ManifestData
from convtasnet.losses import pit_loss

KINDS = ("mix", "s1", "s2", "noise")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four noisy mixtures, 16-bit, as csv files and as JSON lists."""
    folder = tmp_path_factory.mktemp("noisy")
    rows, lists = [], {kind: [] for kind in KINDS}
    for i in range(4):
        parts = [voice(3 * i + k, 0.6 + 0.1 * i) / 4 for k in range(3)]
        wavs = dict(zip(KINDS, [sum(parts), *parts], strict=True))
        for kind, wav in wavs.items():
            write_audio(folder / kind / f"{i}.wav", wav, RATE)
            lists[kind].append([str(folder / kind / f"{i}.wav"), len(wav)])
        mixture, one, two, noise = (str(folder / kind / f"{i}.wav") for kind in KINDS)
        rows.append(Row(f"m{i}", mixture, (one, two), noise, len(parts[0])))
    for split in ("train", "valid", "test"):
        Manifest(rows).to_csv(folder / f"{split}.csv")
        (folder / split).mkdir()
        for kind in KINDS:
            (folder / split / f"{kind}.json").write_text(json.dumps(lists[kind]))
    return folder


def data_of(root, lists=False, **changes):
    files = {"train": "train", "valid": "valid", "test": "test"} if lists else {}
    own = {"segment": 0.5, "batch_size": 2, "num_workers": 0}
    return ManifestData(root, **(files | own | changes))


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(("noise", "n_src"), [("batch", 2), ("source", 3), ("ignore", 2)])
def test_where_the_noise_goes(root, noise, n_src, resident, lists):
    data = data_of(root, lists, noise=noise, n_src=n_src, resident=resident)
    data.check()
    for batch in (*data.train_dataloader(), *data.val_dataloader()):
        assert batch["sources"].shape[1] == n_src
        assert ("noise" in batch) is (noise == "batch")
        rest = batch["mixture"] - batch["sources"].sum(1) - batch.get("noise", 0)
        level = float(rest.abs().max())
        assert (level > 0.01) if noise == "ignore" else (level < 3 * 2**-15)
        pit_loss(torch.randn_like(batch["sources"]), batch["sources"], batch["lengths"])


def test_a_default_batch_has_the_noise(root):
    assert next(iter(data_of(root).val_dataloader()))["noise"].shape == (4, 7200)


def test_mixtures_without_noise_are_named(root, tmp_path):
    rows = list(Manifest.read(root / "train.csv"))
    rows[2] = dataclasses.replace(rows[2], noise=None)
    Manifest(rows).to_csv(tmp_path / "some.csv")
    Manifest([dataclasses.replace(row, noise=None) for row in rows]).to_csv(tmp_path / "none.csv")
    for name, noise, n_src, told in (
        ("some.csv", "batch", 2, "1 of 4 mixtures have no noise: m2; set data.noise=ignore"),
        ("some.csv", "source", 3, "noise is 'source', but 1 of 4 mixtures"),
        ("none.csv", "source", 3, "4 of 4 mixtures have no noise: m0, m1, m2, m3"),
    ):
        with pytest.raises(ValueError, match=told) as error:
            data_of(tmp_path, train=name, noise=noise, n_src=n_src).check(["train"])
        assert str(tmp_path / name) in str(error.value)
    for name, noise in (("some.csv", "ignore"), ("none.csv", "batch")):
        data = data_of(tmp_path, train=name, noise=noise)
        assert "noise" not in data.dataset("train")[0]
    with pytest.raises(ValueError, match="noise is 'remove', expected one of"):
        data_of(root, noise="remove")


def test_damaged_noise_is_found_before_training(root, tmp_path):
    rows = list(Manifest.read(root / "train.csv"))
    for i, seconds in ((0, 0.2), (1, 0.7)):
        file = tmp_path / f"{i}.wav"
        write_audio(file, voice(9, seconds), RATE)
        rows[i] = dataclasses.replace(rows[i], noise=str(file))
    (tmp_path / "1.wav").write_bytes(b"RIFF")
    rows[3] = dataclasses.replace(rows[3], noise=str(tmp_path / "gone.wav"))
    Manifest(rows).to_csv(tmp_path / "train.csv")
    with pytest.raises(ValueError, match="3 problems") as error:
        data_of(tmp_path).check(["train"])
    for words in (r"0.wav", "has 1600 samples", "1.wav", "not readable", "gone.wav", "no such"):
        assert words in str(error.value)
