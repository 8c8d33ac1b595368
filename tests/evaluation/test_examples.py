"""The worst and best examples are those, and in the order of the sources."""

from __future__ import annotations

from pathlib import Path

import torch
from voices import RATE, items

from convtasnet.audio import read_audio
from convtasnet.evaluation import Baseline, Row
from convtasnet.evaluation.examples import pick, write_examples


def test_none_is_both_worst_and_best() -> None:
    rows = [Row(str(i), 8, {"sdri": float(i % 7)}) for i in range(25)]
    picked = pick(rows, "sdri", 10)
    assert list(picked)[:2] == ["worst_01", "worst_02"]
    assert len(set(picked.values())) == len(picked) == 20
    assert rows[picked["worst_01"]].values["sdri"] == 0
    assert rows[picked["best_01"]].values["sdri"] == 6
    assert len(pick(rows[:5], "sdri", 10)) == 4
    assert pick(rows, "sdri", 0) == {}


def test_examples_are_written_with_pictures(tmp_path: Path) -> None:
    data = items(0.5, 0.6, 0.7)
    rows = [Row(item["id"], 8, {"sdri": float(i)}) for i, item in enumerate(data)]
    (tmp_path / "examples" / "worst_09").mkdir(parents=True)
    (tmp_path / "examples" / "notes.txt").touch()  # one's own

    def swapped(batch):
        return [10 * estimates.flip(0) for estimates in Baseline("oracle", RATE)(batch)]

    told = write_examples(swapped, data, rows, "sdri", 10, RATE, tmp_path / "examples")
    assert told == [
        {"folder": "worst_01", "id": "mix0", "n_src": 2},
        {"folder": "best_01", "id": "mix2", "n_src": 2},
    ]
    folders = sorted(path.name for path in (tmp_path / "examples").iterdir())
    assert folders == ["best_01", "notes.txt", "worst_01"]
    folder = tmp_path / "examples" / "best_01"
    assert (folder / "spectrogram.png").stat().st_size > 10_000
    for number in (1, 2):
        signals = [read_audio(folder / f"{n}_{number}.wav")[0] for n in ("source", "estimate")]
        torch.testing.assert_close(*signals, atol=0.02, rtol=0)
