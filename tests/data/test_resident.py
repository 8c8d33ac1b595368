"""Speech in a device's memory: the batches are those that the files give."""

import logging
import pickle
from types import SimpleNamespace

import lightning
import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest
from tiny_corpus import RATE, voice

from convtasnet.audio import write_audio
from convtasnet.data import pieces, resident
from convtasnet.data.batch import collate
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.mixing import active_level
from convtasnet.data.module import ManifestData
from convtasnet.data.resident import ResidentAudio, ResidentLoader
from convtasnet.data.sampler import TrainSampler
from convtasnet.data.speakers import SpeakersData

N_SPEAKERS = 11
SEGMENT = 0.5


def write_speakers(root, rate=RATE, subtype="PCM_16"):
    """Speakers of one to three utterances, shorter and longer than a segment, some mostly quiet."""
    for k in range(N_SPEAKERS):
        for j in range(1 + k % 3):
            wav = voice(10 * k + j, 0.35 + 0.4 * j + 0.1 * k) * (1 + k)
            wav[len(wav) // 4 :] *= 0.03 if k % 2 else 1
            write_audio(root / f"s{k:02d}" / f"{j}.wav", wav.clamp(-1, 1), rate, subtype)
    return root


def write_mixtures(root, rate=RATE, subtype="PCM_16"):
    for split, count in {"train": 7, "valid": 1, "test": 1}.items():
        rows = []
        for i in range(count):
            sources = [voice(2 * i + k, 0.3 + 0.1 * i) / 2 for k in range(2)]
            files = [root / f"{split}{i}_{name}.wav" for name in ("mix", "s1", "s2")]
            for file, wav in zip(files, [sources[0] + sources[1], *sources], strict=True):
                write_audio(file, wav.clamp(-1, 1), rate, subtype)
            rows.append(Row(f"m{i}", str(files[0]), tuple(map(str, files[1:])), None, len(wav)))
        Manifest(rows).to_csv(root / f"{split}.csv")
    return root


@pytest.fixture(scope="module")
def speakers(tmp_path_factory):
    return write_speakers(tmp_path_factory.mktemp("speakers"))


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


def speakers_data(root, **changes):
    arguments = {"segment": SEGMENT, "batch_size": 3, "num_workers": 0, "epoch_size": 25}
    return SpeakersData(root, **(arguments | changes))


def manifest_data(root, **changes):
    return ManifestData(root, **({"segment": SEGMENT, "batch_size": 2, "num_workers": 0} | changes))


def batches(data):
    return list(data.train_dataloader())


def assert_same(made, read, atol):
    """Two lists of batches differ by rounding at most."""
    assert len(made) == len(read) > 0
    for one, other in zip(made, read, strict=True):
        assert one["ids"] == other["ids"]
        assert torch.equal(one["lengths"].cpu(), other["lengths"])
        assert one.keys() == other.keys()
        for name in one.keys() & {"mixture", "sources", "noise"}:
            assert one[name].dtype == torch.float32
            assert one[name].is_contiguous()
            torch.testing.assert_close(one[name].cpu(), other[name], rtol=0, atol=atol)


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


def test_the_seed_repeats_a_run_and_epochs_differ(speakers):
    one, again, other = (
        speakers_data(speakers, resident=True, seed=seed).train_dataloader() for seed in (0, 0, 1)
    )
    first = list(one)
    assert all(
        torch.equal(a["mixture"], b["mixture"]) for a, b in zip(first, list(again), strict=True)
    )
    one.sampler.set_epoch(1)
    for different in (list(one), list(other)):
        assert not any(
            torch.equal(a["mixture"], b["mixture"]) for a, b in zip(first, different, strict=True)
        )


def test_ranks_share_an_epoch(speakers):
    data = speakers_data(speakers, resident=True)
    dataset, audio = data.dataset("train"), data.train_dataloader().audio
    loaders = [
        ResidentLoader(dataset, audio, TrainSampler(dataset, 3, 0, 2, rank), 3) for rank in (0, 1)
    ]
    ids = [[name for batch in loader for name in batch["ids"]] for loader in loaders]
    assert [len(loader) for loader in loaders] == [4, 4]
    assert [len(names) for names in ids] == [12, 12]
    assert len(set(ids[0] + ids[1])) == 24


class Recorder(lightning.LightningModule):
    """Keeps the names of what it was given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.batches = []

    def training_step(self, batch, index):
        self.batches.append((self.current_epoch, batch["ids"], float(batch["mixture"][0, 100])))
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(data, folder, ckpt_path=None, **arguments):
    model = Recorder()
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        folder / "checkpoints", "{step}", save_top_k=-1, every_n_train_steps=1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[] if ckpt_path else [save],
        enable_checkpointing=not ckpt_path,
        limit_val_batches=0,
        **arguments,
    )
    trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    return model.batches


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("limit", [None, 5])
def test_resuming_anywhere_gives_the_data_of_the_uninterrupted_run(speakers, tmp_path, limit):
    arguments = {} if limit is None else {"limit_train_batches": limit}
    whole = fit(speakers_data(speakers, resident=True), tmp_path, **arguments)
    read = fit(speakers_data(speakers, resident=False), tmp_path / "read", **arguments)
    assert [step[:2] for step in whole] == [step[:2] for step in read]
    assert len({(step[1][0], step[2]) for step in whole}) == len(whole) == 3 * (limit or 8)
    for done in (1, 4, len(whole) // 3, len(whole) - 1):
        path = tmp_path / "checkpoints" / f"step={done}.ckpt"
        resumed = fit(speakers_data(speakers, resident=True), tmp_path, path, **arguments)
        assert resumed == whole[done:], done


def test_the_log_says_once_what_is_resident(speakers, caplog):
    with caplog.at_level(logging.INFO):
        data = speakers_data(speakers, resident=True)
        data.train_dataloader()
        data.train_dataloader()
    messages = [r.getMessage() for r in caplog.records if "is in the memory of" in r.getMessage()]
    assert len(messages) == 1
    assert "cpu" in messages[0]


def test_auto_takes_no_memory_without_a_gpu(speakers):
    assert not isinstance(speakers_data(speakers).train_dataloader(), ResidentLoader)


@pytest.mark.parametrize(("choice", "needed"), [("auto", 4), (True, 1.25)])
def test_a_corpus_too_large_for_the_memory(monkeypatch, caplog, choice, needed):
    size, lengths = 80e6, np.array([30_000_000, 10_000_000])
    recordings = SimpleNamespace(file_lengths=lengths, sample_rate=8000)
    big = SimpleNamespace(recordings=recordings, window=10)
    monkeypatch.setattr(resident, "ResidentAudio", lambda *args: "audio")
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (size * needed + 1, 1e12))
    assert resident.make_resident(big, cuda, choice) == "audio"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (size * needed - 1, 1e12))
    words = f"it would take 0.08 GB, more than {1 / needed:.0%} of the {size * needed / 1e9:.2f} GB"
    if choice == "auto":
        with caplog.at_level(logging.INFO):
            assert resident.make_resident(big, cuda, choice) is None
        assert f"reads its speech from files: {words}" in caplog.text
    else:
        with pytest.raises(ValueError, match=f"data.resident=true: {words}"):
            resident.make_resident(big, cuda, choice)


def test_what_can_not_be_resident_is_said(speakers):
    dataset = speakers_data(speakers).dataset("valid")
    with pytest.raises(ValueError, match="FixedMixtures makes batches from files only"):
        resident.make_resident(dataset, torch.device("cpu"), True)
    train = speakers_data(speakers).dataset("train")
    with pytest.raises(ValueError, match="batches can't be made on mps"):
        resident.make_resident(train, torch.device("mps"), True)


def test_a_wrong_choice_is_named(speakers):
    for value in ("yes", 2, None):
        with pytest.raises(ValueError, match=f"resident is '{value}', expected True, False or"):
            speakers_data(speakers, resident=value)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_damaged_since_the_check_is_named_in_one_line(tmp_path, num_workers):
    data = speakers_data(write_speakers(tmp_path), resident=True, num_workers=num_workers)
    path = data.dataset("train").recordings.paths[0]
    with open(path, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match=path) as error:
        data.train_dataloader()
    assert "\n" not in str(error.value)


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


def test_a_data_set_goes_to_processes_without_the_audio(speakers):
    data = speakers_data(speakers, resident=True)
    data.train_dataloader()
    assert len(pickle.dumps(data.dataset("train"))) < 10_000


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
