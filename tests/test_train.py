"""Runs of the real train.py on a tiny corpus: resuming, best, NaN, fine-tuning, the run folder."""

from __future__ import annotations

import logging
import math
import shutil

import pytest
import torch
from tiny_corpus import write_corpus
from training import read_rows, read_scores, script, tiny

from convtasnet import ConvTasNet
from convtasnet.log_filters import WARNINGS
from convtasnet.metrics import Scores
from convtasnet.sources import read_model

pytestmark = pytest.mark.filterwarnings(*[f"ignore:{message}" for message in WARNINGS])
# Each epoch but the first counts as one without improvement: the rate halves from the third on.
FALLING = (
    "scheduler=plateau",
    "scheduler.patience=0",
    "scheduler.threshold=1000",
)
COSINE = ("scheduler=cosine", "scheduler.T_max=6")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), seconds=0.7)


def raw(run_dir, name="last"):
    return torch.load(run_dir / "checkpoints" / f"{name}.ckpt", weights_only=True)


def best_state(checkpoint):
    (state,) = [s for name, s in checkpoint["callbacks"].items() if name.startswith("Best")]
    return state


def scripted(monkeypatch, values):
    """Let the validation's scores be these, one an epoch."""
    left = iter(values)

    def score(*_):
        value = next(left)
        reasons = {"si_sdr": "estimate holds NaN or infinity"} if math.isnan(value) else {}
        return [Scores({"si_sdr": value, "si_sdri": value}, reasons, (0, 1))]

    monkeypatch.setattr("convtasnet.system.score_batch", score)
    return ["trainer.limit_val_batches=1", "data.eval_batch_size=1"]


@pytest.mark.parametrize("scheduler", [FALLING, COSINE])
@pytest.mark.parametrize("folder", ["same", "other"])
def test_three_epochs_and_three_more_are_six(corpus, tmp_path, scheduler, folder):
    whole, first = tmp_path / "whole", tmp_path / "first"
    second = first if folder == "same" else tmp_path / "second"
    script.train(tiny(corpus, whole, *scheduler, "trainer.max_epochs=6"))
    script.train(tiny(corpus, first, *scheduler, "trainer.max_epochs=3"))
    resume = f"ckpt_path='{first / 'checkpoints' / 'last.ckpt'}'"
    script.train(tiny(corpus, second, *scheduler, "trainer.max_epochs=6", resume))
    rows = read_scores(whole)
    assert [row["epoch"] for row in rows] == list("012345")
    assert len({row["lr"] for row in rows}) >= 5
    assert read_scores(second) == rows
    for name in ("best", "last"):
        expected, got = raw(whole, name), raw(second, name)
        assert (got["epoch"], got["global_step"]) == (expected["epoch"], expected["global_step"])
        assert (
            got["optimizer_states"][0]["param_groups"]
            == (expected["optimizer_states"][0]["param_groups"])
        )
        assert best_state(got)["best_model_score"] == best_state(expected)["best_model_score"]
        for key, value in expected["state_dict"].items():
            assert torch.equal(got["state_dict"][key], value), key


