"""Data modules under a real Trainer: order, crops, epochs, resuming, processes."""

import logging
import os

import lightning
import numpy as np
import pytest
import soundfile
import torch
from line import Line

from convtasnet.audio import write_audio
from convtasnet.data.loaders import default_workers
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.module import ManifestData, MixtureData, Wsj0MixData

N_TRAIN = 7
RATE = 1000


def write_split(folder, name, lengths):
    """A manifest whose files hold their own sample numbers, so that a crop shows its place."""
    rows = []
    for index, n in enumerate(lengths):
        ramp = (index * 100_000 + np.arange(n)) / 2**23
        files = [folder / name / kind / f"{index}.wav" for kind in ("mix", "s1", "s2")]
        for file in files:
            write_audio(file, ramp, RATE, "FLOAT")
        rows.append(Row(f"{name}{index}", str(files[0]), tuple(map(str, files[1:])), None, n))
    Manifest(rows).to_csv(folder / f"{name}.csv")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_split(folder, "train", [500 + 10 * i for i in range(N_TRAIN)])
    write_split(folder, "valid", [120, 50, 400, 75, 90])
    write_split(folder, "test", [60, 300, 30])
    return folder


pytestmark = pytest.mark.usefixtures("empty_cache")


def data_of(root, **changes):
    arguments = {"sample_rate": RATE, "segment": 0.1, "batch_size": 2, "num_workers": 0}
    return ManifestData(root, **(arguments | changes))


def seen(batch):
    """First sample of each crop, which names file and place."""
    return (batch["mixture"][:, 0].double() * 2**23).round().long().tolist()


