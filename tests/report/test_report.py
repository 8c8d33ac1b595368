"""The report says what the evaluations hold, in one file that needs nothing else."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
from scipy.stats import wilcoxon

from convtasnet.audio import write_audio
from convtasnet.evaluation import Row, summarize
from convtasnet.evaluation.facts import Facts
from convtasnet.evaluation.folder import EvaluationFolder
from convtasnet.report.comparison import compare, shared
from convtasnet.report.evaluations import Evaluation, read_evaluations
from convtasnet.report.page import html_page, markdown

SCRIPT = Path(__file__).parents[2] / "scripts" / "report.py"
METRICS = ["si_sdr", "stoi"]
RATE = 8000
NAN = math.nan


def write_evaluation(folder: Path, better: float, n: int = 30, prefix: str = "mix") -> Path:
    """An evaluation of invented scores with two examples; its last row has no STOI."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        mixture, stoi = rng.normal(0, 2), rng.uniform(0.5, 0.9)
        gain = 10 + rng.normal(0, 1) + better * (1 + i % 3)
        last = i == n - 1
        values = {
            "si_sdr": mixture + gain,
            "si_sdri": gain,
            "stoi": NAN if last else stoi,
            "stoii": NAN if last else 0.1,
        }
        reasons = dict.fromkeys(["stoi", "stoii"], "less than <384> ms") if last else {}
        facts = Facts(-20.0, 5 * rng.uniform(), rng.uniform())
        rows.append(Row(f"{prefix}{i}", 8000, values, reasons, facts))
    written = EvaluationFolder(folder, {"better": better}, METRICS)
    written.start()
    rows = written.sort(rows)
    examples = [
        {"folder": label, "id": rows[place].id, "n_src": 2}
        for label, place in (("worst_01", 3), ("best_01", 5))
    ]
    for example in examples:
        for name in ("mixture", "source_1", "source_2", "estimate_1", "estimate_2"):
            wav = np.sin(np.arange(800) * 0.1 * (1 + better)) * 0.5
            write_audio(folder / "examples" / example["folder"] / f"{name}.wav", wav, RATE)
        (folder / "examples" / example["folder"] / "spectrogram.png").write_bytes(b"\x89PNG")
    provenance = {"baseline": None, "checkpoint": "best.ckpt", "data": {"root": "/d"}}
    written.finish(summarize(rows, METRICS) | {"examples": examples, "split": "test"} | provenance)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("evaluations")
    return [write_evaluation(root / f"{name}&co", gain) for name, gain in (("old", 0), ("new", 1))]


