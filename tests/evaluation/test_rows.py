"""metrics.csv: what was written is read, what a kill left of a line is not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from convtasnet.evaluation.facts import Facts
from convtasnet.evaluation.rows import Row, RowFile

NAN = math.nan
ROWS = [
    Row("a,b", 8000, {"sdr": 1.25, "sdri": -3.0}, {}, Facts(-20.5, 1.5, 0.75, "x+y", "F+M")),
    Row("größe", 7, {"sdr": NAN, "sdri": NAN}, {"sdr": "why: so; yes", "sdri": "why: so; yes"}),
    Row('c"d', 9, {"sdr": 2.0, "sdri": NAN}, {"sdri": "mixture: none"}, Facts(-3.0)),
]


def same(one: Row, other: Row) -> bool:
    return repr(one).replace("so; yes", "so, yes") == repr(other)


def test_rows_come_back(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "new" / "metrics.csv", ["sdr"])
    assert file.read() == []
    for row in ROWS:
        file.append([row])
    assert all(map(same, ROWS, file.read()))
    appended = file.path.read_bytes()
    file.replace(ROWS)
    assert file.path.read_bytes() == appended


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "metrics.csv", ["sdr"])
    file.replace(ROWS)
    whole = file.path.read_bytes()
    ends = [i + 2 for i in range(len(whole)) if whole[i : i + 2] == b"\r\n"]
    for size in range(0, len(whole), 7):
        file.path.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends)
        rows = file.read()
        assert file.path.read_bytes() == whole[:size]  # reading changes nothing
        assert all(map(same, rows, file.recover()))
        assert len(rows) == max(0, complete - 1), size
        file.append(ROWS[len(rows) :])
        assert file.path.read_bytes() == whole


def test_line_ends_of_an_editor_lose_nothing(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "metrics.csv", ["sdr"])
    file.replace(ROWS)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole.replace(b"\r\n", b"\n"))
    assert all(map(same, ROWS, file.recover()))
    assert file.path.read_bytes() == whole


def test_other_columns_are_refused(tmp_path: Path) -> None:
    RowFile(tmp_path / "metrics.csv", ["sdr"]).replace(ROWS)
    with pytest.raises(ValueError, match="has columns"):
        RowFile(tmp_path / "metrics.csv", ["sdr", "sir"]).read()
