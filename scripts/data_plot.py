"""Histograms of the lengths and levels of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

from convtasnet.data.scan import Scan, decibels

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

BINS = 30
LEAST_DB = -70.0  # what is quieter is drawn here


def draw(parts: Sequence[tuple[str, str, Sequence[Scan]]], out: Path) -> None:
    """Draw how long the first kind of files of each set is, and how loud every kind is.

    Args:
        parts: set, kind and measurements.
        out: a picture; its ending names the format.
    """
    splits = list(dict.fromkeys(split for split, _, _ in parts))
    first = [next(part for part in parts if part[0] == split) for split in splits]
    lengths = [[scan.seconds for scan in scans] for _, _, scans in first]
    figure, axes = plt.subplots(1, 1 + len(splits), figsize=(5 + 4 * len(splits), 4))
    left, *right = axes
    histograms(left, lengths, [f"{split}, {kind}" for split, kind, _ in first])
    left.set(xlabel="length, s", ylabel="% of the files", title="lengths")
    for axis, split in zip(right, splits, strict=True):
        of_split = [(kind, scans) for one, kind, scans in parts if one == split]
        levels = [[max(LEAST_DB, decibels(scan.level)) for scan in scans] for _, scans in of_split]
        histograms(axis, levels, [kind for kind, _ in of_split])
        axis.set(xlabel="level, dB of full scale", title=f"levels, {split}")
        axis.sharex(right[0])
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=100)
    plt.close(figure)


def histograms(axis: Axes, groups: Sequence[Sequence[float]], labels: Sequence[str]) -> None:
    """Outlines of all groups in the same bins, each in percent of its own."""
    values = np.concatenate([np.asarray(group) for group in groups])
    low, high = float(values.min()), float(values.max())
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1).tolist()
    for group, label in zip(groups, labels, strict=True):
        weights = [100 / len(group)] * len(group)
        axis.hist(group, edges, weights=weights, histtype="step", linewidth=1.5, label=label)
    axis.legend(fontsize=8)
