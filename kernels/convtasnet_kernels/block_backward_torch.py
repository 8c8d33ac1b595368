"""The steps of a fused block in PyTorch operators, backward; see ``block_torch.py``.

Same arguments, results and mathematics as the Triton kernels of ``block_backward.py``. Here
``dv = rstd·gamma·g + shift + slope·xhat`` is the gradient behind the PReLU, xhat the normalized
deviation, and (shift, slope) of each frame the coefficients (2, B, F) that all three norms share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet_kernels import block_torch, depthwise_torch
from convtasnet_kernels.block_torch import joined_rows, taken_rows, workspaces
from convtasnet_kernels.pointwise import statistics_dtype

__all__ = [
    "depthwise_gradient",
    "gradient_statistics",
    "joined_gradients",
    "norm_gradient",
    "norm_gradient_sums",
    "parameter_gradients",
    "taken_rows",
    "workspaces",
]


def joined_gradients(
    first: Tensor | None,
    second: Tensor | None,
    like: Tensor,
    channels: int,
    u: Tensor | None = None,
    bias: Tensor | None = None,
    slope: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the map beside the blocks, and what is summed over it.

    Args:
        first: as in ``block_torch.joined_rows``, gradients of what was taken out of the map.
        second: see first.
        like: see first.
        channels: see first.
        u: (B, channels, F) the map, whose rows went through a PReLU when they were taken out: the
            second's, or where there are none all of them. None for no PReLU.
        bias: (channels,) still to be added to u.
        slope: (1,) of the PReLU.

    Returns:
        The map (B, channels, F), its sums (channels,) over items and frames, and the gradient of
        the slope (1,), empty without one.
    """
    total, dtype = joined_rows(first, second, like, channels), statistics_dtype(like)
    d_slope = like.new_empty((0,), dtype=dtype)
    if u is not None and slope is not None:
        behind = total[:, like.shape[1] :] if channels > like.shape[1] else total
        v = _biased(u, bias, dtype)[:, -behind.shape[1] :]
        dv = behind.to(dtype)
        d_slope = torch.where(v > 0, 0.0, dv * v).sum().reshape(1)
        behind.copy_(torch.where(v > 0, dv, dv * slope.to(dtype)))
    return total, total.sum((0, 2), dtype=dtype), d_slope


def norm_gradient_sums(
    g: Tensor, u: Tensor, slope: Tensor, gamma: Tensor, stats: Tensor, lengths: Tensor | None
) -> Tensor:
    """What a norm's coefficients are made of.

    Args:
        g: (B, H, F) gradient of the norm's output.
        u: (B, H, F) before PReLU and norm.
        slope: (1,) of the PReLU.
        gamma: (H,).
        stats: (2, B, F).
        lengths: (B,) or None.

    Returns:
        (2, B, 1, F): sums over the channels of g·gamma and g·gamma·xhat, frame by frame, zero
        beyond the lengths.
    """
    scaled = g.to(stats.dtype) * gamma.to(stats.dtype)[:, None]
    xhat = block_torch.deviations(u, slope, stats)
    sums = torch.stack((scaled.sum(1), (scaled * xhat).sum(1)))
    return torch.where(block_torch.valid_frames(u, lengths), sums, 0.0)[:, :, None]


def gradient_statistics(
    partial: Tensor,
    stats: Tensor,
    kind: str,
    lengths: Tensor | None,
    channels: int,
    workspace: None = None,
) -> Tensor:
    """A norm's coefficients from sums over chunks.

    Args:
        partial: (2, B, chunks, F) from ``norm_gradient_sums``.
        stats: (2, B, F).
        kind: "cumulative", "global" or "channelwise".
        lengths: (B,) or None.
        channels: H.
        workspace: as in ``block_torch.statistics``.

    Returns:
        (2, B, F): shift and slope, zero beyond the lengths.
    """
    total, product = partial.double().sum(2)
    mean, rstd = stats.double()
    valid = block_torch.valid_frames(partial[0], lengths)
    n = block_torch.frame_counts(valid, kind) * channels
    # Each frame sends this to the frames in its statistics: to their shift and, around K, slope.
    slope = -rstd.square() * product / n
    shift = -rstd * total / n - slope * mean
    shift, slope = (_to_frames(torch.where(valid, s, 0.0), kind) for s in (shift, slope))
    coefficients = torch.stack((shift + mean * slope, slope / torch.where(valid, rstd, 1.0)))
    return torch.where(valid, coefficients, 0.0).to(stats.dtype)