class Recorder(Line):
    """Keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.batches = []
        self.validated = []

    def training_step(self, batch, index):
        self.batches.append((self.current_epoch, seen(batch)))
        return super().training_step(batch, index)

    def validation_step(self, batch, index):
        self.validated.append(batch["ids"])

    test_step = validation_step


def fit(data, folder, epochs, ckpt_path=None, callbacks=(), **arguments):
    model = Recorder()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks),
        num_sanity_val_steps=0,
        **arguments,
    )
    trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    return model


def test_epochs_differ_and_runs_repeat_for_any_number_of_workers(root, tmp_path):
    reference = fit(data_of(root), tmp_path, 3).batches
    assert [epoch for epoch, _ in reference] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    crops = [crop for _, batch in reference for crop in batch]
    assert len(set(crops)) == len(crops) == 18
    assert fit(data_of(root, num_workers=2), tmp_path, 3).batches == reference
    assert fit(data_of(root, seed=1), tmp_path, 3).batches != reference


def test_crops_are_aligned_between_mixture_and_sources(root):
    for batch in data_of(root).train_dataloader():
        assert batch["sources"].shape == (2, 2, 100)
        assert torch.equal(batch["mixture"][:, None].expand_as(batch["sources"]), batch["sources"])
        assert (batch["mixture"].diff() > 0).all()
        assert batch["lengths"].tolist() == [100, 100]
        assert batch["lengths"].dtype == torch.int64


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [None, 2])
def test_resuming_anywhere_gives_the_data_of_the_uninterrupted_run(root, tmp_path, workers, limit):
    """Checkpoints after each step, each validation and each epoch."""
    arguments = {} if limit is None else {"limit_train_batches": limit}

    def callbacks(folder):
        save = lightning.pytorch.callbacks.ModelCheckpoint
        common = {"dirpath": folder, "save_top_k": -1}
        return [
            save(filename="step{step}", every_n_train_steps=1, **common),
            save(filename="valid{step}", save_on_train_epoch_end=False, **common),
            save(filename="epoch{step}", save_on_train_epoch_end=True, mode="max", **common),
        ]

    folder = tmp_path / "checkpoints"
    reference = fit(data_of(root), tmp_path, 3, callbacks=callbacks(folder), **arguments).batches
    n = len(reference)
    checkpoints = sorted(folder.iterdir())
    assert len(checkpoints) == n + 6
    if workers:
        checkpoints = [path for path in checkpoints if path.stem.split("=")[1] in "34"]
    for path in checkpoints:
        done = int(path.stem.split("=")[1])
        data = data_of(root, num_workers=workers)
        resumed = fit(data, tmp_path, 3, ckpt_path=path, **arguments).batches
        assert resumed == reference[done:], path.name


def test_resuming_with_another_batch_size_goes_on_with_the_next_epoch(root, tmp_path, caplog):
    save = lightning.pytorch.callbacks.ModelCheckpoint(
        tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True
    )
    fit(data_of(root), tmp_path, 3, callbacks=[save])
    fresh = fit(data_of(root, batch_size=1), tmp_path, 5).batches
    path = tmp_path / "epoch=2.ckpt"
    resumed = fit(data_of(root, batch_size=1), tmp_path, 5, ckpt_path=path).batches
    assert resumed == fresh[3 * N_TRAIN :]
    assert "another number" in caplog.text


def test_validation_and_test_items_are_whole_and_come_once(root, tmp_path):
    data = data_of(root, eval_batch_size=2)
    model = fit(data, tmp_path, 1)
    assert model.validated == [["valid2", "valid0"], ["valid4", "valid3"], ["valid1"]]
    for split, lengths in (("valid", [120, 50, 400, 75, 90]), ("test", [60, 300, 30])):
        dataset = data.dataset(split)
        assert [dataset[i]["mixture"].shape[-1] for i in range(len(dataset))] == lengths
    batches = list(data.test_dataloader())
    assert [batch["lengths"].tolist() for batch in batches] == [[300, 60], [30]]
    assert batches[0]["mixture"][1, 60:].eq(0).all()


def test_dataset_needs_no_trainer(root):
    assert len(data_of(root).dataset("test")) == 3
    with pytest.raises(ValueError, match="'dev'"):
        data_of(root).dataset("dev")


def distributed(rank, root, folder, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2")
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")
    data = data_of(root, batch_size=1, eval_batch_size=1)
    model = fit(data, folder, 2, devices=2, strategy="ddp")
    torch.save((model.batches, model.validated), folder / f"{rank}.pt")


@pytest.mark.usefixtures("forked")
def test_two_processes_share_an_epoch(root, tmp_path):
    """Lightning leaves the samplers alone: no Trainer flag is needed."""
    port = 20000 + os.getpid() % 20000
    torch.multiprocessing.spawn(distributed, (root, tmp_path, port), nprocs=2)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    alone = fit(data_of(root, batch_size=1), tmp_path, 2).batches
    together = [pair for pairs in zip(*(r[0] for r in results), strict=True) for pair in pairs]
    # 7 items: the odd one of each epoch is left out.
    assert together == [pair for pair in alone if pair != alone[6]][:12]
    for epoch in (0, 1):
        ids = [i for _, validated in results for batch in validated[epoch::2] for i in batch]
        assert len(ids) > 0
    first_epoch = [validated[: len(validated) // 2] for _, validated in results]
    ids = sorted(i for batches in first_epoch for batch in batches for i in batch)
    assert ids == [f"valid{i}" for i in range(5)]
    assert len(first_epoch[0]) == len(first_epoch[1])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment", 0),
        ("segment", -1.0),
        ("segment", float("nan")),
        ("n_src", 0),
        ("batch_size", 0),
        ("sample_rate", 0),
        ("num_workers", -1),
        ("seed", -1),
        ("eval_batch_size", 0),
        ("check", "all"),
    ],
)
def test_bad_arguments_are_named(tmp_path, name, value):
    with pytest.raises(ValueError, match=rf"{name} is '?{value}"):
        ManifestData(tmp_path, **{name: value})


def test_a_batch_larger_than_the_training_set_is_refused(root):
    with pytest.raises(ValueError, match=r"batch_size is 8 .* 7 items"):
        data_of(root, batch_size=8).train_dataloader()


def test_wrong_mode_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'mid'"):
        Wsj0MixData(tmp_path, mode="mid")


def test_everything_wrong_in_all_splits_is_listed_before_training(tmp_path):
    for split in ("train", "valid", "test"):
        write_split(tmp_path, split, [200, 200])
    gone = [tmp_path / "train/mix/0.wav", tmp_path / "valid/s2/1.wav"]
    for file in gone:
        file.unlink()
    with pytest.raises(FileNotFoundError) as error:
        fit(data_of(tmp_path, batch_size=1), tmp_path, 1)
    assert all(str(file) in str(error.value) for file in gone)
    assert "train0" in str(error.value)
    assert "valid1" in str(error.value)
    (tmp_path / "test/s1/0.wav").write_bytes(b"")
    with pytest.raises(ValueError, match="3 problems") as both:
        data_of(tmp_path).prepare_data()
    assert "test0" in str(both.value)


def test_nan_in_a_float_file_is_found_by_the_scan_only(tmp_path):
    for split in ("train", "valid", "test"):
        write_split(tmp_path, split, [200, 200])
    wav = np.zeros(200, np.float32)
    wav[7] = np.nan
    soundfile.write(tmp_path / "train/s1/1.wav", wav, RATE, subtype="FLOAT")
    data_of(tmp_path, check="headers").prepare_data()
    with pytest.raises(ValueError, match=r"s1.1\.wav .*'train1'.*: holds NaN .* at 7"):
        data_of(tmp_path).prepare_data()


def test_a_subclass_needs_one_method(root):
    class Doubled(MixtureData):
        def make_dataset(self, split):
            return data_of(root).dataset(split)

        def check(self, splits=("train", "valid", "test")):
            pass

    data = Doubled(root, sample_rate=RATE, segment=0.1, batch_size=2, num_workers=0)
    data.prepare_data()
    data.setup("fit")
    assert len(list(data.train_dataloader())) == 3
    assert len(list(data.val_dataloader())) == 2
    with pytest.raises(NotImplementedError, match="MixtureData"):
        MixtureData(root).dataset("train")


def test_padded_and_cropped_items_are_counted_once(tmp_path, caplog):
    for split in ("train", "valid", "test"):
        write_split(tmp_path, split, [40, 100, 101])
    with caplog.at_level(logging.INFO):
        data = data_of(tmp_path, batch_size=3)
        for _ in range(2):
            batches = list(data.train_dataloader())
    assert sorted(batches[0]["lengths"].tolist()) == [40, 100, 100]
    assert batches[0]["mixture"].shape == (3, 100)
    messages = [r.getMessage() for r in caplog.records if "shorter than the segment" in r.message]
    assert len(messages) == 1
    assert "of 3 mixtures 1 are shorter" in messages[0]
    assert "1 are cropped to it, 1 fit" in messages[0]


def test_default_workers_leave_a_core():
    assert 0 <= default_workers() <= 8
