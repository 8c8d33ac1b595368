"""PESQ: perceptual evaluation of speech quality, by the package pesq."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from convtasnet.metrics.invalid import MISSING_PESQ, InvalidError

MODES = {8000: "nb", 16000: "wb"}
# The P.862 program crashes past its table of 50 stretches of speech, each with its pause 0.4 s or
# more: from 20 s on for pathological signals. Speech of 30 s has fewer.
MAX_SECONDS = 30


def pesq_scores(estimates: Tensor, sources: Tensor, sample_rate: int) -> list[float]:
    """MOS-LQO of each estimate: narrow band at 8000 Hz, wide band at 16000 Hz.

    Args:
        estimates: (n_src, T), matched with the sources, peak 1.
        sources: (n_src, T), peak 1.
        sample_rate: Hz.

    Returns:
        n_src values, 1.02 to 4.55 (narrow band) or 1.04 to 4.64 (wide band).

    Raises:
        InvalidError: another rate, less than 0.25 or more than 30 s, no speech found, or the
            package is missing.

    Source: ITU-T P.862 (2001) with P.862.1 (narrow band) and P.862.2 (wide band).
    """
    if sample_rate not in MODES:
        raise InvalidError(f"sample rate {sample_rate} is not 8000 or 16000")
    if sources.shape[-1] > MAX_SECONDS * sample_rate:
        raise InvalidError(f"longer than {MAX_SECONDS} s")
    try:
        import pesq
    except ImportError:
        raise InvalidError(MISSING_PESQ) from None
    refs, ests = (np.ascontiguousarray(x.cpu().numpy(), np.float32) for x in (sources, estimates))
    mode = MODES[sample_rate]
    try:
        pairs = zip(refs, ests, strict=True)
        return [float(pesq.pesq(sample_rate, ref, est, mode)) for ref, est in pairs]
    except pesq.BufferTooShortError:
        raise InvalidError("shorter than 250 ms") from None
    except pesq.NoUtterancesError:
        raise InvalidError("no speech found") from None
    except pesq.PesqError as error:
        raise InvalidError(f"pesq: {error}") from None
