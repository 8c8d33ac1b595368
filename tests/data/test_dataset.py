"""Items and batches: lengths, crops, rates, stereo."""

import pickle

import numpy as np
import pytest
import soundfile
import torch

from convtasnet.audio import read_audio, write_audio
from convtasnet.data.batch import collate
from convtasnet.data.dataset import MixtureDataset
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.packed import PackedStrings
from convtasnet.resampling import resample

pytestmark = pytest.mark.usefixtures("empty_cache")


def rows(folder, lengths, rate=8000, n_src=2, seed=0):
    """Mixtures of noise; the mixture is the sum of its sources."""
    rng = np.random.default_rng(seed)
    result = []
    for index, n in enumerate(lengths):
        sources = torch.from_numpy(rng.uniform(-0.4, 0.4, (n_src, n)).astype(np.float32))
        names = [str(folder / f"{rate}_{index}_{k}.wav") for k in range(n_src + 1)]
        for name, wav in zip(names, [sources.sum(0), *sources], strict=True):
            write_audio(name, wav, rate, "FLOAT")
        result.append(Row(f"{rate}_{index}", names[0], tuple(names[1:])))
    return result


def assert_consistent(item, n):
    assert item["mixture"].shape == (n,)
    assert item["mixture"].dtype == item["sources"].dtype == torch.float32
    torch.testing.assert_close(item["sources"].sum(0), item["mixture"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("n_src", [1, 2, 3, 5])
def test_segment_of_files_shorter_equal_and_longer(tmp_path, n_src):
    lengths = [12000, 32000, 32001, 80000]
    manifest = Manifest(rows(tmp_path, lengths, n_src=n_src))
    dataset = MixtureDataset(manifest, 8000, segment=4.0)
    items = [dataset[index] for index in range(4)]
    for item, n in zip(items, [12000, 32000, 32000, 32000], strict=True):
        assert_consistent(item, n)
        assert item["sources"].shape == (n_src, n)
    batch = collate(items, 32000)
    assert batch["mixture"].shape == (4, 32000)
    assert batch["lengths"].tolist() == [12000, 32000, 32000, 32000]
    assert batch["sources"][0, :, 12000:].eq(0).all()
    assert batch["ids"] == [row.id for row in manifest]


def test_whole_items_are_the_files(tmp_path):
    manifest = Manifest(rows(tmp_path, [8000, 40000, 72000, 160000]))
    dataset = MixtureDataset(manifest, 8000)
    assert dataset.lengths.tolist() == [8000, 40000, 72000, 160000]
    for row, item in zip(manifest, dataset, strict=True):
        assert torch.equal(item["mixture"], read_audio(row.mixture)[0])
        assert torch.equal(item["sources"][1], read_audio(row.sources[1])[0])
        assert item["id"] == row.id


def test_crop_is_a_function_of_seed_epoch_and_index(tmp_path):
    manifest = Manifest(rows(tmp_path, [40000, 40000]))

    def crops(seed, epoch):
        dataset = MixtureDataset(manifest, 8000, segment=0.1, seed=seed)
        dataset.set_epoch(epoch)
        return torch.stack([dataset[0]["mixture"], dataset[1]["mixture"]])

    assert torch.equal(crops(0, 0), crops(0, 0))
    assert not torch.equal(crops(0, 0), crops(0, 1))
    assert not torch.equal(crops(0, 0), crops(1, 0))
    dataset = MixtureDataset(manifest, 8000, segment=0.1)
    assert torch.equal(dataset[3, 1]["mixture"], crops(0, 3)[1])


def test_crops_reach_both_ends(tmp_path):
    dataset = MixtureDataset(Manifest(rows(tmp_path, [803])), 8000, segment=0.1)
    whole = MixtureDataset(Manifest(rows(tmp_path, [803])), 8000)[0]["mixture"]
    found = {
        next(s for s in range(4) if torch.equal(whole[s : s + 800], dataset[epoch, 0]["mixture"]))
        for epoch in range(40)
    }
    assert found == {0, 1, 2, 3}


@pytest.mark.parametrize("rate", [16000, 44100, 6000])
def test_rows_of_another_rate_are_resampled(tmp_path, rate):
    manifest = Manifest(rows(tmp_path, [rate * 2, rate // 10], rate) + rows(tmp_path, [16000]))
    whole = MixtureDataset(manifest, 8000)
    assert [len(item["mixture"]) for item in whole] == [16000, 800, 16000]
    expected = resample(read_audio(manifest[0].sources[0])[0], rate, 8000)
    torch.testing.assert_close(whole[0]["sources"][0], expected)
    crops = MixtureDataset(manifest, 8000, segment=0.5)
    for index, n in enumerate([4000, 800, 4000]):
        assert_consistent(crops[index], n)


def test_small_differences_of_length_are_cut(tmp_path, caplog):
    (row,) = rows(tmp_path, [8000])
    write_audio(row.sources[0], read_audio(row.sources[0])[0][:-10], 8000, "FLOAT")
    dataset = MixtureDataset(Manifest([row]), 8000)
    assert_consistent(dataset[0], 7990)
    assert dataset.lengths.tolist() == [7990]
    assert "1 rows differ in length" in caplog.text


def test_large_differences_of_length_are_refused_with_both(tmp_path):
    (row,) = rows(tmp_path, [8000])
    write_audio(row.sources[0], torch.zeros(4000), 8000)
    with pytest.raises(ValueError, match="has 4000 samples") as error:
        MixtureDataset(Manifest([row]), 8000)
    for words in (row.sources[0], row.mixture, "8000"):
        assert words in str(error.value)


def test_stereo_files_are_averaged(tmp_path):
    (row,) = rows(tmp_path, [8000])
    for path in (row.mixture, *row.sources):
        wav = read_audio(path)[0].numpy()
        soundfile.write(path, np.stack([wav, 0 * wav], 1), 8000, subtype="FLOAT")
    item = MixtureDataset(Manifest([row]), 8000)[0]
    assert item["sources"].shape == (2, 8000)
    assert_consistent(item, 8000)


def test_a_file_that_is_replaced_during_a_run_is_named(tmp_path):
    (row,) = rows(tmp_path, [8000])
    dataset = MixtureDataset(Manifest([row]), 8000)
    write_audio(row.sources[1], torch.zeros(8000), 16000)
    with pytest.raises(ValueError, match="now is 16000 Hz") as error:
        dataset[0]
    assert row.sources[1] in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sample_rate": 0}, "sample_rate is 0"),
        ({"sample_rate": 8000, "segment": 0.0}, "segment is 0.0"),
        ({"sample_rate": 8000, "segment": float("nan")}, "segment is nan"),
        ({"sample_rate": 8000, "seed": -1}, "seed is -1"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, words):
    with pytest.raises(ValueError, match=words):
        MixtureDataset(Manifest(rows(tmp_path, [100])), **arguments)


def test_index_out_of_range(tmp_path):
    dataset = MixtureDataset(Manifest(rows(tmp_path, [100])), 8000)
    for index in (1, -1):
        with pytest.raises(IndexError):
            dataset[index]


def test_collate_refuses_items_beyond_the_length():
    item = {"mixture": torch.zeros(5), "sources": torch.zeros(2, 5), "id": "a"}
    with pytest.raises(ValueError, match="5 samples"):
        collate([item], 4)


def test_a_data_set_is_a_few_arrays(tmp_path):
    """Workers share what holds no Python objects; 1,000 rows cost some 100 bytes a row."""
    (row,) = rows(tmp_path, [100])
    many = [Row(f"{i}", row.mixture, row.sources) for i in range(1000)]
    dataset = MixtureDataset(Manifest(many), 8000)
    per_row = len(pickle.dumps(dataset)) / len(dataset)
    assert per_row < 3 * len(row.mixture) + 100
    assert not any(isinstance(value, list | dict | tuple) for value in vars(dataset).values())


def test_packed_strings_keep_undecodable_names():
    names = ["a", "", "é", b"caf\xe9".decode("utf-8", "surrogateescape")]
    packed = PackedStrings(names)
    assert list(packed) == names
    with pytest.raises(IndexError):
        packed[4]
