"""The benchmark of the training step: what it times, its peers, tables, failures, command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import TINY
from torch import Tensor, nn

from convtasnet import ConvTasNet
from convtasnet.losses import pit_loss
from convtasnet_kernels.timing import stopwatch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))  # as for a script

import bench_step
from peers import TorchaudioConvTasNet
from step_tables import Results, growth_table, record, step_table
from training_step import Failure, Measurement, TrainingStep, Variant, measure

CPU = "--device cpu --size tiny --batch 1 --seconds 0.05"
OURS = Variant("ours", "noncausal", "tf32", "graph", 8, 4.0)


class Broken(nn.Module):
    """A peer that cannot be run."""

    def __init__(self, **hparams: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.n_src, self.sample_rate = hparams["n_src"], hparams["sample_rate"]

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory\nby far")


class Synchronizing(Broken):
    """A peer that waits for the GPU, which no graph can hold."""

    def forward(self, mixture: Tensor, lengths: Tensor | None = None) -> Tensor:
        scale = float((self.weight * mixture.abs().max()).sum())
        return scale * self.weight * torch.stack([mixture] * self.n_src, 1)


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


def written_out(model: ConvTasNet, sources: Tensor, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        pit_loss(model(sources.sum(1)), sources)[0].backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        for gradient in gradients:
            gradient.mul_((5.0 / norm).clamp(max=1.0))
        optimizer.step()


def test_a_step_trains_as_written_out() -> None:
    model, other = ConvTasNet(**TINY), ConvTasNet(**TINY)
    other.load_state_dict(model.state_dict())
    before = model.separator.bottleneck.weight.detach().clone()
    step = TrainingStep(model, batch=2, seconds=0.05)
    for _ in range(3):
        step()
    written_out(other, step.sources, 3)
    assert step.sources.shape == (2, 2, 400)
    # Adam divides by gradients: where they are nearly zero, rounding decides.
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert (model.separator.bottleneck.weight - before).abs().mean() > 1e-3


def test_the_forward_pass_alone_keeps_no_graph() -> None:
    step = TrainingStep(ConvTasNet(**TINY), batch=2, seconds=0.05, bf16=True)
    estimates = step.forward()
    assert estimates.shape == (2, 2, 400)
    assert not estimates.requires_grad


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


@pytest.mark.gpu
def test_what_cannot_be_captured_spoils_nothing() -> None:
    device = torch.device("cuda")
    hparams = ConvTasNet(**TINY).hparams
    variant = replace(OURS, batch=2, seconds=0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        failed = measure(replace(variant, model="peer"), lambda: Synchronizing(**hparams), device)
        found = measure(variant, lambda: ConvTasNet(**TINY), device)
        eager = replace(variant, model="peer", mode="eager")
        other = measure(eager, lambda: Synchronizing(**hparams), device)
    assert isinstance(failed, Failure)
    assert "captur" in failed.reason
    assert isinstance(found, Measurement)
    assert isinstance(other, Measurement)


@pytest.mark.gpu
def test_a_captured_step_trains() -> None:
    model = ConvTasNet(**TINY).cuda()
    step = TrainingStep(model, batch=2, seconds=0.5)
    with torch.cuda.stream(torch.cuda.Stream()):
        first = float(step())
        stopwatch.graph_time(step, least=50)
        last = float(step())
    assert last < first - 0.1


@pytest.mark.gpu
def test_a_step_of_graphs_trains_as_one_without() -> None:
    models = [ConvTasNet(**TINY).cuda() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    losses = []
    for model, mode in zip(models, ("graph", "eager"), strict=True):
        torch.manual_seed(0)
        step = TrainingStep(model, batch=2, seconds=0.5, mode=mode)
        losses.append([float(step()) for _ in range(10)])
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
    assert losses[0][-1] < losses[0][0]
