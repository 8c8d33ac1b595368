"""The permutation-invariant SI-SDR loss from float64 sums, in PyTorch operators: all devices."""

from __future__ import annotations

import math
from itertools import permutations

import torch
from torch import Tensor

FLOOR = torch.finfo(torch.float32).eps ** 2  # energy below which a share is rounding noise
DECIBELS = 10 / math.log(10)


def forward(
    est: Tensor, ref: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, and what its gradient is made of; all tensors are contiguous.

    Args:
        est: (B, S, T).
        ref: (B, S, T).
        lengths: (B,) valid samples, or None for all.

    Returns:
        The loss, a float32 scalar; the estimate of each reference (B, S) int64; three float64
        numbers of each reference (B, S, 3), by which the differences to their first sample of its
        estimate and of itself, and 1, make up the gradient of its SI-SDR, zeros for a silent one;
        and the number of audible references, a float64 scalar.
    """
    n, e, r = _differences(est, ref, lengths)
    mean_e, mean_r = e.sum(-1) / n, r.sum(-1) / n
    energy_e, energy_r = e.square().sum(-1), r.square().sum(-1)
    silent, audible = (energy_e == 0)[:, :, None], (energy_r != 0)[:, None]
    norm_e = (energy_e - n * mean_e.square())[:, :, None].masked_fill(silent, 1.0).sqrt()
    norm_r = (energy_r - n * mean_r.square())[:, None].masked_fill(~audible, 1.0).sqrt()
    products = (
        torch.einsum("bit,bjt->bij", e, r) - n[:, None] * mean_e[:, :, None] * mean_r[:, None]
    )
    cosine = products / (norm_e * norm_r)
    target = cosine.square()
    rest = (1 - target).clamp(min=0)
    value = DECIBELS * ((target + FLOOR).log() - (rest + FLOOR).log())
    perm = _best_matching(value.masked_fill(~audible, 0.0).nan_to_num(nan=0.0))
    slope = 2 * DECIBELS * cosine * (1 / (target + FLOOR) + 1 / (rest + FLOOR)) / norm_e
    slope = slope.masked_fill(silent | ~audible, 0.0)
    own, other = -slope * cosine / norm_e, slope / norm_r
    constant = -(own * mean_e[:, :, None] + other * mean_r[:, None])
    coeff = torch.stack([_matched(part, perm) for part in (own, other, constant)], -1)
    count = audible.sum(dtype=torch.float64)
    loss = -_matched(value.masked_fill(~audible, 0.0), perm).sum() / count.clamp(min=1)
    return loss.float(), perm, coeff, count


def backward(
    upstream: Tensor,
    est: Tensor,
    ref: Tensor,
    lengths: Tensor | None,
    perm: Tensor,
    coeff: Tensor,
    count: Tensor,
) -> Tensor:
    """Gradient (B, S, T) of est, zero beyond the lengths.

    Args:
        upstream: that of the loss, a scalar.
        est: as in ``forward``, and so all that follows.
        ref: see est.
        lengths: see est.
        perm: that ``forward`` gave, and so all that follows.
        coeff: see perm.
        count: see perm.
    """
    _, e, r = _differences(est, ref, lengths)
    own, other, constant = coeff[..., None].unbind(2)
    places = perm[..., None].expand_as(e)
    g = own * e.gather(1, places) + other * r + constant
    g = _valid(est, lengths, g * (-upstream.double() / count.clamp(min=1)))
    return torch.empty_like(est).scatter_(1, places, g.to(est.dtype))


def _differences(est: Tensor, ref: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of each item (B, 1) and float64 differences to the first one, zero behind them."""
    B, _, T = est.shape
    n = est.new_full((B,), T, dtype=torch.float64) if lengths is None else lengths.double()
    e, r = (
        # Not the difference of equal infinities: a constant is silent, whatever it is.
        _valid(x, lengths, x.double() - x[..., :1].double()).masked_fill(x == x[..., :1], 0.0)
        for x in (est, ref)
    )
    return n[:, None], e, r


def _valid(x: Tensor, lengths: Tensor | None, values: Tensor) -> Tensor:
    if lengths is None:
        return values
    t = torch.arange(x.shape[-1], device=x.device)
    return values.masked_fill(t >= lengths[:, None, None], 0.0)


def _best_matching(scores: Tensor) -> Tensor:
    """The perm (B, S) with the highest sum of scores[b, perm[b, j], j]."""
    S = scores.shape[-1]
    choices = torch.tensor(list(permutations(range(S))), device=scores.device)
    totals = scores[:, choices, torch.arange(S, device=scores.device)].sum(-1)
    return choices[totals.argmax(-1)]


def _matched(pairs: Tensor, perm: Tensor) -> Tensor:
    """pairs[b, perm[b, j], j] of (B, S, S)."""
    return pairs.gather(1, perm[:, None]).squeeze(1)
