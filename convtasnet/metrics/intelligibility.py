"""STOI and ESTOI: intelligibility from the envelopes of third-octave bands.

The parts that depend on the reference alone, and the envelopes of both, serve both metrics. The
resampling filter and the bands are pystoi's, and so are the results, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from convtasnet.metrics.invalid import MISSING_EVAL, InvalidError

RATE = 10_000
FRAME, HOP, N_FFT = 256, 128, 512  # samples at 10 kHz
BANDS, LOWEST_HZ = 15, 150  # third octaves, and the center of the first
SEGMENT = 30  # frames (384 ms) that are compared at a time
RANGE_DB = 40.0  # frames of the reference so far below its loudest are silence
CLIP = 1 + 10 ** (15 / 20)  # a distortion below -15 dB counts no more (STOI)
EPS = float(np.finfo(float).eps)
TOO_SHORT = f"less than {SEGMENT * HOP * 1000 // RATE} ms of speech"


def intelligibility(
    estimates: Tensor, sources: Tensor, sample_rate: int, names: Sequence[str]
) -> dict[str, list[float]]:
    """Correlation of short-time band envelopes of estimates and references.

    Args:
        estimates: (n_src, T), matched with the sources.
        sources: (n_src, T).
        sample_rate: Hz; signals are resampled to 10 kHz.
        names: of "stoi" and "estoi".

    Returns:
        name -> n_src values, at most 1.

    Raises:
        InvalidError: a reference has less than 384 ms that is not silent (pystoi would return
            1e-5), or the package is missing.

    Source: STOI: Taal, Hendriks, Heusdens & Jensen, "An algorithm for intelligibility prediction
    of time-frequency weighted noisy speech", 2011. ESTOI: Jensen & Taal, "An algorithm for
    predicting the intelligibility of speech masked by modulated noise maskers", 2016.

    Example:
        >>> x = torch.randn(1, 8000, dtype=torch.float64)
        >>> {k: round(v[0], 3) for k, v in intelligibility(x, x, 8000, ["stoi", "estoi"]).items()}
        {'stoi': 1.0, 'estoi': 1.0}
    """
    if sources.shape[-1] < SEGMENT * HOP * sample_rate / RATE:
        raise InvalidError(TOO_SHORT)
    pairs = [_segments(est, ref, sample_rate) for est, ref in zip(estimates, sources, strict=True)]
    return {name: [_CORRELATIONS[name](*pair) for pair in pairs] for name in names}


def _segments(est: Tensor, ref: Tensor, sample_rate: int) -> tuple[Tensor, Tensor]:
    """Envelopes of estimate and reference (T,), cut into segments: (segments, bands, frames)."""
    both = _framed(torch.stack([_at_10_khz(x, sample_rate) for x in (est, ref)]))
    levels = 20 * torch.log10(torch.linalg.vector_norm(both[1], dim=-1) + EPS)
    kept = both[:, levels > levels.max() - RANGE_DB]
    if kept.shape[1] <= SEGMENT:
        raise InvalidError(TOO_SHORT)
    spectra = torch.fft.rfft(_framed(_overlap_add(kept)), N_FFT)
    powers = spectra.real.square() + spectra.imag.square()  # (2, frames, bins)
    envelopes = (powers @ _band_matrix().T).sqrt()
    first, second = envelopes.unfold(1, SEGMENT, 1)
    return first, second


def _at_10_khz(x: Tensor, sample_rate: int) -> Tensor:
    """(T,) -> (T',) float64 on the CPU."""
    try:
        from pystoi.utils import resample_oct
    except ImportError:
        raise InvalidError(MISSING_EVAL) from None
    samples = x.double().cpu().numpy()
    if sample_rate != RATE:
        samples = resample_oct(samples, RATE, sample_rate)
    return torch.from_numpy(np.ascontiguousarray(samples))


def _framed(x: Tensor) -> Tensor:
    """(..., T) -> (..., frames, FRAME), windowed; the last whole frame is left out if it fits."""
    window = torch.from_numpy(np.hanning(FRAME + 2)[1:-1])
    return x[..., :-1].unfold(-1, FRAME, HOP) * window


def _overlap_add(frames: Tensor) -> Tensor:
    """(..., n, FRAME) -> (..., (n + 1)·HOP)."""
    halves = frames.new_zeros(*frames.shape[:-2], frames.shape[-2] + 1, HOP)
    halves[..., :-1, :] += frames[..., :HOP]
    halves[..., 1:, :] += frames[..., HOP:]
    return halves.flatten(-2)


def _band_matrix() -> Tensor:
    """(bands, bins): which bins make up a band."""
    from pystoi.utils import thirdoct

    return torch.from_numpy(thirdoct(RATE, N_FFT, BANDS, LOWEST_HZ)[0])


def _stoi(est: Tensor, ref: Tensor) -> float:
    """Mean correlation over time, of the estimate leveled to the reference and clipped."""
    gain = _norm(ref, -1) / (_norm(est, -1) + EPS)
    clipped = torch.minimum(est * gain, ref * CLIP)
    return float((_standardized(clipped, -1) * _standardized(ref, -1)).sum(-1).mean())


def _estoi(est: Tensor, ref: Tensor) -> float:
    """Mean correlation over bands, of segments standardized over time."""
    est, ref = (_standardized(_standardized(x, -1), -2) for x in (est, ref))
    return float((est * ref).sum(-2).mean())


_CORRELATIONS = {"stoi": _stoi, "estoi": _estoi}


def _norm(x: Tensor, dim: int) -> Tensor:
    return torch.linalg.vector_norm(x, dim=dim, keepdim=True)


def _standardized(x: Tensor, dim: int) -> Tensor:
    """Without its mean and of norm 1; what is constant becomes zero."""
    x = x - x.mean(dim, keepdim=True)
    return x / (_norm(x, dim) + EPS)
