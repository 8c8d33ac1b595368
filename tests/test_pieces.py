"""Separation in pieces: nothing lost, nobody swapped, memory bounded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from convtasnet.pieces import MAX_OVERLAP, OVERLAP, PieceSeparator, chunk_samples

CHUNK = 4000


class Oracle(nn.Module):
    """Knows the sources, and gives them in an order that differs from call to call."""

    sample_rate, n_src = 8000, 2

    def __init__(self, sources: Tensor, leak: float = 0.0) -> None:
        super().__init__()
        self.sources, self.leak = sources, leak
        self.starts: list[int] = []
        self.lengths: list[int] = []

    def forward(self, mix: Tensor) -> Tensor:
        start = int(mix[0])  # the mixture is the sample's number
        voices = self.sources[:, start : start + len(mix)]
        voices = voices + self.leak * voices.flip(0)
        self.starts.append(start)
        self.lengths.append(len(mix))
        return voices.flip(0) if len(self.starts) % 2 == 0 else voices


def speech(n_samples: int, pauses: list[tuple[int, int, int]] = []) -> Tensor:  # noqa: B006
    """Two voices of noise, (2, n_samples), silent in the pauses (voice, start, end)."""
    generator = torch.Generator().manual_seed(n_samples)
    voices = torch.randn(2, n_samples, generator=generator)
    for voice, start, end in pauses:
        voices[voice, start:end] = 0
    return voices


def run(model: Oracle, n_samples: int, block: int) -> Tensor:
    pieces = PieceSeparator(model, CHUNK)
    mixture = torch.arange(n_samples, dtype=torch.float32)
    parts = [pieces.push(part) for part in mixture.split(block)]
    return torch.cat([*parts, pieces.flush()], 1)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("block", [100, 3333, 50000])
def test_the_voices_of_all_pieces_join(count: int, offset: int, block: int) -> None:
    sources = speech(count * CHUNK + offset)
    model = Oracle(sources, leak=0.1)
    y = run(model, sources.shape[1], block)
    torch.testing.assert_close(y, sources + 0.1 * sources.flip(0), atol=1e-5, rtol=0)
    hop = CHUNK - int(CHUNK * OVERLAP)
    assert all(0 < b - a <= hop for a, b in zip(model.starts, model.starts[1:], strict=False))
    assert set(model.lengths) == {min(CHUNK, sources.shape[1])}
    assert model.starts[-1] + model.lengths[-1] == sources.shape[1]


def test_the_blocks_do_not_matter() -> None:
    sources = speech(5 * CHUNK + 123)
    y = [run(Oracle(sources), sources.shape[1], block) for block in (1, 999, 10**6)]
    assert torch.equal(y[0], y[1])
    assert torch.equal(y[0], y[2])


@pytest.mark.parametrize("voice", [0, 1])
def test_one_voice_that_pauses_where_pieces_meet(voice: int) -> None:
    """The other one tells them apart, though the paused voice holds its faint remains."""
    sources = speech(5 * CHUNK, [(voice, 2500, 11000)])
    y = run(Oracle(sources, leak=0.03), sources.shape[1], 1000)
    torch.testing.assert_close(y, sources + 0.03 * sources.flip(0), atol=1e-5, rtol=0)


def test_silence_where_pieces_meet_makes_them_share_more() -> None:
    sources = speech(4 * CHUNK, [(0, 2600, 4500), (1, 2600, 4500)])
    model = Oracle(sources)
    y = run(model, sources.shape[1], 1000)
    assert model.starts[1] < 2600 - 100
    assert model.starts[1] >= CHUNK * (1 - MAX_OVERLAP)
    torch.testing.assert_close(y, sources)


def test_endless_silence_keeps_the_order() -> None:
    class Gains(nn.Module):
        sample_rate, n_src = 8000, 3

        def forward(self, mix: Tensor) -> Tensor:
            return torch.tensor([[0.2], [-0.3], [1.1]]) * mix

    mixture = torch.randn(30000)
    mixture[5000:20000] = 0
    pieces = PieceSeparator(Gains(), CHUNK)
    y = torch.cat([pieces.push(mixture), pieces.flush()], 1)
    torch.testing.assert_close(y, Gains()(mixture))


def test_what_is_held_back_is_bounded() -> None:
    sources = speech(40 * CHUNK)
    pieces = PieceSeparator(Oracle(sources), CHUNK)
    given = 0
    for taken, part in enumerate(torch.arange(40.0 * CHUNK).split(500), start=1):
        given += pieces.push(part).shape[1]
        assert 500 * taken - given <= 2.5 * CHUNK


def test_lengths_of_the_pieces() -> None:
    class Model(nn.Module):
        sample_rate, n_src, stride = 16000, 2, 8

    most = 48 * 16000
    assert chunk_samples(Model(), 1) == chunk_samples(Model(), most) == most
    for length in (most + 1, 60 * 16000, 100 * 16000, 3600 * 16000):
        chunk = chunk_samples(Model(), length)
        hop = chunk - int(chunk * OVERLAP)
        assert chunk <= most
        count = 1 + -(-(length - chunk) // hop)
        assert count * chunk < 1.25 * length + most / 4  # the last one repeats hardly anything
    model = Model()
    model.stride = 2
    assert chunk_samples(model, most) <= 200_000
