"""Dynamic mixing: splits, crops, levels, determinism, and what is wrong with a corpus."""

import logging
import math
import pickle

import numpy as np
import pytest
import torch

from convtasnet.audio import read_audio, write_audio
from convtasnet.data.corpus import split_speakers
from convtasnet.data.mixing import active_level
from convtasnet.data.speakers import SpeakersData

RATE = 8000


def tone(frequency, n_samples, rate=RATE, amplitude=0.3):
    return amplitude * torch.sin(2 * math.pi * frequency * torch.arange(n_samples) / rate)


def write_corpus(root, n_speakers=12, n_utterances=2, seconds=1.5, rate=RATE):
    """Speaker k speaks with the frequency 200 + 50 k Hz."""
    for k in range(n_speakers):
        for j in range(n_utterances):
            wav = tone(200 + 50 * k, round(seconds * rate), rate)
            suffix = "flac" if j % 2 else "wav"
            write_audio(root / f"spk{k:02d}" / "chapter" / f"{j}.{suffix}", wav, rate)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def data(root, **kwargs):
    return SpeakersData(root, **{"segment": 0.5, "num_workers": 0, "epoch_size": 16, **kwargs})


def frequency_of(wav, rate=RATE):
    return float(torch.fft.rfft(wav).abs().argmax()) * rate / len(wav)


@pytest.mark.parametrize("n_src", [1, 2, 3, 4])
def test_items_mix_different_speakers_of_the_split(root, n_src):
    module = data(root, n_src=n_src)
    voices = {}
    for split in ("train", "valid", "test"):
        dataset = module.dataset(split)
        voices[split] = set()
        for item in (dataset[i] for i in range(min(len(dataset), 8))):
            assert item["sources"].shape == (n_src, len(item["mixture"]))
            torch.testing.assert_close(item["mixture"], item["sources"].sum(0))
            found = [round((frequency_of(s) - 200) / 50) for s in item["sources"]]
            assert len(set(found)) == n_src
            voices[split].update(found)
    assert voices["train"].isdisjoint(voices["valid"] | voices["test"])
    assert voices["valid"].isdisjoint(voices["test"])


def test_five_speakers(tmp_path):
    module = data(write_corpus(tmp_path, n_speakers=15, n_utterances=1, seconds=0.6), n_src=5)
    assert module.dataset("train")[0]["sources"].shape == (5, 4000)
    assert len(module.dataset("valid")) == len(module.dataset("test")) == 1


def test_train_items_are_leveled_within_five_db_and_bounded(root):
    dataset = data(root).dataset("train")
    differences = []
    for i in range(16):
        item = dataset[i]
        assert item["mixture"].shape == (4000,)
        largest = max(item["mixture"].abs().max(), item["sources"].abs().max())
        assert float(largest) == pytest.approx(0.9, rel=1e-4)
        levels = [active_level(source) for source in item["sources"]]
        differences.append(20 * math.log10(levels[0] / levels[1]))
    assert min(differences) >= -1e-3
    assert 1 < max(differences) <= 5 + 1e-3


def test_training_is_a_function_of_seed_epoch_and_index(root):
    def mixtures(module, epoch):
        dataset = module.dataset("train")
        return torch.stack([dataset[(epoch, i)]["mixture"] for i in range(4)])

    first = mixtures(data(root), 0)
    assert torch.equal(first, mixtures(data(root), 0))
    assert not torch.equal(first, mixtures(data(root), 1))
    assert not torch.equal(first, mixtures(data(root, seed=1), 0))
    copied = pickle.loads(pickle.dumps(data(root).dataset("train")))
    assert torch.equal(first[2], copied[2]["mixture"])


def test_workers_give_the_same_batches(root):
    def batches(num_workers):
        module = data(root, num_workers=num_workers, batch_size=4)
        return [batch["mixture"] for batch in module.train_dataloader()]

    one, two = batches(0), batches(2)
    assert len(one) == len(two) == 4
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_valid_and_test_are_whole_fixed_mixtures(root, tmp_path):
    first, again = data(root), data(root, segment=0.1, speed=True)
    for split in ("valid", "test"):
        one, other = first.dataset(split), again.dataset(split)
        assert len(one) == 4  # 2 speakers of 2 utterances
        assert one.lengths.tolist() == [12000] * 4
        for i in range(4):
            assert one[i]["mixture"].shape == (12000,)
            assert one[i]["id"] == other[i]["id"]
            assert torch.equal(one[i]["mixture"], one[(3, i)]["mixture"])
            assert torch.equal(one[i]["mixture"], other[i]["mixture"])
    elsewhere = data(write_corpus(tmp_path / "moved here"))
    assert torch.equal(elsewhere.dataset("test")[0]["mixture"], first.dataset("test")[0]["mixture"])


