"""Callbacks on their own: the csv file, the time budget, examples to listen to."""

from __future__ import annotations

from types import SimpleNamespace

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from line import Line

from convtasnet.callbacks import time_budget
from convtasnet.callbacks.audio_examples import AudioExamples
from convtasnet.callbacks.best_checkpoint import BestCheckpoint
from convtasnet.callbacks.metrics_file import MetricsFile
from convtasnet.callbacks.time_budget import TimeBudget
from convtasnet.log_filters import WARNINGS


def optimizer(lr=0.1):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr)


def state(**changes):
    """What the callbacks see of a Trainer."""
    values = {"is_global_zero": True, "current_epoch": 0, "global_step": 0, "ckpt_path": None}
    return SimpleNamespace(**(values | {"callback_metrics": {}, "optimizers": []} | changes))


def epoch(callback, index, validated=True, lr=0.1):
    trainer = state(
        current_epoch=index,
        global_step=10 * (index + 1),
        callback_metrics={"train_loss": torch.tensor(1.5), "valid_loss": torch.tensor(2.5)},
    )
    callback.on_before_optimizer_step(trainer, None, optimizer(lr))
    if validated:
        callback.on_validation_end(trainer, None)
    callback.on_train_epoch_end(trainer, None)


HEADER = "epoch,step,lr,train_loss,valid_loss,valid_si_sdr,valid_si_sdri,data_wait"


def test_metrics_file_has_a_row_an_epoch(tmp_path):
    callback = MetricsFile(str(tmp_path / "run" / "metrics.csv"))
    callback.on_train_start(state(), None)
    epoch(callback, 0)
    epoch(callback, 1, validated=False, lr=0.05)
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert lines == [HEADER, "0,10,0.1,1.5,2.5,,,", "1,20,0.05,1.5,,,,"]


def test_metrics_file_keeps_the_epochs_before_a_resume(tmp_path):
    path = tmp_path / "run" / "metrics.csv"
    callback = MetricsFile(str(path))
    callback.on_train_start(state(), None)
    for index in range(4):
        epoch(callback, index)
    resumed = {"current_epoch": 2, "ckpt_path": str(path.parent / "checkpoints" / "last.ckpt")}
    elsewhere = tmp_path / "other" / "metrics.csv"
    for target in (elsewhere, path):
        MetricsFile(str(target)).on_train_start(state(**resumed), None)
        assert [line[0] for line in target.read_text().splitlines()] == ["e", "0", "1"]
    MetricsFile(str(path)).on_train_start(state(), None)
    assert path.read_text().splitlines() == [HEADER]


def test_metrics_file_is_written_by_one_process(tmp_path):
    callback = MetricsFile(str(tmp_path / "metrics.csv"))
    callback.on_train_start(state(is_global_zero=False), None)
    callback.on_train_epoch_end(state(is_global_zero=False), None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("decay", "elapsed", "expected"),
    [
        (0.4, 0, 1.0),
        (0.4, 60, 1.0),
        (0.4, 80, 0.5),
        (0.4, 100, 0.0),
        (0.4, 130, 0.0),
        (1.0, 50, 0.5),
        (0.0, 99, 1.0),
        (0.0, 100, 0.0),
    ],
)
def test_the_rate_falls_over_the_last_part_of_the_budget(decay, elapsed, expected):
    assert TimeBudget(seconds=100, decay=decay).factor(elapsed) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "decay"), [(0, 0.4), (-1, 0.4), (float("nan"), 0.4), (9, 1.1), (9, -0.1)]
)
def test_a_budget_out_of_range_is_refused(seconds, decay):
    with pytest.raises(ValueError, match=f"seconds={seconds} must be above 0 and decay={decay}"):
        TimeBudget(seconds, decay)


