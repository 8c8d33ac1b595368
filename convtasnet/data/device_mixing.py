"""Leveling and mixing of a whole batch by tensor operators, for any device.

The rules are those of ``mixing.py``, which stays the reference. Powers are summed in float64, and
for 16-bit samples without any rounding, so that a decision is the same on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.data.mixing import FRAME, GATE_DB, PEAK


def frame_energies(signals: Tensor) -> Tensor:
    """Sums of squares over frames of ``FRAME`` samples: (..., T) -> (..., n_frames) float64."""
    padded = F.pad(signals, (0, -signals.shape[-1] % FRAME))
    return padded.double().square_().unflatten(-1, (-1, FRAME)).sum(-1)


def gated_levels(energies: Tensor, lengths: Tensor) -> Tensor:
    """Active levels (``mixing.active_level``) of signals of several lengths.

    Args:
        energies: (..., n_frames), of signals that are zero after their end.
        lengths: (...) int64 samples, at least 1; shapes broadcast.

    Returns:
        (...) float64, 0 for silence.

    >>> tone = torch.sin(torch.arange(8000) * 0.3)
    >>> energies = frame_energies(F.pad(tone, (0, 4000)))
    >>> [round(float(gated_levels(energies, torch.tensor(n))), 3) for n in (8000, 12000)]
    [0.707, 0.707]
    """
    begins = FRAME * torch.arange(energies.shape[-1], device=energies.device)
    sizes = (lengths[..., None] - begins).clamp(0, FRAME)
    there = sizes > 0
    powers = energies / sizes.clamp(min=1)
    mean = powers.sum(-1, keepdim=True) / there.sum(-1, keepdim=True)
    active = (powers >= mean * 10 ** (-GATE_DB / 10)) & there
    return ((powers * active).sum(-1) / active.sum(-1)).sqrt()


def first_loud(levels: Tensor, floors: Tensor) -> Tensor:
    """Of several candidates the first whose level reaches the floor, else the loudest.

    Args:
        levels: (..., n_candidates).
        floors: (...).

    Returns:
        (...) int64 index of the candidate.

    >>> first_loud(torch.tensor([[1.0, 3.0, 4.0], [0.0, 1.0, 0.5]]), torch.tensor([2.0, 2.0]))
    tensor([1, 1])
    """
    return levels.masked_fill(levels >= floors[..., None], torch.inf).argmax(-1)


def mix_leveled(
    sources: Tensor,
    levels: Tensor,
    gains: Tensor,
    peaks: Tensor | float = PEAK,
    targets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``mixing.mix`` of each item of a batch.

    Args:
        sources: (B, n_src, T) float32.
        levels: (B, n_src) float64, their active levels.
        gains: (B, n_src) float64, relative gains (factors, not dB).
        peaks: largest absolute sample of each item of the result, (B,) or one for all.
        targets: (B, n_src, T) to be scaled as the sources are, and given instead of them.

    Returns:
        ``(mixture (B, T), sources (B, n_src, T))``.
    """
    factors = gains / torch.where(levels > 0, levels, 1.0)
    factors = factors.to(sources.dtype)[..., None]
    scaled = sources * factors
    mixture = scaled.sum(1)
    given = scaled if targets is None else targets * factors
    parts = [mixture[:, None], scaled] + [given] * (targets is not None)
    largest = torch.stack([part.abs().amax((1, 2)) for part in parts]).amax(0)
    scale = torch.where(largest > 0, peaks / largest, 1.0).to(sources.dtype)
    return mixture * scale[:, None], given * scale[:, None, None]
