"""The benchmark of large data sets: what it makes and measures, its tables, its refusals."""

from __future__ import annotations

import os
import re
from pathlib import Path

import data_start
import numpy as np
import pytest
from data_made import make_wsj0_2mix

from convtasnet.data.file_cache import cache_folder
from convtasnet.data.module import Wsj0MixData

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "bench_data.py"
LINUX = pytest.mark.skipif(
    not os.path.exists(data_start.MEMORY.format("self")), reason="reads /proc, as Linux has it"
)


@LINUX
def test_tables_of_a_start(run_script, monkeypatch, empty_cache):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(data_start, "HOUR", 2)
    code, out, err = run_script(str(SCRIPT), "--start", "33", "--segment", "0.5")
    assert code == 0, err
    cells = [re.split(r" *│ *", line)[1:-1] for line in out.splitlines() if "│" in line]
    rows = {name: [float(cell) for cell in others] for name, *others in cells}
    assert list(rows) == [
        *("wsj0_mix, 99 wav files", "the same from a manifest", "the same packed"),
        *("1 batches", "2 batches"),
        *("16-bit wav", "FLAC"),
    ]
    assert "33 mixtures ready" in out
    assert rows["1 batches"][0] > 1  # MB: a batch takes 0.4
    assert rows["16-bit wav"][1] == 1
    assert not cache_folder().exists()  # what was found of temporary files is forgotten


def test_a_first_start_knows_nothing_and_a_later_one_all(tmp_path, monkeypatch):
    make_wsj0_2mix(tmp_path, 16)
    known = []

    def start(make):
        known.append(cache_folder().exists() and len(list(cache_folder().rglob("*.json"))))
        make().check(["train"])
        return float(len(known))

    monkeypatch.setattr(data_start, "ready_seconds", start)
    seconds = data_start.start_seconds({"files": lambda: Wsj0MixData(tmp_path, num_workers=0)})
    assert known == [0, 1] * data_start.ROUNDS
    assert seconds == {"files": (1, 2)}


@LINUX
def test_own_memory_grows_by_what_is_allocated():
    before = data_start.own_megabytes(os.getpid())
    block = np.ones(64_000_000, np.uint8)
    assert data_start.own_megabytes(os.getpid()) - before == pytest.approx(64, abs=4)
    del block


def test_a_made_wsj0_2mix_is_one(tmp_path):
    make_wsj0_2mix(tmp_path, 3)
    rows = Wsj0MixData(tmp_path).manifest("train")
    assert [row.speakers for row in rows] == [("a00", "b00"), ("a01", "b01"), ("a02", "b02")]
    item = Wsj0MixData(tmp_path).dataset("train")[0]
    assert item["mixture"].shape == (800,)
    np.testing.assert_allclose(item["mixture"], item["sources"].sum(0), atol=2**-14)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--start", "31"], "--start 31: expected at least 32"),
        (["--start", "32", "--segment", "3600"], "--segment 3600.0: expected part of a file"),
        (["--start", "32", "--root", "x"], "not allowed with"),
    ],
)
def test_refusals(run_script, words, told):
    code, _, err = run_script(str(SCRIPT), *words)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
