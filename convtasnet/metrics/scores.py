"""The one scoring function of validation, evaluation and reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from convtasnet.lengths import checked_lengths
from convtasnet.losses import pairwise
from convtasnet.matching import best_permutation
from convtasnet.metrics.invalid import UNMIXED, invalid_rows, unmixed
from convtasnet.metrics.measure import Measured, measure, ordered


@dataclass(frozen=True)
class Scores:
    """Metrics of one mixture, as means over its sources.

    Attributes:
        values: name -> value, each metric followed by its improvement over the mixture (the name
            with an ``i``), in the order ``si_sdr, snr, sdr, sir, sar, stoi, estoi, pesq``, of
            which only those asked for. NaN where a value has no meaning.
        reasons: name -> why, for each NaN of ``values``.
        permutation: ``permutation[j]`` is the index of the estimate matched with source ``j``.
        mixture: what the unprocessed mixture got; empty if nothing could be scored.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    permutation: tuple[int, ...] = ()
    mixture: Measured = field(default_factory=Measured)


def score(
    estimates: Tensor,
    sources: Tensor,
    mixture: Tensor,
    sample_rate: int,
    metrics: Sequence[str] = ("si_sdr",),
    of_mixture: Measured | None = None,
) -> Scores:
    """Score the estimates of one mixture.

    The permutation with the best mean SI-SDR serves every metric. Means are removed from all
    signals; of all metrics only SNR depends on an estimate's level. A value is NaN, with a reason,
    where it would mislead: a silent source, estimate or mixture makes the whole row NaN; STOI
    needs 384 ms of speech; PESQ needs 8000 Hz (narrow band) or 16000 Hz (wide band) and 0.25 to
    30 s; SIR needs more than one source; SDR, SIR and SAR need 512 samples a source; an
    improvement needs a mixture that is none of its sources.

    Args:
        estimates: (n_src, T), any order, scale, float dtype and device.
        sources: (n_src, T).
        mixture: (T,).
        sample_rate: Hz.
        metrics: of "si_sdr", "snr", "sdr", "sir", "sar", "stoi", "estoi" and "pesq".
        of_mixture: what the mixture itself got, from an earlier call with these sources
            (``Scores.mixture``); metrics that it lacks are computed.

    Returns:
        :class:`Scores`.

    Raises:
        ValueError: an unknown metric or shapes that do not fit.

    Source: SI-SDR: Le Roux et al., ICASSP 2019. SDR, SIR, SAR: see ``bss_eval``. STOI, ESTOI: see
    ``intelligibility``. PESQ: see ``quality``.

    Example:
        >>> sources = torch.randn(2, 8000)
        >>> estimates = sources.flip(0) + 0.1 * torch.randn(2, 8000)
        >>> scores = score(estimates, sources, sources.sum(0), 8000)
        >>> list(scores.values), scores.permutation, 19 < scores.values["si_sdr"] < 21
        (['si_sdr', 'si_sdri'], (1, 0), True)
    """
    _check_shapes(estimates, sources, mixture, "")
    known = None if of_mixture is None else [of_mixture]
    batch = (estimates[None], sources[None], mixture[None])
    return score_batch(*batch, sample_rate, None, metrics, known)[0]


def score_batch(
    estimates: Tensor,
    sources: Tensor,
    mixtures: Tensor,
    sample_rate: int,
    lengths: Tensor | None = None,
    metrics: Sequence[str] = ("si_sdr",),
    of_mixtures: Sequence[Measured] | None = None,
) -> list[Scores]:
    """Score every item of a padded batch, as :func:`score` does one.

    SI-SDR and SNR wait for the device once a batch, whatever its size.

    Args:
        estimates: (B, n_src, T).
        sources: (B, n_src, T).
        mixtures: (B, T).
        sample_rate: Hz.
        lengths: (B,) valid samples; what lies beyond is ignored, NaN included. None takes all.
        metrics: see :func:`score`.
        of_mixtures: what each mixture itself got, where it is known.

    Returns:
        B :class:`Scores`.

    Raises:
        ValueError: an unknown metric, or shapes or lengths that do not fit.

    Example:
        >>> sources = torch.randn(3, 2, 800)
        >>> scores = score_batch(sources, sources, sources.sum(1), 8000, torch.tensor([800, 9, 1]))
        >>> [s.reasons.get("si_sdr") for s in scores]
        [None, None, 'silent reference']
    """
    names = ordered(metrics)
    _check_shapes(estimates, sources, mixtures, "B, ")
    estimates, sources, mixtures = (_in_float64(x) for x in (estimates, sources, mixtures))
    if lengths is None:
        lengths = torch.full((len(mixtures),), mixtures.shape[-1])
    lengths = checked_lengths(lengths.cpu(), mixtures)
    invalid = invalid_rows(estimates, sources, mixtures, lengths)
    permutations = best_permutation(pairwise(estimates, sources, lengths))
    matched = estimates.gather(1, permutations[..., None].expand_as(estimates))
    own = measure(matched, sources, lengths, sample_rate, names, invalid)
    known = of_mixtures or [Measured()] * len(own)
    lacking = [name for name in names if any(name not in item.values for item in known)]
    fresh = [Measured()] * len(own)
    if lacking:
        as_estimates = mixtures[:, None].expand_as(sources)
        fresh = measure(as_estimates, sources, lengths, sample_rate, lacking, invalid)
    same = unmixed(sources, mixtures, lengths)
    return [
        _scores(item, _joined(before, now, names, reason), names, permutation, alone)
        for item, before, now, reason, permutation, alone in zip(
            own, known, fresh, invalid, permutations.tolist(), same, strict=True
        )
    ]


def _joined(known: Measured, fresh: Measured, names: Sequence[str], reason: str) -> Measured:
    """What the mixture got, from before and from now; nothing if the row has a reason."""
    if reason:
        return Measured()
    values, reasons = fresh.values | known.values, fresh.reasons | known.reasons
    return Measured(values, reasons).only(names)


def _scores(
    own: Measured, mixture: Measured, names: Sequence[str], permutation: list[int], alone: bool
) -> Scores:
    """Values and improvements; an improvement lacks where either of both does.

    The mixture's own scores have no limit where it is a source ``alone``.
    """
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for name in names:
        values[name] = own.values[name]
        values[f"{name}i"] = own.values[name] - mixture.values.get(name, math.nan)
        if name in own.reasons:
            reasons[name] = reasons[f"{name}i"] = own.reasons[name]
        elif alone:
            values[f"{name}i"], reasons[f"{name}i"] = math.nan, UNMIXED
        elif name in mixture.reasons:
            reasons[f"{name}i"] = f"mixture: {mixture.reasons[name]}"
    return Scores(values, reasons, tuple(permutation), mixture)


def _in_float64(x: Tensor) -> Tensor:
    """Where it is, or on the CPU where the device (Apple's) has no float64."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).double()


def _check_shapes(estimates: Tensor, sources: Tensor, mixture: Tensor, batch: str) -> None:
    """``batch`` is how the shapes begin, "" for one item."""
    ndim = 3 if batch else 2
    fits = estimates.ndim == ndim and estimates.shape == sources.shape and mixture.numel() > 0
    if not fits or mixture.shape != sources.select(-2, 0).shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (estimates, sources, mixture))
        raise ValueError(
            f"estimates, sources and mixture have shapes {shapes}: must be ({batch}n_src, T) twice "
            f"and ({batch}T), T >= 1"
        )