def _to_frames(terms: Tensor, kind: str) -> Tensor:
    """What each frame (B, F) gets from all frames in whose statistics it is."""
    if kind == "cumulative":
        return terms.flip(1).cumsum(1).flip(1)
    return block_torch.over_time(terms, kind)


def _biased(u: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """A map (B, H, F) with its bias, if there is one, in the dtype of the statistics."""
    return u.to(dtype) if bias is None else u.to(dtype) + bias.to(dtype)[:, None]


def norm_gradient(
    g: Tensor,
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    coefficients: Tensor,
    lengths: Tensor | None,
    needs_z: bool,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Gradient through a norm and its PReLU.

    Args:
        g: (B, H, F) gradient of the norm's output.
        u: (B, H, F) before PReLU and norm.
        slope: (1,) of the PReLU.
        gamma: (H,).
        beta: (H,).
        stats: (2, B, F).
        coefficients: (2, B, F) from ``gradient_statistics``.
        lengths: (B,) or None.
        needs_z: whether the norm's output is wanted once more.
        bias: (H,) still to be added to u, or None.

    Returns:
        du (B, H, F) of u's dtype; the norm's output (B, H, F) as ``normalize`` gives it, or None;
        (rows, 4·H), to be added up over the rows: gradients of gamma, of beta, of a bias in front
        of the PReLU, and of the slope (over the channels, too).
    """
    dtype = u.dtype
    u = _biased(u, bias, stats.dtype)
    valid = block_torch.valid_frames(u, lengths)[:, None]
    g = torch.where(valid, g.to(stats.dtype), 0.0)
    xhat = block_torch.deviations(u, slope, stats)
    shift, steepness = coefficients[:, :, None]
    dv = g * gamma.to(g.dtype)[:, None] * stats[1, :, None] + shift + xhat * steepness
    du = torch.where(u > 0, dv, dv * slope.to(g.dtype))
    z = None
    if needs_z:
        z = block_torch.normalize(u, slope, gamma, beta, stats).to(dtype)
    terms = (g * xhat, g, du, torch.where(valid, dv * u.clamp_max(0), 0.0))
    return du.to(dtype), z, torch.cat([term.sum((0, 2)) for term in terms])[None]


def depthwise_gradient(
    dy: Tensor,
    u: Tensor,
    slope: Tensor,
    gamma: Tensor,
    beta: Tensor,
    stats: Tensor,
    weight: Tensor,
    dilation: int,
    causal: bool,
    lengths: Tensor | None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient through the depthwise convolution of a normalized map.

    Args:
        dy: (B, H, F) gradient of the convolution's output.
        u: (B, H, F) before PReLU and norm, as the other arguments in ``depthwise_norm``.
        slope: (1,) of the PReLU.
        gamma: (H,).
        beta: (H,).
        stats: (2, B, F).
        weight: (H, 1, P).
        dilation: frames between two taps.
        causal: whether the taps reach back only.
        lengths: (B,) or None.
        bias: (H,) still to be added to u, or None.

    Returns:
        dz (B, H, F) of u's dtype, the gradient of the norm's output; (rows, H·P), to be added up
        over the rows, that of weight; and ``norm_gradient_sums`` of dz.
    """
    dtype = u.dtype
    u = _biased(u, bias, stats.dtype)
    z = block_torch.normalized(u, slope, gamma, beta, stats)
    dz, dparams = depthwise_torch.backward(dy.to(z.dtype), z, weight, dilation, causal, True)
    valid = block_torch.valid_frames(u, lengths)[:, None]
    dz = torch.where(valid, dz, 0.0).to(dtype)
    partial = norm_gradient_sums(dz, u, slope, gamma, stats, lengths)
    return dz, dparams[None, : weight.numel()], partial


def parameter_gradients(norm_1: Tensor, taps: Tensor, norm_2: Tensor) -> Tensor:
    """Adds up the rows that the other steps leave.

    Args:
        norm_1: (rows, 4·H) of the first ``norm_gradient``.
        taps: (rows, H·P) of ``depthwise_gradient``.
        norm_2: (rows, 4·H) of the second ``norm_gradient``.

    Returns:
        (6·H + H·P + 2,): gradients of gamma, beta and the bias in front, of the first norm, the
        same of the second, of the taps, and of the two slopes.
    """
    norm_1, taps, norm_2 = (rows.sum(0) for rows in (norm_1, taps, norm_2))
    split = 3 * len(norm_1) // 4
    slopes = torch.stack((norm_1[split:].sum(), norm_2[split:].sum()))
    return torch.cat((norm_1[:split], norm_2[:split], taps, slopes))
