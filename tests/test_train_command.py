"""``python train.py …`` as a user starts it: what it leaves, prints and returns."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml
from tiny_corpus import write_corpus
from training import SCRIPT, TINY, read_rows, script

from convtasnet import ConvTasNet

SCORES = ["train_loss", "valid_loss", "valid_si_sdr", "valid_si_sdri"]
COLUMNS = ["epoch", "step", "lr", *SCORES, "data_wait"]
TWO_PROCESSES = ("trainer.devices=2", "trainer.strategy=ddp", "data.batch_size=1")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), seconds=0.7)


@pytest.fixture
def run_train(run_script):
    return functools.partial(run_script, str(SCRIPT))


def started(*overrides, timeout=150, cwd=None):
    """Run train.py in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *overrides]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, cwd=cwd
    )


def test_the_run_folder_and_what_is_printed(corpus, tmp_path):
    run = tmp_path / "my run é"
    result = started(
        "experiment=smoke",
        "data=manifest",
        "data.segment=0.5",
        f"data.root='{corpus}'",
        f"hydra.run.dir='{run}'",
        "trainer.accelerator=cpu",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    wanted = {"checkpoints/best.ckpt", "checkpoints/last.ckpt", "metrics.csv", "config.yaml"}
    assert wanted <= names
    assert sum(name.startswith("tensorboard/events") for name in names) == 1
    rows = read_rows(run)
    assert [list(row) for row in rows] == [COLUMNS] * 2
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "2"), ("1", "4")]
    assert all(float(row[name]) for row in rows for name in COLUMNS[2:])
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["n_src"] == 2
    assert "${" not in (run / "config.yaml").read_text()
    assert "scripts/evaluate.py checkpoint='my run é/checkpoints/best.ckpt'" in result.stdout
    assert "/mixture_" in result.stdout
    for noise in ("LeafSpec", "Tip:", "logging interval"):
        assert noise not in result.stdout + result.stderr
    for name in ("best", "last"):
        checkpoint = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert checkpoint["convtasnet"]["format_version"] == 1
        assert checkpoint["convtasnet"]["config"]["data"]["root"] == str(corpus)
    model = ConvTasNet.from_pretrained(run / "checkpoints" / "best.ckpt")
    assert model(torch.randn(800)).shape == (2, 800)


def test_a_sweep_with_two_processes_leaves_two_complete_folders(corpus, tmp_path):
    overrides = [*TINY, f"data.root='{corpus}'", *TWO_PROCESSES, "trainer.max_epochs=1"]
    sweep = ["-m", "optimizer.lr=1e-3,5e-4", f"hydra.sweep.dir={tmp_path}"]
    result = started(*sweep, *overrides, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["0", "1"]
    for job, rate in (("0", 1e-3), ("1", 5e-4)):
        for name in ("checkpoints/best.ckpt", "checkpoints/last.ckpt", "config.yaml"):
            assert (tmp_path / job / name).is_file(), name
        (row,) = read_rows(tmp_path / job)
        assert float(row["lr"]) == rate
        # Four items in two processes of batches of one: each process took half of them.
        assert row["step"] == "2"
        state = torch.load(tmp_path / job / "checkpoints" / "last.ckpt", weights_only=True)
        assert state["optimizer_states"][0]["param_groups"][0]["lr"] == rate


def test_no_process_is_left_waiting_after_an_error(monkeypatch):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    ended, waiting = subprocess.Popen(["true"]), subprocess.Popen(command)
    monkeypatch.setattr(script, "PATIENCE", 0.5)
    launcher = SimpleNamespace(procs=[ended, waiting])
    script._end_other_ranks(SimpleNamespace(strategy=SimpleNamespace(launcher=launcher)))
    assert ended.wait(timeout=5) == 0
    assert waiting.wait(timeout=5) != 0


OWN = "data=manifest data.root=CORPUS"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("data=wsj0_mix", "data.root"),
        ("data=manifest data.root=/not/here", "/not/here/train.csv: no such manifest"),
        ("experiment=casual", "casual"),
        (f"{OWN} optimiser.lr=1", "optimiser"),
        (f"{OWN} norm=global", "norm='global' cannot be causal"),
        (f"{OWN} ckpt_path=/no/x.ckpt", "/no/x.ckpt does not exist"),
        (f"{OWN} init_from=/no/x.ckpt", "/no/x.ckpt does not exist"),
        (f"{OWN} data.batch_size=99", "batch_size is 99"),
        (f"{OWN} +data.batchsize=2", "batchsize"),
        (f"{OWN} trainer.max_epoch=1", "max_epoch"),
        (f"{OWN} trainer.precision=8", "Precision 8"),
        (f"{OWN} trainer.enable_checkpointing=false", "Checkpoint"),
        (f"{OWN} monitor=valid_sisdr", "monitor=valid_sisdr is unknown"),
        (f"{OWN} optimizer.lr=abc", "optimizer.lr='abc' must be a number >= 0"),
        (f"{OWN} trainer.max_epochs=abc", "trainer.max_epochs='abc' must be a whole number"),
        (f"{OWN} data.batch_size=1.5", "data.batch_size=1.5 must be a whole number >= 1"),
        (f"{OWN} seed=-1", "seed=-1 must be a whole number >= 0"),
        (f"{OWN} compile=foo", "compile='foo' must be one of graph, True, False"),
        (f"{OWN} matmul_precision=foo", "matmul_precision='foo' must be one of highest, high"),
        (f"{OWN} trainer.limit_train_batches=0", "trainer.limit_train_batches=0 leaves nothing"),
    ],
)
def test_user_errors_are_one_line_and_exit_code_2(corpus, tmp_path, run_train, overrides, message):
    own = overrides.replace("CORPUS", str(corpus)).split()
    code, _, err = run_train("experiment=smoke", f"hydra.run.dir={tmp_path}", *own)
    lines = [line for line in err.splitlines() if not line.startswith(("GPU", "TPU"))]
    assert code == 2, err
    assert len(lines) == 1, err
    assert message in lines[0]
    assert lines[0].startswith("error: ")