def test_last_is_the_last_epoch_and_best_the_best_also_after_moving(corpus, tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    more = scripted(monkeypatch, [1.0, 3.0, 2.0, 2.5, 2.0])
    script.train(tiny(corpus, first, *more, "trainer.max_epochs=3"))
    assert [raw(first, name)["epoch"] for name in ("best", "last")] == [1, 2]
    resume = f"ckpt_path='{first / 'checkpoints' / 'last.ckpt'}'"
    result = script.train(tiny(corpus, second, *more, "trainer.max_epochs=5", resume))
    assert result["best"] == 3.0
    assert [raw(second, name)["epoch"] for name in ("best", "last")] == [1, 4]
    scores = [float(row["valid_si_sdri"]) for row in read_rows(second)]
    assert scores == [1.0, 3.0, 2.0, 2.5, 2.0]


def test_a_lost_best_checkpoint_is_said(corpus, tmp_path, monkeypatch, caplog):
    more = scripted(monkeypatch, [3.0, 2.0])
    script.train(tiny(corpus, tmp_path / "first", *more, "trainer.max_epochs=1"))
    shutil.copy(tmp_path / "first/checkpoints/last.ckpt", tmp_path / "alone.ckpt")
    resume = f"ckpt_path='{tmp_path / 'alone.ckpt'}'"
    result = script.train(tiny(corpus, tmp_path / "second", *more, resume))
    assert "its best score, 3, is forgotten" in caplog.text
    assert result["best"] == 2.0
    assert raw(tmp_path / "second", "best")["epoch"] == 1


def test_nan_is_never_the_best(corpus, tmp_path, monkeypatch):
    more = scripted(monkeypatch, [math.nan, 1.0, math.nan, 0.5])
    result = script.train(tiny(corpus, tmp_path, *more, "trainer.max_epochs=4"))
    assert result["best"] == 1.0
    assert [raw(tmp_path, name)["epoch"] for name in ("best", "last")] == [1, 3]
    assert [row["valid_si_sdri"] for row in read_rows(tmp_path)] == ["nan", "1.0", "nan", "0.5"]


def test_a_run_without_a_score_has_no_best(corpus, tmp_path, monkeypatch, caplog):
    more = scripted(monkeypatch, [math.nan] * 2)
    result = script.train(tiny(corpus, tmp_path, *more))
    assert math.isnan(result["best"])
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["last.ckpt"]
    assert "no epoch had a score" in caplog.text


@pytest.mark.parametrize(("values", "lowered"), [([1, 2, 3, 4, 5], False), ([1.0] * 5, True)])
def test_the_rate_falls_on_a_flat_score_not_on_a_rising_one(
    corpus, tmp_path, monkeypatch, values, lowered
):
    more = [*scripted(monkeypatch, map(float, values)), "scheduler=plateau", "scheduler.patience=1"]
    script.train(tiny(corpus, tmp_path, *more, "trainer.max_epochs=5"))
    rates = [float(row["lr"]) for row in read_rows(tmp_path)]
    assert rates == ([1e-3] * 3 + [5e-4] * 2 if lowered else [1e-3] * 5)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["monitor=valid_sisdr"], "monitor=valid_sisdr is unknown; choose one of"),
        (["callbacks.early_stopping.monitor=val"], r"early_stopping.monitor=val is unknown"),
        (["callbacks.best_checkpoint.mode=min"], "valid_si_sdri is better max"),
        (["scheduler=plateau", "scheduler.mode=min"], "set scheduler.mode=max"),
        (["trainer.limit_val_batches=0"], "limit_val_batches=0 leaves no valid_si_sdri"),
        (["init_from=a.ckpt", "ckpt_path=a.ckpt"], "either ckpt_path"),
        (["norm=global"], "norm='global' cannot be causal"),
        (["ckpt_path="], "ckpt_path='' must be a name or null"),
        (["init_from="], "init_from='' must be a name or null"),
        (["data.root="], "data.root='' must be a name or null"),
        (["+model.heads=4"], "ConvTasNet has no argument heads; it has n_src, "),
    ],
)
def test_wrong_settings_fail_before_the_first_epoch(corpus, tmp_path, overrides, words):
    with pytest.raises(Exception, match=words) as error:
        script.train(tiny(corpus, tmp_path, *overrides))
    cause = error.value.__cause__ or error.value
    assert isinstance(cause, ValueError)
    assert not (tmp_path / "metrics.csv").exists()


def test_a_run_among_the_data_is_refused(corpus):
    before = sorted(corpus.rglob("*"))
    for run_dir in (corpus, corpus / "train" / ".."):
        with pytest.raises(ValueError, match=rf"{corpus} would write among the files of data.root"):
            script.train(tiny(corpus, run_dir))
    assert sorted(corpus.rglob("*")) == before


def test_the_scheduler_follows_the_monitor(corpus, tmp_path):
    cfg = tiny(corpus, tmp_path, "monitor=valid_loss", "scheduler=plateau", "trainer.max_epochs=1")
    assert script.train(cfg)["best"] > 0
    assert raw(tmp_path)["lr_schedulers"][0]["mode"] == "min"


def test_deterministic_runs_are_equal(corpus, tmp_path):
    for name in ("one", "two"):
        script.train(tiny(corpus, tmp_path / name, "trainer.deterministic=true"))
    assert read_scores(tmp_path / "one") == read_scores(tmp_path / "two")


