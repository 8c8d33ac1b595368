"""Reading, writing and resampling of audio files."""

import os
import time

import numpy as np
import pytest
import soundfile as sf
import torch

from convtasnet import audio
from convtasnet.audio import audio_info, iter_blocks, read_audio, write_audio
from convtasnet.resampling import resample


def noise(n, seed=0):
    return (np.random.default_rng(seed).uniform(-0.9, 0.9, n)).astype(np.float32)


def cut(path, n_bytes):
    os.truncate(path, os.path.getsize(path) - n_bytes)


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_round_trip_is_lossless_on_the_integer_grid(tmp_path, name, subtype):
    write_audio(tmp_path / name, noise(1000), 8000, subtype)
    once, rate = read_audio(tmp_path / name)
    write_audio(tmp_path / name, once, rate, subtype)
    twice, _ = read_audio(tmp_path / name)
    assert rate == 8000
    assert once.dtype == torch.float32
    assert torch.equal(once, twice)
    bits = int(subtype[-2:])
    assert np.abs(once.numpy() - noise(1000)).max() <= 0.5001 * 2.0 ** (1 - bits)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT"])
def test_full_scale_is_not_wrapped(tmp_path, subtype):
    write_audio(tmp_path / "a.wav", torch.tensor([1.0, -1.0, 0.0]), 8000, subtype)
    wav, _ = read_audio(tmp_path / "a.wav")
    np.testing.assert_allclose(wav, [1, -1, 0], atol=4e-5)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE", "ULAW"])
def test_every_subtype_is_read(tmp_path, subtype):
    sf.write(tmp_path / "a.wav", noise(400), 16000, subtype=subtype)
    info = audio_info(tmp_path / "a.wav")
    assert (info.n_samples, info.sample_rate, info.channels) == (400, 16000, 1)
    wav, _ = read_audio(tmp_path / "a.wav")
    np.testing.assert_allclose(wav, noise(400), atol=0.04)


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_crop_equals_slice_of_whole(tmp_path, name):
    write_audio(tmp_path / name, noise(30000), 8000)
    whole, _ = read_audio(tmp_path / name)
    for start, n in [(0, 30000), (0, 1), (12345, 4321), (29999, 1), (100, None), (30000, 0)]:
        crop, _ = read_audio(tmp_path / name, start=start, n_samples=n)
        assert torch.equal(crop, whole[start : None if n is None else start + n])
    assert np.array_equal(np.concatenate(list(iter_blocks(tmp_path / name, 7000))), whole.numpy())


@pytest.mark.parametrize(("start", "n"), [(-1, 5), (0, 101), (101, None), (50, 51), (5, -1)])
def test_crop_outside_of_the_file_is_refused(tmp_path, start, n):
    write_audio(tmp_path / "a.wav", noise(100), 8000)
    with pytest.raises(ValueError, match="the file has 100"):
        read_audio(tmp_path / "a.wav", start=start, n_samples=n)


def test_stereo_is_averaged(tmp_path):
    stereo = np.stack([noise(500, 1), noise(500, 2)], axis=1)
    sf.write(tmp_path / "a.wav", stereo, 8000, subtype="FLOAT")
    assert audio_info(tmp_path / "a.wav").channels == 2
    wav, _ = read_audio(tmp_path / "a.wav")
    np.testing.assert_allclose(wav, stereo.mean(axis=1), atol=1e-7)


def test_names_with_spaces_and_letters(tmp_path, monkeypatch):
    write_audio(tmp_path / "ein Ordner é" / "größe 声.wav", noise(10), 8000)
    monkeypatch.chdir(tmp_path)
    assert read_audio("ein Ordner é/größe 声.wav")[0].shape == (10,)


def test_missing_file_is_named_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as error:
        audio_info("gone.wav")
    assert str(tmp_path / "gone.wav") in str(error.value)


def bad_files(folder):
    """Every kind of damage, as name -> words that the error has to hold."""
    (folder / "empty.wav").touch()
    (folder / "text.wav").write_text("hello, I am no audio at all " * 10)
    sf.write(folder / "header.wav", np.zeros(0, np.float32), 8000)
    sf.write(folder / "header.flac", noise(4000), 8000)
    os.truncate(folder / "header.flac", 42)
    sf.write(folder / "cut.wav", noise(4000), 8000)
    cut(folder / "cut.wav", 1001)
    sf.write(folder / "cut_float.wav", noise(4000), 8000, subtype="FLOAT")
    cut(folder / "cut_float.wav", 4)
    sf.write(folder / "cut.flac", noise(40000), 8000)
    cut(folder / "cut.flac", 20000)
    nan = noise(100)
    nan[50] = np.nan
    sf.write(folder / "nan.wav", nan, 8000, subtype="FLOAT")
    (folder / "speech.wv1").write_bytes(b"NIST_1A\n   1024\n" + b"x" * 2000)
    (folder / "a_folder.wav").mkdir()
    return {
        "empty.wav": "0 bytes",
        "text.wav": "not readable as audio",
        "header.wav": "no samples",
        "header.flac": "truncated|damaged|not readable",
        "cut.wav": "truncated, 1001 bytes",
        "cut_float.wav": "truncated, 4 bytes",
        "cut.flac": "truncated|damaged",
        "nan.wav": "NaN",
        "speech.wv1": "sph2pipe",
        "a_folder.wav": "folder",
    }


def test_damaged_files_are_named_with_the_reason(tmp_path):
    for name, words in bad_files(tmp_path).items():
        with pytest.raises(ValueError, match=words) as error:
            read_audio(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)


