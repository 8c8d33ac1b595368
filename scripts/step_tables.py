"""Tables of training steps: times and memory, and their ratios to our model's in the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from training_step import Failure, Measurement, Variant

from convtasnet_kernels.timing.table import NOTHING, markdown

OURS = "ours"
COSTS = ("step_ms", "forward_ms", "peak_gib")
Results = Mapping[Variant, Measurement | Failure]


def ratios(measured: Measurement, results: Results) -> dict[str, float | None]:
    """Each cost, divided by that of our model in the same variant; None where there is none."""
    ours = results.get(replace(measured.variant, model=OURS))
    found: dict[str, float | None] = dict.fromkeys(COSTS)
    if isinstance(ours, Measurement):
        for name in COSTS:
            cost, yardstick = getattr(measured, name), getattr(ours, name)
            found[name] = cost / yardstick if cost is not None else None
    return found


def step_table(group: Sequence[Measurement], results: Results) -> str:
    """A line for each mode and model; ``÷ ours`` is above 1 where our model needs less.

    Args:
        group: the lines.
        results: where our model's costs are found.
    """
    header = ["mode", "model", "step, ms", "÷ ours", "forward, ms", "÷ ours", "GiB", "÷ ours"]
    cells = []
    for measured in group:
        costs = []
        for name, ratio in ratios(measured, results).items():
            costs += [number(getattr(measured, name)), number(ratio)]
        variant = measured.variant
        cells.append([variant.mode, variant.model, *costs, f"{measured.audio_seconds:.0f}"])
    return markdown([*header, "audio, s/s"], cells)


def growth_table(grid: Results, yardstick: Measurement | Failure) -> str:
    """Lengths down, batches across: milliseconds, GiB, and the time of a second of audio in that
    of the yardstick.
    """
    batches = sorted({variant.batch for variant in grid})
    rows: dict[float, list[str]] = {}
    for variant, found in grid.items():
        rows.setdefault(variant.seconds, [f"{variant.seconds:g}"]).append(_cell(found, yardstick))
    return markdown(["seconds", *(f"batch {batch}" for batch in batches)], rows.values())


def _cell(found: Measurement | Failure, yardstick: Measurement | Failure) -> str:
    if isinstance(found, Failure):
        return NOTHING
    ratio = None
    if isinstance(yardstick, Measurement):
        ratio = yardstick.audio_seconds / found.audio_seconds
    return " / ".join(number(each) for each in (found.step_ms, found.peak_gib, ratio))


def number(value: float | None) -> str:
    """Two decimals below 100, one above.

    >>> [number(value) for value in (0.123, 12.345, 1234.5, None)]
    ['0.12', '12.35', '1234.5', '–']
    """
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def record(found: Measurement | Failure, results: Results) -> dict[str, Any]:
    """For a JSON file: the variant and its costs with their ratios, or the reason of none."""
    fields = asdict(found.variant)
    if isinstance(found, Failure):
        return {**fields, "reason": found.reason}
    costs = {name: getattr(found, name) for name in (*COSTS, "audio_seconds")}
    return {**fields, **costs, **{f"{k}_ratio": v for k, v in ratios(found, results).items()}}
