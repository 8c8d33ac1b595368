"""The benchmark of the norms: its peers compute the norms, its command line and tables."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bench_norms
import compile_ahead
import pytest
import torch
from norm_cases import Case, assert_close, make_case
from norm_peers import LAYER_EPS, PEERS, Norm, Peer, cumulative_reference, formula
from norm_timing import Laboratory, Timing
from norm_workloads import (
    COMPILED_QUICK,
    FAMILIES,
    Workload,
    cpu_maps,
    gpu_maps,
    workloads,
)
from ratio_table import Row, norm_table
from torch import Tensor

from convtasnet_kernels import reference
from convtasnet_kernels.timing import stopwatch
from convtasnet_kernels.timing.table import markdown

FOLDER = Path(__file__).resolve().parents[2] / "kernels" / "benchmarks"
NORMS = [
    pytest.param(family, peer.norm, id=f"{family}-{peer.name}")
    for family in FAMILIES
    for peer in PEERS[family]
    if peer.package is None
]


def row_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The layer norm of (M, N): the channelwise norm of M items of one frame."""
    return reference.channelwise(x[:, :, None], weight, bias, LAYER_EPS)[:, :, 0]


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "cumulative": reference.cumulative,
    "global": reference.global_,
    "channelwise": reference.channelwise,
    "layer": row_norm,
}


@pytest.mark.parametrize("slope", [None, 0.25])
@pytest.mark.parametrize(("family", "norm"), NORMS)
def test_peers_compute_the_norm(family: str, norm: Norm, slope: float | None) -> None:
    case = make_case((3, 8, 40), slope=slope)
    if family == "layer":
        case = Case(case.x[0], torch.randn(40), torch.randn(40), None, case.dy[0])

    def run(x: Tensor, weight: Tensor, bias: Tensor, prelu: Tensor | None = None) -> Tensor:
        return norm(x, weight, bias, prelu)

    result, expected = case.run(run), case.double().run(REFERENCES[family])
    assert_close(result, expected, case, 2e-5)  # the plain formulas lose digits


@pytest.mark.parametrize("norm", [formula, cumulative_reference])
def test_half_precision_has_float32_statistics(norm: Norm) -> None:
    case = make_case((1, 512, 300), dtype=torch.float16)
    y = norm(case.x, case.weight, case.bias, case.prelu)
    assert y.dtype == torch.float16
    assert_close({"y": y}, case.double().run(reference.cumulative), case)


def test_maps() -> None:
    maps = [each for family in FAMILIES for each in gpu_maps(family, quick=False)]
    quick = [each for family in FAMILIES for each in gpu_maps(family, quick=True)]
    assert set(quick) <= set(maps)
    assert set(quick) >= COMPILED_QUICK
    for shape in ((8, 512, 4000), (8, 512, 3999), (32, 512, 4000)):
        for dtype in ("bf16", "fp32"):
            assert (shape, dtype) in gpu_maps("cumulative", quick=False)
    assert {work.prelu for work in workloads("global", cpu_maps("global", False), False)} == {
        False,
        True,
    }
    layer = [shape for shape, _ in gpu_maps("layer", quick=False)]
    assert layer[-1] == (4096, 15872)
    assert all(m == 4096 and n % 512 == 0 for m, n in layer)


def test_what_is_compiled_ahead() -> None:
    options = "--family cumulative layer --shape 2x3x8 16x8 --dtype fp16 --plots plots"
    tasks = bench_norms.builds(bench_norms.parse(options.split()))
    assert len(set(tasks)) == len(tasks)
    tables = {(w.prelu, peer.name) for w, peer in tasks if w.shape == (2, 3, 8)}
    compiled = {(True, "formula, compiled"), (True, "reference, compiled")}
    assert tables == {(False, "ours"), (True, "ours")} | compiled
    assert {w.shape for w, _ in tasks} >= {(4096, 15872), (8, 512, 4000)}  # of the plots


def test_compiling_ahead_runs_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    work = Workload("layer", (4, 8), "fp32", threads=1)
    monkeypatch.setattr(torch.autograd, "grad", lambda y, *_, **__: passes.append(y.shape))
    compile_ahead.run_once((work, PEERS["layer"][0]), "cpu")
    assert passes == [(4, 8)]


@pytest.mark.parametrize("error", [RuntimeError, ValueError])
def test_who_cannot_run_is_left_to_the_measurement(error: type[Exception]) -> None:
    def broken(*_: object) -> Tensor:
        raise error("no")

    compile_ahead.run_once((Workload("layer", (4, 8), "fp32"), Peer("broken", broken)), "cpu")


def test_table() -> None:
    work = Workload("cumulative", (8, 512, 4000), "bf16", prelu=True)
    copy = Timing(work, "copy", 20.0)
    rows = [Row(copy, [Timing(work, "ours", 30.0, 45.0), None])]
    header, line, cells = norm_table(rows, ["ours", "formula"]).splitlines()
    assert " ".join(cells.split()) == "| 8×512×4000 | bf16 | yes | 20.0 | 1.50 / 2.25 | – |"
    assert len(header) == len(line) == len(cells)
    record = rows[0].timings[0].record(copy)
    assert (record["forward_us"], record["forward_copies"]) == (30.0, 1.5)
    assert (record["peer"], record["backward_copies"]) == ("ours", 2.25)


