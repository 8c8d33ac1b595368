"""The benchmark of the training step: its peers, failures, command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bench_step
import pytest
import torch
from peers import TorchaudioConvTasNet
from step_peers import Broken
from tiny_model import TINY
from torch import nn

from convtasnet import ConvTasNet
from convtasnet_kernels.timing import stopwatch

CPU = "--device cpu --size tiny --batch 1 --seconds 0.05"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], tuple[int, str, str]]]:
    """The script with these options, timed by one call each; (exit code, stdout, stderr)."""
    monkeypatch.setattr(stopwatch, "CPU_CALLS", 1)
    monkeypatch.setattr(stopwatch, "CPU_SECONDS", 0.0)
    matmul, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    def main(options: str) -> tuple[int, str, str]:
        code: Any
        try:
            code = bench_step.main(options.split())
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    yield main
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = tf32


def test_torchaudio_computes_our_network() -> None:
    """With the weights of ours; its encoder pads both ends by a hop."""
    model: Any = ConvTasNet(**TINY)
    peer: Any = TorchaudioConvTasNet(**model.hparams)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    network, separator = peer.network, model.separator
    masker = network.mask_generator
    pairs = [
        (masker.input_norm, separator.norm),
        (masker.input_conv, separator.bottleneck),
        (masker.output_prelu, separator.mask_prelu),
        (masker.output_conv, separator.mask_conv),
    ]
    for theirs, ours in zip(masker.conv_layers, separator.blocks, strict=True):
        layers = theirs.conv_layers
        pairs += [
            (layers[0], ours.conv_in),
            (layers[2], ours.norm_in),
            (layers[3], ours.depthwise),
            (layers[5], ours.norm_out),
        ]
    with torch.no_grad():
        network.encoder.weight.copy_(next(model.encoder.parameters()))
        network.decoder.weight.copy_(next(model.decoder.parameters()))
        for theirs, ours in pairs:
            theirs.weight.copy_(ours.weight)
            if hasattr(ours, "bias"):
                theirs.bias.copy_(ours.bias)
        for theirs, ours in zip(masker.conv_layers, separator.blocks, strict=True):
            theirs.conv_layers[1].weight.copy_(ours.norm_in.slope)
            theirs.conv_layers[4].weight.copy_(ours.norm_out.slope)
            outputs = [conv for conv in (theirs.res_out, theirs.skip_out) if conv is not None]
            for name in ("weight", "bias"):
                parts = getattr(ours.conv_out, name).split([len(c.weight) for c in outputs])
                for conv, part in zip(outputs, parts, strict=True):
                    getattr(conv, name).copy_(part)
        mixture, hop = torch.randn(2, 400), model.stride
        expected = model(nn.functional.pad(mixture, (hop, hop)))[..., hop:-hop]
        torch.testing.assert_close(peer(mixture), expected, rtol=1e-4, atol=1e-4)


def test_torchaudio_has_no_causal_model() -> None:
    with pytest.raises(ValueError, match="no norm='cumulative', only 'global'"):
        TorchaudioConvTasNet(**ConvTasNet(**TINY, norm="cumulative", causal=True).hparams)


def test_the_paper_is_the_default_and_peers_have_its_size() -> None:
    with bench_step.initialize_config_dir(str(bench_step.CONFIGS), version_base="1.3"):
        found = {each: bench_step.hparams(each, "paper") for each in bench_step.EXPERIMENTS}
    assert found["noncausal"] == ConvTasNet().hparams
    assert found["causal"] == ConvTasNet(norm="cumulative", causal=True).hparams
    peer = TorchaudioConvTasNet(**found["noncausal"])
    assert sum(p.numel() for p in peer.parameters()) == 4_984_881


def test_a_run_on_the_cpu(run: Any, tmp_path: Path) -> None:
    file, picture = tmp_path / "step.json", tmp_path / "step.png"
    pytest.importorskip("matplotlib")
    options = f"{CPU} --models ours torchaudio --json {file} --plot {picture}"
    code, printed, _ = run(options)
    assert code == 0
    assert "causal, fp32: batch 1 of 0.05 s" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    assert (found["device"], found["torch"]) == ("cpu", torch.__version__)
    variants = {(each["experiment"], each["model"]): each for each in found["variants"]}
    assert set(variants) == {("causal", "ours"), ("noncausal", "ours"), ("noncausal", "torchaudio")}
    for each in variants.values():
        assert each["step_ms"] > 0
        assert each["forward_ms"] > 0
        assert each["peak_gib"] is None
    ours, peer = variants["noncausal", "ours"], variants["noncausal", "torchaudio"]
    assert ours["step_ms_ratio"] == 1
    assert peer["step_ms_ratio"] == pytest.approx(peer["step_ms"] / ours["step_ms"])


def test_a_peer_that_fails_is_a_line(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(bench_step.MODELS, "asteroid", Broken)
    monkeypatch.setitem(bench_step.PACKAGES, "asteroid", "torch")
    file = tmp_path / "step.json"
    options = f"{CPU} --models asteroid ours --experiment causal --json {file}"
    code, printed, _ = run(options)
    assert code == 0
    line = "asteroid, causal, fp32, eager, 1 × 0.05 s: OutOfMemoryError: CUDA out of memory\n"
    assert line in printed
    failed, ours = json.loads(file.read_text())["variants"]
    assert failed["reason"] == "OutOfMemoryError: CUDA out of memory"
    assert ours["step_ms"] > 0


def test_our_model_may_not_fail(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_step.MODELS, "ours", Broken)
    code, printed, _ = run(f"{CPU} --quick --experiment causal")
    assert code == 1
    assert "ours, causal" in printed


def test_a_peer_that_is_missing_is_a_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_step.PACKAGES, "asteroid", "no_such_package")
    code, printed, _ = run(f"{CPU} --models ours asteroid --experiment causal")
    assert code == 0
    assert "asteroid: not installed\n" in printed
    assert "| eager | ours " in printed


def test_growth(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_step, "GROWTH_BATCHES", (1, 2))
    monkeypatch.setattr(bench_step, "GROWTH_SECONDS", (0.05, 0.1))
    code, printed, _ = run(f"{CPU} --growth --experiment causal")
    assert code == 0
    header, _, first, second = printed.splitlines()[-4:]
    assert " ".join(header.split()) == "| seconds | batch 1 | batch 2 |"
    assert first.split()[1:8:2] == ["0.05", first.split()[3], "–", "1.00"]
    assert second.split()[1] == "0.1"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--device cpu --batch 0", "--batch 0"),
        ("--device cpu --seconds nan", "--seconds nan"),
        ("--device cpu --seconds inf", "--seconds inf"),
        ("--device cpu --seconds 1e-5", "one sample at least"),
        ("--device cpu --json .", "--json: . is a folder"),
        ("--device cpu --json no/such/folder/step.json", "no/such/folder"),
        ("--device cpu --plot step.txt", "step.txt"),
        ("--device cpu --modes eager graph", "--modes eager graph"),
        ("--device cpu --growth --plot step.png", "--growth"),
        ("--device cpu --growth --models ours torchaudio", "--growth"),
        ("--quick", "no CUDA device"),
        ("--precision fp8", "--precision: invalid choice: 'fp8'"),
        ("--faster", "--faster"),
    ],
)
def test_wrong_arguments_are_named_before_any_work(
    options: str, named: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, printed, error = run(options)
    assert (code, printed) == (2, "")
    assert named in error
    assert error.count("\n") == 1


@pytest.mark.gpu
def test_modes_on_a_gpu(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    options = f"--size tiny --batch 2 --seconds 0.5 --models ours torchaudio --json {file}"
    assert run(options)[0] == 0
    variants = json.loads(file.read_text())["variants"]
    assert len(variants) == 3 * 2 * 2  # models, precisions, modes
    for each in variants:
        assert each["step_ms"] > 0
        assert each["forward_ms"] > 0
        assert 0 < each["peak_gib"] < 1
