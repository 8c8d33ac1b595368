"""Speeds of a whole batch, against resampling one signal at a time."""

import pytest
import torch

from convtasnet.data.speed import change_speed
from convtasnet.resampling import resample

USUAL = range(95, 106)


@pytest.mark.parametrize("n_samples", [1, 37, 1000, 1234])
@pytest.mark.parametrize("speeds", [USUAL, range(50, 201, 1), range(120, 131), range(80, 91)])
def test_every_speed_is_that_of_resampling(speeds, n_samples):
    percents = torch.tensor(speeds)
    signals = torch.randn(len(speeds), -(-n_samples * speeds[-1] // 100))
    lengths = torch.full((len(speeds),), n_samples)
    changed = change_speed(signals, percents, lengths, n_samples, speeds)
    for signal, percent, one in zip(signals, speeds, changed, strict=True):
        expected = resample(signal, percent, 100)[:n_samples]
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-5)


def test_signals_that_end_early():
    count = 500
    signals = torch.zeros(2, 2, 1050)
    signals[..., :count] = torch.randn(2, 2, count)
    percents = torch.tensor([[95, 100], [101, 105]])
    lengths = -(-count * 100 // percents)
    changed = change_speed(signals, percents, lengths, 1000, USUAL)
    for i in range(2):
        for j in range(2):
            length = int(lengths[i, j])
            expected = resample(signals[i, j, :count], int(percents[i, j]), 100)
            assert len(expected) == length
            torch.testing.assert_close(changed[i, j, :length], expected, rtol=0, atol=1e-5)
            assert changed[i, j, length:].eq(0).all()
