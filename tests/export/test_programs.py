"""Whole-recording exports: torch.export programs, ONNX files, and the script that writes them."""

from __future__ import annotations

import runpy
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tiny_model import write_checkpoint

from convtasnet import ConvTasNet
from convtasnet.export.offline import offline_onnx
from convtasnet.export.program import export_program
from convtasnet.export.verify import check_program
from convtasnet.export.verify_onnx import check_offline

SCRIPTS = Path(__file__).parents[2] / "scripts"
SIZE: dict[str, Any] = {
    "n_filters": 16,
    "bn_chan": 8,
    "hid_chan": 12,
    "skip_chan": 6,
    "n_blocks": 1,
    "n_repeats": 1,
}
ISOLATED = "import sys; sys.modules.update(convtasnet=None, convtasnet_kernels=None)"
Run = Callable[..., tuple[Any, str, str]]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def small(**changes: Any) -> ConvTasNet:
    torch.manual_seed(1)
    model = ConvTasNet(**{**SIZE, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize(
    "changes", [{"norm": "channelwise", "causal": True}, {"conv_padding": "reflect"}], ids=str
)
def test_programs_of_pytorch(changes: dict[str, Any], tmp_path: Path) -> None:
    """They hold operators of PyTorch alone, and no paths of this machine."""
    model, mixture = small(**changes), torch.randn(2, 500)
    program = export_program(model)
    assert check_program(model, program) < 1e-6
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("convtasnet" in target for target in targets)
    torch.export.save(program, tmp_path / "model.pt2")
    assert str(Path(__file__).parents[2]).encode() not in (tmp_path / "model.pt2").read_bytes()
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(loaded(mixture), model(mixture).detach())


def test_onnx_files_of_whole_recordings(tmp_path: Path) -> None:
    """With the cumulative norm, whose sums over time are float64, and whose eps must survive."""
    model = small(norm="cumulative", causal=True)
    proto = offline_onnx(model)
    assert check_offline(model, proto.SerializeToString()) < 1e-5
    graph = onnx.shape_inference.infer_shapes(proto).graph
    types = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    summed = [types[node.input[0]] for node in graph.node if node.op_type == "CumSum"]
    assert summed == 6 * [onnx.TensorProto.DOUBLE]
    run_the_example(tmp_path, proto.SerializeToString(), model)


def run_the_example(folder: Path, content: bytes, model: ConvTasNet) -> None:
    """Where neither torch nor this project can be imported."""
    (folder / "model.onnx").write_bytes(content)
    samples = (8000 * np.random.default_rng(0).uniform(-1, 1, 2003)).astype("<i2")
    with wave.open(str(folder / "mix.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    script = str(SCRIPTS / "run_onnx.py")
    code = f"{ISOLATED}; sys.modules['torch'] = None; sys.argv = ['', 'model.onnx', 'mix.wav'];"
    subprocess.run(
        [sys.executable, "-c", f"{code} exec(open({script!r}).read())"], check=True, cwd=folder
    )
    with torch.no_grad():
        voices = model(torch.from_numpy(samples / np.float32(32768))).numpy()
    for number, voice in enumerate(voices, start=1):
        with wave.open(str(folder / f"mix_s{number}.wav")) as file:
            found = np.frombuffer(file.readframes(-1), "<i2")
        assert len(found) == 2003
        assert abs(np.corrcoef(found, voice)[0, 1]) > 0.999


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run scripts/export.py in a folder with causal.ckpt and global.ckpt."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "causal.ckpt", norm="cumulative", causal=True)
    write_checkpoint(tmp_path / "global.ckpt")

    def run(checkpoint: str, *options: str) -> tuple[Any, str, str]:
        script = str(SCRIPTS / "export.py")
        monkeypatch.setattr(sys, "argv", [script, "--checkpoint", checkpoint, *options])
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            return stop.code, *capsys.readouterr()
        return 0, *capsys.readouterr()

    return run


def test_the_script_exports_streams(run: Run, tmp_path: Path) -> None:
    code, said, _ = run("causal.ckpt", "--out", "new/a.onnx", "--streaming", "--block-ms", "4")
    assert code == 0
    assert "new/a.onnx: 0.0 MB, steps of up to 4 frames, 32 samples, equal to PyTorch up to" in said
    onnx.checker.check_model(onnx.load(tmp_path / "new" / "a.onnx"))
    code, said, _ = run("causal.ckpt", "--out", "b.onnx", "--streaming", "--int8")
    assert code == 0
    assert "8 bits add noise" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.tflite"], "must end in .onnx or .pt2"),
        (["--out", "a.pt2", "--streaming"], "--streaming makes an .onnx file"),
        (["--out", "a.onnx", "--int8"], "--int8 is for --streaming"),
        (["--out", "a.onnx", "--block-ms", "4"], "--block-ms is for --streaming"),
        (["--out", "a.onnx", "--streaming", "--block-ms", "0.2"], "less than a frame"),
        (["--out", "a.onnx", "--streaming", "--block-ms", "nan"], "--block-ms nan"),
        (["--out", "a.onnx", "--streaming", "--block-ms", "1e9"], "--block-ms 1e+09: must be"),
        (["--out", "a.onnx", "--streaming", "--half-life", "0"], "half_life=0.0 s"),
        (["--out", "a.onnx", "--streaming"], "only causal models can stream"),
    ],
)
def test_what_does_not_fit_is_refused(
    run: Run, options: list[str], message: str, tmp_path: Path
) -> None:
    code, _, said = run("global.ckpt" if len(options) == 3 else "causal.ckpt", *options)
    assert (code, said.count("\n")) == (2, 1)
    assert message in said
    assert not (tmp_path / options[1]).exists()


def test_programs_need_no_onnx() -> None:
    """Neither to be made nor to be checked."""
    code = (
        "import sys; sys.modules.update(onnx=None, onnxruntime=None, onnxscript=None);"
        "import convtasnet.export.program, convtasnet.export.verify"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_packages_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convtasnet.export.PACKAGES", ("onnx", "no_such_package"))
    code, _, said = run("causal.ckpt", "--out", "a.onnx")
    assert code == 2
    assert (
        "ONNX needs no_such_package, not installed here: pip install 'convtasnet[export]'" in said
    )
