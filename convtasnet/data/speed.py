"""Signals of a batch played at different speeds, each at its own."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from convtasnet.resampling import filter_reach, resample

_CYCLE = 100  # output samples after which a speed of whole percents meets a whole sample again


def change_speed(
    signals: Tensor, percents: Tensor, lengths: Tensor, n_samples: int, speeds: range
) -> Tensor:
    """What ``resample(signal, percent, 100)`` makes of each signal, on any device.

    Args:
        signals: (..., T) float32, zero after their end.
        percents: (...) int64, among ``speeds``.
        lengths: (...) int64, samples of each result; zeros follow.
        n_samples: of the results.
        speeds: percents that may come, one after another.

    Returns:
        (..., n_samples).

    >>> signals, lengths = torch.randn(2, 1050), torch.tensor([1000, 1000])
    >>> changed = change_speed(signals, torch.tensor([97, 105]), lengths, 1000, range(95, 106))
    >>> bool((changed[1] - resample(signals[1], 105, 100)).abs().max() < 1e-5)
    True
    """
    device, flat = signals.device, percents.flatten()
    cycles = -(-n_samples // _CYCLE)
    times = torch.arange(cycles * _CYCLE, device=device)
    places = times * flat[:, None] // _CYCLE
    filters = _all_filters(speeds, device)
    reach = filters.shape[-1] // 2
    beyond = max(0, cycles * speeds[-1] - signals.shape[-1])
    padded = F.pad(signals.flatten(0, -2), (reach, reach + beyond))
    around = padded.unfold(-1, 2 * reach, 1)  # of each input sample; nothing is copied
    taps = around[torch.arange(len(flat), device=device)[:, None], places]
    own = filters[flat - speeds[0]]
    # A product and a sum: a matrix product might be computed in TF32.
    played = taps.unflatten(1, (cycles, _CYCLE)).mul_(own[:, None]).sum(-1).flatten(1)
    inside = times[:n_samples] < lengths[..., None]
    return played[:, :n_samples].unflatten(0, percents.shape) * inside


@functools.cache
def _all_filters(speeds: range, device: torch.device) -> Tensor:
    """(speeds, 100, input samples around each of 100 output samples)."""
    reach = filter_reach(speeds[-1], _CYCLE) + 1
    return torch.stack([_filters(percent, reach) for percent in speeds]).to(device)


def _filters(percent: int, reach: int) -> Tensor:
    """Weights of the input samples: responses to single pulses."""
    times = torch.arange(_CYCLE, 2 * _CYCLE)  # far enough from both ends
    pulses = torch.eye(3 * _CYCLE * max(percent, _CYCLE) // _CYCLE)
    responses = resample(pulses, percent, 100)[:, times]
    inputs = (times * percent // _CYCLE)[:, None] + torch.arange(-reach, reach)
    return responses[inputs, torch.arange(_CYCLE)[:, None]]
