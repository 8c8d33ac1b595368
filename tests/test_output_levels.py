"""Gains of separated voices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from convtasnet.levels import Levels


def gathered(voices: Tensor, mixture: Tensor, block: int = 7) -> Levels:
    levels = Levels(len(voices))
    for part, mix in zip(voices.split(block, 1), mixture.split(block), strict=True):
        levels.add(part, mix)
    return levels


def test_gains_are_the_least_squares_fits() -> None:
    voices = torch.randn(3, 100, dtype=torch.float64)
    mixture = torch.randn(100, dtype=torch.float64)
    gains = gathered(voices, mixture).gains(full_scale=False)
    for voice, gain in zip(voices.numpy(), gains.tolist(), strict=True):
        (expected,) = np.linalg.lstsq(voice[:, None], mixture.numpy())[0]
        assert gain == pytest.approx(expected)


@pytest.mark.parametrize("normalize", ["mixture", "none"])
def test_nothing_clips_and_the_balance_stays(
    normalize: str, caplog: pytest.LogCaptureFixture
) -> None:
    voices = torch.randn(2, 100) * torch.tensor([[30.0], [5.0]])
    levels = gathered(voices, 3 * voices.sum(0))
    free = levels.gains(normalize, full_scale=False)
    assert not caplog.text
    gains = levels.gains(normalize)
    assert "attenuated" in caplog.text
    assert float((gains[:, None] * voices).abs().max()) == pytest.approx(1)
    torch.testing.assert_close(gains / gains[0], free / free[0])
    if normalize == "none":
        assert torch.equal(free, torch.ones(2, dtype=torch.float64))


def test_quiet_voices_are_left_alone_unless_peaks_are_asked_for() -> None:
    voices = 0.01 * torch.eye(2).repeat(1, 50)
    levels = gathered(voices, voices.sum(0))
    assert levels.gains().tolist() == pytest.approx([1, 1])
    assert levels.gains("peak").tolist() == pytest.approx([100, 100])


def test_silence_stays_silence() -> None:
    levels = gathered(torch.zeros(2, 10), torch.randn(10))
    for normalize in ("mixture", "peak", "none"):
        assert levels.gains(normalize).tolist() == [1, 1]


def test_wrong_values_are_named() -> None:
    with pytest.raises(ValueError, match="normalize='loud'"):
        Levels(2).gains("loud")
    with pytest.raises(ValueError, match="NaN"):
        gathered(torch.tensor([[1.0, torch.nan]]), torch.ones(2)).gains()
    with pytest.raises(ValueError, match="the mixture holds NaN"):
        gathered(torch.ones(1, 2), torch.tensor([1.0, torch.nan])).gains()
