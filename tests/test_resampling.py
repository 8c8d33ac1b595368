"""Resampling part by part equals resampling at once."""

from __future__ import annotations

import pytest
import torch

from convtasnet.resampling import Resampler, resample

RATES = [(44100, 8000), (8000, 44100), (16000, 8000), (8000, 48000), (11025, 16000), (8000, 8000)]


@pytest.mark.parametrize(("orig", "new"), [*RATES, (96001, 8000), (7, 3), (1, 5)])
@pytest.mark.parametrize("length", [1, 100, 5003])
@pytest.mark.parametrize("part", [1, 37, 4096])
def test_parts_join(orig: int, new: int, length: int, part: int) -> None:
    wav = torch.randn(2, length)[:, : 200 * part]
    resampler = Resampler(orig, new)
    parts = [resampler.push(piece) for piece in wav.split(part, 1)]
    joined = torch.cat([*parts, resampler.push(wav[:, :0], end=True)], 1)
    expected = resample(wav.double(), orig, new).float()  # with an exact filter
    assert abs(joined.shape[1] - expected.shape[1]) <= (1 if orig == 96001 else 0)
    both = min(joined.shape[1], expected.shape[1])
    torch.testing.assert_close(joined[:, :both], expected[:, :both], atol=1e-5, rtol=1e-4)


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
