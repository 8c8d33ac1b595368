import csv
import functools
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_model import write_checkpoint
from torch import nn

from convtasnet.audio import read_audio, write_audio
from convtasnet.evaluation import evaluate, summarize, summary_table, write_csv, write_json

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "evaluate.py")
RATE = 8000
VALUES = ["si_sdr", "si_sdri", "sdr", "sdri", "stoi", "stoii", "pesq", "pesqi"]
COLUMNS = ["mixture_id", "n_samples", *VALUES, "reasons"]


class Halves(nn.Module):
    """Gives the mixture back, half and half with noise: any output does here."""

    sample_rate, n_src = RATE, 2

    def forward(self, mix):
        generator = torch.Generator().manual_seed(0)
        return mix + mix.std() * torch.randn(2, len(mix), generator=generator)


def voice(seconds, seed, rate=RATE):
    generator = torch.Generator().manual_seed(seed)
    n = int(seconds * rate)
    t = torch.arange(n) / rate
    noise = torch.randn(n, generator=generator)
    return 0.1 * noise * (torch.sin(2 * torch.pi * (3 + seed % 3) * t).clamp(min=0) + 0.01)


def items(seconds):
    result = []
    for i, length in enumerate(seconds):
        sources = torch.stack([voice(length, 2 * i), voice(length, 2 * i + 1)])
        result.append({"mixture": sources.sum(0), "sources": sources, "id": f"mix{i}"})
    return result


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


def test_items_are_scored_whole_and_in_order():
    rows = evaluate(Halves(), items([1, 5, 9]), ["si_sdr"])
    assert [row.id for row in rows] == ["mix0", "mix1", "mix2"]
    assert [row.n_samples for row in rows] == [8000, 40000, 72000]
    assert len(evaluate(Halves(), items([1, 1, 1]), ["si_sdr"], limit=2)) == 2


def test_processes_change_nothing():
    data = items([0.5] * 6)
    alone = evaluate(Halves(), data, ["si_sdr", "sdr"], num_workers=0)
    shared = evaluate(Halves(), data, ["si_sdr", "sdr"], num_workers=1)
    assert [row.id for row in shared] == [row.id for row in alone]
    for one, other in zip(shared, alone, strict=True):
        assert one.scores.values == pytest.approx(other.scores.values)


def test_a_silent_reference_leaves_the_mean(tmp_path):
    data = items([1, 1, 1])
    data[1]["sources"][0] = 0
    rows = evaluate(Halves(), data, ["si_sdr", "stoi"])
    summary = summarize(rows, ["si_sdr", "stoi"])
    kept = [rows[i].scores.values["si_sdr"] for i in (0, 2)]
    assert (summary["n"], summary["n_valid"]) == (3, 2)
    assert summary["si_sdr"] == pytest.approx(sum(kept) / 2)
    assert summary["valid"]["stoi"] == 2
    assert summary["reasons"]["si_sdr"] == {"silent reference": 1}
    write_csv(tmp_path / "metrics.csv", rows, ["si_sdr", "stoi"])
    lines = read_csv(tmp_path / "metrics.csv")
    assert math.isnan(float(lines[1]["si_sdr"]))
    assert lines[1]["reasons"] == "si_sdr, si_sdri, stoi, stoii: silent reference"
    assert lines[0]["reasons"] == ""


def test_a_metric_that_is_never_valid_is_null(tmp_path):
    summary = summarize(evaluate(Halves(), items([0.2]), ["si_sdr", "stoi"]), ["si_sdr", "stoi"])
    write_json(tmp_path / "summary.json", summary)
    read = json.loads((tmp_path / "summary.json").read_text())
    assert read["stoi"] is None
    assert read["n_valid"] == 1
    assert summary_table(summary, ["si_sdr", "stoi"]).row_count == 3


def test_voices_are_written_in_the_order_of_the_sources(tmp_path):
    class Swapped(Halves):
        def forward(self, mix):
            return 7 * data[0]["sources"].flip(0)

    data = items([1])
    data[0]["id"] = "folder/mix"
    evaluate(Swapped(), data, ["si_sdr"], audio_folder=tmp_path)
    for j in range(2):
        written, _ = read_audio(tmp_path / f"folder%2Fmix_s{j + 1}.wav")
        torch.testing.assert_close(written, data[0]["sources"][j], atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0}, "limit=0"),
        ({"metrics": ["psnr"]}, "psnr"),
        ({"dataset": []}, "no items"),
    ],
)
def test_errors_of_evaluate(change, message):
    arguments = {"model": Halves(), "dataset": items([0.1]), **change}
    with pytest.raises(ValueError, match=message):
        evaluate(**arguments)


def test_items_must_fit_the_model():
    data = items([0.1])
    data[0]["sources"] = torch.randn(3, 800)
    with pytest.raises(ValueError, match="mix0 has 3 sources"):
        evaluate(Halves(), data, ["si_sdr"])


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
    assert sorted(path.name for path in out.iterdir()) == ["audio", "metrics.csv", "summary.json"]
    assert sorted(path.name for path in run.rglob("*")) == ["best.ckpt", "checkpoints"]


def test_the_script_takes_other_data_at_the_models_rate(corpus, tmp_path, run_evaluate):
    checkpoint = write_checkpoint(tmp_path / "model.ckpt", sample_rate=16000)
    code, _, err = run_evaluate(
        f"checkpoint={checkpoint}",
        "data=wsj0_mix",
        f"data.root={corpus}",
        f"hydra.run.dir={tmp_path / 'out'}",
        "metrics=[si_sdr]",
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
    common = [f"checkpoint={checkpoint}", f"hydra.run.dir={tmp_path / 'out'}", "metrics=[si_sdr]"]
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
        (["checkpoint=FILE", "hydra.run.dir=RUN"], "holds a training run"),
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
