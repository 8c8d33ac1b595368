"""scripts/import_checkpoint.py and scripts/package_model.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from documents import ROOT
from tiny_model import TINY, write_checkpoint

from convtasnet import ConvTasNet

INTEROP = ROOT / "tests" / "assets" / "interop"
Run = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def imported(run_script: Run) -> Run:
    return lambda *words: run_script(str(ROOT / "scripts/import_checkpoint.py"), *map(str, words))


@pytest.fixture
def packaged(run_script: Run) -> Run:
    return lambda *words: run_script(str(ROOT / "scripts/package_model.py"), *map(str, words))


def test_an_import_with_hyper_parameters(imported: Run, tmp_path: Path) -> None:
    out = tmp_path / "new" / "ta"
    settings = ["msk_num_layers=3", "msk_activate=relu", "sample_rate=16000"]
    source = INTEROP / "torchaudio_relu" / "model.pt"
    code, printed, _ = imported(source, "--out", out, "--hparams", *settings)
    assert (code, printed) == (0, f"{out}: a model of torchaudio, 2 voices at 16000 Hz\n")
    model = ConvTasNet.from_pretrained(out)
    assert (model.hparams["n_blocks"], model.sample_rate) == (3, 16000)
    assert "Imported from torchaudio (`model.pt`)" in (out / "README.md").read_text()


def test_speechbrains_three_files(imported: Run, tmp_path: Path) -> None:
    folder = INTEROP / "speechbrain_cln_causal"
    files = [folder / f"{part}.ckpt" for part in ("masknet", "encoder", "decoder")]
    settings = ["norm_type=cLN", "causal=True", "mask_nonlinear=relu"]
    code, _, _ = imported(*files, "--half", "--out", tmp_path / "sb", "--hparams", *settings)
    assert code == 0
    assert ConvTasNet.from_pretrained(tmp_path / "sb").causal


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["torchaudio_relu/model.pt"], "--hparams msk_num_layers=… msk_activate=…"),
        (["torchaudio_relu/model.pt", "kaituoxu_gln"], "2 files are given: name one checkpoint"),
        (["torchaudio_relu/model.pt", "--hparams", "relu"], "not of the form KEY=VALUE"),
        (["none/model.pt"], "none/model.pt does not exist"),
        (["torchaudio_relu/model.pt", "--hparams", "x=1", "--out", "full"], "--out full is there"),
    ],
)
def test_errors_are_one_line(
    words: list[str], message: str, imported: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "of").mkdir(parents=True)
    words = [str(INTEROP / word) if "/" in word else word for word in words]
    code, _, err = imported("--out", "out", *words)
    assert code == 2
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not (tmp_path / "out").exists()


def test_packaging_a_training_checkpoint(packaged: Run, tmp_path: Path) -> None:
    config = {"data": {"root": "/home/somebody/speech"}}
    best = write_checkpoint(tmp_path / "best.ckpt", config, norm="cumulative", causal=True)
    summary = {"n": 4, "si_sdr": 5.0, "si_sdri": 5.5, "split": "test", "reasons": {}, "model": {}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    texts = {"--name": "Voices", "--data": "made up", "--license": "MIT", "--limits": "many"}
    texts["--scored-on"] = "two rooms"
    words = [word for pair in texts.items() for word in pair]
    out = tmp_path / "out"
    scores = tmp_path / "summary.json"
    code, printed, _ = packaged(best, "--out", out, "--half", "--scores", scores, *words)
    assert (code, printed) == (0, f"{out}\n")
    card = (out / "README.md").read_text()
    expected = ("# Voices", "made up", "license: mit", "many", "5.00 dB | 5.50 dB")
    for text in (*expected, "4 mixtures (test set): two rooms"):
        assert text in card
    model = ConvTasNet.from_pretrained(out)
    assert model.about["scores"] == {"n": 4, "si_sdr": 5.0, "si_sdri": 5.5, "split": "test"}
    x = torch.randn(2000)
    with torch.no_grad():
        half, whole = model(x), ConvTasNet.from_pretrained(best)(x)
    assert not torch.equal(half, whole)
    torch.testing.assert_close(half, whole, atol=5e-3, rtol=0)


def test_float16_that_would_be_heard_is_refused(packaged: Run, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "best.ckpt")
    content = torch.load(path, weights_only=True)
    content["state_dict"]["model.encoder.filterbank._filters"] *= 1e-9
    content["state_dict"]["model.decoder.filterbank._filters"] *= 1e9
    torch.save(content, path)
    code, _, err = packaged(path, "--out", tmp_path / "out", "--half")
    assert code == 2
    assert "--half would leave" in err
    assert not (tmp_path / "out").exists()


def test_scores_that_are_none_are_refused(packaged: Run, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "best.ckpt", **{"n_src": 3, **TINY})
    for text in ("{", '{"n": 3}', "[]"):
        (tmp_path / "s.json").write_text(text)
        code, _, err = packaged(path, "--out", tmp_path / "o", "--scores", tmp_path / "s.json")
        assert code == 2
        assert "s.json is no" in err
