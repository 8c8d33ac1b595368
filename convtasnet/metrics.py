"""Separation metrics of one mixture: SI-SDR, SDR, STOI and PESQ, with their improvements."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from convtasnet.losses import best_permutation, pairwise, si_sdr

SDR_TAPS = 512  # length of bss_eval's distortion filter
SDR_LIMIT_DB = 100.0  # a perfect estimate gets this instead of infinity
PESQ_MODES = {8000: "nb", 16000: "wb"}
# The P.862 program crashes past its table of 50 stretches of speech, each with its pause 0.4 s or
# more: from 20 s on for pathological signals. Speech of 30 s has fewer.
PESQ_MAX_SECONDS = 30
STOI_MIN_SECONDS = 0.384  # 30 frames of 256 samples, half overlapping, at 10 kHz
SILENCE = 1e-6  # what is left of a signal without its mean, relative to its peak

MISSING_EVAL = "install convtasnet[eval]"
MISSING_PESQ = "install convtasnet[pesq]"
SILENT_REFERENCE = "silent reference"
SILENT_ESTIMATE = "silent estimate"
SILENT_MIXTURE = "silent mixture"


class InvalidError(Exception):
    """A metric has no meaning for a pair of signals; the message is the reason."""


@dataclass(frozen=True)
class Scores:
    """Metrics of one mixture, as means over its sources.

    Attributes:
        values: name -> value in the order ``si_sdr, si_sdri, sdr, sdri, stoi, stoii, pesq,
            pesqi``, of which only the metrics asked for. si_sdr and sdr in dB, stoi in [0, 1],
            pesq as MOS-LQO; a trailing ``i`` means the improvement over the mixture. NaN where
            a value has no meaning.
        reasons: name -> why, for each NaN of ``values``.
        permutation: ``permutation[j]`` is the index of the estimate matched with source ``j``.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    permutation: tuple[int, ...] = ()


def score(
    estimates: Tensor,
    sources: Tensor,
    mixture: Tensor,
    sample_rate: int,
    metrics: Sequence[str] = ("si_sdr",),
) -> Scores:
    """Score the estimates of one mixture.

    The permutation with the best mean SI-SDR serves every metric. Means are removed from all
    signals and no metric depends on an estimate's level. A value is NaN, with a reason, where it
    would mislead: a silent source, estimate or mixture makes the whole row NaN; PESQ needs 8000 Hz
    (narrow band) or 16000 Hz (wide band) and 0.25 to 30 s; STOI needs 384 ms of speech.

    Args:
        estimates: (n_src, T), any order, scale, float dtype and device.
        sources: (n_src, T).
        mixture: (T,).
        sample_rate: Hz.
        metrics: of "si_sdr", "sdr", "stoi" and "pesq".

    Returns:
        :class:`Scores`.

    Raises:
        ValueError: an unknown metric or shapes that do not fit.

    Source: SI-SDR: Le Roux et al., ICASSP 2019. SDR: bss_eval version 3 (Vincent et al., 2006)
    with 512 taps, by fast_bss_eval (Scheibler, 2022). STOI: Taal et al., 2011, by pystoi. PESQ:
    ITU-T P.862 and P.862.2, by pesq.

    Example:
        >>> sources = torch.randn(2, 8000)
        >>> estimates = sources.flip(0) + 0.1 * torch.randn(2, 8000)
        >>> scores = score(estimates, sources, sources.sum(0), 8000)
        >>> list(scores.values), scores.permutation, 19 < scores.values["si_sdr"] < 21
        (['si_sdr', 'si_sdri'], (1, 0), True)
    """
    names = ordered(metrics)
    _check_shapes(estimates, sources, mixture)
    estimates, sources, mixture = (_in_float64(x) for x in (estimates, sources, mixture))
    rows = pairwise(estimates[None], sources[None])
    permutation = best_permutation(rows)[0].tolist()
    matched = estimates[permutation]
    reason = _row_reason(estimates, sources, mixture)
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for name in names:
        improvement = f"{name}i"
        values[name] = values[improvement] = math.nan
        reasons[name] = reasons[improvement] = reason
        if reason:
            continue
        try:
            values[name] = _mean(name, matched, sources, sample_rate)
            del reasons[name]
            baseline = _mean(name, mixture.expand_as(sources), sources, sample_rate)
            values[improvement] = values[name] - baseline
            del reasons[improvement]
        except InvalidError as invalid:
            reasons.update({key: str(invalid) for key in (name, improvement) if key in reasons})
    return Scores(values, reasons, tuple(permutation))