def test_a_run_on_resident_speech_is_that_on_files(corpus, tmp_path):
    for choice in ("true", "false"):
        script.train(tiny(corpus, tmp_path / choice, f"data.resident={choice}"))
    assert read_scores(tmp_path / "true") == read_scores(tmp_path / "false")


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run of one epoch."""
    run_dir = tmp_path_factory.mktemp("finished")
    script.train(tiny(corpus, run_dir, "trainer.max_epochs=1"))
    return run_dir


def resumed(corpus, finished, run_dir, *overrides):
    resume = f"ckpt_path='{finished / 'checkpoints' / 'last.ckpt'}'"
    return script.train(tiny(corpus, run_dir, resume, *overrides))


def test_settings_that_a_resume_does_not_take_are_named(corpus, finished, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    resumed(corpus, finished, tmp_path, "optimizer.lr=0.5")
    assert "after 1 epochs, 2 steps, with learning rate 0.001" in caplog.text
    assert "optimizer.lr=0.001, not 0.5" in caplog.text
    assert [float(row["lr"]) for row in read_rows(tmp_path)] == [1e-3, 1e-3]


def test_an_ordinary_resume_warns_of_nothing(corpus, finished, tmp_path, caplog):
    resumed(corpus, finished, tmp_path)
    assert [r.getMessage() for r in caplog.records if r.name.startswith("convtasnet.resume")] == []


@pytest.mark.parametrize("limit", ["max_epochs=1", "max_epochs=0", "max_steps=2"])
def test_nothing_left_to_train_is_said(corpus, finished, tmp_path, caplog, limit):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    resumed(corpus, finished, finished, f"trainer.{limit}")
    assert f"nothing is left to train and nothing is written: raise trainer.{limit}" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.n_filters=16", "norm=channelwise"], "n_filters=32, not 16; norm=cumulative, not"),
        (["optimizer=adamw"], "optimizer torch.optim.Adam, not with torch.optim.AdamW"),
        (["scheduler=plateau"], "scheduler torch.optim.lr_scheduler.ConstantLR, not with"),
    ],
)
def test_another_model_or_optimizer_cannot_resume(corpus, finished, tmp_path, overrides, words):
    with pytest.raises(ValueError, match=words):
        resumed(corpus, finished, tmp_path, *overrides)


def test_weights_alone_cannot_be_resumed(corpus, finished, tmp_path):
    weights = {key: raw(finished)[key] for key in ("state_dict", "convtasnet")}
    torch.save(weights, tmp_path / "weights.ckpt")
    with pytest.raises(ValueError, match=r"weights.ckpt: .*epoch.* missing; init_from="):
        script.train(tiny(corpus, tmp_path, f"ckpt_path='{tmp_path / 'weights.ckpt'}'"))


def test_init_from_starts_a_new_run_from_the_weights(corpus, finished, tmp_path):
    init = f"init_from='{finished / 'checkpoints' / 'best.ckpt'}'"
    cfg = tiny(corpus, tmp_path, init, "optimizer.lr=2e-3", "trainer.max_epochs=1")
    expected = read_model(finished / "checkpoints" / "best.ckpt").state_dict
    for key, value in script.build_system(cfg, {}).model.state_dict().items():
        assert torch.equal(value, expected[key])
    script.train(cfg)
    (row,) = read_rows(tmp_path)
    assert (row["epoch"], row["step"], row["lr"]) == ("0", "2", "0.002")


def test_init_from_a_saved_folder_says_what_differs(corpus, tmp_path, caplog):
    cfg = tiny(corpus, tmp_path, "model.mask_act=sigmoid", f"init_from='{tmp_path / 'saved'}'")
    size = {key: cfg.model[key] for key in cfg.model if key not in ("_target_", "mask_act")}
    source = ConvTasNet(**size)
    source.save_pretrained(tmp_path / "saved")
    model = script.build_system(cfg, {}).model
    for key, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[key], value)
    assert "is of a model with mask_act=relu, not sigmoid" in caplog.text


def test_init_from_another_architecture_lists_what_differs(corpus, finished, tmp_path):
    init = f"init_from='{finished / 'checkpoints' / 'best.ckpt'}'"
    with pytest.raises(ValueError, match=r"do not fit the model: .*missing.*of another shape") as e:
        script.train(tiny(corpus, tmp_path, init, "model.n_blocks=4", "model.bn_chan=8"))
    assert len(str(e.value)) < 1500


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_weights_saved_through_a_wrapper_load_and_resume(corpus, finished, tmp_path, prefix):
    checkpoint = raw(finished)
    plain = checkpoint["state_dict"]
    checkpoint["state_dict"] = {
        key.replace("model.", f"model.{prefix}"): value for key, value in plain.items()
    }
    path = tmp_path / "wrapped.ckpt"
    torch.save(checkpoint, path)
    model = ConvTasNet.from_pretrained(path)
    assert all(torch.equal(v, plain[f"model.{k}"]) for k, v in model.state_dict().items())
    script.train(tiny(corpus, tmp_path, f"ckpt_path='{path}'"))
    assert raw(tmp_path)["epoch"] == 1


def test_a_compiled_run_leaves_plain_checkpoints(corpus, finished, tmp_path, monkeypatch):
    compiler = torch.compile

    def eager(function, mode, dynamic):
        assert (mode, dynamic) == ("default", False)
        return compiler(function, backend="eager", dynamic=dynamic)

    monkeypatch.setattr(torch, "compile", eager)
    resumed(corpus, finished, tmp_path / "a", "compile=true")
    resumed(corpus, finished, tmp_path / "b")
    one, other = raw(tmp_path / "a"), raw(tmp_path / "b")
    assert list(one["state_dict"]) == list(other["state_dict"])
    for key, value in other["state_dict"].items():
        torch.testing.assert_close(one["state_dict"][key], value)
    ConvTasNet.from_pretrained(tmp_path / "a" / "checkpoints" / "best.ckpt")
