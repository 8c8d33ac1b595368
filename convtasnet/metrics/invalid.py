"""When a metric has no meaning, and the words for it."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet.lengths import zero_mean_within

SILENCE = 1e-6  # what is left of a signal without its mean, relative to its peak
SAME = 1e-4  # what is left of a mixture without that source: the rounding of 16-bit files

MISSING_EVAL = "install convtasnet[eval]"
MISSING_PESQ = "install convtasnet[pesq]"
SILENT_REFERENCE = "silent reference"
SILENT_ESTIMATE = "silent estimate"
SILENT_MIXTURE = "silent mixture"
UNMIXED = "the mixture is one of its sources: nothing to improve"
NOT_FINITE = "not a finite number"


class InvalidError(Exception):
    """A metric has no meaning for a pair of signals; the message is the reason."""


def invalid_rows(
    estimates: Tensor, sources: Tensor, mixtures: Tensor, lengths: Tensor
) -> list[str]:
    """Why nothing of an item can be scored, or "" where it can.

    Args:
        estimates: (B, n_src, T).
        sources: (B, n_src, T).
        mixtures: (B, T).
        lengths: (B,) valid samples.

    Returns:
        B reasons: a signal that holds NaN or infinity, or one that is constant up to the rounding
        of float32.

    Example:
        >>> x = torch.randn(2, 1, 8)
        >>> invalid_rows(x, x * torch.tensor([[[1.0]], [[0.0]]]), x[:, 0], torch.tensor([8, 8]))
        ['', 'silent reference']
    """
    # In the order in which they are told: the first that holds is the reason.
    signals = {"estimate": estimates, "source": sources, "mixture": mixtures[:, None]}
    checks = {
        f"{name} holds NaN or infinity": ~_within(x, lengths).isfinite().all(-1).all(-1)
        for name, x in signals.items()
    }
    checks[SILENT_REFERENCE] = _silent(sources, lengths)
    checks[SILENT_ESTIMATE] = _silent(estimates, lengths)
    checks[SILENT_MIXTURE] = _silent(mixtures[:, None], lengths)
    reasons = list(checks)
    found = torch.stack(list(checks.values()), 1).tolist()  # one wait for the device
    return [next((r for r, bad in zip(reasons, row, strict=True) if bad), "") for row in found]


def unmixed(sources: Tensor, mixtures: Tensor, lengths: Tensor) -> list[bool]:
    """Is a mixture one of its sources, at any level? Its score against that one has no limit.

    Args:
        sources: (B, n_src, T).
        mixtures: (B, T).
        lengths: (B,) valid samples.

    Example:
        >>> speech, noise = torch.randn(2, 1, 80), torch.tensor([[0.0], [0.1]]) * torch.randn(80)
        >>> unmixed(speech, 0.5 * speech[:, 0] + noise, torch.tensor([80, 80]))
        [True, False]
    """
    source, mixture = (zero_mean_within(x, lengths) for x in (sources, mixtures[:, None]))
    gain = (source * mixture).sum(-1, keepdim=True) / source.square().sum(-1, keepdim=True)
    left = (mixture - gain * source).abs().amax(-1)
    found: list[bool] = (left <= SAME * mixture.abs().amax(-1)).any(-1).tolist()
    return found


def _silent(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, n, T) -> (B,): is one of the signals constant, up to the rounding of float32?"""
    left = zero_mean_within(x, lengths).abs().amax(-1)
    return (left <= SILENCE * _within(x, lengths).abs().amax(-1)).any(-1)


def _within(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, n, T) with zeros beyond the lengths."""
    valid = torch.arange(x.shape[-1], device=x.device) < lengths[:, None, None]
    return torch.where(valid, x, torch.zeros_like(x))
