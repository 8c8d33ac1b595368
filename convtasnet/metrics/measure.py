"""All metrics of estimates that are matched with their sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from torch import Tensor

from convtasnet.lengths import zero_mean_within
from convtasnet.losses import METRICS as RATIOS
from convtasnet.metrics.bss_eval import bss_eval
from convtasnet.metrics.intelligibility import intelligibility
from convtasnet.metrics.invalid import NOT_FINITE, InvalidError
from convtasnet.metrics.quality import pesq_scores

Result = Sequence[float] | str  # one value a source, or the reason why there are none


@dataclass(frozen=True)
class Metric:
    """What is known of a metric.

    Args:
        unit: for tables.
        package: the distribution that computes it, where it is not this one.
        revision: of this project's part in it; another one gives other values.
    """

    unit: str
    package: str = ""
    revision: int = 1


METRICS = {  # in the order of the reports
    "si_sdr": Metric("dB"),
    "snr": Metric("dB"),
    "sdr": Metric("dB", "fast-bss-eval", revision=2),
    "sir": Metric("dB", "fast-bss-eval", revision=2),
    "sar": Metric("dB", "fast-bss-eval", revision=2),
    "stoi": Metric("", "pystoi"),
    "estoi": Metric("", "pystoi"),
    "pesq": Metric("MOS", "pesq"),
}


@dataclass(frozen=True)
class Measured:
    """Metrics of one item, as means over its sources.

    Args:
        values: name -> value, NaN where it has no meaning.
        reasons: name -> why, for each NaN of ``values``.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, result: Result) -> None:
        """Keep the mean over the sources, or the reason why there is none."""
        mean = math.nan if isinstance(result, str) else math.fsum(result) / len(result)
        self.values[name] = mean if math.isfinite(mean) else math.nan
        if not math.isfinite(mean):
            self.reasons[name] = result if isinstance(result, str) else NOT_FINITE

    def only(self, names: Sequence[str]) -> Measured:
        """Some of the metrics, in the order of ``names``."""
        reasons = {name: self.reasons[name] for name in names if name in self.reasons}
        return Measured({name: self.values[name] for name in names}, reasons)


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


def value_names(metrics: Sequence[str]) -> list[str]:
    """Columns of a report: each metric, then its improvement.

    Example:
        >>> value_names(["sdr", "si_sdr"])
        ['si_sdr', 'si_sdri', 'sdr', 'sdri']
    """
    return [value for name in ordered(metrics) for value in (name, f"{name}i")]


def metric_version(name: str) -> str:
    """What has to be equal for two values of a metric to compare to the last digit.

    Example:
        >>> metric_version("si_sdr")
        '1'
    """
    metric = METRICS[name]
    if not metric.package:
        return str(metric.revision)
    try:
        return f"{metric.revision}, {metric.package} {version(metric.package)}"
    except PackageNotFoundError:
        return f"{metric.revision}, no {metric.package}"


def measure(
    estimates: Tensor,
    sources: Tensor,
    lengths: Tensor,
    sample_rate: int,
    metrics: Sequence[str],
    invalid: Sequence[str],
) -> list[Measured]:
    """Compute metrics of the items of a batch.

    Args:
        estimates: (B, n_src, T) float64, matched with the sources.
        sources: (B, n_src, T) float64.
        lengths: (B,) valid samples.
        sample_rate: Hz.
        metrics: names, in the order of the reports.
        invalid: B reasons why an item has no scores at all, or "".

    Returns:
        One :class:`Measured` an item.
    """
    ratios = {
        name: _ratios(name, estimates, sources, lengths) for name in metrics if name in RATIOS
    }
    others = [name for name in metrics if name not in RATIOS]
    items = []
    for index, (reason, end) in enumerate(zip(invalid, lengths.tolist(), strict=True)):
        results: dict[str, Result] = dict.fromkeys(metrics, reason)
        if not reason:
            results |= {name: values[index] for name, values in ratios.items()}
        if not reason and others:
            est, ref = (_normalized(x[index, :, :end]) for x in (estimates, sources))
            results |= _of_libraries(est, ref, sample_rate, others)
        items.append(Measured())
        for name in metrics:
            items[-1].add(name, results[name])
    return items


def _ratios(name: str, estimates: Tensor, sources: Tensor, lengths: Tensor) -> list[list[float]]:
    """SI-SDR or SNR of all pairs, (B, n_src) as lists: one wait for the device."""
    pair = (zero_mean_within(x, lengths) for x in (estimates, sources))
    return RATIOS[name](*pair).tolist()


def _of_libraries(
    estimates: Tensor, sources: Tensor, sample_rate: int, metrics: Sequence[str]
) -> dict[str, Result]:
    """Results of the metrics that look at one item, (n_src, T), at a time."""
    families: dict[tuple[str, ...], Callable[[list[str]], Mapping[str, Result]]] = {
        ("sdr", "sir", "sar"): lambda names: bss_eval(estimates, sources, names),
        ("stoi", "estoi"): lambda names: intelligibility(estimates, sources, sample_rate, names),
        ("pesq",): lambda _: {"pesq": pesq_scores(estimates, sources, sample_rate)},
    }
    results: dict[str, Result] = {}
    for family, compute in families.items():
        names = [name for name in family if name in metrics]
        try:
            results |= compute(names) if names else {}
        except InvalidError as error:
            results |= dict.fromkeys(names, str(error))
    return results


def _normalized(x: Tensor) -> Tensor:
    """Zero mean, and a peak of 1: the libraries hold constants that make them depend on level."""
    x = x - x.mean(-1, keepdim=True)
    return x / x.abs().amax(-1, keepdim=True)
