import csv
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_model import write_checkpoint

from convtasnet.audio import write_audio
from convtasnet.metrics import METRICS

SCRIPT = str(Path(__file__).parents[2] / "scripts" / "evaluate.py")
RATE = 8000
VALUES = [value for name in METRICS for value in (name, f"{name}i")]
FACTS = ["level_db", "level_difference_db", "overlap", "speakers", "genders"]
COLUMNS = ["mixture_id", "n_samples", *VALUES, "reasons", *FACTS]
QUICK = ("metrics=[si_sdr]", "examples=0", "num_workers=0")


def voice(seconds, seed, rate=RATE):
    generator = torch.Generator().manual_seed(seed)
    n = int(seconds * rate)
    t = torch.arange(n) / rate
    noise = torch.randn(n, generator=generator)
    return 0.1 * noise * (torch.sin(2 * torch.pi * (3 + seed % 3) * t).clamp(min=0) + 0.01)


def write_corpus(root, split="tt", seconds=(1.0, 0.6), rate=RATE):
    folder = root / "2speakers" / f"wav{rate // 1000}k" / "min" / split
    for i, length in enumerate(seconds):
        sources = [voice(length, 2 * i, rate), voice(length, 2 * i + 1, rate)]
        for name, wav in zip(("s1", "s2", "mix"), (*sources, sum(sources)), strict=True):
            write_audio(folder / name / f"item{i}.wav", wav.clamp(-1, 1), rate)
    return root


def wsj0_config(root, **more):
    target = "convtasnet.data.module.Wsj0MixData"
    return {"_target_": target, "root": str(root), "n_src": 2, "sample_rate": RATE, **more}


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run_evaluate(run_script):
    return functools.partial(run_script, SCRIPT)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def test_the_script_uses_the_checkpoints_own_data(corpus, tmp_path):
    run = tmp_path / "run"
    data = wsj0_config(corpus, segment=0.3, batch_size=4, seed=0)
    checkpoint = write_checkpoint(run / "checkpoints" / "best.ckpt", {"data": data})
    out = tmp_path / "evaluation"
    command = [sys.executable, SCRIPT, f"checkpoint={checkpoint}", f"hydra.run.dir={out}"]
    result = subprocess.run([*command, "save_audio=true"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "si_sdr" in result.stdout
    lines = read_csv(out / "metrics.csv")
    assert list(lines[0]) == COLUMNS
    assert [(line["mixture_id"], line["n_samples"]) for line in lines] == [
        ("item0", "8000"),
        ("item1", "4800"),
    ]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["n"], summary["n_valid"], summary["split"]) == (2, 2, "test")
    mean = sum(float(line["si_sdri"]) for line in lines) / 2
    assert summary["si_sdri"] == pytest.approx(mean, abs=1e-4)
    assert summary["model"]["n_filters"] == 16
    assert summary["checkpoint"] == str(checkpoint)
    assert (summary["examples"][0]["folder"], len(summary["examples"])) == ("worst_01", 2)
    left = ["audio", "examples", "metrics.csv", "summary.json"]
    assert sorted(path.name for path in out.iterdir()) == left
    assert sorted(path.name for path in run.rglob("*")) == ["best.ckpt", "checkpoints"]


def test_the_script_takes_other_data_at_the_models_rate(corpus, tmp_path, run_evaluate):
    checkpoint = write_checkpoint(tmp_path / "model.ckpt", sample_rate=16000)
    code, _, err = run_evaluate(
        f"checkpoint={checkpoint}",
        "data=wsj0_mix",
        f"data.root={corpus}",
        f"hydra.run.dir={tmp_path / 'out'}",
        *QUICK,
        "limit=1",
    )
    assert code == 0, err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["n"] == 1
    assert summary["data"]["sample_rate"] == 16000
    line = read_csv(tmp_path / "out" / "metrics.csv")[0]
    assert line["n_samples"] == "16000"


def test_data_root_alone_moves_the_checkpoints_data(corpus, tmp_path, run_evaluate):
    data = wsj0_config("/not/here/any/more")
    checkpoint = write_checkpoint(tmp_path / "model.ckpt", {"data": data})
    common = [f"checkpoint={checkpoint}", f"hydra.run.dir={tmp_path / 'out'}", *QUICK]
    code, _, err = run_evaluate(*common)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "/not/here/any/more" in err
    code, _, err = run_evaluate(*common, f"data.root={corpus}")
    assert code == 0, err


NESTED = {"mode": {"_target_": "os.mkdir", "path": "MADE"}}


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({"_target_": "os.mkdir", "path": "MADE"}, [], "names data 'os.mkdir'"),
        ({"_target_": "convtasnet.data.module.os.mkdir", "path": "MADE"}, [], "module.os.mkdir'"),
        (NESTED, [], "no plain values: ['mode']"),
        (NESTED, ["data=wsj0_mix", "data.root=x"], "mode is"),
    ],
)
def test_a_checkpoint_calls_nothing(changes, more, message, tmp_path, run_evaluate):
    made = str(tmp_path / "made")
    data = json.loads(json.dumps(wsj0_config("x") | changes).replace("MADE", made))
    checkpoint = write_checkpoint(tmp_path / "model.ckpt", {"data": data})
    out = f"hydra.run.dir={tmp_path / 'out'}"
    code, _, err = run_evaluate(f"checkpoint={checkpoint}", out, *more)
    assert code == 2, err
    assert message in err
    assert not Path(made).exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["checkpoint=absent.ckpt"], "absent.ckpt"),
        ([], "checkpoint"),
        (["baseline=irm"], "set data="),
        (["baseline=irm", "data=wsj0_mix"], "data.root"),
        (["baseline=best"], "baseline='best' must be one of None, mixture, irm"),
        (["checkpoint=FILE", "speakers=absent.csv", "data=demo"], "speakers=absent.csv"),
        (["checkpoint=FILE", "metric=[sdr]"], "metric"),
        (["checkpoint=FILE", "data=wsj0"], "data/wsj0"),
        (["checkpoint=FILE"], "set data="),
        (["checkpoint=FILE", "data=wsj0_mix"], "data.root"),
        (["checkpoint=FILE", "data=demo", "data.sample_rate=16000"], "data.sample_rate=16000"),
        (["checkpoint=FILE", "device=tpu"], "tpu"),
        (["checkpoint=FILE", "split=foo"], "split='foo' must be one of train, valid, test"),
        (["checkpoint=FILE", "limit=abc"], "limit='abc' must be a whole number >= 1 or null"),
        (["checkpoint=FILE", "num_workers=-1"], "num_workers=-1 must be"),
        (["checkpoint=FILE", "metrics=si_sdr"], "metrics=si_sdr must be a list"),
        (["checkpoint=FILE", "hparams=foo"], "hparams=foo must be names and values"),
        (["checkpoint=FILE", "seed=abc"], "seed='abc' must be a whole number >= 0"),
        (["checkpoint=FILE", "data.root="], "data.root='' must be a name or null"),
        (["checkpoint=FILE", "hydra.run.dir=RUN"], "holds a training run"),
        (
            ["baseline=irm", "data=wsj0_mix", "data.root=RUN/examples/x", "hydra.run.dir=RUN"],
            "/run would write among the files of data.root",
        ),
    ],
)
def test_errors_are_one_line_and_exit_code_2(overrides, message, tmp_path, run_evaluate):
    checkpoint = write_checkpoint(tmp_path / "run" / "checkpoints" / "model.ckpt")
    values = [
        item.replace("FILE", str(checkpoint)).replace("RUN", str(tmp_path / "run"))
        for item in overrides
    ]
    if not any(item.startswith("hydra.run.dir") for item in values):
        values.append(f"hydra.run.dir={tmp_path / 'out'}")
    code, _, err = run_evaluate(*values)
    assert code == 2, err
    assert len(err.splitlines()) == 1, err
    assert message in err


