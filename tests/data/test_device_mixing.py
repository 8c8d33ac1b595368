"""Leveling and mixing of whole batches, against the reference that takes one signal at a time."""

import pytest
import torch
from torch.nn import functional as F

from convtasnet.data.device_mixing import first_loud, frame_energies, gated_levels, mix_leveled
from convtasnet.data.mixing import FRAME, active_level, mix

N_SAMPLES = 10 * FRAME + 37


def speech(n_samples, seed, amplitude=3000):
    """Bursts and pauses, whole numbers of 16 bits."""
    generator = torch.Generator().manual_seed(seed)
    bursts = torch.rand(n_samples // 100 + 1, generator=generator) > 0.5
    noise = torch.randn(n_samples, generator=generator)
    wav = noise * bursts.repeat_interleave(100)[:n_samples] * amplitude
    return wav.round().clamp(-(2**15), 2**15 - 1).short()


@pytest.mark.parametrize("n_samples", [1, 199, 200, 201, 1000, N_SAMPLES - 1, N_SAMPLES])
def test_levels_are_those_of_each_signal_alone(n_samples):
    wavs = [speech(n_samples, seed) for seed in range(4)] + [torch.zeros(n_samples).short()]
    batch = torch.stack([F.pad(wav, (0, N_SAMPLES - n_samples)) for wav in wavs])
    levels = gated_levels(frame_energies(batch), torch.full((5,), n_samples))
    expected = torch.tensor([active_level(wav.float()) for wav in wavs], dtype=torch.float64)
    torch.testing.assert_close(levels, expected, rtol=1e-12, atol=0)
    assert levels[-1] == 0


def test_levels_of_several_lengths_at_once():
    wavs = [speech(n, seed) for seed, n in enumerate([200, 777, 2000, N_SAMPLES])]
    batch = torch.stack([F.pad(wav, (0, N_SAMPLES - len(wav))) for wav in wavs]).reshape(2, 2, -1)
    lengths = torch.tensor([len(wav) for wav in wavs]).reshape(2, 2)
    levels = gated_levels(frame_energies(batch), lengths)
    expected = [active_level(wav.float()) for wav in wavs]
    assert levels.flatten().tolist() == pytest.approx(expected, rel=1e-12)


def test_energies_of_integers_are_exact():
    loudest = torch.full((2, FRAME + 1), -(2**15), dtype=torch.int16)
    assert frame_energies(loudest).tolist() == [[FRAME * 2.0**30, 2.0**30]] * 2


def test_the_first_loud_candidate_or_the_loudest():
    levels = torch.tensor([[5.0, 9.0, 1.0], [1.0, 5.0, 9.0], [1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
    assert first_loud(levels, torch.full((4,), 5.0)).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("n_src", [1, 2, 3])
def test_mixtures_are_those_of_each_item_alone(n_src):
    wavs = torch.stack([speech(N_SAMPLES, seed) for seed in range(4 * n_src)]).float()
    sources = wavs.reshape(4, n_src, -1)
    sources[1, 0] = 0
    gains = 5 * torch.rand(4, n_src, dtype=torch.float64) - 2.5
    levels = gated_levels(frame_energies(sources), torch.full((4, n_src), N_SAMPLES))
    mixture, leveled = mix_leveled(sources, levels, 10 ** (gains / 20))
    for i in range(4):
        one, parts = mix(list(sources[i]), gains[i].tolist())
        torch.testing.assert_close(mixture[i], one, rtol=0, atol=1e-6)
        torch.testing.assert_close(leveled[i], parts, rtol=0, atol=1e-6)


def test_silence_stays_silent():
    mixture, sources = mix_leveled(torch.zeros(2, 2, 10), torch.zeros(2, 2), torch.ones(2, 2))
    assert mixture.eq(0).all()
    assert sources.eq(0).all()
