"""How much of the training's time goes into waiting for data."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import lightning as L
import pytest
import torch
from line import Line

from convtasnet.callbacks import data_wait
from convtasnet.callbacks.data_wait import DataWait
from convtasnet.callbacks.metrics_file import MetricsFile
from convtasnet.data.waiting import WaitClock, WatchedLoader


class Run:
    """A Trainer whose clock is set by hand, and what is logged."""

    def __init__(self, monkeypatch, every=2):
        self.now, self.clock, self.logged = 0.0, WaitClock(), []
        self.trainer = SimpleNamespace(
            train_dataloader=SimpleNamespace(clock=self.clock), log_every_n_steps=every
        )
        monkeypatch.setattr(data_wait.time, "perf_counter", lambda: self.now)
        self.callback = DataWait()

    def log(self, name, value, **options):
        assert name == "data_wait"
        self.logged.append((options["on_step"], pytest.approx(float(value))))

    def epoch(self, steps, validate_after=None):
        """Steps of (seconds waited, seconds computed)."""
        self.callback.on_train_epoch_start(self.trainer, self)
        for index, (waited, computed) in enumerate(steps):
            self.clock.seconds += waited
            self.now += waited + computed
            self.callback.on_train_batch_end(self.trainer, self, None, None, index)
            if index == validate_after:
                self.now += 1000
                self.callback.on_validation_end(self.trainer, self)
        self.now += 500  # whatever is between epochs
        self.callback.on_train_epoch_end(self.trainer, self)


def test_shares_of_intervals_and_epochs(monkeypatch):
    run = Run(monkeypatch)
    run.epoch([(1, 1), (0, 2), (3, 1), (3, 1), (0, 4)])
    run.epoch([(1, 0), (0, 3)])
    assert run.logged == [(True, 0.25), (True, 0.75), (False, 7 / 16), (True, 0.25), (False, 0.25)]


def test_validation_does_not_count(monkeypatch):
    run = Run(monkeypatch)
    run.epoch([(1, 1), (1, 1), (1, 1), (1, 1)], validate_after=2)
    assert run.logged == [(True, 0.5), (True, 0.5), (False, 0.5)]


@pytest.mark.parametrize(
    ("waited", "computed", "warns"), [(2, 8, True), (0.5, 8, False), (0.1, 0.1, False)]
)
def test_much_waiting_is_said_once(monkeypatch, caplog, waited, computed, warns):
    run = Run(monkeypatch)
    for _ in range(2):
        run.epoch([(waited, computed)] * 10)
    messages = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(messages) == warns
    if warns:
        assert "20 % of the epoch's training time (20 s)" in messages[0]


def test_other_loaders_are_left_alone(monkeypatch):
    run = Run(monkeypatch)
    run.trainer.train_dataloader = [1, 2]
    run.epoch([(1, 1), (1, 1)])
    assert run.logged == []


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_shows_and_keeps_it(tmp_path):
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=2,
        callbacks=[DataWait(), MetricsFile(str(tmp_path / "metrics.csv"))],
    )
    trainer.fit(Line(), WatchedLoader(torch.zeros(5, 1)))
    assert 0 < trainer.progress_bar_metrics["data_wait"] < 1
    rows = (tmp_path / "metrics.csv").read_text().splitlines()[1:]
    assert len(rows) == 2
    assert all(0 < float(row.split(",")[-1]) < 1 for row in rows)