def test_a_baseline_needs_no_checkpoint(corpus, tmp_path, run_evaluate):
    out = tmp_path / "out"
    common = ["data=wsj0_mix", f"data.root={corpus}", f"hydra.run.dir={out}", *QUICK]
    code, _, err = run_evaluate("baseline=wfm", *common)
    assert code == 0, err
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["baseline"], summary["checkpoint"]) == ("wfm", None)
    assert 8 < summary["si_sdri"] < 20


def test_a_folder_belongs_to_one_evaluation(corpus, tmp_path, run_evaluate):
    out = tmp_path / "out"
    common = ["data=wsj0_mix", f"data.root={corpus}", f"hydra.run.dir={out}", *QUICK]
    assert run_evaluate("baseline=irm", *common)[0] == 0
    before = (out / "metrics.csv").read_bytes()
    code, _, err = run_evaluate("baseline=ibm", *common)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "holds an evaluation with other baseline" in err
    assert (out / "metrics.csv").read_bytes() == before
    code, out_text, _ = run_evaluate("baseline=irm", *common)
    assert "is complete" in out_text
    assert (out / "metrics.csv").read_bytes() == before
    assert run_evaluate("baseline=ibm", *common, "resume=false")[0] == 0
    assert (out / "metrics.csv").read_bytes() != before


def test_the_training_segment_cuts_nothing(corpus, tmp_path, run_evaluate):
    root = write_corpus(tmp_path / "corpus", "tr")
    data = wsj0_config(root, segment=0.3)
    checkpoint = write_checkpoint(tmp_path / "model.ckpt", {"data": data})
    out = tmp_path / "out"
    code, _, err = run_evaluate(
        f"checkpoint={checkpoint}", "split=train", f"hydra.run.dir={out}", *QUICK
    )
    assert code == 0, err
    assert [line["n_samples"] for line in read_csv(out / "metrics.csv")] == ["8000", "4800"]
