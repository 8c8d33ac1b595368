"""Files read at one rate, in stretches, and as 16-bit integers."""

import pytest
import torch

from convtasnet.audio import write_audio
from convtasnet.data.checks import read_headers
from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.recordings import Recordings, sixteen_bits


def recordings(folder, rate, sample_rate=8000, seconds=1.2):
    generator = torch.Generator().manual_seed(rate)
    path = folder / f"{rate}.wav"
    write_audio(path, torch.randn(round(seconds * rate), generator=generator) / 8, rate, "FLOAT")
    headers = read_headers(Manifest([Row("a", str(path), ())], folder, n_src=0))
    return Recordings([str(path)], headers.n_samples, headers.sample_rates, sample_rate)


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 11025, 4000, 96001, 1201])
def test_a_stretch_is_that_of_the_whole(tmp_path, rate):
    audio = recordings(tmp_path, rate)
    whole = audio.read(0)
    length = len(whole)
    assert audio.lengths.tolist() == [length]
    assert length == -(-round(1.2 * rate) * 8000 // rate)
    for start, count in [(0, 1), (0, 800), (1, 799), (4321, 1000), (length - 500, 500), (7, None)]:
        part = audio.read(0, start, count)
        end = length if count is None else start + count
        assert len(part) == end - start
        torch.testing.assert_close(part, whole[start:end], rtol=0, atol=1e-6)


def test_a_stretch_reads_little_of_a_file(tmp_path, monkeypatch):
    asked = []

    def read(path, start, n_samples):
        asked.append(n_samples)
        return torch.zeros(n_samples), 16000

    audio = recordings(tmp_path, 16000)
    monkeypatch.setattr("convtasnet.data.recordings.read_audio", read)
    audio.read(0, 3001, 1000)
    assert 2000 <= asked[0] <= 2040


def test_files_of_a_group_share_length_and_rate(tmp_path):
    one = recordings(tmp_path, 8000)
    path = one.paths[0]
    both = Recordings([path] * 4, one.n_samples.repeat(2), one.sample_rates.repeat(2), 8000, 2)
    assert (len(both), both.lengths.tolist(), both.file_lengths.tolist()) == (
        4,
        [9600] * 2,
        [9600] * 4,
    )
    assert torch.equal(both.read(3), one.read(0))


def test_what_came_from_sixteen_bits_is_kept():
    values = torch.arange(-(2**15), 2**15)
    samples, scale = sixteen_bits(values / 2**15)
    assert scale == 2**-15
    assert torch.equal(samples.int(), values.int())


@pytest.mark.parametrize("peak", [1e-6, 0.3, 1.0, 12.5])
def test_anything_else_is_rounded_to_its_peak(peak):
    wav = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    wav *= peak / wav.abs().max()
    samples, scale = sixteen_bits(wav)
    assert samples.abs().max() == 2**15 - 1
    error = (samples.double() * scale - wav.double()).abs().max()
    assert error <= 0.51 * peak / 2**15


def test_silence_has_a_scale():
    samples, scale = sixteen_bits(torch.zeros(3))
    assert samples.tolist() == [0, 0, 0]
    assert scale > 0
