"""SDR, SIR and SAR of bss_eval version 3, by fast_bss_eval."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from convtasnet.metrics.invalid import MISSING_EVAL, InvalidError

TAPS = 512  # length of the distortion filters
LIMIT_DB = 100.0  # a perfect estimate gets this instead of infinity
ONE_SOURCE = "a single source has no interference"


def bss_eval(
    estimates: Tensor, sources: Tensor, names: Sequence[str]
) -> dict[str, list[float] | str]:
    """Ratios of an estimate's parts: the filtered target, interference and artifacts.

    An estimate is projected onto the delays of its source (0 to 511 samples), which gives the
    target, and onto those of all sources, which adds the interference; the rest are artifacts.

    Args:
        estimates: (n_src, T), matched with the sources; any level but zero.
        sources: (n_src, T), not silent.
        names: of "sdr", "sir" and "sar". SDR alone takes half the time.

    Returns:
        name -> values in dB, one a source, within ±100, or the reason why there are none.

    Raises:
        InvalidError: the sources allow no unique filters, have fewer samples than these
            coefficients, which could then shape any estimate, or the package is missing.

    Source: Vincent, Gribonval & Févotte, "Performance measurement in blind audio source
    separation", 2006; the algorithm: Scheibler, "SDR - medium rare with fast computations", 2022.

    Example:
        >>> sources = torch.randn(2, 4000, dtype=torch.float64)
        >>> [round(value) for value in bss_eval(sources, sources, ["sdr"])["sdr"]]
        [100, 100]
    """
    try:
        from fast_bss_eval.torch import metrics as library
    except ImportError:
        raise InvalidError(MISSING_EVAL) from None
    coefficients = TAPS * len(sources)
    if sources.shape[-1] < coefficients:
        raise InvalidError(f"fewer samples than the filters' {coefficients} coefficients")
    try:
        if set(names) == {"sdr"}:
            loss = library.sdr_loss(estimates, sources, filter_length=TAPS, clamp_db=LIMIT_DB)
            return {"sdr": (-loss).tolist()}
        sdr, sir, sar = library.bss_eval_sources(
            sources,
            estimates,
            filter_length=TAPS,
            clamp_db=LIMIT_DB,
            compute_permutation=False,
        )
    except torch.linalg.LinAlgError:
        raise InvalidError(f"the references have no unique {TAPS}-tap filters") from None
    values: dict[str, list[float] | str] = {"sdr": sdr.tolist(), "sar": sar.tolist()}
    values["sir"] = sir.tolist() if len(sources) > 1 else ONE_SOURCE
    return {name: values[name] for name in names}
