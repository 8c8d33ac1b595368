"""Settings of a training that would fail or mislead later are refused before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from tiny_corpus import write_corpus
from training import TINY, composed, read_rows, script, tiny

from convtasnet.checkpoint import read_raw
from convtasnet.resume import position
from convtasnet.training_settings import check_training


def resolved(*overrides: str) -> Any:
    return OmegaConf.to_container(
        composed(*TINY, "data.root=/nowhere", "run_dir=/nowhere", *overrides), resolve=True
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.accumulate_grad_batches=0"], "accumulate_grad_batches=0 must be a whole number"),
        (["trainer.accumulate_grad_batches=null"], "accumulate_grad_batches=None must be a whole"),
        (["trainer.check_val_every_n_epoch=0"], "check_val_every_n_epoch=0 must be a whole number"),
        (["trainer.val_check_interval=0"], "val_check_interval=0 must be above 0"),
        (["trainer.val_check_interval=00:00:00:01"], "a time, needs callbacks.early_stopping=null"),
        (["trainer.max_epochs=0"], "trainer.max_epochs=0 leaves nothing to train"),
        (["trainer.max_steps=0"], "trainer.max_steps=0 leaves nothing to train"),
        (["trainer.precision=bf16-true"], "precision=bf16-true rounds weights, .* use bf16-mixed"),
        (["trainer.precision=16-true"], "precision=16-true rounds weights, .* use bf16-mixed"),
        (["data.epoch_size=1.5"], "data.epoch_size=1.5 must be a whole number"),
        (["scheduler=plateau", "scheduler.patience=a"], "scheduler.patience='a' must be a whole"),
        (["scheduler=cosine", "trainer.max_epochs=-1"], "scheduler.T_max=-1 must be a whole"),
        (["callbacks.early_stopping.patience=-1"], "early_stopping.patience=-1 must be a whole"),
        (["model.n_src=3"], "model.n_src=3, but data.n_src=2: set data.n_src alone"),
        (["model.sample_rate=16000"], "model.sample_rate=16000, but data.sample_rate=8000"),
    ],
)
def test_what_leads_nowhere_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_training(resolved(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.precision=16-mixed", "trainer.log_every_n_steps=0", "trainer.max_steps=1"],
        ["scheduler=cosine", "trainer.max_epochs=-1", "scheduler.T_max=9"],
        ["trainer.max_epochs=0", "ckpt_path=last.ckpt"],  # which says that the run is done
        ["callbacks.early_stopping=null", "trainer.val_check_interval=00:00:00:01"],
        ["data.sample_rate=16000", "data.n_src=3"],
    ],
)
def test_what_has_a_meaning_is_not(overrides: list[str]) -> None:
    check_training(resolved(*overrides))


def test_what_an_optimizer_does_not_take_is_a_user_error(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", seconds=0.5)
    with pytest.raises(ValueError, match=r"^optimizer: .*argument 'foo'"):
        script.train(tiny(corpus, tmp_path / "run", "+optimizer.foo=1"))


def test_a_run_that_steps_end_within_an_epoch_is_validated(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", seconds=0.5)
    cfg = tiny(corpus, tmp_path / "run", "trainer.max_steps=1", "trainer.log_every_n_steps=0")
    best = script.train(cfg)["best"]
    (row,) = read_rows(tmp_path / "run")
    assert row["step"] == "1"
    assert float(row["valid_si_sdri"]) == pytest.approx(best)
    checkpoints = tmp_path / "run" / "checkpoints"
    assert (checkpoints / "best.ckpt").is_file()
    assert position(read_raw(checkpoints / "last.ckpt")).epochs == 1  # a resume goes on behind it


def test_limits_that_leave_no_score_end_with_a_last_checkpoint(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", seconds=0.5)
    cfg = tiny(corpus, tmp_path / "run", "trainer.max_steps=1", "trainer.min_steps=9")
    script.train(cfg)
    names = [file.name for file in (tmp_path / "run" / "checkpoints").iterdir()]
    assert names == ["last.ckpt"]
