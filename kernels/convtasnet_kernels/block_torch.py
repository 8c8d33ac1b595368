"""The steps of a fused block in PyTorch operators, forward: any device and dtype.

Same arguments, results and mathematics as the Triton kernels of ``block_forward.py`` and
``block_statistics.py``; sums are float32 there, and here (float64 for float64 maps), over time in
float64. Maps are (B, H, F); ``lengths`` (B,) are the valid frames of each item, or None for all.
Frames beyond them must be finite and count as zero. A norm, behind a PReLU of one slope (1,), is
given by gamma and beta (H,) and its statistics (2, B, F): mean - K and 1/sqrt(var + eps), zero
beyond the lengths, where K is the first sample of the item behind the PReLU.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels import depthwise_torch
from convtasnet_kernels.pointwise import activate, statistics_dtype


def frame_sums(u: Tensor, slope: Tensor, bias: Tensor | None = None) -> Tensor:
    """Sums over the channels of each frame, around its first channel.

    Args:
        u: (B, H, F) map before the PReLU.
        slope: (1,) of the PReLU.
        bias: (H,) still to be added to u, or None.

    Returns:
        (3, B, 1, F): sums of v - p and of (v - p)², and p; v = prelu(u + bias), p that of the first
        channel. The Triton kernels leave them for chunks of channels, each around its own first.
    """
    v = activated(u, slope, bias)
    d = v - v[:, :1]
    return torch.stack((d.sum(1, keepdim=True), d.square().sum(1, keepdim=True), v[:, :1]))


def workspaces(x: Tensor, kind: str, count: int) -> list[None]:
    """What the Triton kernels need for ``count`` statistics of x's items and frames; here nothing.

    Args:
        x: (B, ..., F).
        kind: "cumulative", "global" or "channelwise".
        count: of calls of ``statistics`` or ``gradient_statistics``, each of which takes one.
    """
    return [None] * count


def statistics(
    partial: Tensor,
    channels: int,
    kind: str,
    lengths: Tensor | None,
    eps: float,
    workspace: None = None,
) -> Tensor:
    """The norm's statistics from sums over chunks.

    Args:
        partial: from ``frame_sums``.
        channels: H.
        kind: "cumulative", "global" or "channelwise".
        lengths: (B,) or None.
        eps: added to the variance.
        workspace: one of ``workspaces``; without one, the Triton kernels make their own.

    Returns:
        (2, B, F): mean - K and 1/sqrt(var + eps), zero beyond the lengths.
    """
    total, square, first = partial[:, :, 0].double()
    pivot = first - first[:, :1]
    square = square + pivot * (2 * total + channels * pivot)
    total = total + channels * pivot
    valid = valid_frames(partial[0], lengths)
    total, square = (over_time(torch.where(valid, s, 0.0), kind) for s in (total, square))
    n = frame_counts(valid, kind) * channels
    mean = total / n
    rstd = (square / n - mean.square()).clamp_min(0).add(eps).rsqrt()
    return torch.where(valid, torch.stack((mean, rstd)), 0.0).to(partial.dtype)


def depthwise_norm(
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    taps: Tensor,
    next_bias: Tensor,
    dilation: int,
    causal: bool,
    next_slope: Tensor,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The depthwise convolution of the normalized map, and the frame sums of its own PReLU.

    Args:
        u: (B, H, F) before PReLU and norm.
        slope: (1,), with gamma, beta (H,) and stats (2, B, F) those of the norm.
        gamma: see slope.
        beta: see slope.
        stats: see slope.
        taps: (H, 1, P).
        next_bias: (H,) of the convolution.
        dilation: frames between two taps.
        causal: whether the taps reach back only.
        next_slope: (1,), of the PReLU that follows.
        bias: (H,) still to be added to u, or None.

    Returns:
        (B, H, F) of u's dtype, and its ``frame_sums``.
    """
    z = normalized(u, slope, gamma, beta, stats, bias)
    y = depthwise_torch.forward(z, taps, next_bias, dilation, causal).to(u.dtype)
    return y, frame_sums(y, next_slope)


def normalize(u: Tensor, slope: Tensor, gamma: Tensor, beta: Tensor, stats: Tensor) -> Tensor:
    """PReLU and norm of u (B, H, F), of its dtype, zero beyond the lengths."""
    return normalized(u, slope, gamma, beta, stats).to(u.dtype)


def taken_rows(
    total: Tensor, start: int, rows: int, bias: Tensor | None = None, slope: Tensor | None = None
) -> Tensor:
    """A copy of channels of a map, with a bias and behind a PReLU.

    Args:
        total: (B, C, F).
        start: the first channel.
        rows: how many.
        bias: (rows,) to be added, or None.
        slope: (1,) of the PReLU, or None for no PReLU.

    Returns:
        (B, rows, F).
    """
    part = total[:, start : start + rows]
    if slope is not None:
        return activated(part, slope, bias).to(total.dtype)
    if bias is None:
        return part.clone(memory_format=torch.contiguous_format)
    return torch.add(part, bias[:, None], out=total.new_empty(part.shape))


def joined_rows(first: Tensor | None, second: Tensor | None, like: Tensor, channels: int) -> Tensor:
    """A new map (B, channels, F) of first (B, R, F), like ``like``, and second; None for zeros."""
    items, rows, frames = like.shape
    total = like.new_zeros((items, channels, frames))
    for part, given in ((total[:, :rows], first), (total[:, rows:], second)):
        if given is not None:
            part.copy_(given)
    return total


def normalized(
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """As ``normalize``, of u + bias and of the statistics' dtype."""
    z = deviations(u, slope, stats, bias) * gamma.to(stats.dtype)[:, None]
    z += beta.to(stats.dtype)[:, None]
    return torch.where(stats[1, :, None] == 0, 0.0, z)  # beyond the lengths


def deviations(u: Tensor, slope: Tensor, stats: Tensor, bias: Tensor | None = None) -> Tensor:
    """(prelu(u + bias) - mean)·rstd, of the statistics' dtype."""
    v = activated(u, slope, bias)
    return (v - v[:, :1, :1] - stats[0, :, None]) * stats[1, :, None]


def activated(u: Tensor, slope: Tensor, bias: Tensor | None) -> Tensor:
    """prelu(u + bias) of the statistics' dtype, u (B, C, F), bias (C,) or None."""
    if bias is None:
        return activate(u, slope)
    return activate(u.to(statistics_dtype(u)) + bias.to(statistics_dtype(u))[:, None], slope)


def valid_frames(u: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, F), whether each frame of u (B, H, F) is before its item's length."""
    frames = torch.arange(u.shape[2], device=u.device).expand(len(u), -1)
    return frames >= 0 if lengths is None else frames < lengths[:, None]


def frame_counts(valid: Tensor, kind: str) -> Tensor:
    """How many frames enter the statistics of each frame, (B, F) float64, at least 1."""
    if kind == "channelwise":
        return torch.ones(valid.shape, dtype=torch.float64, device=valid.device)
    return over_time(valid.double(), kind).clamp_min(1)


def over_time(sums: Tensor, kind: str) -> Tensor:
    """Adds sums (B, F) of the frames up over those that enter the statistics of each frame."""
    if kind == "cumulative":
        return sums.cumsum(1)
    return sums if kind == "channelwise" else sums.sum(1, keepdim=True).expand_as(sums)
