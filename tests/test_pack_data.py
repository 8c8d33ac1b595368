"""Data sets in one file: the same items as from their own files, and what is wrong with a pack."""

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
import torch
from tiny_corpus import RATE, voice

from convtasnet.audio import audio_info, iter_blocks, read_audio, write_audio
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.module import ManifestData
from convtasnet.data.speakers import SpeakersData
from convtasnet.evaluation.folder import files_digest
from convtasnet.pack import write_pack

SCRIPT = Path(__file__).parents[1] / "scripts" / "pack_data.py"


@pytest.fixture
def pack(run_script, monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return lambda *words: run_script(str(SCRIPT), "data.num_workers=0", *map(str, words))


def write_mixtures(root, rate=RATE, subtype="PCM_16"):
    rows = []
    for i in range(3):
        parts = [voice(3 * i + k, 0.6 + 0.1 * i) / 4 for k in range(3)]
        files = [root / f"{kind}_{i}.wav" for kind in ("mix", "s1", "s2", "noise")]
        for file, wav in zip(files, [sum(parts), *parts], strict=True):
            write_audio(file, wav, rate, subtype)
        mixture, one, two, noise = map(str, files)
        who = (f"ann{i}", f"bob{i}")
        rows.append(Row(f"m{i}", mixture, (one, two), noise, len(parts[0]), speakers=who))
    for split in ("train", "valid", "test"):
        Manifest(rows).to_csv(root / f"{split}.csv")
    return root


def items_of(root, **changes):
    data = ManifestData(root, segment=0.5, num_workers=0, batch_size=2, **changes)
    data.check()
    return [data.dataset(split)[i] for split in ("train", "valid") for i in range(3)]


@pytest.mark.parametrize(
    ("rate", "subtype", "tolerance"),
    [(RATE, "PCM_16", 0), (16000, "PCM_16", 1e-4), (RATE, "FLOAT", 1e-4)],
)
@pytest.mark.parametrize("changes", [{}, {"remix": True, "epoch_size": 3}])
def test_mixtures_are_those_of_the_files(tmp_path, pack, rate, subtype, tolerance, changes):
    root, out = write_mixtures(tmp_path / "files", rate, subtype), tmp_path / "packed"
    code, told, err = pack("data=manifest", f"data.root={root}", "--out", out)
    assert code == 0, err
    assert "12 recordings" in told
    assert f"data=manifest data.root={out}" in told
    assert {file.name for file in out.iterdir()} == {
        "audio.pack", "train.csv", "valid.csv", "test.csv"
    }  # fmt: skip
    (tmp_path / "files").rename(tmp_path / "gone")
    out.rename(tmp_path / "moved")
    made = items_of(tmp_path / "moved", **changes)
    (tmp_path / "gone").rename(tmp_path / "files")
    for one, other in zip(made, items_of(root, **changes), strict=True):
        assert one["id"] == other["id"]
        for name in ("mixture", "sources", "noise"):
            # Remixed, all is scaled up to the peak.
            limit = tolerance * (20 if changes else 1)
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=limit)


def test_speakers_are_those_of_the_files(tmp_path, pack):
    root = tmp_path / "speech"
    for k in range(7):
        write_audio(root / f"s{k}" / "deep" / "a.flac", voice(k, 0.7).clamp(-1, 1), RATE)
    code, told, err = pack("data=speakers", f"data.root={root}", "--out", tmp_path / "packed")
    assert code == 0, err
    assert f"data.root={tmp_path / 'packed' / 'speakers.csv'}" in told
    settings = {"segment": 0.4, "num_workers": 0, "epoch_size": 4, "speed": True}
    for split in ("train", "valid", "test"):
        for resident in (False, True):
            own = SpeakersData(root, resident=resident, **settings)
            other = SpeakersData(
                tmp_path / "packed" / "speakers.csv", resident=resident, **settings
            )
            assert torch.equal(own.dataset(split)[0]["mixture"], other.dataset(split)[0]["mixture"])
            assert own.dataset(split)[0]["id"] == other.dataset(split)[0]["id"]


def test_bad_files_and_folders_are_refused(tmp_path, pack):
    root = write_mixtures(tmp_path / "files")
    (root / "s1_0.wav").unlink()
    (root / "noise_1.wav").write_bytes(b"")
    code, _, err = pack("data=manifest", f"data.root={root}", "--out", tmp_path / "out")
    assert code == 2
    assert "2 problems" in err
    assert not (tmp_path / "out").exists()
    code, _, err = pack("data=manifest", f"data.root={root}", "--out", root)
    assert (code, err.count("\n")) == (2, 1)
    assert "has something in it, name a new folder" in err


@pytest.fixture
def three(tmp_path):
    """A pack of recordings of 5, 1 and 4 samples."""
    samples = np.arange(10, dtype=np.int16)
    pieces = [(samples[:5], np.array([2**-15])), (samples[5:], np.array([0.5, 0.25]))]
    write_pack(tmp_path / "three.pack", np.array([5, 1, 4]), 8000, pieces)
    return tmp_path / "three.pack"


def test_a_recording_is_read_like_a_file(three, monkeypatch):
    info = audio_info(three / "2")
    assert (info.n_samples, info.sample_rate, info.channels, info.format) == (4, 8000, 1, "PACK")
    assert read_audio(three / "2")[0].tolist() == [1.5, 1.75, 2.0, 2.25]
    assert files_digest([str(three / "2")]) != files_digest([str(three / "1")])
    assert read_audio(three / "0", start=1, n_samples=2)[0].tolist() == [2**-15, 2**-14]
    assert np.concatenate(list(iter_blocks(three / "2", 3))).tolist() == [1.5, 1.75, 2.0, 2.25]
    monkeypatch.chdir(three.parent)
    assert read_audio("three.pack/1")[0].tolist() == [2.5]
    with pytest.raises(ValueError, match="samples 2 to 5 were asked for, the file has 4"):
        read_audio(three / "2", start=2, n_samples=3)


def test_what_is_wrong_with_a_pack_is_named(three, tmp_path):
    with pytest.raises(
        ValueError, match=r"three.pack: has 3 recordings, there is none of number 3"
    ):
        read_audio(three / "3")
    with pytest.raises(FileNotFoundError, match=r"other.pack: no such file"):
        read_audio(tmp_path / "other.pack" / "0")
    with open(three, "r+b") as file:
        file.truncate(three.stat().st_size - 1)
    with pytest.raises(ValueError, match=r"three.pack: cut short or damaged: make it anew"):
        read_audio(three / "0")
    sf.write(tmp_path / "a.wav", np.zeros(100), 8000)
    (tmp_path / "a.wav").rename(three)
    with pytest.raises(ValueError, match=r"three.pack: not a pack of recordings"):
        read_audio(three / "0")
    three.unlink()
    three.mkdir()
    sf.write(three / "7.wav", np.zeros(100), 8000)  # a folder of that name
    assert audio_info(three / "7.wav").n_samples == 100
    with pytest.raises(ValueError, match=r"2 recordings of 3 samples, expected 1 of 3"):
        write_pack(tmp_path / "b.pack", np.array([3]), 8000, [(np.zeros(3, np.int16), np.ones(2))])
    with pytest.raises(ValueError, match=r"b.wav: a pack's name ends in .pack"):
        write_pack(tmp_path / "b.wav", np.array([3]), 8000, [])
    assert not list(tmp_path.glob("b.*"))
