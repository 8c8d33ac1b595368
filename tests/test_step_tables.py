"""Tables and records of the step's benchmark."""

from __future__ import annotations

from dataclasses import replace

from step_peers import OURS
from step_tables import Results, growth_table, record, step_table
from training_step import Failure, Measurement


def test_step_table_and_record() -> None:
    peer = replace(OURS, model="torchaudio")
    # 32 s of audio in 20 ms are 1600 s a second.
    results = {
        OURS: Measurement(OURS, 20.0, 5.0, 4.0),
        peer: Measurement(peer, 50.0, 20.0, 10.0),
    }
    cells = step_table(list(results.values()), results).splitlines()[2:]
    assert [" ".join(line.split()) for line in cells] == [
        "| graph | ours | 20.00 | 1.00 | 5.00 | 1.00 | 4.00 | 1.00 | 1600 |",
        "| graph | torchaudio | 50.00 | 2.50 | 20.00 | 4.00 | 10.00 | 2.50 | 640 |",
    ]
    fields = record(results[peer], results)
    assert (fields["model"], fields["step_ms"], fields["audio_seconds"]) == ("torchaudio", 50, 640)
    assert [fields[f"{cost}_ratio"] for cost in ("step_ms", "forward_ms", "peak_gib")] == [
        2.5,
        4.0,
        2.5,
    ]


def test_no_ratio_without_ours() -> None:
    peer = replace(OURS, model="torchaudio")
    for results in ({}, {OURS: Failure(OURS, "no")}):
        line = step_table([Measurement(peer, 50.0, 20.0, None)], results).splitlines()[-1]
        assert (
            " ".join(line.split()) == "| graph | torchaudio | 50.00 | – | 20.00 | – | – | – | 640 |"
        )


def test_growth_table() -> None:
    def cell(batch: int, seconds: float, ms: float) -> Measurement:
        return Measurement(replace(OURS, batch=batch, seconds=seconds), ms, 1.0, 2.0)

    cells = [cell(1, 1.0, 5.0), cell(8, 1.0, 8.0), cell(1, 4.0, 4.0)]
    failed = Failure(replace(OURS, batch=8, seconds=4.0), "out of memory")
    grid: Results = {**{each.variant: each for each in cells}, failed.variant: failed}
    lines = growth_table(grid, cells[1]).splitlines()
    assert [" ".join(line.split()) for line in lines if "-" not in line] == [
        "| seconds | batch 1 | batch 8 |",
        "| 1 | 5.00 / 2.00 / 5.00 | 8.00 / 2.00 / 1.00 |",
        "| 4 | 4.00 / 2.00 / 1.00 | – |",
    ]