def ordered(metrics: Sequence[str]) -> list[str]:
    """Metric names in the order of the reports, once each.

    Raises:
        ValueError: no name, or an unknown one.

    Example:
        >>> ordered(["stoi", "si_sdr"])
        ['si_sdr', 'stoi']
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"metrics={list(metrics)}: choose from {list(METRICS)}")
    return [name for name in METRICS if name in metrics]


def _mean(name: str, estimates: Tensor, sources: Tensor, sample_rate: int) -> float:
    """Mean of one metric over matched pairs (n_src, T); the signals' means are removed."""
    values = [
        METRICS[name](_normalized(est), _normalized(ref), sample_rate)
        for est, ref in zip(estimates, sources, strict=True)
    ]
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        raise InvalidError("not a finite number")
    return mean


def _si_sdr(est: Tensor, ref: Tensor, sample_rate: int) -> float:
    return float(si_sdr(est, ref))


def _sdr(est: Tensor, ref: Tensor, sample_rate: int) -> float:
    try:
        from fast_bss_eval.torch.metrics import sdr_loss
    except ImportError:
        raise InvalidError(MISSING_EVAL) from None
    try:
        loss = sdr_loss(est[None], ref[None], filter_length=SDR_TAPS, clamp_db=SDR_LIMIT_DB)
    except torch.linalg.LinAlgError:
        raise InvalidError(f"the reference has no unique {SDR_TAPS}-tap filter") from None
    return -float(loss)


def _stoi(est: Tensor, ref: Tensor, sample_rate: int) -> float:
    try:
        import pystoi
    except ImportError:
        raise InvalidError(MISSING_EVAL) from None
    too_short = InvalidError(f"less than {STOI_MIN_SECONDS * 1000:.0f} ms of speech")
    if ref.shape[-1] < STOI_MIN_SECONDS * sample_rate:
        raise too_short
    with warnings.catch_warnings():
        # pystoi warns and returns 1e-5, which would pass for a value.
        warnings.filterwarnings("error", message="Not enough STFT frames")
        try:
            return float(pystoi.stoi(ref.cpu().numpy(), est.cpu().numpy(), sample_rate))
        except RuntimeWarning:
            raise too_short from None


def _pesq(est: Tensor, ref: Tensor, sample_rate: int) -> float:
    if sample_rate not in PESQ_MODES:
        raise InvalidError(f"sample rate {sample_rate} is not 8000 or 16000")
    if ref.shape[-1] > PESQ_MAX_SECONDS * sample_rate:
        raise InvalidError(f"longer than {PESQ_MAX_SECONDS} s")
    try:
        import pesq
    except ImportError:
        raise InvalidError(MISSING_PESQ) from None
    signals = (np.ascontiguousarray(x.cpu().numpy(), dtype=np.float32) for x in (ref, est))
    try:
        return float(pesq.pesq(sample_rate, *signals, PESQ_MODES[sample_rate]))
    except pesq.BufferTooShortError:
        raise InvalidError("shorter than 250 ms") from None
    except pesq.NoUtterancesError:
        raise InvalidError("no speech found") from None
    except pesq.PesqError as error:
        raise InvalidError(f"pesq: {error}") from None


METRICS: dict[str, Callable[[Tensor, Tensor, int], float]] = {
    "si_sdr": _si_sdr,
    "sdr": _sdr,
    "stoi": _stoi,
    "pesq": _pesq,
}


def _row_reason(estimates: Tensor, sources: Tensor, mixture: Tensor) -> str:
    """Why the whole row is NaN, or ""."""
    signals = {"estimate": estimates, "source": sources, "mixture": mixture}
    for name, signal in signals.items():
        if not bool(signal.isfinite().all()):
            return f"{name} holds NaN or infinity"
    if bool(_silent(sources).any()):
        return SILENT_REFERENCE
    if bool(_silent(estimates).any()):
        return SILENT_ESTIMATE
    return SILENT_MIXTURE if bool(_silent(mixture)) else ""


def _silent(x: Tensor) -> Tensor:
    """(..., T) -> (...): is it constant, up to the rounding of float32?"""
    centered = x - x.mean(-1, keepdim=True)
    return centered.abs().amax(-1) <= SILENCE * x.abs().amax(-1)


def _normalized(x: Tensor) -> Tensor:
    """Zero mean, and a peak of 1: STOI and PESQ hold constants that make them depend on level."""
    x = x - x.mean(-1, keepdim=True)
    return x / x.abs().amax(-1, keepdim=True)


def _in_float64(x: Tensor) -> Tensor:
    """Where it is, or on the CPU where the device (Apple's) has no float64."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).double()


def _check_shapes(estimates: Tensor, sources: Tensor, mixture: Tensor) -> None:
    fits = estimates.ndim == 2 and mixture.ndim == 1 and estimates.shape == sources.shape
    if not fits or mixture.shape[-1] != sources.shape[-1] or mixture.numel() == 0:
        shapes = [tuple(x.shape) for x in (estimates, sources, mixture)]
        raise ValueError(
            "estimates {}, sources {} and mixture {} must be (n_src, T), (n_src, T) and (T,)"
            ", T >= 1".format(*shapes)
        )