def test_mixtures_are_cut_to_the_shortest(tmp_path):
    write_corpus(tmp_path, n_speakers=5, n_utterances=1)
    write_audio(tmp_path / "long" / "a.wav", tone(900, 30000), RATE)
    write_audio(tmp_path / "short" / "a.wav", tone(950, 5000), RATE)
    module = data(tmp_path, n_valid_speakers=2, n_test_speakers=3)
    for split in ("valid", "test"):
        dataset = module.dataset(split)
        assert [len(dataset[i]["mixture"]) for i in range(len(dataset))] == dataset.lengths.tolist()
        assert set(dataset.lengths.tolist()) <= {5000, 12000}


def test_more_mixtures_than_the_utterances_give(root, caplog):
    with pytest.raises(ValueError, match=r"n_mixtures=5 .*4 utterances of 2 speakers .*only 4"):
        data(root, n_test=5).dataset("test")
    assert len(data(root, n_test=3).dataset("test")) == 3
    with caplog.at_level(logging.INFO):
        assert len(data(root).dataset("valid")) == 4
    assert "4 different mixtures, not 200" in caplog.text


def test_split_is_by_seed_and_disjoint():
    names = [f"s{i}" for i in range(251)]
    split = split_speakers(names, 2, seed=0)
    assert split == split_speakers(reversed(names), 2, seed=0)
    assert split != split_speakers(names, 2, seed=1)
    assert sorted(name for members in split.values() for name in members) == sorted(names)
    assert {k: len(v) for k, v in split.items()} == {"train": 231, "valid": 10, "test": 10}


@pytest.mark.parametrize(
    ("n_speakers", "counts", "message"),
    [
        (5, {}, "5 speakers split into 1 for training, n_valid_speakers=2 .*at least n_src=2"),
        (12, {"n_valid_speakers": 1}, "n_valid_speakers=1"),
        (12, {"n_test_speakers": 9}, "12 speakers split into 1"),
    ],
)
def test_too_few_speakers(n_speakers, counts, message):
    with pytest.raises(ValueError, match=message):
        split_speakers(
            [str(i) for i in range(n_speakers)],
            2,
            0,
            counts.get("n_valid_speakers"),
            counts.get("n_test_speakers"),
        )


def test_log_has_speakers_utterances_and_hours(root, caplog):
    with caplog.at_level(logging.INFO):
        data(root).prepare_data()
    assert "train: 8 speakers, 16 utterances, 0.01 hours" in caplog.text
    assert "test: 2 speakers, 4 utterances" in caplog.text


def test_other_rates_are_resampled(tmp_path):
    write_corpus(tmp_path, rate=16000)
    module = data(tmp_path)
    item, whole = module.dataset("train")[0], module.dataset("test")[0]
    assert item["mixture"].shape == (4000,)
    assert whole["mixture"].shape == (12000,)
    for wav in (*item["sources"], *whole["sources"]):
        offset = (frequency_of(wav) - 200) / 50
        assert abs(offset - round(offset)) < 0.05


def test_speed_changes_frequencies_in_steps(root):
    dataset = data(root, speed=True, epoch_size=30, segment=1.0).dataset("train")
    ratios = set()
    for i in range(30):
        item = dataset[i]
        assert item["mixture"].shape == (8000,)
        for source in item["sources"]:
            frequency = frequency_of(source)
            ratios.add(frequency / min(range(200, 801, 50), key=lambda f: abs(f - frequency)))
    assert len(ratios) > 8
    assert 0.93 < min(ratios) < 0.98
    assert 1.02 < max(ratios) < 1.07


def test_short_utterances_are_padded(tmp_path, caplog):
    write_corpus(tmp_path, n_speakers=6, n_utterances=1, seconds=0.3)
    with caplog.at_level(logging.INFO):
        module = data(tmp_path, batch_size=2)
        item = module.dataset("train")[0]
    assert "2 of 2 utterances are shorter than the segment of 0.5 s" in caplog.text
    assert item["mixture"].shape == (2400,)
    batch = next(iter(module.train_dataloader()))
    assert batch["mixture"].shape == (2, 4000)
    assert batch["lengths"].tolist() == [2400, 2400]
    assert batch["mixture"][:, 2400:].eq(0).all()


