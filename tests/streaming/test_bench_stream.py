"""scripts/bench_stream.py: a line for each engine and length, and JSON of the same."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from tiny_model import write_checkpoint

SCRIPT = str(Path(__file__).parents[2] / "scripts" / "bench_stream.py")


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", [SCRIPT, *options])
    runpy.run_path(SCRIPT, run_name="__main__")


def test_all_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = write_checkpoint(tmp_path / "causal.ckpt", norm="cumulative", causal=True)
    options = ["--checkpoint", str(checkpoint), "--rounds", "2", "--seconds", "0.1"]
    found = tmp_path / "stream.json"
    run(monkeypatch, *options, "--blocks", "1", "10", "--json", str(found))
    timings = json.loads(found.read_text())["timings"]
    streams = ("torch", "onnx", "onnx-int8")
    expected = [*((1.0, name) for name in streams), *((10.0, name) for name in streams)]
    assert [(t["block_ms"], t["engine"]) for t in timings] == [*expected, (100.0, "offline")]
    for timing in timings:
        assert 0 < timing["median_ms"] <= timing["percentile_99_ms"]
        assert 0 < timing["real_time_factor"] < 100
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(timings)


@pytest.mark.parametrize(
    "options", [("--rounds", "0"), ("--blocks", "0.5"), ("--json", "no/folder/a.json")]
)
def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as stop:
        run(monkeypatch, *options)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {options[0]}")
