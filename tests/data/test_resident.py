"""Speech in a device's memory: the batches are those that the files give."""

import logging

import numpy as np
import pytest
import torch
from resident_corpus import (
    assert_same,
    batches,
    manifest_data,
    speakers_data,
    write_mixtures,
    write_speakers,
)
from scipy.stats import chisquare, kstest
from tiny_corpus import RATE, voice

from convtasnet.audio import write_audio
from convtasnet.data import pieces
from convtasnet.data.batch import collate
from convtasnet.data.mixing import active_level
from convtasnet.data.resident import ResidentLoader
from convtasnet.data.resident_audio import ResidentAudio
from convtasnet.data.sampler import TrainSampler


@pytest.fixture(scope="module")
def mixtures(tmp_path_factory):
    return write_mixtures(tmp_path_factory.mktemp("mixtures"))


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    """Noise, longer and shorter than a segment, and three rooms of three places each."""
    root = tmp_path_factory.mktemp("surroundings")
    for i, seconds in enumerate((0.2, 0.6, 2.0)):
        wav = torch.randn(round(seconds * RATE), generator=torch.Generator().manual_seed(i)) / 20
        write_audio(root / "noise" / f"{i}.wav", wav, RATE)
    for room, place in np.ndindex(3, 3):
        response = voice(3 * room + place, 0.05 + 0.03 * room)
        response *= torch.exp(-torch.arange(len(response)) / 80)
        response[10 + place] = 0.9
        write_audio(root / "rooms" / str(room) / f"{place}.wav", response, RATE)
    return root


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_src": 1},
        {"n_src": 3},
        {"speed": True},
        {"segment": 0.2125},  # no whole number of frames
        {"segment": 0.2125, "speed": [0.7, 1.4]},
        {"segment": 5.0, "seed": 3},  # nothing is as long
        {"check": "headers"},
    ],
)
def test_dynamic_mixtures_are_those_read_from_files(speakers, changes):
    made = batches(speakers_data(speakers, resident=True, **changes))
    assert_same(made, batches(speakers_data(speakers, resident=False, **changes)), atol=2e-6)


NOISE = {"noise_root": "noise", "snr": [-3, 20]}
ROOMS = {"rir_root": "rooms"}
DIRECT = {"rir_root": "rooms", "target": "direct"}
AROUND = [
    NOISE,
    {**NOISE, "noise": "source", "n_src": 3},
    {**NOISE, "noise": "ignore", "peak": [0.05, 0.9]},
    ROOMS,
    DIRECT,
    {**DIRECT, **NOISE, "speed": True, "n_src": 3, "gain_db": 8.0, "segment": 0.2125},
    {**DIRECT, **NOISE, "segment": 5.0, "seed": 3, "noise": "source"},  # nothing is as long
]


def around(root, changes):
    """The settings with the whole paths of noise and rooms."""
    roots = {name: root / changes[name] for name in ("noise_root", "rir_root") if name in changes}
    return changes | roots


@pytest.mark.parametrize("changes", AROUND)
def test_noise_and_rooms_are_those_read_from_files(speakers, surroundings, changes):
    changes = around(surroundings, changes)
    made = batches(speakers_data(speakers, resident=True, **changes))
    assert_same(made, batches(speakers_data(speakers, resident=False, **changes)), atol=3e-6)


@pytest.mark.parametrize(("rate", "subtype"), [(2 * RATE, "PCM_16"), (11025, "FLOAT")])
def test_mixtures_of_files_of_another_rate(tmp_path, rate, subtype):
    write_speakers(tmp_path, rate, subtype)
    made = batches(speakers_data(tmp_path, resident=True))
    assert_same(made, batches(speakers_data(tmp_path, resident=False)), atol=1e-3)


def test_both_ways_choose_among_crops(speakers):
    """The cases above hold crops that are quiet at the first draw."""
    dataset = speakers_data(speakers).dataset("train")
    plan = dataset.planner.plan([(0, i) for i in range(25)])
    again = 0
    for i, k in np.ndindex(plan.members.shape):
        place = plan.members[i, k], plan.starts[i, k, 0], plan.counts[i, k]
        first = dataset.recordings.read(*map(int, place))
        again += active_level(first) < 0.1 * active_level(dataset.recordings.read(place[0]))
    assert again > 3


