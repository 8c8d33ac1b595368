"""Separation of endless signals in pieces that share a stretch, with the voices kept in place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from convtasnet.matching import best_permutation

CHUNK_SECONDS = 48.0  # of one piece
MAX_FRAMES = 100_000  # of one piece: what bounds the memory at high rates and small hops
OVERLAP = 1 / 6  # of a piece, at least shared by neighbors
MAX_OVERLAP = 1 / 2
ENOUGH = 0.05  # of a voice's energy in a piece, within the shared stretch: 2.4 s of 48 s


class PieceSeparator:
    """Separates a signal that comes in parts by passes of the model over pieces of it.

    What is no longer than a piece is one pass of the model. Neighboring pieces share a sixth of
    their length or, where voices pause at the end of a piece, as much more, up to half, as it takes
    to hold a twentieth of the energy that all voices but one have in the piece. The voices of each
    piece are put into the order that continues the previous piece best there, by inner products,
    which the faint remains of a pausing voice do not decide; where all is silent, the order stays.
    The pieces are crossfaded in the middle of what they share, as both lack context at their ends.
    The last piece ends with the signal and is as long as the others.

    Args:
        model: called as ``model(mixture)``, (T,) -> (n_src, T), with attributes ``sample_rate`` and
            ``n_src``; computes where its weights are.
        chunk: samples of a piece, see :func:`chunk_samples`.

    Example:
        >>> class Halves(nn.Module):
        ...     sample_rate, n_src = 8000, 2
        ...     def forward(self, mix):
        ...         return torch.stack([mix, mix]) / 2
        >>> pieces = PieceSeparator(Halves(), chunk=6)
        >>> parts = [pieces.push(torch.ones(4)), pieces.push(torch.ones(9)), pieces.flush()]
        >>> [part.shape[1] for part in parts], torch.cat(parts, 1).unique()
        ([0, 5, 8], tensor([0.5000]))
    """

    def __init__(self, model: nn.Module, chunk: int) -> None:
        self._model, self.chunk = model, chunk
        self._overlap = max(1, int(self.chunk * OVERLAP))
        # From the start of the last piece on: the mixture, and the voices, not final yet.
        self._mixture = torch.empty(0)
        self._voices = torch.empty(int(model.n_src), 0)  # type: ignore[arg-type]
        self._next = 0  # where the next piece starts, unless it is the last

    def push(self, mixture: Tensor) -> Tensor:
        """Take mixture (k,) and give all voices (n_src, m) that are final."""
        if not len(self._mixture):
            self._mixture, self._voices = mixture, self._voices.to(mixture)
        else:
            self._mixture = torch.cat([self._mixture, mixture])
        final = []
        while len(self._mixture) > self._next + self.chunk:
            final.append(self._advance(self._next))
            self._next = self.chunk - self._shared()
        return torch.cat(final, 1) if final else self._voices[:, :0]

    def flush(self) -> Tensor:
        """Give the rest of the voices, (n_src, m)."""
        if not len(self._mixture):
            return self._voices
        final = self._advance(max(0, len(self._mixture) - self.chunk))
        rest = torch.cat([final, self._voices], 1)
        self._mixture, self._voices = self._mixture[:0], self._voices[:, :0]
        return rest

    def _advance(self, start: int) -> Tensor:
        """Separate the piece at ``start``, counted from the last one; give the voices before it."""
        piece = self._run(self._mixture[start : start + self.chunk])
        old = self._voices[:, start:]
        shared = old.shape[1]
        if shared:
            piece = piece[continuation(old, piece[:, :shared])]
            fade_in(old, piece[:, :shared], min(self._overlap, shared) // 2)
        final = self._voices[:, :start]
        self._voices = torch.cat([old, piece[:, shared:]], 1)
        self._mixture = self._mixture[start:]
        return final

    def _shared(self) -> int:
        """How much the next piece is to share with the last one: enough to tell the voices."""
        most = int(self.chunk * MAX_OVERLAP)
        energies = self._voices.square()
        needed = ENOUGH * energies.sum(1)
        step = max(1, self._overlap // 4)
        for shared in range(self._overlap, most, step):
            heard = energies[:, -shared:].sum(1) > needed
            if int(heard.sum()) >= len(heard) - 1:
                return shared
        return max(most, self._overlap)

    def _run(self, mixture: Tensor) -> Tensor:
        """One pass, (T,) -> (n_src, T), computed on the model's device."""
        weight = next(self._model.parameters(), mixture)
        with torch.inference_mode():
            estimates = self._model(mixture.to(weight.device, weight.dtype))
        # A copy, which is not an inference tensor.
        return estimates.to(mixture.device, mixture.dtype, copy=True)


def chunk_samples(model: nn.Module, length: int) -> int:
    """Samples of a piece with which pieces of equal length cover ``length`` samples.

    At most 48 s and 100,000 frames of the model.
    """
    most = math.ceil(CHUNK_SECONDS * int(model.sample_rate))  # type: ignore[arg-type]
    most = min(most, MAX_FRAMES * int(getattr(model, "stride", most)))
    if length <= most:
        return most
    count = math.ceil((length / most - OVERLAP) / (1 - OVERLAP))
    return math.ceil(length / (count - (count - 1) * OVERLAP))


def continuation(before: Tensor, after: Tensor) -> list[int]:
    """Order of the new piece's voices that continues the old one's, (n_src, T) both.

    The inner products over the shared stretch weigh each voice by its energy there, so the faint
    remains of a voice that pauses do not decide; all zero, they keep the order.
    """
    before, after = (x - x.mean(-1, keepdim=True) for x in (before, after))
    return best_permutation((after @ before.T)[None])[0].tolist()


def fade_in(before: Tensor, after: Tensor, length: int) -> None:
    """Turn ``before`` into ``after``, (n_src, T), in place, over ``length`` samples halfway."""
    start = (before.shape[-1] - length) // 2
    ramp = torch.linspace(0, 1, length + 2, device=before.device)[1:-1]
    middle = slice(start, start + length)
    before[:, middle] += ramp * (after[:, middle] - before[:, middle])
    before[:, start + length :] = after[:, start + length :]
