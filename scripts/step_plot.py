"""A bar chart of training steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from step_tables import Results, number, ratios
from training_step import Measurement

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

WIDTH = 0.8  # of a mode's bars, all together


def draw(measured: Sequence[Measurement], results: Results, out: Path) -> None:
    """Draw the time of a step: a panel for each experiment and precision, modes along it.

    Args:
        measured: the bars, each labelled with its ratio to our model's.
        results: where our model's times are found.
        out: a picture; its ending names the format.
    """
    panels: dict[str, list[Measurement]] = {}
    for each in measured:
        panels.setdefault(f"{each.variant.experiment}, {each.variant.precision}", []).append(each)
    models = dict.fromkeys(each.variant.model for each in measured)
    colors = {model: f"C{i}" for i, model in enumerate(models)}
    figure, axes = plt.subplots(
        1, len(panels), sharey=True, squeeze=False, figsize=(3 + 2.4 * len(panels), 4)
    )
    for axis, (title, group) in zip(axes[0], panels.items(), strict=True):
        draw_panel(axis, group, results, colors)
        axis.set_title(title)
    axes[0, 0].set_ylabel("training step, ms (above: ÷ ours)")
    variant = measured[0].variant
    figure.suptitle(f"batch {variant.batch} of {variant.seconds:g} s")
    figure.tight_layout(rect=(0, 0, 1 - 1.3 / figure.get_figwidth(), 1))
    figure.legend(
        handles=[Patch(color=color, label=model) for model, color in colors.items()],
        loc="center right",
    )
    figure.savefig(out, dpi=80)
    plt.close(figure)


def draw_panel(
    axis: Axes, group: Sequence[Measurement], results: Results, colors: dict[str, str]
) -> None:
    """Bars of the models side by side, for each mode."""
    modes = list(dict.fromkeys(each.variant.mode for each in group))
    models = list(dict.fromkeys(each.variant.model for each in group))
    width = WIDTH / len(models)
    for i, model in enumerate(models):
        bars = [each for each in group if each.variant.model == model]
        shift = width * (i - (len(models) - 1) / 2)
        drawn = axis.bar(
            [modes.index(each.variant.mode) + shift for each in bars],
            [each.step_ms for each in bars],
            width,
            color=colors[model],
        )
        labels = [number(ratios(each, results)["step_ms"]) for each in bars]
        axis.bar_label(drawn, labels, fontsize=8)
    axis.set_xticks(range(len(modes)), modes)
    axis.set_xlim(-0.6, len(modes) - 0.4)
