"""The Lightning module: a bad loss stops it in time, validation means what it says."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

import lightning as L
import pytest
import torch
from tiny_model import TINY
from torch import Tensor, nn
from torch.utils.data import DataLoader

from convtasnet import ConvTasNet
from convtasnet.data.sampler import EvalSampler
from convtasnet.log_filters import WARNINGS
from convtasnet.loss_watch import STUCK_STEPS, LossWatch
from convtasnet.losses import pit_loss
from convtasnet.metrics import score
from convtasnet.system import SeparationSystem

pytestmark = pytest.mark.filterwarnings(*[f"ignore:{message}" for message in WARNINGS])
N_SAMPLES = 400


class Gains(nn.Module):
    """The mixture, once for each source with a gain of its own, and 1 % of its past."""

    sample_rate, n_src, hparams = 8000, 2, {"n_src": 2}

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.3, 0.7]))

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        past = mixture.roll(1, -1)[:, None] * torch.tensor([[[0.01], [-0.01]]])
        return mixture[:, None] * self.gain[:, None] + past


def items(count: int) -> list[dict]:
    generator = torch.Generator().manual_seed(0)
    sources = torch.randn(count, 2, N_SAMPLES, generator=generator)
    return [{"mixture": s.sum(0), "sources": s, "id": f"item{i}"} for i, s in enumerate(sources)]


def collate(batch: list[dict]) -> dict:
    return {
        "mixture": torch.stack([item["mixture"] for item in batch]),
        "sources": torch.stack([item["sources"] for item in batch]),
        "lengths": torch.tensor([N_SAMPLES] * len(batch)),
        "ids": [item["id"] for item in batch],
    }


def loader(data: list[dict], batch_size: int = 2) -> DataLoader:
    return DataLoader(data, batch_size, collate_fn=collate)


def system(model: nn.Module | None = None, lr: float = 0.1, **arguments) -> SeparationSystem:
    optimizer = functools.partial(torch.optim.Adam, lr=lr)
    return SeparationSystem(model or Gains(), pit_loss, optimizer, **arguments)


def trainer(folder: Path, accelerator: str = "cpu", **arguments) -> L.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    fixed = {"enable_checkpointing": False, "num_sanity_val_steps": 0, **quiet}
    arguments = {"max_epochs": 1, **arguments}
    return L.Trainer(accelerator=accelerator, default_root_dir=folder, **fixed, **arguments)


@pytest.mark.parametrize("signal", ["mixture", "sources"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_nan_item_stops_the_run_before_it_reaches_the_weights(tmp_path, signal, accumulate):
    data = items(6)
    data[5][signal][..., 7] = torch.nan
    module = system()
    run = trainer(tmp_path, accumulate_grad_batches=accumulate, gradient_clip_val=5.0)
    message = rf"not finite at step {2 // accumulate}: the items \['item5'\] hold NaN"
    with pytest.raises(ValueError, match=message):
        run.fit(module, loader(data), loader(items(1)))
    assert run.global_step == 2 // accumulate
    assert module.model.gain.isfinite().all()


def test_a_loss_that_diverges_by_itself_names_its_items_too(tmp_path):
    module = system()
    with torch.no_grad():
        module.model.gain[0] = torch.inf
    message = r"the items \['item0', 'item1'\] are finite, the training diverges"
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path).fit(module, loader(items(2)), loader(items(1)))


def test_a_watched_loss_of_another_rank(monkeypatch):
    """The flag is the least of all ranks; the names are gathered from them."""
    monkeypatch.setattr("convtasnet.loss_watch._is_distributed", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flag, op: flag.zero_())
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    def gather(parts, own):
        parts[:] = [own, ["there"]]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    watch = LossWatch(torch.tensor(1.0), collate(items(2)))
    assert not watch.was_finite()
    assert watch.reason() == "the items ['there'] hold NaN or infinity"


def rank_of_two(rank: int, folder: Path, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2")
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0")
    torch.set_num_threads(1)
    data = items(8)
    data[5]["mixture"][3] = torch.nan
    module, message = system(), "none"
    run = trainer(folder, devices=2, strategy="ddp")
    (valid,) = run.validate(module, eval_loader(items(5), rank), verbose=False)
    try:
        run.fit(module, loader(data, batch_size=1), loader(items(2)))
    except ValueError as error:
        message = str(error)
    found = (message, run.global_step, module.model.gain.detach(), valid)
    torch.save(found, folder / f"{rank}.pt")


def eval_loader(data: list[dict], rank: int) -> DataLoader:
    sampler = EvalSampler(data, None, 2, 2, rank)
    return DataLoader(data, sampler.batch_size, sampler=sampler, collate_fn=collate)


@pytest.mark.usefixtures("forked")
def test_two_processes_validate_as_one_and_stop_at_the_same_step(tmp_path):
    port = 21000 + os.getpid() % 20000
    torch.multiprocessing.spawn(rank_of_two, (tmp_path, port), nprocs=2)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    (alone,) = trainer(tmp_path).validate(system(), loader(items(5), 5), verbose=False)
    for message, steps, gain, valid in results:
        assert valid == pytest.approx(alone, rel=1e-6)
        assert message == (
            f"the training loss is not finite at step {steps}: the items ['item5'] hold NaN or "
            "infinity"
        )
        assert torch.equal(gain, results[0][2])
        assert gain.isfinite().all()
    assert results[0][1] == results[1][1] < 4


def test_validation_is_the_mean_over_items_of_different_batches(tmp_path):
    data = items(5)
    module = system()
    (logged,) = trainer(tmp_path).validate(module, loader(data), verbose=False)
    with torch.no_grad():
        estimates = module.model(collate(data)["mixture"])
    scores = [
        score(est, item["sources"], item["mixture"], 8000).values
        for est, item in zip(estimates, data, strict=True)
    ]
    for name in ("si_sdr", "si_sdri"):
        mean = sum(values[name] for values in scores) / 5
        assert logged[f"valid_{name}"] == pytest.approx(mean, abs=1e-4)
    assert logged["valid_loss"] == pytest.approx(-logged["valid_si_sdr"], abs=1e-3)


def test_a_constant_offset_changes_no_validation(tmp_path):
    class Offset(Gains):
        def forward(self, mixture, lengths=None):
            return super().forward(mixture) + 0.5

    plain = trainer(tmp_path).validate(system(), loader(items(2)), verbose=False)
    moved = trainer(tmp_path).validate(system(Offset()), loader(items(2)), verbose=False)
    assert moved[0] == pytest.approx(plain[0], abs=1e-3)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_validation_does_not_depend_on_who_shares_a_batch(tmp_path, batch_size):
    data = items(5)
    data[3]["sources"][1] = 0  # the loss of its item has one term, the others' have two
    expected = trainer(tmp_path).validate(system(), loader(data, 5), verbose=False)
    got = trainer(tmp_path).validate(system(), loader(data, batch_size), verbose=False)
    assert got[0] == pytest.approx(expected[0], rel=1e-6)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_a_loss_at_its_floor_raises_an_alarm(tmp_path, caplog):
    class Silent(Gains):
        def forward(self, mixture, lengths=None):
            return super().forward(mixture) * 0

    with caplog.at_level(logging.WARNING):
        trainer(tmp_path).fit(system(Silent()), loader(items(STUCK_STEPS), 1), loader(items(1)))
    assert caplog.text.count("the model's outputs are silent") == 1


def test_a_silent_item_is_left_out_of_the_validation(tmp_path):
    data = items(3)
    expected = trainer(tmp_path).validate(system(), loader(data[:2]), verbose=False)
    data[2]["sources"][0] = 0
    got = trainer(tmp_path).validate(system(), loader(data), verbose=False)
    for name in ("valid_si_sdr", "valid_si_sdri"):
        assert got[0][name] == pytest.approx(expected[0][name])


def test_a_mixture_of_equal_sources_has_no_improvement(tmp_path):
    data = items(3)
    expected = trainer(tmp_path).validate(system(), loader(data[:2]), verbose=False)
    data[2]["sources"][1] = data[2]["sources"][0]
    data[2]["mixture"] = data[2]["sources"].sum(0)
    got = trainer(tmp_path).validate(system(), loader(data), verbose=False)
    assert got[0]["valid_si_sdri"] == pytest.approx(expected[0]["valid_si_sdri"])


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_silent_estimates_are_said(tmp_path, caplog):
    class Silent(Gains):
        def forward(self, mixture, lengths=None):
            return torch.zeros(len(mixture), 2, N_SAMPLES)

    with caplog.at_level(logging.WARNING):
        (logged,) = trainer(tmp_path).validate(system(Silent()), loader(items(3)), verbose=False)
    assert "the model is silent on 3 validation items" in caplog.text
    assert logged["valid_loss"] > 100
    assert logged["valid_si_sdri"] != logged["valid_si_sdri"]


def test_nan_estimates_make_the_means_nan(tmp_path):
    class Broken(Gains):
        def forward(self, mixture, lengths=None):
            estimates = super().forward(mixture)
            estimates[0, 0, 5] = torch.nan
            return estimates

    (logged,) = trainer(tmp_path).validate(system(Broken()), loader(items(4)), verbose=False)
    assert all(value != value for value in logged.values())


def test_an_unknown_monitor_is_refused():
    with pytest.raises(ValueError, match="'val_loss' is unknown; choose one of"):
        system(monitor="val_loss")


def test_a_scheduler_against_the_monitor_is_refused(tmp_path):
    scheduler = functools.partial(torch.optim.lr_scheduler.ReduceLROnPlateau, mode="min")
    with pytest.raises(ValueError, match=r"set scheduler\.mode=max"):
        trainer(tmp_path).fit(system(scheduler=scheduler), loader(items(2)), loader(items(1)))


def trained(folder: Path, compile: bool | str, **arguments) -> tuple[list[float], SeparationSystem]:
    """Losses of a short training on a GPU, and what was trained."""
    torch.manual_seed(0)
    module = system(ConvTasNet(**TINY), lr=1e-3, compile=compile)
    losses: list[float] = []

    class Losses(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            losses.append(outputs["loss"].item())

    data = items(20)
    data[1] = {name: data[1][name][..., :300] for name in ("mixture", "sources")} | {"id": "short"}
    run = trainer(
        folder, "gpu", gradient_clip_val=5.0, callbacks=[Losses()], max_epochs=2, **arguments
    )
    run.fit(module, DataLoader(data, 3, collate_fn=padded), loader(items(2)))
    return losses, module


def padded(batch: list[dict]) -> dict:
    ends = [item["mixture"].shape[-1] for item in batch]
    for item, end in zip(batch, ends, strict=True):
        for name in ("mixture", "sources"):
            item[name] = nn.functional.pad(item[name], (0, N_SAMPLES - end))
    return collate(batch) | {"lengths": torch.tensor(ends)}


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_graphs_change_no_loss(tmp_path, precision, accumulate):
    """The last batch of an epoch has another shape."""
    arguments = {"precision": precision, "accumulate_grad_batches": accumulate}
    losses, module = trained(tmp_path, "graph", **arguments)
    expected, _ = trained(tmp_path, False, **arguments)
    assert len(losses) == 14
    assert module._train_loss.captured == 2
    torch.testing.assert_close(losses, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
def test_a_nan_item_stops_a_run_of_graphs(tmp_path):
    data = items(12)
    data[9]["sources"][0, 7] = torch.nan
    module = system(ConvTasNet(**TINY), compile="graph")
    with pytest.raises(ValueError, match=r"not finite at step 4: the items \['item9'\] hold NaN"):
        trainer(tmp_path, "gpu").fit(module, loader(data), loader(items(1)))
    assert module._train_loss.captured == 1
    assert all(p.isfinite().all() for p in module.model.parameters())
