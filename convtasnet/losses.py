"""Permutation-invariant training losses on the scale-invariant signal-to-noise ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from convtasnet.lengths import checked_lengths, zero_mean_within
from convtasnet.matching import best_permutation
from convtasnet_kernels import pit_si_sdr_loss
from convtasnet_kernels.backend import runs_in_triton
from convtasnet_kernels.pit_si_sdr_op import DTYPES, MOST_SOURCES


def si_sdr(est: Tensor, ref: Tensor) -> Tensor:
    """Scale-invariant signal-to-distortion ratio, of signals whose means are removed.

    With ``s`` the reference and ``ŝ`` the estimate, both zero-mean:
    ``α = <ŝ, s> / <s, s>`` and ``SI-SDR = 10·log10(|α·s|² / |ŝ − α·s|²)``.

    Args:
        est: estimates, (..., T), any scale.
        ref: references, (..., T).

    Returns:
        (...) in dB, higher is better; NaN where the reference is silent (constant). The value
        stays within the resolution of the dtype: about ±138 dB in float32 and ±313 dB in
        float64. A silent estimate gets the lower end. float16 and bfloat16 are computed in
        float32.

    Raises:
        ValueError: the shapes differ.

    Source: Le Roux et al., "SDR - half-baked or well done?", ICASSP 2019, eq. 3; the paper's
    SI-SNR (Luo & Mesgarani 2019, eq. 14) is the same quantity.

    Example:
        >>> ref = torch.sin(torch.arange(800) * 0.1)
        >>> noise = torch.cos(torch.arange(800) * 0.3)
        >>> [round(float(si_sdr(g * (ref + 0.1 * noise) + 0.5, ref))) for g in (1.0, 1e-4)]
        [20, 20]
        >>> si_sdr(ref, torch.zeros(800))
        tensor(nan)
    """
    est, ref = _zero_mean_pair(est, ref)
    value = _si_sdr_of_units(_unit(est), _unit(ref))
    return value.masked_fill(~_audible(ref), torch.nan)


def snr(est: Tensor, ref: Tensor) -> Tensor:
    """Signal-to-noise ratio ``10·log10(|s|² / |ŝ − s|²)`` of zero-mean signals.

    Unlike :func:`si_sdr` it fixes the scale of the estimate. Shapes, limits, NaN and errors are
    those of :func:`si_sdr`.

    Example:
        >>> ref = torch.sin(torch.arange(800) * 0.1)
        >>> round(float(snr(0.9 * ref, ref)))
        20
    """
    est, ref = _zero_mean_pair(est, ref)
    return _snr_of_centered(est, ref).masked_fill(~_audible(ref), torch.nan)


METRICS = {"si_sdr": si_sdr, "snr": snr}


def pit_loss(
    est: Tensor, ref: Tensor, lengths: Tensor | None = None, metric: str = "si_sdr"
) -> tuple[Tensor, Tensor]:
    """Utterance-level permutation-invariant loss: minus the mean metric of the best matching.

    Each item of the batch chooses its own permutation. Silent references are left out, of the
    choice and of the mean; a batch without any audible reference gives a loss of 0 with zero
    gradients. NaN or infinity in a signal makes the loss NaN. The loss is computed in float32
    (float64 for float64 input), whatever autocast says.

    Args:
        est: estimates, (B, n_src, T).
        ref: references, (B, n_src, T).
        lengths: valid samples of each item, (B,); what lies beyond is ignored, NaN included.
        metric: "si_sdr" or "snr".

    Returns:
        The scalar loss in dB, lower is better, and the permutation, (B, n_src) int64:
        ``perm[b, j]`` is the index of the estimate matched with reference ``j``.

    Raises:
        ValueError: the shapes differ or are not (B, n_src, T), or the metric is unknown.

    Source: Kolbæk et al., "Multitalker speech separation with utterance-level permutation
    invariant training", 2017; the paper, section III-D.

    Example:
        >>> ref = torch.randn(4, 2, 8000)
        >>> loss, perm = pit_loss(ref.flip(1) + 0.1 * torch.randn(4, 2, 8000), ref)
        >>> perm[0].tolist(), -21 < float(loss) < -19
        ([1, 0], True)
    """
    _check_signals(est, ref)
    if est.shape != ref.shape or est.ndim != 3:
        raise ValueError(
            f"est {tuple(est.shape)} and ref {tuple(ref.shape)} must both be (B, n_src, T)"
        )
    if est.shape[1] == 0:
        raise ValueError(f"est and ref have shape {tuple(est.shape)}: no sources")
    if lengths is not None:
        lengths = checked_lengths(lengths, est)
    if metric == "si_sdr" and _is_fused(est, ref):
        return pit_si_sdr_loss(est, ref, lengths)
    with torch.autocast(est.device.type, enabled=False):
        audible = ~_silent(ref, lengths)  # (B, n_src)
        est, ref = _prepared(est, ref, lengths, metric)
        with torch.no_grad():  # of all pairs only the matched ones have a gradient
            # Not every NaN: that of a bad estimate or reference has to show in the loss.
            scores = _compared(est, ref, metric).masked_fill(~audible[:, None], 0.0)
            perm = best_permutation(scores)
            partner = perm.argsort(-1)  # the reference of each estimate
            audible = audible.gather(1, partner)
            ref = ref.gather(1, partner[..., None].expand_as(ref))
        matched = _OF_PREPARED[metric](est, ref).masked_fill(~audible, 0.0)
        loss = -matched.sum() / audible.sum().clamp(min=1)
    return loss, perm


def _is_fused(est: Tensor, ref: Tensor) -> bool:
    """Whether the loss is one operator, a few launches instead of almost two hundred."""
    fits = est.shape[1] <= MOST_SOURCES and est.dtype in DTYPES and ref.dtype in DTYPES
    return fits and not ref.requires_grad and runs_in_triton("pit_si_sdr_loss", est)


def pairwise(
    est: Tensor, ref: Tensor, lengths: Tensor | None = None, metric: str = "si_sdr"
) -> Tensor:
    """Metric of every estimate against every reference.

    Args:
        est: (B, n_est, T).
        ref: (B, n_ref, T).
        lengths: (B,) valid samples, or None for all.
        metric: "si_sdr" or "snr".

    Returns:
        (B, n_est, n_ref) in dB; a silent reference's column is NaN.

    Raises:
        ValueError: shapes that do not fit, or an unknown metric.

    Example:
        >>> pairwise(torch.randn(3, 2, 100), torch.randn(3, 4, 100)).shape
        torch.Size([3, 2, 4])
    """
    _check_signals(est, ref)
    if not est.ndim == ref.ndim == 3 or est.shape[::2] != ref.shape[::2]:
        raise ValueError(
            f"est {tuple(est.shape)} and ref {tuple(ref.shape)} must be (B, n_est, T) and "
            "(B, n_ref, T)"
        )
    est, ref = _prepared(est, ref, lengths, metric)
    return _compared(est, ref, metric).masked_fill(~_audible(ref)[:, None], torch.nan)


def _prepared(
    est: Tensor, ref: Tensor, lengths: Tensor | None, metric: str
) -> tuple[Tensor, Tensor]:
    """Both (B, n, T) as ``_OF_PREPARED`` wants them: what is done to each signal alone."""
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is unknown; choose one of {sorted(METRICS)}")
    est, ref = _at_least_float32(est), _at_least_float32(ref)
    if lengths is None:
        est, ref = _centered(est), _centered(ref)
    else:
        lengths = checked_lengths(lengths, est)
        est, ref = zero_mean_within(est, lengths), zero_mean_within(ref, lengths)
    return (_unit(est), _unit(ref)) if metric == "si_sdr" else (est, ref)


def _compared(est: Tensor, ref: Tensor, metric: str) -> Tensor:
    """Metric of every prepared estimate against every reference: (B, n_est, n_ref)."""
    columns = [_OF_PREPARED[metric](est, one[:, None]) for one in ref.unbind(1)]
    return torch.stack(columns, dim=-1)


def _si_sdr_of_units(est: Tensor, ref: Tensor) -> Tensor:
    """``10·log10`` of target over residual energy for signals of unit (or zero) energy."""
    floor = _floor(est.dtype)
    scale = (est * ref).sum(-1, keepdim=True)
    residual = (est - scale * ref).square().sum(-1)
    target = scale.squeeze(-1).square()
    # A silent estimate has neither target nor residual: it counts as all residual, not as 0 dB.
    silent = (target + residual).detach() == 0
    return 10 * (torch.log10(target + floor) - torch.log10(residual + floor + silent.to(est.dtype)))


def _snr_of_centered(est: Tensor, ref: Tensor) -> Tensor:
    """:func:`snr` of signals without their means, no reference silent."""
    norm = torch.linalg.vector_norm(ref, dim=-1, keepdim=True)
    noise = ((est - ref) / _or_one(norm)).square().sum(-1)
    return -10 * torch.log10(noise + _floor(ref.dtype))


_OF_PREPARED = {"si_sdr": _si_sdr_of_units, "snr": _snr_of_centered}


def _unit(x: Tensor) -> Tensor:
    """Scale to unit energy (zeros stay zeros), through the peak so that no square underflows."""
    peak = x.detach().abs().amax(-1, keepdim=True)
    x = x / _or_one(peak)
    return x * _or_one(x.square().sum(-1, keepdim=True)).rsqrt()


def _or_one(x: Tensor) -> Tensor:
    """A divisor: 1 in place of 0."""
    return torch.where(x > 0, x, torch.ones_like(x))


def _zero_mean_pair(est: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
    """Both (..., T) in float32 or float64 and without their means, or an error."""
    _check_signals(est, ref)
    if est.shape != ref.shape:
        raise ValueError(f"est has shape {tuple(est.shape)}, ref {tuple(ref.shape)}: not equal")
    return _centered(_at_least_float32(est)), _centered(_at_least_float32(ref))


def _check_signals(*signals: Tensor) -> None:
    for signal in signals:
        if not isinstance(signal, Tensor) or signal.is_complex():
            kind = signal.dtype if isinstance(signal, Tensor) else type(signal).__name__
            raise ValueError(f"est and ref must be tensors of real samples, got {kind}")
        if signal.ndim == 0 or signal.shape[-1] == 0:
            raise ValueError(f"est and ref have shape {tuple(signal.shape)}: no samples")


def _audible(ref: Tensor) -> Tensor:
    """(...): is anything left of the zero-mean reference but the rounding of its mean?"""
    return ref.abs().amax(-1) > 0


def _silent(ref: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, n_src): is the reference (B, n_src, T) constant within the item's length?"""
    constant = ref == ref[..., :1]
    if lengths is not None:
        n_samples = torch.arange(ref.shape[-1], device=ref.device)
        constant |= n_samples >= lengths[:, None, None]
    return constant.all(-1)


def _centered(x: Tensor) -> Tensor:
    """Remove the mean over time; a constant signal becomes exactly zero."""
    constant = (x == x[..., :1]).all(-1, keepdim=True)
    return torch.where(constant, torch.zeros_like(x), x - x.mean(-1, keepdim=True))


def _floor(dtype: torch.dtype) -> float:
    """Energy, relative to the reference's, below which a value is rounding noise."""
    return torch.finfo(dtype).eps ** 2


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