@pytest.mark.parametrize("changes", [{}, {"segment": 0.25}, {"segment": 3.0, "seed": 4}])
def test_crops_of_a_manifest_are_those_read_from_files(mixtures, changes):
    made = batches(manifest_data(mixtures, resident=True, **changes))
    assert_same(made, batches(manifest_data(mixtures, resident=False, **changes)), atol=0)


def test_crops_of_a_manifest_of_another_rate(tmp_path):
    write_mixtures(tmp_path, 2 * RATE)
    made = batches(manifest_data(tmp_path, resident=True))
    assert_same(made, batches(manifest_data(tmp_path, resident=False)), atol=2e-5)


def test_processes_read_the_files_in_pieces(speakers, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 10_000)
    state = torch.random.get_rng_state()
    made = batches(speakers_data(speakers, resident=True, num_workers=2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_same(made, batches(speakers_data(speakers, resident=False)), atol=2e-6)


def test_who_where_and_how_loud_are_drawn_evenly(speakers):
    dataset = speakers_data(speakers, n_src=3, speed=True).dataset("train")
    plan = dataset.planner.plan([(epoch, i) for epoch in range(8) for i in range(500)])
    order = dataset.recordings.paths
    names = [order[i].split("/")[-2:] for i in range(len(order))]
    who = np.array([name[0] for name in names])[plan.members]
    assert all(len(set(row)) == 3 for row in who.tolist())
    for k in range(3):  # every speaker in every place, every utterance of a speaker
        assert chisquare(np.unique(who[:, k], return_counts=True)[1]).pvalue > 0.01
        for speaker in set(who[:, k]):
            counts = np.unique(plan.members[who[:, k] == speaker, k], return_counts=True)[1]
            assert len(counts) == 1 + int(speaker[1:]) % 3
            assert len(counts) == 1 or chisquare(counts).pvalue > 1e-3
    assert chisquare(np.unique(plan.percents, return_counts=True)[1]).pvalue > 0.01
    assert len(np.unique(plan.percents)) == 11
    room = dataset.recordings.lengths[plan.members] - plan.counts
    assert (plan.starts >= 0).all()
    assert (plan.starts <= room[..., None]).all()
    free = room > 2000
    assert kstest((plan.starts[free] / room[free][:, None]).ravel(), "uniform").pvalue > 0.01
    assert (plan.gains_db[:, 0] == -plan.gains_db[:, 1]).all()
    assert (plan.gains_db[:, 2] == 0).all()
    assert kstest(plan.gains_db[:, 0] / 2.5, "uniform").pvalue > 0.01


def unwaited(batches):
    """What comes without anything that waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        return list(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "changes", [{}, {"speed": [0.8, 1.2]}, {"n_src": 3, "segment": 0.2125}, *AROUND]
)
def test_a_gpu_gives_the_batches_of_the_files(speakers, surroundings, changes, caplog):
    device = torch.device("cuda", 0)
    changes = around(surroundings, changes)
    data = speakers_data(speakers, resident=False, **changes)
    dataset = data.dataset("train")
    audio = ResidentAudio(dataset.recordings, dataset.window, device)
    loader = iter(ResidentLoader(dataset, audio, TrainSampler(dataset, 3, data.seed), 3))
    with caplog.at_level(logging.INFO):
        made = [next(loader)]
    assert "training batches replay a CUDA graph" in caplog.text
    made += unwaited(loader)
    assert all(batch[name].device == device for batch in made for name in ("mixture", "lengths"))
    assert_same(
        made, batches(data), atol=1e-5 if changes.keys() & {"rir_root", "noise_root"} else 2e-6
    )


@pytest.mark.gpu
def test_a_gpu_gives_the_crops_of_a_manifest(mixtures):
    device = torch.device("cuda", 0)
    dataset = manifest_data(mixtures).dataset("train")
    audio = ResidentAudio(dataset.recordings, dataset.window, device)
    keys = [(2, index) for index in range(len(dataset))]
    loader = iter(ResidentLoader(dataset, audio, keys * 3, len(keys)))
    read = collate([dataset[key] for key in keys], dataset.n_samples)
    assert_same([next(loader), *unwaited(loader)], [read] * 3, atol=0)