def test_layer_norm_in_gb_per_second() -> None:
    # 4096·1000·2 bytes; 2 passes in 8.192 µs and 3 in 12.288 µs are 2000 GB/s.
    work = Workload("layer", (4096, 1000), "fp16")
    rows = [Row(Timing(work, "copy", 4.096), [Timing(work, "ours", 8.192, 12.288)])]
    cells = norm_table(rows, ["ours"]).splitlines()[-1]
    assert " ".join(cells.split()) == "| 4096×1000 | fp16 | 4000 | 2000 / 2000 |"


def test_markdown_of_one_line() -> None:
    assert markdown(["a"], []) == "| a |\n| - |"


def test_times_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch, "CPU_CALLS", 1)
    monkeypatch.setattr(stopwatch, "CPU_SECONDS", 0.0)
    file = tmp_path / "norms.json"
    options = "--device cpu --threads 1 --dtype fp32 --shape 2x3x8 16x8"
    assert bench_norms.main([*options.split(), "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert all(f"{family} norm" in printed for family in FAMILIES)
    found = json.loads(file.read_text())
    assert found["device"] == "cpu"
    for timing in found["timings"]:
        assert timing["forward_us"] > 0
        assert (timing["backward_us"] is None) == (timing["peer"] == "copy")
    names = {timing["peer"] for timing in found["timings"] if timing["family"] == "cumulative"}
    assert names == {"copy", "ours", "formula"}


def test_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(FOLDER / "bench_norms.py")
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(script, run_name="__main__")
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    options = set(re.findall(r"--[a-z]+", printed))
    assert options >= {"--family", "--quick", "--json", "--plots", "--device"}


def test_a_gpu_is_missing() -> None:
    result = subprocess.run(
        [sys.executable, FOLDER / "bench_norms.py"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "no CUDA device" in result.stderr


def test_shapes() -> None:
    assert bench_norms.parse(["--shape", "8x512x4000", "4096x1024"]).shape == [
        (8, 512, 4000),
        (4096, 1024),
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--json", "no/such/folder/norms.json"], "no/such/folder"),
        (["--json", "."], "--json: . is a folder"),
        (["--family", "layer", "--shape", "2x3x8"], "2x3x8 is for none of the norms layer"),
        (["--threads", "0"], "0 is not"),
        (["--jobs", "-1"], "-1 is not"),
        (["--device", "cpu", "--plots", "plots"], "--plots"),
    ],
)
def test_wrong_arguments_are_named_before_any_work(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        bench_norms.main(arguments)
    said = capsys.readouterr().err
    assert (stop.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("error: ")
    assert named in said


@pytest.mark.parametrize("text", ["8", "8xx4", "0x4x4", "8,512,4000"])
def test_a_wrong_shape(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        bench_norms.parse(["--shape", text])
    assert stop.value.code == 2
    assert repr(text) in capsys.readouterr().err


def test_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    size_plots = pytest.importorskip("size_plots")  # needs triton
    monkeypatch.setattr(stopwatch, "CPU_CALLS", 1)
    monkeypatch.setattr(stopwatch, "CPU_SECONDS", 0.0)
    small = {size: Workload("layer", (4, size), "fp32", threads=1) for size in (8, 16)}
    monkeypatch.setattr(size_plots, "sized", lambda _, size: small[size])
    peers = [peer for peer in PEERS["layer"] if not (peer.compiled or peer.package)]
    size_plots.draw(Laboratory("cpu"), "layer", list(small), peers, tmp_path / "plots")
    for direction in ("forward", "backward"):
        assert (tmp_path / "plots" / f"layer_{direction}.png").read_bytes().startswith(b"\x89PNG")
        lines = (tmp_path / "plots" / f"layer_{direction}.csv").read_text().splitlines()
        assert lines[0] == "N,ours (GB/s),torch (GB/s),copy (GB/s)"
        assert [float(line.split(",")[0]) for line in lines[1:]] == [8, 16]


def test_plots_need_packages(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size_plots = pytest.importorskip("size_plots")  # needs triton
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(size_plots, "NEEDS", ("no_such_package",))
    assert bench_norms.main(["--plots", "plots"]) == 2
    assert capsys.readouterr().err == "error: --plots needs no_such_package\n"


@pytest.mark.gpu
def test_times_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "norms.json"
    options = "--compiled none --jobs 2 --dtype fp16 --shape 2x8x64 64x128"
    assert bench_norms.main([*options.split(), "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["copy_gb_per_s"] > 0
    assert {timing["family"] for timing in found["timings"]} == set(FAMILIES)
    assert all(timing["forward_us"] > 0 for timing in found["timings"])
