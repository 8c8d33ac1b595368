"""Training on resident speech: runs that go on, ranks, when it is resident and what is said."""

import logging
import pickle
from types import SimpleNamespace

import lightning
import numpy as np
import pytest
import torch
from line import Line
from resident_corpus import speakers_data, write_speakers

from convtasnet.data import resident
from convtasnet.data.resident import ResidentLoader
from convtasnet.data.sampler import TrainSampler


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


class Recorder(Line):
    """Keeps the names of what it was given."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def training_step(self, batch, index):
        self.batches.append((self.current_epoch, batch["ids"], float(batch["mixture"][0, 100])))
        return super().training_step(batch, index)


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


def test_a_data_set_goes_to_processes_without_the_audio(speakers):
    data = speakers_data(speakers, resident=True)
    data.train_dataloader()
    assert len(pickle.dumps(data.dataset("train"))) < 10_000