def test_nearly_silent_crops_are_drawn_again(tmp_path):
    noise = torch.randn(8 * RATE, generator=torch.Generator().manual_seed(0))
    for k in range(6):  # half of each utterance is a faint hiss
        wav = torch.cat([1e-3 * noise, tone(200 + 50 * k, 8 * RATE)])
        write_audio(tmp_path / str(k) / "a.wav", wav, RATE)
    dataset = data(tmp_path, epoch_size=100).dataset("train")
    hissing = 0
    for i in range(100):
        for source in dataset[i]["sources"]:
            spectrum = torch.fft.rfft(source).abs().square()
            hissing += bool(spectrum.max() < 0.2 * spectrum.sum())
    assert hissing < 30  # 100 of 200 without another draw, 200 / 16 with four


def test_silent_utterances_are_named_and_left_out(tmp_path, caplog):
    write_corpus(tmp_path, n_speakers=7, n_utterances=1)
    for k in range(7):
        write_audio(tmp_path / f"spk{k:02d}" / "silent.flac", torch.zeros(9000), RATE)
    module = data(tmp_path)
    module.prepare_data()
    assert "7 recordings are silent" in caplog.text
    assert str(tmp_path / "spk03" / "silent.flac") in caplog.text
    for i in range(16):
        assert module.dataset("train")[i]["sources"].abs().amax(1).gt(0.01).all()


def test_bad_files_are_listed_together(tmp_path):
    write_corpus(tmp_path, n_speakers=6, n_utterances=1)
    (tmp_path / "spk00" / "empty.wav").touch()
    (tmp_path / "spk01" / "text.flac").write_text("no audio", encoding="utf-8")
    with pytest.raises(ValueError, match="2 problems") as error:
        data(tmp_path).prepare_data()
    assert str(tmp_path / "spk00" / "empty.wav") in str(error.value)
    assert str(tmp_path / "spk01" / "text.flac") in str(error.value)


def test_damaged_samples_are_listed_together(tmp_path):
    write_corpus(tmp_path, n_speakers=6)
    holds_nan = tmp_path / "spk00" / "nan.wav"
    wav = tone(300, 4000)
    write_audio(holds_nan, wav, RATE, subtype="FLOAT")
    with holds_nan.open("r+b") as file:
        file.seek(-8, 2)
        file.write(np.array([np.nan], dtype="<f4").tobytes())
    cut = tmp_path / "spk02" / "chapter" / "1.flac"
    cut.write_bytes(cut.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="2 problems") as error:
        data(tmp_path).prepare_data()
    assert f"{holds_nan} " in str(error.value)
    assert f"{cut} " in str(error.value)


def test_csv_with_relative_paths(tmp_path, root):
    files = sorted(root.rglob("*.wav"))
    lines = ["speaker,path,length"]
    for file in files:
        relative = file.relative_to(root)
        target = tmp_path / "sprachdatei ä" / relative
        write_audio(target, read_audio(file)[0], RATE)
        lines.append(f"{relative.parts[0]},sprachdatei ä/{relative},12000")
    table = tmp_path / "list.csv"
    table.write_text("\n".join(lines), encoding="utf-8")
    assert data(table).dataset("train")[0]["sources"].shape == (2, 4000)

    table.write_text("\n".join([*lines, "x,gone 1.wav,", "y,gone 2.wav,"]), encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="2 problems") as error:
        data(table).prepare_data()
    assert str(tmp_path / "gone 1.wav") in str(error.value)

    table.write_text("who,path\na,b.wav", encoding="utf-8")
    with pytest.raises(ValueError, match=r"no column \['speaker'\]"):
        data(table).prepare_data()


def test_empty_or_missing_root(tmp_path):
    with pytest.raises(ValueError, match=r"has no utterances: expected .*SPEAKER"):
        data(tmp_path).prepare_data()
    with pytest.raises(FileNotFoundError, match="no such folder or csv"):
        data(tmp_path / "gone").prepare_data()


@pytest.mark.parametrize("name", ["n_valid", "n_test", "epoch_size"])
def test_counts_below_one_are_refused(root, name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        data(root, **{name: 0})


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_valid", 1.5), ("n_valid_speakers", 2.5), ("n_test_speakers", -1), ("epoch_size", None)],
)
def test_what_is_no_count_is_refused(root, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}, "):
        data(root, **{name: value})