class Steps:
    """A Trainer for ``TimeBudget`` whose steps take a second each."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.trainer = state(
            world_size=1,
            optimizers=[optimizer()],
            should_stop=False,
            lr_scheduler_configs=[],
            strategy=SimpleNamespace(broadcast=lambda value: value),
        )
        monkeypatch.setattr(time_budget.time, "perf_counter", lambda: self.now)

    def run(self, budget, most):
        """Rates of the steps until the budget stops them."""
        budget.on_train_start(self.trainer, None)
        rates = []
        while len(rates) < most and not self.trainer.should_stop:
            self.now += 1
            self.trainer.global_step += 1
            budget.on_train_batch_end(self.trainer, None, None, None, 0)
            rates.append(round(self.trainer.optimizers[0].param_groups[0]["lr"], 6))
        return rates


def test_the_budget_counts_steps_after_the_warmup_and_stops(monkeypatch):
    rates = Steps(monkeypatch).run(TimeBudget(seconds=4, decay=0.5, warmup_steps=3), most=20)
    assert rates == [0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.0]


def test_the_budget_does_not_count_validation(monkeypatch):
    steps = Steps(monkeypatch)
    budget = TimeBudget(seconds=10, warmup_steps=0)
    steps.run(budget, most=3)
    budget.on_validation_start(steps.trainer, None)
    steps.now += 1000
    steps.run(budget, most=2)
    assert budget.elapsed == 3  # the first step of each stretch has no start


def test_processes_agree_on_the_rate_now_and_then(monkeypatch):
    """Another one's clock is ahead: its factor counts, at every tenth step."""
    steps = Steps(monkeypatch)
    steps.trainer.world_size = 2
    steps.trainer.strategy.broadcast = lambda factor: max(0.0, factor - 0.275)
    rates = steps.run(TimeBudget(seconds=40, decay=1.0, warmup_steps=0), most=50)
    assert rates == [0.1] * 9 + [0.05] * 10 + [0.025] * 10 + [0.0]


def test_a_budget_refuses_another_scheduler(monkeypatch):
    steps = Steps(monkeypatch)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(steps.trainer.optimizers[0])
    steps.trainer.lr_scheduler_configs.append(SimpleNamespace(scheduler=scheduler))
    with pytest.raises(ValueError, match="ReduceLROnPlateau: set scheduler=constant"):
        steps.run(TimeBudget(seconds=4), most=1)


def test_a_resumed_budget_has_only_the_rest(monkeypatch):
    steps = Steps(monkeypatch)
    budget = TimeBudget(seconds=4, decay=0.5, warmup_steps=0)
    steps.run(budget, most=4)
    assert (budget.elapsed, steps.trainer.optimizers[0].param_groups[0]["lr"]) == (3, 0.05)
    resumed = TimeBudget(seconds=4, decay=0.5, warmup_steps=0)
    resumed.load_state_dict(budget.state_dict())
    assert steps.run(resumed, most=9) == [0.05, 0.0]


@pytest.mark.filterwarnings(*[f"ignore:{message}" for message in WARNINGS])
def test_a_budget_ends_a_training(tmp_path):
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[TimeBudget(seconds=0.05, warmup_steps=2)],
    )
    trainer.fit(Line(), torch.utils.data.DataLoader(torch.zeros(8, 1)))
    assert trainer.global_step > 2
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0


def test_best_checkpoint_has_one_name():
    callback = BestCheckpoint("folder", monitor="valid_loss", mode="min")
    assert callback.path.name == "best.ckpt"
    assert callback.check_monitor_top_k(state(), torch.tensor(torch.nan)) is False
    assert callback.check_monitor_top_k(state(), None) is False
    assert callback.check_monitor_top_k(state(), torch.tensor(1.0)) is True


class Writer:
    """Collects what TensorBoard would get."""

    def __init__(self):
        self.tracks = []

    def add_audio(self, name, wav, step, sample_rate):
        self.tracks.append((name, wav, step, sample_rate))


def test_examples_are_logged_at_a_common_level_references_once(tmp_path, monkeypatch):
    writer = Writer()
    monkeypatch.setattr(TensorBoardLogger, "experiment", writer)
    trainer = state(
        sanity_checking=False, global_step=7, loggers=[TensorBoardLogger(tmp_path), object()]
    )
    module = SimpleNamespace(model=SimpleNamespace(sample_rate=8000))
    sources = torch.randn(3, 2, 100)
    sources[1, 0] = 0
    batch = {"mixture": sources.sum(1), "sources": sources, "lengths": torch.tensor([100, 60, 50])}
    callback = AudioExamples(count=2)
    for index in (0, 1):
        callback.on_validation_batch_end(trainer, module, 5 * sources, batch, index)
    names = [name for name, *_ in writer.tracks]
    estimates = ["0/estimate_1", "0/estimate_2", "1/estimate_1", "1/estimate_2"]
    references = [f"{i}/{name}" for i in range(2) for name in ("mixture", "source_1", "source_2")]
    assert sorted(names) == sorted(estimates + references)
    for name, wav, step, rate in writer.tracks:
        assert (step, rate) == (7, 8000)
        assert wav.shape == (1, 100 if name.startswith("0") else 60)
        silent = name in ("1/source_1", "1/estimate_1")
        assert float(wav.abs().max()) == pytest.approx(0.0 if silent else 0.9, abs=1e-6)
    writer.tracks.clear()
    callback.on_validation_batch_end(trainer, module, 5 * sources, batch, 0)
    assert [name for name, *_ in writer.tracks] == estimates
