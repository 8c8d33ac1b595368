"""The report counts what is there, names all that is wrong, and draws a picture."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from tiny_corpus import write_corpus

from convtasnet.audio import write_audio
from convtasnet.data import scan
from convtasnet.data.manifest import Manifest, Row

SCRIPT = Path(__file__).parents[1] / "scripts" / "report_data.py"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def report(run_script, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)

    def run(*arguments):
        return run_script(str(SCRIPT), "--out", str(tmp_path / "out.png"), *map(str, arguments))

    return run


def cells(output):
    """Set and kind -> the rest of a line of the table."""
    lines = [line.split() for line in output.splitlines()]
    names = ("mixture", "utterance", "noise")
    table = {}
    for words in lines:
        if len(words) > 3 and words[1] in names:
            table[words[0], words[1]] = words[2:]
        elif len(words) > 3 and words[1] == "source":
            table[words[0], f"source {words[2]}"] = words[3:]
    return table


def test_overrides_name_any_data(report, tmp_path):
    write_corpus(tmp_path / "data", {"train": 3, "valid": 2, "test": 1}, seconds=2.0)
    code, out, _ = report("data=manifest", f"data.root={tmp_path / 'data'}")
    assert code == 0
    table = cells(out)
    assert len(table) == 9
    counts = {split: table[split, "source 2"][0] for split in ("train", "valid", "test")}
    assert counts == {"train": "3", "valid": "2", "test": "1"}
    files, hours, rate, *numbers = table["train", "mixture"]
    assert (files, hours, rate) == ("3", "0.00", "8000")
    assert numbers[:3] == ["2.0", "2.0", "2.0"]
    assert "problems: none" in out
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)


def test_manifests_with_noise_and_levels(report, tmp_path, monkeypatch):
    rows = []
    for i, level in enumerate((0.5, 0.05)):
        files = [tmp_path / f"{kind}{i}.wav" for kind in ("m", "a", "n")]
        square = level * torch.sign(torch.sin(torch.arange(8000) * 2.5))
        for file, factor in zip(files, (1, 0.1, 0.01), strict=True):
            write_audio(file, factor * square, 8000, "FLOAT")
        rows.append(Row(f"r{i}", str(files[0]), (str(files[1]),), str(files[2]), 8000))
    Manifest(rows).to_csv(tmp_path / "mine.csv")
    code, out, _ = report(tmp_path / "mine.csv")
    assert code == 0
    table = cells(out)
    assert table.keys() == {("mine", kind) for kind in ("mixture", "source 1", "noise")}
    # 20 log10 of 0.5 and 0.05; percentiles lie on the line between the two.
    assert table["mine", "mixture"][-4:] == ["-25.0", "-16.0", "-7.0", "-6.0"]
    assert table["mine", "source 1"][-4:] == ["-45.0", "-36.0", "-27.0", "-26.0"]
    monkeypatch.setattr(scan, "iter_blocks", None)  # nothing is decoded again
    assert cells(report(tmp_path / "mine.csv")[1]) == table


def test_problems_are_counted_and_listed(report, tmp_path):
    root = write_corpus(tmp_path / "data", {"train": 30})
    noise = 0.05 * np.random.default_rng(0).standard_normal(8000)
    (root / "source_1_0.wav").unlink()
    (root / "mixture_1.wav").write_bytes(b"")
    soundfile.write(root / "source_2_2.wav", noise, 16000)
    soundfile.write(root / "source_2_3.wav", noise[:4000], 8000)
    soundfile.write(root / "source_1_4.wav", noise + 0.1, 8000)
    soundfile.write(root / "source_1_5.wav", np.full(8000, np.nan), 8000, subtype="FLOAT")
    for i in range(6, 28):
        soundfile.write(root / f"source_2_{i}.wav", np.zeros(8000), 8000)
    code, out, _ = report(root / "train.csv")
    assert code == 0
    (told,) = (line for line in out.splitlines() if line.startswith("problems: "))
    for kind in ("files, rates, lengths (4)", "NaN (1)", "silence (22)", "DC offset (1)"):
        assert kind in told
    for name, words in {
        "source_1_0.wav": "no such file",
        "mixture_1.wav": "0 bytes",
        "source_2_2.wav": "is 16000 Hz",
        "source_2_3.wav": "has 4000 samples",
        "source_1_4.wav": "has a DC offset of 0.1",
        "source_1_5.wav": "holds 8000 NaN",
    }.items():
        lines = [line for line in out.splitlines() if line.startswith(f"  {root / name} ")]
        assert len(lines) == 1
        assert words in lines[0]
    assert out.count(": is silent, ") == 20
    assert "… and 2 more: --all lists them" in out
    assert report("--all", root / "train.csv")[1].count(": is silent, ") == 22


def test_speakers_are_reported_as_utterances(report, tmp_path):
    for speaker in range(6):
        write_audio(tmp_path / f"speech/{speaker}/a.wav", 0.1 * torch.randn(8000), 16000)
    code, out, _ = report("data=speakers", f"data.root={tmp_path / 'speech'}")
    assert code == 0
    assert cells(out)["all", "utterance"][:3] == ["6", "0.00", "16000"]


def test_mistakes_are_one_line(report, tmp_path):
    root = write_corpus(tmp_path / "data", {"train": 1})
    for arguments, words in (
        ([root / "gone.csv"], "gone.csv: no such manifest"),
        ([root / "train.csv", "data.root=x"], "name either manifests or overrides"),
        (["data=manifest", f"data.root={root}"], "valid.csv: no such manifest"),
        (["data=nothing"], "Could not find 'data/nothing'"),
        (["--out", "picture", root / "train.csv"], "needs an ending"),
        ([], "see report_data.py --help"),
    ):
        code, _, err = report(*arguments)
        assert code == 2, arguments
        assert words in err
        assert err.count("\n") == 1
    for path in root.glob("*.wav"):
        path.unlink()
    code, out, err = report(root / "train.csv")
    assert code == 2
    assert "not one file can be read" in err
    assert out.count("no such file") == 3
