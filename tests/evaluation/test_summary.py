"""What the summary says of the rows: means, intervals, gaps, groups."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from convtasnet.evaluation import Row, summarize, summary_table
from convtasnet.evaluation.facts import Facts, read_genders, speakers_of
from convtasnet.evaluation.spread import mean_interval
from convtasnet.evaluation.summary import groups_table, write_json

NAN = math.nan


def rows() -> list[Row]:
    facts = [Facts(overlap=share, genders=who) for share, who in ((0.1, "F+M"), (1.0, "M+M"))]
    return [
        Row("a", 8, {"sdr": 4.0, "sdri": 1.0}, {}, facts[0]),
        Row("b", 8, {"sdr": 8.0, "sdri": NAN}, {"sdri": "mixture: why"}, facts[1]),
        Row("c", 8, {"sdr": NAN, "sdri": NAN}, {"sdr": "silent", "sdri": "silent"}, facts[1]),
        Row("d", 8, {"sdr": 9.0, "sdri": 3.0}),
    ]


def test_invalid_values_leave_the_means_and_are_counted(tmp_path: Path) -> None:
    summary = summarize(rows(), ["sdr"])
    assert (summary["n"], summary["n_valid"]) == (4, 3)
    assert (summary["sdr"], summary["sdri"]) == (7.0, 2.0)
    assert (summary["median"]["sdr"], summary["valid"]) == (8.0, {"sdr": 3, "sdri": 2})
    assert summary["reasons"] == {"sdr": {"silent": 1}, "sdri": {"mixture: why": 1, "silent": 1}}
    assert summary["groups"]["genders"] == {
        "F+M": {"n": 1, "n_valid": 1, "sdr": 4.0, "sdri": 1.0},
        "M+M": {"n": 2, "n_valid": 1, "sdr": 8.0, "sdri": None},
    }
    assert list(summary["groups"]["overlap"]) == ["0 to 0.2", "0.8 to 1"]
    write_json(tmp_path / "summary.json", summary)
    assert json.loads((tmp_path / "summary.json").read_text())["sdr"] == 7.0
    assert summary_table(summary, ["sdr"]).row_count == 2
    table = groups_table(summary, "sdri")
    assert table is not None
    assert table.row_count == 4


def test_a_metric_that_is_never_valid_is_null() -> None:
    summary = summarize(rows()[2:3], ["sdr"])
    assert summary["sdr"] is summary["median"]["sdr"] is summary["ci95"]["sdr"] is None
    assert groups_table(summary, "sdr") is None


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    draws = [rng.normal(2.0, 3.0, 50) for _ in range(200)]
    intervals = [mean_interval(list(draw), seed=0) for draw in draws]
    hits = sum(low <= 2.0 <= high for low, high in filter(None, intervals))
    assert 180 <= hits <= 198
    assert mean_interval(list(draws[0]), seed=0) == intervals[0]
    assert mean_interval(list(draws[0]), seed=1) != intervals[0]
    low, high = mean_interval(list(draws[0]), seed=0) or (0, 0)
    error = draws[0].std() / math.sqrt(50)  # of the mean; 1.96 of them to each side
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


@pytest.mark.parametrize(
    ("name", "n_src", "speakers"),
    [
        ("050c0102_1.2_22ga0101_-1.2", 2, ["050", "22g"]),
        ("050c0102_1.2_22ga0101_-1.2_01to0304_0", 3, ["050", "22g", "01t"]),
        ("61-70968-0000_8455-210777-0012", 2, ["61", "8455"]),
        ("davidc02_0.9479_victora01_-0.9479", 2, ["davidc", "victora"]),
        ("00012_ann_bob", 2, ["ann", "bob"]),
        ("00012_ann_lee_bob", 2, None),
        ("61-70968-0000_8455-210777-0012", 3, None),
        ("recording", 1, None),
    ],
)
def test_speakers_in_the_names(name: str, n_src: int, speakers: list[str] | None) -> None:
    assert speakers_of(name, n_src) == speakers


def test_tables_of_genders(tmp_path: Path) -> None:
    table = tmp_path / "speakers.txt"
    table.write_text("; ID |SEX| SUBSET\n14   | F | train-clean-360   | 25.03 | Kristin\n")
    assert read_genders(table) == {"14": "F"}
    table.write_text("speaker,gender\nAnn,f\n050 M Adult\n22G\tM\n")
    assert read_genders(table) == {"ann": "F", "050": "M", "22g": "M"}
    table.write_text("speaker,age\nann,30\n")
    with pytest.raises(ValueError, match="no line has a speaker and M or F"):
        read_genders(table)
