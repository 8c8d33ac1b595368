"""A folder becomes a manifest that trains, or a list of all that is wrong with it."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from convtasnet.audio import write_audio
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import ManifestData
from convtasnet.data.patterns import Patterns, find_patterns, list_files

SCRIPT = str(Path(__file__).parents[1] / "scripts" / "make_manifest.py")


pytestmark = pytest.mark.usefixtures("empty_cache")


def write(path, n_samples=800, rate=8000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    write_audio(path, 0.1 * torch.rand(n_samples, generator=generator), rate)


def write_folder(folder, names, kinds=("mix", "s1", "s2"), suffix=".wav"):
    for i, name in enumerate(names):
        for kind in kinds:
            write(folder / kind / f"{name}{suffix}", 800 + i)
    return folder


@pytest.fixture
def make(run_script):
    def run(*arguments):
        return run_script(SCRIPT, *map(str, arguments))

    return run


def test_a_folder_of_the_usual_names(tmp_path, make, monkeypatch):
    folder = write_folder(tmp_path / "größe, 1", ["a b", "sub/é"], ("mix", "s1", "s2", "noise"))
    (folder / "mix" / ".hidden.wav").touch()
    (folder / "README.txt").touch()
    monkeypatch.chdir(tmp_path)
    code, out, _ = make("größe, 1")
    assert code == 0
    assert "2 like mix/**.wav" in out
    assert "8000 Hz (2)" in out
    text = (folder / "manifest.csv").read_text("utf-8").splitlines()
    assert text[1:] == [
        "a b,mix/a b.wav,s1/a b.wav,s2/a b.wav,noise/a b.wav,800",
        "sub/é,mix/sub/é.wav,s1/sub/é.wav,s2/sub/é.wav,noise/sub/é.wav,801",
    ]
    data = ManifestData(folder, test="manifest.csv", num_workers=0)
    data.check(["test"])
    item = data.dataset("test")[1]
    assert (item["id"], tuple(item["sources"].shape)) == ("sub/é", (2, 801))


def test_patterns_with_several_stars(tmp_path, make):
    for split in ("x", "y"):
        for name in ("1", "2"):
            for kind in ("mixed", "first", "second"):
                write(tmp_path / split / f"{kind}-{name}.wav")
    out = tmp_path / "lists" / "all.csv"
    code, _, _ = make(
        *(tmp_path, "--mixture", "*/mixed-*.wav", "--out", out),
        *("--sources", "{}/second-{}.wav", "{}/first-{}.wav"),
    )
    assert code == 0
    assert out.read_text().splitlines()[4] == (
        "y/2,../y/mixed-2.wav,../y/second-2.wav,../y/first-2.wav,800"
    )
    rows = Manifest.from_csv(out).rows
    assert rows[0].sources == (str(tmp_path / "x/second-1.wav"), str(tmp_path / "x/first-1.wav"))
    arguments = ["--mixture", "x/mixed-*.wav", "--sources", "x/first-{}.wav", "y/first-{}.wav"]
    assert make(tmp_path, *arguments, "--out", out)[0] == 2
    assert make(tmp_path, *arguments, "--out", out, "--replace", "--absolute")[0] == 0
    paths = [tmp_path / name for name in ("x/mixed-1.wav", "x/first-1.wav", "y/first-1.wav")]
    assert out.read_text().splitlines()[1] == ",".join(["1", *map(str, paths), "800"])


def test_no_recording_is_replaced_by_a_manifest(tmp_path, make):
    folder = write_folder(tmp_path, ["a"])
    recording = folder / "mix/a.wav"
    before = recording.read_bytes()
    code, _, err = make(folder, "--out", recording, "--replace")
    assert code == 2
    assert f"--out {recording}: the name must end in .csv" in err
    assert recording.read_bytes() == before


def test_all_problems_are_listed_and_nothing_is_written(tmp_path, make):
    folder = write_folder(tmp_path, list("abcdefg"), ("mix", "s1", "s2", "noise"))
    (folder / "s1/a.wav").unlink()
    (folder / "s2/b.wav").write_bytes(b"")
    write(folder / "s1/c.wav", 400)
    write(folder / "noise/d.wav", 800, 16000)
    (folder / "mix/e.wav").unlink()
    wav = np.zeros(805, np.float32)
    wav[3] = np.nan
    soundfile.write(folder / "s2/f.wav", wav, 8000, subtype="FLOAT")
    code, out, err = make(folder)
    assert code == 2
    assert err.splitlines() == [
        f"error: {folder}: 8 problems, listed above; no manifest is written"
    ]
    for name, words in {
        "s1/a.wav": "(mixture 'a'): no such file",
        "s2/b.wav": "(mixture 'b'): the file is empty (0 bytes)",
        "s1/c.wav": f"(mixture 'c'): has 400 samples, its mixture {folder}/mix/c.wav has 802",
        "noise/d.wav": "(mixture 'd'): is 16000 Hz, its mixture",
        "s2/f.wav": "(mixture 'f'): holds NaN or infinite samples, the first at 3",
        "s1/e.wav": "no mixture has it",
        "s2/e.wav": "no mixture has it",
        "noise/e.wav": "no mixture has it",
    }.items():
        assert any(
            line.startswith(f"{folder / name}") and words in line for line in out.splitlines()
        ), name
    assert not (folder / "manifest.csv").exists()


def test_a_name_that_no_text_file_holds(tmp_path, make):
    folder = write_folder(tmp_path, ["a"])
    for kind in ("mix", "s1", "s2"):
        old = os.fsencode(folder / kind)
        os.rename(old + b"/a.wav", old + b"/\xff.wav")
    code, out, _ = make(folder)
    assert code == 2
    assert out.count("its name is not UTF-8") == 3


@pytest.mark.parametrize("name", [" a", "a ", "a'b\"c", "x,y", "#", "-1.5_b_+0"])
def test_odd_names_survive(tmp_path, make, name):
    folder = write_folder(tmp_path / " in front", [name], (" m", "s1", "s2"))
    out = folder.parent / "list.csv"
    patterns = ["--mixture", " m/*.wav", "--sources", "s1/{}.wav", "s2/{}.wav"]
    assert make(folder, *patterns, "--out", out)[0] == 0
    (row,) = Manifest.from_csv(out)
    assert row.mixture == str(folder / " m" / f"{name}.wav")
    assert os.path.isfile(row.mixture)
    assert make(folder, *patterns)[0] == 0
    assert Manifest.from_csv(folder / "manifest.csv")[0].mixture == row.mixture


@pytest.mark.parametrize(
    ("mixture", "sources", "words"),
    [
        ("mix/a.wav", ["s1/{}.wav"], "of the mixtures has no *"),
        ("mix/*.wav", ["s1/a.wav"], "has 0 {}, expected one for each of the 1 *"),
        ("*/*.wav", ["s1/{}.wav"], "has 1 {}, expected one for each of the 2 *"),
        ("mix/*.wav", ["s1/*.wav"], "pattern 's1/*.wav' has a *, expected {} in its place"),
        ("mix/*.wav", ["s1/{}.wav", "s1/{}.wav"], "pattern 's1/{}.wav' is there twice"),
        ("/mix/*.wav", ["s1/{}.wav"], "pattern '/mix/*.wav' is absolute"),
        ("mux/*.wav", ["s1/{}.wav"], "none of its 3 files is like 'mux/*.wav'"),
    ],
)
def test_patterns_that_cannot_be_meant(tmp_path, make, mixture, sources, words):
    folder = write_folder(tmp_path / "data", ["a"])
    code, _, err = make(folder, "--mixture", mixture, "--sources", *sources)
    assert code == 2
    assert words in err
    assert err.count("\n") == 1


def test_folders_that_cannot_be_meant(tmp_path, make):
    assert "gone: no such folder" in make(tmp_path / "gone")[2]
    write_folder(tmp_path / "data/tr", ["a"])
    assert "name one of the folders below, tr;" in make(tmp_path / "data")[2]
    write(tmp_path / "data/tr/s1/b.flac")
    assert "tell the patterns" in make(tmp_path / "data/tr")[2]
    assert "go together" in make(tmp_path / "data/tr", "--noise", "n/{}.wav")[2]
    assert "see make_manifest.py --help" in make()[2]


def test_stars_and_brackets(tmp_path):
    folder = write_folder(tmp_path, ["a[1]", "deep/er/b+"], suffix=".flac")
    files = list_files(folder)
    patterns = find_patterns(folder, files)
    assert patterns == Patterns("mix/**.flac", ("s1/{}.flac", "s2/{}.flac"))
    rows, unused = patterns.rows(folder, files)
    assert [row.id for row in rows] == ["a[1]", "deep/er/b+"]
    assert unused == []
    flat, unused = Patterns("mix/*.flac", ("s1/{}.flac",)).rows(folder, files)
    assert [row.id for row in flat] == ["a[1]"]
    assert unused == []