def change_summary(folder: Path, **changes: object) -> None:
    path = folder / "summary.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "gone"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"si_sdr": "gone", "ci95": "gone"}, r"it lacks \['ci95', 'si_sdr'\]"),
        ({"examples": [{"folder": "oops", "id": "mix1", "n_src": 2}]}, "is no example"),
        ({"examples": [{"folder": "best_01", "id": "mix1"}]}, "is no example"),
    ],
)
def test_a_summary_that_does_not_fit_is_named(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = write_evaluation(tmp_path / "one", 0)
    change_summary(folder, **changes)
    with pytest.raises(ValueError, match=rf"{tmp_path}/one/summary\.json .*{message}"):
        read_evaluations([folder])


def test_other_mixtures_of_the_same_names_are_not_compared(folders: list[Path]) -> None:
    old, new = read_evaluations(folders, ["old", "new"])
    assert shared(new, old) == [row.id for row in old.rows]
    noisy = [
        Row(row.id, row.n_samples, row.values | {"si_sdri": row.values["si_sdri"] + 0.1 * (i < 20)})
        for i, row in enumerate(old.rows)
    ]
    assert shared(new, replace(old, rows=noisy)) == [row.id for row in old.rows[20:]]


def test_the_rounding_of_mixtures_tells_them_not_apart() -> None:
    """Their SAR, where there is no noise: that of another machine differs."""
    one, other = (
        Evaluation(name, Path(name), ["sar"], {}, [Row("a", 8, {"sar": 12.0, "sari": 12.0 - of})])
        for name, of in (("one", 99.0), ("other", 95.0))
    )
    assert shared(one, other) == ["a"]


def test_differences_are_those_of_the_rows(folders: list[Path]) -> None:
    old, new = read_evaluations(folders, ["old", "new"])
    found = compare(new, old, "si_sdr")
    pairs = zip(new.rows, old.rows, strict=True)
    expected = np.array([a.values["si_sdr"] - b.values["si_sdr"] for a, b in pairs])
    assert found.n == 30
    assert found.mean == pytest.approx(expected.mean())
    assert found.p_value == pytest.approx(wilcoxon(expected).pvalue)
    assert found.interval is not None
    assert found.interval[0] < found.mean < found.interval[1]
    assert found.wins == 1
    stoi = compare(new, old, "stoi")  # equal but for one row, which has none
    assert (stoi.n, stoi.mean, stoi.wins, stoi.p_value) == (29, 0, 0.5, 1)


def test_the_page_holds_everything(folders: list[Path]) -> None:
    evaluations = read_evaluations(folders)
    assert [evaluation.name for evaluation in evaluations] == ["old&co", "new&co"]
    page = html_page(evaluations, n_examples=5)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "NaN" not in page
    assert "<384>" not in page
    pictures = re.findall(r"<svg.*?</svg>", page)
    # Two metrics: distributions, scatters, differences; level differences and overlaps.
    assert len(pictures) == 2 + 2 + 2 + 2
    for picture in pictures:
        ElementTree.fromstring(picture)
    points = [picture.count("<circle") for picture in pictures]
    assert points[2:4] == [60, 58]
    sounds = re.findall(r'src="data:audio/flac;base64,([^"]*)"', page)
    assert len(sounds) == 2 * (3 + 2 * 2)
    wav, rate = soundfile.read(io.BytesIO(base64.b64decode(sounds[0])))
    original, _ = soundfile.read(folders[0] / "examples" / "worst_01" / "mixture.wav")
    assert rate == RATE
    assert np.array_equal(wav, original)
    assert page.count("worst 1 of old&amp;co, worst 1 of new&amp;co") == 1


def test_the_tables_say_what_the_summaries_say(folders: list[Path]) -> None:
    old, new = read_evaluations(folders, ["old", "new"])
    text = markdown([old, new])
    for evaluation in (old, new):
        mean, (low, high) = evaluation.summary["si_sdr"], evaluation.summary["ci95"]["si_sdr"]
        assert f"| {evaluation.name} | si_sdr, dB | {mean:.2f} | {low:.2f} to {high:.2f} |" in text
        assert f"| {evaluation.name} | stoi | less than <384> ms | 1 |" in text
    p_value = compare(new, old, "si_sdr").p_value
    assert re.search(rf"\| new \| si_sdr \| \+2\.00 \|.*\| 100 % \| {p_value:.2g} \| 30 \|", text)


def test_evaluations_of_other_mixtures_are_not_compared(
    folders: list[Path], tmp_path: Path
) -> None:
    other = write_evaluation(tmp_path / "other", 0, prefix="else")
    evaluations = read_evaluations([folders[0], other], ["old", "other"])
    page = html_page(evaluations, 0)
    assert "other shares no mixture with old: not compared" in page
    assert "Wilcoxon" not in markdown(evaluations)
    assert "<audio" not in page


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_command_writes_a_page_and_tables(folders, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "new" / "report.html"
    run(monkeypatch, *folders, "--out", out, "--examples", 1)
    assert capsys.readouterr().out.split() == [str(out), str(out.with_suffix(".md"))]
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "absent/metrics.csv: no such file"),
        (["OLD", "--names", "a", "b"], "2 names for 1 evaluations"),
        (["OLD", "OLD"], "two evaluations have the name"),
        (["OLD", "--out", "report.pdf"], "needs the ending .html"),
        (["UNFINISHED"], "is not finished"),
        (["TRAINING"], "is not of an evaluation"),
        (["CUT"], "metrics.csv is damaged: 29 rows of 30 are there"),
        (["LIST"], "summary.json is not of an evaluation"),
    ],
)
def test_errors_are_one_line(arguments, message, folders, tmp_path, monkeypatch, capsys) -> None:
    unfinished = EvaluationFolder(tmp_path / "unfinished", {}, METRICS)
    unfinished.start()
    unfinished.rows.replace([])
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "metrics.csv").write_text("epoch,train_loss\r\n")
    places = {
        "OLD": folders[0],
        "UNFINISHED": unfinished.path,
        "TRAINING": tmp_path / "training",
        "CUT": shutil.copytree(folders[0], tmp_path / "cut"),
        "LIST": shutil.copytree(folders[0], tmp_path / "list"),
    }
    cut = (tmp_path / "cut" / "metrics.csv").read_bytes()[:-9]
    (tmp_path / "cut" / "metrics.csv").write_bytes(cut)
    (tmp_path / "list" / "summary.json").write_text("[]")
    with pytest.raises(SystemExit) as stop:
        run(monkeypatch, *(places.get(word, word) for word in arguments))
    err = capsys.readouterr().err
    assert stop.value.code == 2
    assert len(err.splitlines()) == 1
    assert message in err
    assert (tmp_path / "cut" / "metrics.csv").read_bytes() == cut  # reading changes nothing
