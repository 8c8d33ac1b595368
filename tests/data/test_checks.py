"""Every bad file is named before training."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from convtasnet.audio import write_audio
from convtasnet.data import checks
from convtasnet.data.checks import find_problems, raise_problems, read_headers
from convtasnet.data.file_cache import FileCache, FileFacts, cache_folder
from convtasnet.data.manifest import Manifest, Row

pytestmark = pytest.mark.usefixtures("empty_cache")


def corpus(folder, n, suffix=".wav", subtype="PCM_16"):
    rows = []
    for index in range(n):
        names = [str(folder / kind / f"{index}{suffix}") for kind in ("mix", "s1", "s2")]
        for name in names:
            wav = np.random.default_rng(index).uniform(-0.5, 0.5, 4000)
            write_audio(name, wav, 8000, subtype)
        rows.append(Row(f"row{index}", names[0], tuple(names[1:])))
    return Manifest(rows, folder)


def reasons(manifest, samples=True):
    problems = find_problems(manifest, samples)[1]
    return {
        (Path(p.path).relative_to(manifest.origin).as_posix(), p.row): p.reason for p in problems
    }


def test_good_files_have_no_problems(tmp_path):
    manifest = corpus(tmp_path, 3)
    headers, problems = find_problems(manifest, samples=True)
    assert problems == []
    assert headers.n_samples.tolist() == [4000] * 3
    assert headers.sample_rates.tolist() == [8000] * 3
    raise_problems(problems)


@pytest.mark.parametrize("samples", [False, True])
def test_all_kinds_of_damage_are_listed_together(tmp_path, samples):
    manifest = corpus(tmp_path, 7)
    (tmp_path / "mix/0.wav").write_bytes(b"")
    soundfile.write(tmp_path / "s1/1.wav", np.zeros(0), 8000)
    os.truncate(tmp_path / "s2/2.wav", 5000)
    (tmp_path / "s2/3.wav").unlink()
    write_audio(tmp_path / "s1/4.wav", torch.zeros(2000), 8000)
    (tmp_path / "mix/5.wav").write_text("no audio" * 99)
    write_audio(tmp_path / "s2/6.wav", torch.zeros(4000), 16000)
    found = reasons(manifest, samples)
    expected = {
        ("mix/0.wav", "row0"): "0 bytes",
        ("s1/1.wav", "row1"): "a header and no samples",
        ("s2/2.wav", "row2"): "truncated, 3044 bytes",
        ("s2/3.wav", "row3"): "no such file",
        ("s1/4.wav", "row4"): "has 2000 samples, .*mix/4.wav has 4000",
        ("mix/5.wav", "row5"): "not readable as audio",
        ("s2/6.wav", "row6"): "16000 Hz, .* is 8000 Hz",
    }
    assert found.keys() == expected.keys()
    for key, words in expected.items():
        assert re.search(words, found[key])
    with pytest.raises(ValueError, match="7 problems") as error:
        read_headers(manifest)
    for (path, row), _ in expected.items():
        assert f"{tmp_path / path} (mixture '{row}')" in str(error.value)


def test_damage_that_headers_hide_is_found_by_the_scan(tmp_path):
    floats = corpus(tmp_path / "float", 2, subtype="FLOAT")
    wav = np.zeros(4000, np.float32)
    wav[77] = np.inf
    soundfile.write(tmp_path / "float/s1/1.wav", wav, 8000, subtype="FLOAT")
    flacs = corpus(tmp_path / "flac", 2, ".flac")
    size = os.path.getsize(tmp_path / "flac/mix/0.flac")
    os.truncate(tmp_path / "flac/mix/0.flac", size // 2)
    assert reasons(floats, samples=False) == reasons(flacs, samples=False) == {}
    assert reasons(floats) == {
        ("s1/1.wav", "row1"): "holds NaN or infinite samples, the first at 77"
    }
    ((key, reason),) = reasons(flacs).items()
    assert key == ("mix/0.flac", "row0")
    assert re.search("truncated|damaged", reason)
    assert reasons(flacs) == {key: reason}  # bad files are not remembered as good


def test_missing_files_alone_are_a_file_not_found_error(tmp_path, monkeypatch):
    manifest = corpus(tmp_path, 4)
    gone = [tmp_path / "mix/0.wav", tmp_path / "s1/2.wav", tmp_path / "s2/3.wav"]
    for path in gone:
        path.unlink()
    monkeypatch.chdir("/")
    with pytest.raises(FileNotFoundError, match="3 problems") as error:
        read_headers(manifest)
    assert all(str(path) in str(error.value) for path in gone)
    for path in gone[:2]:
        path.write_bytes((tmp_path / "mix/1.wav").read_bytes())
    with pytest.raises(FileNotFoundError, match=r"^1 problem in the data:"):
        read_headers(manifest)


def test_a_long_list_goes_to_a_file(tmp_path):
    rows = [Row(f"r{i}", f"/gone/m{i}", (f"/gone/s{i}",)) for i in range(40)]
    with pytest.raises(FileNotFoundError, match="80 problems") as error:
        read_headers(Manifest(rows))
    text = str(error.value)
    assert text.count("\n") == 21
    listed = Path(text.rsplit(" ", 1)[-1])
    content = listed.read_text(encoding="utf-8")
    listed.unlink()
    assert len(content.splitlines()) == 80
    assert all(f"/gone/s{i} (mixture 'r{i}')" in content for i in range(40))


def test_scanned_files_are_scanned_once_until_they_change(tmp_path, monkeypatch):
    manifest = corpus(tmp_path, 2, subtype="FLOAT")
    scanned = []
    scan = checks.check_samples
    monkeypatch.setattr(checks, "check_samples", lambda path: (scanned.append(path), scan(path)))
    find_problems(manifest, samples=True)
    assert len(scanned) == 6
    find_problems(manifest, samples=True)
    assert len(scanned) == 6
    changed = manifest[1].sources[0]
    write_audio(changed, torch.ones(4000), 8000, "FLOAT")
    os.utime(changed, ns=(1, 10**18))
    assert find_problems(manifest, samples=True)[1] == []
    assert scanned[6:] == [changed]


def test_headers_are_remembered_too(tmp_path, monkeypatch):
    manifest = corpus(tmp_path, 2)
    first = read_headers(manifest)
    monkeypatch.setattr(checks, "audio_info", None)
    again = read_headers(manifest)
    assert np.array_equal(first.n_samples, again.n_samples)
    Path(manifest[0].mixture).unlink()
    with pytest.raises(FileNotFoundError):
        read_headers(manifest)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"version": 0}', '{"version": 1, "files": {"a": 3}}']
)
def test_a_damaged_cache_is_made_anew(tmp_path, content):
    manifest = corpus(tmp_path, 1)
    read_headers(manifest)
    (file,) = (cache_folder() / "files").iterdir()
    file.write_text(content)
    read_headers(manifest)
    assert len(json.loads(file.read_text())["files"]) == 3


def test_an_unwritable_cache_is_not_fatal(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    read_headers(corpus(tmp_path, 1))
    assert "can't be remembered" in caplog.text


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/convtasnet")
    paths = [FileCache(name, FileFacts, "files").path for name in ("a", "b")]
    assert paths[0] != paths[1]


def with_length(manifest, length):
    return Manifest(
        [Row(r.id, r.mixture, r.sources, None, length, "x.csv, line 9") for r in manifest]
    )


def test_a_length_that_the_list_has_wrong(tmp_path, caplog):
    manifest = corpus(tmp_path, 2)
    assert read_headers(with_length(manifest, 4010)).n_samples.tolist() == [4000, 4000]
    assert "2 lengths are not those" in caplog.text
    with pytest.raises(ValueError, match="2 problems") as error:
        read_headers(with_length(manifest, 5000))
    told = f"{manifest[1].mixture} (mixture 'row1'): has 4000 samples at 8000 Hz, but x.csv, line 9"
    assert f"{told} says 5000" in str(error.value)


def test_one_file_in_many_rows_is_named_once(tmp_path):
    row = corpus(tmp_path, 1)[0]
    rows = [Row(f"r{i}", row.mixture, row.sources) for i in range(3)]
    Path(row.sources[0]).unlink()
    assert len(find_problems(Manifest(rows))[1]) == 1
