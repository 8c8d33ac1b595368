import runpy
import sys
from pathlib import Path

import pytest
import torch
from tiny_model import write_checkpoint

from convtasnet.audio import write_audio

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "plot_separation.py")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def checkpoint(tmp_path):
    for kind in ("mix", "s1", "s2"):
        write_audio(tmp_path / "corpus" / "tt" / kind / "a.wav", 0.1 * torch.randn(4000), 8000)
    data = {"_target_": "convtasnet.data.module.Wsj0MixData", "root": str(tmp_path / "corpus")}
    return write_checkpoint(tmp_path / "best.ckpt", {"data": data})


def draw(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [SCRIPT, *map(str, arguments)])
    runpy.run_path(SCRIPT, run_name="__main__")


def test_a_file_and_an_item_are_drawn(checkpoint, tmp_path, monkeypatch):
    mixture = tmp_path / "corpus" / "tt" / "mix" / "a.wav"
    for arguments in ([mixture], ["--split", "test", "--item", "0"]):
        out = tmp_path / f"{len(arguments)}.png"
        draw(monkeypatch, "--checkpoint", checkpoint, "--out", out, *arguments)
        assert out.read_bytes().startswith(PNG)


def test_an_item_that_is_not_there(checkpoint, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        draw(monkeypatch, "--checkpoint", checkpoint, "--item", "1")
    assert stop.value.code == 2
    assert "--item 1: the test set has 1 items" in capsys.readouterr().err


def test_wrong_options_are_one_line(monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        draw(monkeypatch, "--item", "one")
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_checkpoint_calls_nothing(checkpoint, tmp_path, monkeypatch, capsys):
    content = torch.load(checkpoint, weights_only=True)
    made = tmp_path / "made"
    content["convtasnet"]["config"]["data"] = {"_target_": "os.mkdir", "path": str(made)}
    torch.save(content, checkpoint)
    with pytest.raises(SystemExit):
        draw(monkeypatch, "--checkpoint", checkpoint)
    assert "names data 'os.mkdir'" in capsys.readouterr().err
    assert not made.exists()
