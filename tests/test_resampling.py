"""Resampling equals torchaudio's, at once and part by part."""

from __future__ import annotations

import pytest
import torch
import torchaudio

from convtasnet.resampling import Resampler, resample

RATES = [(44100, 8000), (8000, 44100), (16000, 8000), (8000, 48000), (11025, 16000), (8000, 8000)]


@pytest.mark.parametrize(("orig", "new"), [(701, 997), (1009, 401), (11025, 16000)])
def test_rates_with_hardly_a_common_divisor_are_torchaudios(orig: int, new: int) -> None:
    wav = torch.randn(2, 3, 4001, dtype=torch.float64)
    expected = torchaudio.functional.resample(wav, orig, new)
    torch.testing.assert_close(resample(wav, orig, new), expected)
    for length in (1, 2, 700):
        expected = torchaudio.functional.resample(wav[..., :length], orig, new)
        torch.testing.assert_close(resample(wav[..., :length], orig, new), expected)


@pytest.mark.parametrize(("orig", "new"), [*RATES, (44101, 8000), (701, 997), (7, 3), (1, 5)])
@pytest.mark.parametrize("length", [1, 100, 5003])
@pytest.mark.parametrize("part", [1, 37, 4096])
def test_parts_join(orig: int, new: int, length: int, part: int) -> None:
    wav = torch.randn(2, length)[:, : 200 * part]
    resampler = Resampler(orig, new)
    parts = [resampler.push(piece) for piece in wav.split(part, 1)]
    joined = torch.cat([*parts, resampler.push(wav[:, :0], end=True)], 1)
    expected = resample(wav.double(), orig, new).float()  # with an exact filter
    torch.testing.assert_close(joined, expected, atol=1e-5, rtol=1e-4)


def test_parts_come_out_as_they_come_in() -> None:
    resampler = Resampler(44100, 8000)
    given = 0
    for taken in range(1, 101):
        given += resampler.push(torch.zeros(441)).shape[0]
        assert 80 * taken - given <= 2 * 80


def test_a_resampler_can_be_used_again() -> None:
    resampler, wav = Resampler(8000, 16000), torch.randn(100)
    first, second = resampler.push(wav, end=True), resampler.push(wav, end=True)
    assert torch.equal(first, second)


def test_what_has_no_gradient_says_so() -> None:
    wav = torch.randn(100, requires_grad=True)
    assert resample(wav, 44100, 8000).requires_grad
    with pytest.raises(ValueError, match="44101:8000 are converted without gradients"):
        resample(wav, 44101, 8000)
    with torch.no_grad():
        assert resample(wav.bfloat16(), 44101, 8000).dtype == torch.bfloat16