def test_wav_written_into_a_pipe_is_read_and_flac_refused(tmp_path):
    sf.write(tmp_path / "a.wav", noise(1000), 8000)
    data = bytearray((tmp_path / "a.wav").read_bytes())
    at = data.index(b"data") + 4
    data[at : at + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "a.wav").write_bytes(data)
    sf.write(tmp_path / "a.flac", noise(1000), 8000)
    data = bytearray((tmp_path / "a.flac").read_bytes())
    data[21] &= 0xF0  # STREAMINFO's 36 bits of total samples
    data[22:26] = b"\0\0\0\0"
    (tmp_path / "a.flac").write_bytes(data)
    assert audio_info(tmp_path / "a.wav").n_samples == 1000
    np.testing.assert_allclose(read_audio(tmp_path / "a.wav")[0], noise(1000), atol=1e-4)
    with pytest.raises(ValueError, match="how long it is"):  # libsndfile can't seek in it
        read_audio(tmp_path / "a.flac")


@pytest.mark.parametrize(
    ("wav", "subtype", "words"),
    [
        (torch.tensor([0.0, 1.01]), "PCM_16", "reach 1.01"),
        (torch.tensor([0.0, float("nan")]), "FLOAT", "NaN"),
        (torch.zeros(2, 5), "PCM_16", r"\(2, 5\)"),
        (torch.zeros(0), "PCM_16", r"\(0,\)"),
        (torch.zeros(5), "MP3", "MP3"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path, wav, subtype, words):
    write_audio(tmp_path / "a.wav", noise(10), 8000)
    before = (tmp_path / "a.wav").read_bytes()
    with pytest.raises(ValueError, match=words) as error:
        write_audio(tmp_path / "a.wav", wav, 8000, subtype)
    assert str(tmp_path / "a.wav") in str(error.value)
    assert (tmp_path / "a.wav").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.wav"]


def test_a_failing_write_leaves_no_temporary_file(tmp_path, monkeypatch):
    def full_disk(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(sf.SoundFile, "write", full_disk)
    with pytest.raises(OSError, match="disk full"):
        write_audio(tmp_path / "a.wav", noise(10), 8000)
    assert os.listdir(tmp_path) == []


def test_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.xyz"):
        write_audio(tmp_path / "a.xyz", noise(10), 8000)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100, 48000])
def test_one_second_stays_one_second(tmp_path, rate):
    """A tone survives, one above the new Nyquist frequency dies; lengths are exact."""
    t = np.arange(rate) / rate
    write_audio(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 440 * t), rate)
    wav, new = read_audio(tmp_path / "a.wav", sample_rate=8000)
    assert (wav.shape, new) == ((8000,), 8000)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    np.testing.assert_allclose(wav[400:-400], expected[400:-400], atol=2e-3)
    assert resample(wav, 8000, rate, n_samples=rate + 3).shape == (rate + 3,)
    if rate > 16000:
        high = torch.from_numpy(np.sin(2 * np.pi * 7000 * t))
        assert resample(high, rate, 8000)[400:-400].abs().max() < 0.01


def test_resample_refuses_bad_rates():
    with pytest.raises(ValueError, match="new_rate is 0"):
        resample(torch.zeros(10), 8000, 0)


@pytest.mark.parametrize("name", ["hour.wav", "hour.flac"])
def test_a_crop_of_a_long_file_reads_only_the_crop(tmp_path, name):
    """The 4 s at the end cost about what the 4 s at the start cost (10 min here)."""
    sf.write(tmp_path / name, noise(8000 * 600), 8000)

    def cost(start):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            read_audio(tmp_path / name, start=start, n_samples=32000)
            times.append(time.perf_counter() - began)
        return min(times)

    assert cost(8000 * 590) < 0.05


@pytest.mark.parametrize("rate", [3001, 44101, 96001, 1234567])
def test_rates_with_hardly_a_common_divisor_need_no_huge_filter(rate):
    t = torch.arange(rate) / rate
    wav = resample(torch.sin(2 * torch.pi * 400 * t), rate, 8000)
    assert wav.shape == (8000,)
    expected = torch.sin(2 * torch.pi * 400 * torch.arange(8000) / 8000)
    assert (wav - expected)[100:-100].abs().max() < 2e-3


def test_a_length_that_is_wanted_is_given():
    wav = torch.randn(441)
    expected = resample(wav, 44100, 8000)
    assert expected.shape == (80,)
    assert torch.equal(resample(wav, 44100, 8000, 77), expected[:77])
    longer = resample(wav, 44100, 8000, 83)
    assert torch.equal(longer[:80], expected)
    assert not longer[80:].any()


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_written_in_blocks_is_written_at_once(tmp_path, subtype):
    wav = torch.rand(1000) * 2 - 1
    write_audio(tmp_path / "once.wav", wav, 8000, subtype)
    with audio.audio_writer(tmp_path / "blocks.wav", 8000, 1000, subtype) as write:
        for block in wav.split(333):
            write(block.numpy())
        assert not (tmp_path / "blocks.wav").exists()
    assert (tmp_path / "blocks.wav").read_bytes() == (tmp_path / "once.wav").read_bytes()


def test_a_wav_beyond_4_gib_has_another_header(tmp_path, monkeypatch):
    monkeypatch.setattr(audio, "_MAX_WAV_BYTES", 1000)
    for name, length, kind in (("short", 500, "WAV"), ("long", 501, "RF64")):
        write_audio(tmp_path / f"{name}.wav", torch.rand(length), 8000)
        assert audio_info(tmp_path / f"{name}.wav").format == kind
        assert len(read_audio(tmp_path / f"{name}.wav")[0]) == length
