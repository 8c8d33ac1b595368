"""Tables of a report, for the page and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from convtasnet.metrics import METRICS, ordered
from convtasnet.report.comparison import Difference, compare, shared
from convtasnet.report.evaluations import Evaluation

NONE = "–"


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column is to the left."""

    head: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)

    def html(self) -> str:
        """As HTML."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.head)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def all_metrics(evaluations: Sequence[Evaluation]) -> list[str]:
    """Metrics that any of the evaluations has."""
    return ordered([name for evaluation in evaluations for name in evaluation.metrics])


def means(evaluations: Sequence[Evaluation]) -> Table:
    """A row for each evaluation and metric: mean, interval, median, improvement, valid rows."""
    head = [
        "",
        "metric",
        "mean",
        "95 % interval",
        "median",
        "improvement",
        "95 % interval",
        "valid",
    ]
    rows = []
    for evaluation in evaluations:
        summary = evaluation.summary
        for name in evaluation.metrics:
            gain, digits = f"{name}i", _digits(name)
            rows.append(
                [
                    evaluation.name,
                    f"{name}, {METRICS[name].unit}".rstrip(", "),
                    number(summary[name], digits),
                    span(summary["ci95"][name], digits),
                    number(summary["median"][name], digits),
                    number(summary[gain], digits),
                    span(summary["ci95"][gain], digits),
                    f"{summary['valid'][name]}/{summary['n']}",
                ]
            )
    return Table(head, rows)


def missing(evaluations: Sequence[Evaluation]) -> Table:
    """A row for each reason why values are missing."""
    rows = [
        [evaluation.name, name, reason, str(count)]
        for evaluation in evaluations
        for name, reasons in evaluation.summary["reasons"].items()
        for reason, count in reasons.items()
    ]
    return Table(["", "value", "reason", "mixtures"], rows)


def comparisons(evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, list[Difference]]]:
    """Each evaluation after the first, compared with the first in the metrics of both."""
    first, *others = evaluations
    return [
        (other, [compare(other, first, name) for name in other.metrics if name in first.metrics])
        for other in others
        if shared(other, first)
    ]


def differences(
    first: Evaluation, compared: Sequence[tuple[Evaluation, list[Difference]]]
) -> Table:
    """A row for each comparison and metric."""
    head = [f"against {first.name}", "metric", "mean difference", "95 % interval", "better in"]
    rows = [
        [
            other.name,
            difference.name,
            signed(difference.mean, _digits(difference.name)),
            span(difference.interval, _digits(difference.name)),
            NONE if difference.n == 0 else f"{100 * difference.wins:.0f} %",
            NONE if difference.n == 0 else f"{difference.p_value:.2g}",
            str(difference.n),
        ]
        for other, found in compared
        for difference in found
    ]
    return Table([*head, "Wilcoxon p", "mixtures"], rows)


def number(value: float | None, digits: int = 2) -> str:
    """A number, or a dash.

    Example:
        >>> number(1.005, 1), number(None), number(float("nan"))
        ('1.0', '–', '–')
    """
    return NONE if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, or a dash."""
    return f"{value:+.{digits}f}" if math.isfinite(value) else NONE


def span(ends: Sequence[float] | None, digits: int = 2) -> str:
    """An interval, or a dash."""
    return NONE if ends is None else " to ".join(f"{end:.{digits}f}" for end in ends)


def _digits(metric: str) -> int:
    return 2 if METRICS[metric].unit else 3
