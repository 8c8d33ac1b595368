"""What is drawn for training mixtures, and that the mixtures are what was drawn."""

import re

import numpy as np
import pytest
import soundfile
import torch
from scipy.signal import fftconvolve
from scipy.stats import kstest
from tiny_corpus import RATE, voice

from convtasnet.audio import read_audio, write_audio
from convtasnet.data.mixing import active_level
from convtasnet.data.reverb import direct_part, in_rooms, reverberate
from convtasnet.data.speakers import SpeakersData

DELAY, ECHO = 37, 400  # samples to the microphone, straight and by a wall


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """speech/: nine speakers; noise/: 30 recordings; rooms/: one room with a single echo."""
    folder = tmp_path_factory.mktemp("dynamic")
    for k in range(9):
        write_audio(folder / "speech" / f"s{k}" / "a.wav", voice(k, 1.0).clamp(-1, 1), RATE)
    for k in range(30):
        wav = torch.randn(RATE // 2, generator=torch.Generator().manual_seed(k)) / 10
        write_audio(folder / "noise" / f"{k}.wav", wav.clamp(-1, 1), RATE)
    for k in range(3):
        response = torch.zeros(500)
        response[DELAY], response[ECHO] = 0.8, 0.4
        write_audio(folder / "rooms" / f"{k}.wav", response, RATE)
    return folder


def dataset_of(root, split="train", **changes):
    roots = {name: root / changes.pop(name) for name in ("noise_root", "rir_root")
             if name in changes}  # fmt: skip
    held_out = {"n_valid_speakers": 3, "n_test_speakers": 3}
    own = {"segment": 0.5, "num_workers": 0, "epoch_size": 400, **held_out}
    return SpeakersData(root / "speech", **(own | roots | changes)).dataset(split)


def decibels(ratio):
    return 20 * np.log10(ratio)


def test_the_noise_has_the_level_that_was_drawn(root):
    dataset = dataset_of(root, noise_root="noise", snr=[-5, 15], gain_db=4.0)
    drawn = []
    for i in range(100):
        item = dataset[i]
        torch.testing.assert_close(item["mixture"], item["sources"].sum(0) + item["noise"])
        loudest = max(map(active_level, item["sources"]))
        drawn.append(decibels(loudest / active_level(item["noise"])))
    assert kstest((np.array(drawn) + 5) / 20, "uniform").pvalue > 0.01


def test_gains_peaks_and_noises_are_drawn_evenly(root):
    dataset = dataset_of(root, noise_root="noise", gain_db=8.0, peak=[0.01, 1.0])
    plan = dataset.planner.plan([(epoch, i) for epoch in range(5) for i in range(400)])
    assert kstest(plan.gains_db[:, 0] / 8, "uniform").pvalue > 0.01
    assert kstest(np.log10(plan.peaks) / 2 + 1, "uniform").pvalue > 0.01
    which = plan.members[:, 2] - plan.members[:, 2].min()
    counts = np.bincount(which)
    assert len(counts) == dataset.planner.n_noises == 28  # of 30, one each is held out
    assert counts.min() > 0.4 * counts.mean()
    item = dataset[3]
    largest = max(float(item[name].abs().max()) for name in ("mixture", "sources", "noise"))
    assert largest == pytest.approx(dataset.planner.plan([(0, 3)]).peaks[0], rel=1e-5)


def test_a_setting_leaves_alone_what_the_others_draw(root):
    plain = dataset_of(root).planner.plan([(2, i) for i in range(50)])
    full = dataset_of(
        root, noise_root="noise", rir_root="rooms", speed=True, peak=[0.1, 0.2]
    ).planner.plan([(2, i) for i in range(50)])
    assert (full.members[:, :2] == plain.members).all()
    assert (full.gains_db[:, :2] == plain.gains_db).all()
    assert all(len(set(row)) == 2 for row in full.rooms.tolist())


def test_rooms_are_convolutions(root):
    sources, impulses = torch.randn(2, 3, 1000), torch.randn(2, 3, 300)
    made = reverberate(sources, impulses)
    for i, k in np.ndindex(2, 3):
        expected = fftconvolve(sources[i, k].double(), impulses[i, k].double())[:1000]
        np.testing.assert_allclose(made[i, k], expected, rtol=0, atol=1e-4)
    straight = direct_part(impulses, 8000)
    for i, k in np.ndindex(2, 3):
        last = int(impulses[i, k].abs().argmax()) + 20  # 2.5 ms
        assert torch.equal(straight[i, k, : last + 1], impulses[i, k, : last + 1])
        assert not straight[i, k, last + 1 :].any()
    heard, targets = in_rooms(sources, impulses[:, :2], 8000, direct=True)
    assert torch.equal(heard[:, 2], sources[:, 2])  # noise has no room
    assert torch.equal(targets[:, 2], sources[:, 2])


@pytest.mark.parametrize("target", ["reverberant", "direct"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_targets_in_rooms(root, target, split):
    """With one talker and one echo, what is straight and what is heard can be told apart."""
    settings = {"n_src": 1, "rir_root": "rooms", "target": target}
    item = dataset_of(root, split, **settings)[1]
    mixture, source = item["mixture"], item["sources"][0]
    assert source[:DELAY].abs().max() < 1e-5
    if target == "reverberant":
        torch.testing.assert_close(mixture, source)
    else:
        echo = mixture - source
        late = ECHO - DELAY
        torch.testing.assert_close(echo[late:], source[:-late] / 2, rtol=0, atol=1e-4)
        assert echo[: ECHO - 1].abs().max() < 1e-4


def test_short_noise_is_repeated(root, tmp_path):
    short = torch.arange(1, 101) / 2000.0
    write_audio(tmp_path / "noise" / "a.wav", short, RATE)
    item = dataset_of(root, noise_root=tmp_path / "noise")[0]
    noise = item["noise"] / item["noise"].max() * short.max()
    assert len(noise) == 4000
    torch.testing.assert_close(noise[:3900], noise[100:], rtol=0, atol=1e-6)
    torch.testing.assert_close(noise[:100].sort()[0], short, rtol=0, atol=1e-4)


def test_validation_and_test_hear_other_noise_always_the_same(root):
    settings = {"noise_root": "noise", "noise": "source", "n_src": 3, "rir_root": "rooms"}
    for split in ("valid", "test"):
        one, again = (dataset_of(root, split, **settings) for _ in range(2))
        for i in range(3):
            assert torch.equal(one[i]["mixture"], again[i]["mixture"])
            assert one[i]["sources"].shape == (3, 8000)
            torch.testing.assert_close(one[i]["mixture"], one[i]["sources"].sum(0))
    train = dataset_of(root, **settings).recordings.paths
    heard = {path for path in train if "/noise/" in path}
    assert len(heard) == 28
    assert not np.array_equal(one[0]["sources"][2], one[1]["sources"][2])


@pytest.mark.parametrize("resident", [False, True])
def test_workers_and_epochs(root, resident):
    def batches(num_workers, epoch=0):
        settings = {"noise_root": root / "noise", "rir_root": root / "rooms", "speed": True}
        data = SpeakersData(root / "speech", segment=0.25, num_workers=num_workers, epoch_size=12,
                            batch_size=4, resident=resident, **settings)  # fmt: skip
        loader = data.train_dataloader()
        loader.sampler.set_epoch(epoch)
        return [batch["mixture"] for batch in loader]

    one, two, later = batches(0), batches(2), batches(0, epoch=1)
    assert len(one) == 3
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not any(torch.equal(a, b) for a in one for b in later)


def test_a_noise_list_may_be_a_csv(root, tmp_path):
    names = [f"{root}/noise/{k}.wav" for k in (0, 1, 0)]
    for column in ("path", "noise_path"):
        (tmp_path / "list.csv").write_text("\n".join([f"id,{column}", *(f"x,{n}" for n in names)]))
        dataset = dataset_of(root, noise_root=tmp_path / "list.csv")
        assert dataset.planner.n_noises == 2  # too few to hold one out
    (tmp_path / "list.csv").write_text("name\na.wav")
    with pytest.raises(ValueError, match=r"list.csv: no column path or noise_path, found .*name"):
        dataset_of(root, noise_root=tmp_path / "list.csv")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_root": "gone"}, "noise_root=.*gone: no such folder"),
        ({"noise_root": "empty"}, "noise_root=.*empty: no wav or FLAC file in it"),
        ({"noise": "source", "n_src": 3}, "noise is 'source', but there is no noise: set data.noi"),
        ({"noise": "source", "n_src": 1}, "n_src is 1 and noise is 'source': no talker is left"),
        (
            {"rir_root": "small"},
            r"small: each .*needs 2 impulse responses.* fewer are in .*l \(1\)",
        ),
        ({"rir_root": "stereo"}, "2 problems.*a.wav .*2 channels: an impulse response has one"),
        ({"target": "direct"}, "target is 'direct', but there are no rooms: set rir_root"),
        ({"target": "dry"}, "target is 'dry', expected one of"),
        ({"snr": [3, -3]}, r"snr is \[3, -3\], expected \[lowest, highest\]"),
        ({"snr": 5}, r"snr is 5, expected \[lowest, highest\]"),
        ({"peak": 0}, r"peak is .*, expected numbers above 0 and up to 1"),
        ({"peak": [0.5, 1.1]}, "peak is .*1.1.*, expected numbers above 0"),
        ({"gain_db": -1}, "gain_db is -1, expected a number of dB from 0 on"),
        ({"speed": "yes"}, "speed is 'yes', expected true, false or "),
        ({"speed": [0.9]}, r"speed is \[0.9\], expected .*\[lowest, highest\]"),
        ({"speed": [0.4, 1.1]}, r"speed is \[0.4, 1.1\], expected numbers from 0.5 to 2.0"),
        ({"speed": [0.955, 1.0]}, r"speed is .*, expected multiples of 0.01"),
        ({"remix": False}, "speakers are always mixed"),
    ],
)
def test_what_is_wrong_is_named(root, changes, words):
    for name in ("empty", "small", "stereo"):
        (root / name).mkdir(exist_ok=True)
    for name in ("stereo/a.wav", "stereo/b.wav"):
        soundfile.write(root / name, np.ones((50, 2)) / 2, RATE)
    soundfile.write(root / "small" / "a.wav", np.ones(50) / 2, RATE)
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        dataset_of(root, **changes)
    assert re.search(words, str(error.value), re.DOTALL)


def test_one_talker_alone_gets_a_word(root, caplog):
    dataset_of(root, n_src=1)
    assert "there is nothing to separate" in caplog.text
    caplog.clear()
    dataset_of(root, n_src=1, noise_root="noise")
    assert not caplog.text


def test_loaded_noise_equals_its_file(root):
    """A noise that is as long as the segment is taken whole."""
    dataset = dataset_of(root, noise_root="noise")
    plan = dataset.planner.plan([(0, 0)])
    wav, _ = read_audio(dataset.recordings.paths[int(plan.members[0, 2])])
    noise = dataset[0]["noise"]
    assert len(wav) == len(noise) == 4000
    torch.testing.assert_close(noise / noise.abs().max(), wav / wav.abs().max(), rtol=0, atol=1e-5)
