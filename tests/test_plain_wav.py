"""Plain wav files are read as libsndfile reads them, and all others are left to it."""

import struct

import numpy as np
import pytest
import soundfile as sf

from convtasnet.audio import audio_info, iter_blocks, read_audio, read_audio_into
from convtasnet.plain_wav import PlainWav

SAMPLES = np.random.default_rng(0).uniform(-1, 1, (500, 2))


def opened(path):
    with open(path, "rb", buffering=0) as file:
        wav = PlainWav(file)
        samples = np.empty(wav.frames, np.float32)
        assert wav.read(0, samples) == wav.frames
        return wav, samples


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
def test_the_samples_are_those_of_libsndfile(tmp_path, subtype, form, channels):
    path = tmp_path / "a.wav"
    sf.write(path, SAMPLES[:, :channels], 16000, subtype=subtype, format=form)
    wav, samples = opened(path)
    assert (wav.frames, wav.samplerate, wav.channels, wav.subtype) == (
        500,
        16000,
        channels,
        subtype,
    )
    expected = sf.read(path, dtype="float32", always_2d=True)[0]
    mean = expected[:, 0] if channels == 1 else expected.mean(1)
    np.testing.assert_array_equal(samples, mean)
    crop, _ = read_audio(path, start=123, n_samples=300)
    into = np.zeros(302, np.float32)
    assert read_audio_into(path, into[1:301], start=123) == 16000
    np.testing.assert_array_equal(into[1:301], crop)
    assert not into[[0, 301]].any()
    np.testing.assert_array_equal(crop, mean[123:423])
    np.testing.assert_array_equal(np.concatenate(list(iter_blocks(path, 77))), mean)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_24", "PCM_32", "DOUBLE", "ULAW"])
def test_other_samples_are_left_to_libsndfile(tmp_path, subtype):
    sf.write(tmp_path / "a.wav", SAMPLES, 8000, subtype=subtype)
    with pytest.raises(ValueError, match="another format"):
        opened(tmp_path / "a.wav")
    assert audio_info(tmp_path / "a.wav").subtype == subtype


def chunk(kind, data):
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


PCM = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
VALUES = struct.pack("<4h", 1, -2, 3, -(2**15))


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b"fmt ", PCM), chunk(b"data", VALUES)],
        [chunk(b"LIST", b"odd"), chunk(b"fmt ", PCM), chunk(b"data", VALUES), chunk(b"id3 ", b"x")],
        [chunk(b"fmt ", PCM + b"\0\0"), chunk(b"fact", VALUES[:4]), chunk(b"data", VALUES)],
    ],
)
def test_other_chunks_are_passed_over(tmp_path, chunks):
    body = b"WAVE" + b"".join(chunks)
    (tmp_path / "a.wav").write_bytes(chunk(b"RIFF", body))
    wav, samples = opened(tmp_path / "a.wav")
    assert wav.frames == 4
    assert (samples * 2**15).tolist() == [1, -2, 3, -(2**15)]
    np.testing.assert_array_equal(sf.read(tmp_path / "a.wav")[0], samples)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not RIFF"),
        (b"RIFF\0\0\0\0WAVE", "no samples"),
        (b"RIFX" + chunk(b"RIFF", b"WAVE")[4:], "not RIFF"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"data", VALUES) + chunk(b"fmt ", PCM), "no format before"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"fmt ", PCM) + chunk(b"data", b""), "empty"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"fmt ", PCM) + chunk(b"data", VALUES)[:-1], "cut short"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"fmt ", PCM) + chunk(b"data", VALUES[:3]), "odd"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"fmt ", PCM[:10]) + chunk(b"data", VALUES), "short format"),
        (b"RIFF\0\0\0\0WAVE" + chunk(b"LIST", bytes(5000)), "no samples near"),
    ],
)
def test_what_is_odd_is_left_to_libsndfile(tmp_path, content, reason):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        opened(tmp_path / "a.wav")


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    sf.write(tmp_path / "a.wav", SAMPLES, 8000)
    with open(tmp_path / "a.wav", "rb", buffering=0) as file:
        wav = PlainWav(file)
        with open(tmp_path / "a.wav", "r+b") as other:
            other.truncate(44 + 4 * 100 + 3)
        assert wav.read(0, np.empty(500, np.float32)) == 100
        assert wav.read(100, np.empty(0, np.float32)) == 0
