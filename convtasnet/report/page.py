"""The report: one page that needs nothing else, and its tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from convtasnet.evaluation.groups import KINDS, members
from convtasnet.evaluation.spread import mean_interval
from convtasnet.metrics import METRICS
from convtasnet.report import tables
from convtasnet.report.comparison import Difference
from convtasnet.report.evaluations import Evaluation
from convtasnet.report.players import card, find_examples
from convtasnet.report.svg import COLORS, Bar, histogram, intervals, scatter

MOST_GROUPS = 12  # more, such as pairs of speakers, make no picture

NOTES = (
    "Intervals are percentile bootstraps over the mixtures. Mixtures that share speakers are not "
    "independent, so intervals and p are somewhat too optimistic; p is not corrected for the "
    "number of comparisons."
)

STYLE = """
:root { color-scheme: light dark; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7;
  --c4: #e69f00; --c5: #56b4e9; --c6: #999; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.plots { display: flex; flex-wrap: wrap; gap: 1em; }
.plots figure { margin: 0; flex: 1 1 440px; max-width: 560px; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
svg polyline { fill: none; stroke-width: 1.6; }
svg .grid { stroke: #8883; stroke-width: 1; }
svg .zero { stroke: currentColor; stroke-width: 1; stroke-dasharray: 4 3; }
svg .dot { fill-opacity: .55; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 1em; }
.players { display: flex; flex-wrap: wrap; gap: .5em 1em; }
.players figure { margin: .3em 0; }
audio { width: 250px; height: 36px; }
details.example { margin: .4em 0; padding: .4em .8em; border: 1px solid #8885; border-radius: 6px; }
details img { width: 540px; max-width: 100%; background: white; }
""" + "".join(
    f".c{i} {{ stroke: var(--c{i}); }} circle.c{i} {{ fill: var(--c{i}); stroke: none; }} "
    f".key.c{i} {{ background: var(--c{i}); }}\n"
    for i in range(COLORS)
)

# One player at a time, and a new one starts where the last one was: the same moment of two voices.
SCRIPT = """
for (const details of document.querySelectorAll('details.example')) {
  const players = [...details.querySelectorAll('audio')];
  for (const player of players) player.addEventListener('play', () => {
    for (const other of document.querySelectorAll('audio')) {
      if (other === player || other.paused) continue;
      other.pause();
      if (players.includes(other)) player.currentTime = other.currentTime;
    }
  });
}
"""


def html_page(evaluations: Sequence[Evaluation], n_examples: int) -> str:
    """The page: tables, plots, players.

    Args:
        evaluations: one or more; the others are compared with the first.
        n_examples: worst and best mixtures of each evaluation to listen to.
    """
    compared = tables.comparisons(evaluations)
    sections = [
        ("Scores", _key(evaluations) + tables.means(evaluations).html() + _missing(evaluations)),
        ("Distributions", _plots(_distributions(evaluations))),
        ("Input against improvement", _plots(_scatters(evaluations))),
        ("By group", _plots(_groups(evaluations))),
        ("Side by side", _side_by_side(evaluations, compared)),
        ("Listen", _examples(evaluations, n_examples)),
    ]
    body = "".join(
        f'<section id="{title.split()[0].lower()}"><h2>{title}</h2>{content}</section>'
        for title, content in sections
        if content
    )
    title = escape("Evaluation: " + ", ".join(evaluation.name for evaluation in evaluations))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><p>{_about(evaluations)}</p>{body}"
        f"<p><small>{NOTES}</small></p><script>{SCRIPT}</script></body></html>\n"
    )


def markdown(evaluations: Sequence[Evaluation]) -> str:
    """The tables, for a paper or a README."""
    parts = [tables.means(evaluations).markdown()]
    gaps = tables.missing(evaluations)
    if gaps.rows:
        parts.append(gaps.markdown())
    compared = tables.comparisons(evaluations)
    if compared:
        parts += [tables.differences(evaluations[0], compared).markdown(), f"{NOTES}\n"]
    return "\n".join(parts)


def _about(evaluations: Sequence[Evaluation]) -> str:
    told = []
    for evaluation in evaluations:
        summary = evaluation.summary
        what = summary.get("checkpoint") or f"baseline {summary.get('baseline')}"
        data = summary.get("data", {})
        where = f"{data.get('_target_', 'data').rsplit('.', 1)[-1]} {data.get('root') or ''}"
        counted = f"{summary['n_valid']} of {summary['n']} mixtures valid"
        told.append(
            f"<b>{escape(evaluation.name)}</b>: {escape(str(what))}, {summary.get('split', '')} "
            f"set of {escape(where.strip())}, {counted}"
        )
    return "<br>".join(told)


def _key(evaluations: Sequence[Evaluation]) -> str:
    marks = [
        f'<span class="key c{i % COLORS}"></span>{escape(evaluation.name)}'
        for i, evaluation in enumerate(evaluations)
    ]
    return f"<p>{''.join(marks)}</p>"


def _missing(evaluations: Sequence[Evaluation]) -> str:
    gaps = tables.missing(evaluations)
    return f"<h3>Values left out</h3>{gaps.html()}" if gaps.rows else ""


def _plots(pictures: Sequence[str]) -> str:
    figures = "".join(f"<figure>{picture}</figure>" for picture in pictures)
    return f'<div class="plots">{figures}</div>' if figures else ""


def _distributions(evaluations: Sequence[Evaluation]) -> list[str]:
    """A histogram of the improvements in each metric."""
    plots = []
    for name in tables.all_metrics(evaluations):
        series = {e.name: _finite(e, f"{name}i") for e in evaluations if name in e.metrics}
        if any(series.values()):
            plots.append(histogram(series, _label(name)))
    return plots


def _scatters(evaluations: Sequence[Evaluation]) -> list[str]:
    """What the mixture had against what was gained, in each metric."""
    plots = []
    for name in tables.all_metrics(evaluations):
        series = {
            evaluation.name: [
                (row.values[name] - row.values[f"{name}i"], row.values[f"{name}i"], row.id)
                for row in evaluation.rows
                if math.isfinite(row.values[f"{name}i"])
            ]
            for evaluation in evaluations
            if name in evaluation.metrics
        }
        if any(series.values()):
            unit = f", {METRICS[name].unit}".rstrip(", ")
            plots.append(scatter(series, f"{name} of the mixture{unit}", _label(name)))
    return plots


def _groups(evaluations: Sequence[Evaluation]) -> list[str]:
    """Mean improvements in the first metric by group, of each kind that has some groups."""
    name = tables.all_metrics(evaluations)[0]
    plots = []
    for kind in KINDS:
        groups: dict[tuple[float, str], dict[str, Bar]] = {}
        for evaluation in evaluations:
            for group, rows in members(evaluation.rows, kind).items():
                values = [row.values.get(f"{name}i", math.nan) for row in rows]
                finite = [value for value in values if math.isfinite(value)]
                if finite:
                    bar = (math.fsum(finite) / len(finite), mean_interval(finite, 0), len(finite))
                    groups.setdefault(group, {})[evaluation.name] = bar
        if 1 < len(groups) <= MOST_GROUPS:
            named = {f"{kind} {group[1]}": groups[group] for group in sorted(groups)}
            plots.append(intervals(named, [e.name for e in evaluations], _label(name)))
    return plots


def _side_by_side(
    evaluations: Sequence[Evaluation], compared: Sequence[tuple[Evaluation, list[Difference]]]
) -> str:
    """Paired differences from the first evaluation."""
    if len(evaluations) == 1:
        return ""
    alone = [e.name for e in evaluations[1:] if e.name not in [other.name for other, _ in compared]]
    first = evaluations[0].name
    warning = "".join(
        f"<p>{escape(name)} shares no mixture with {escape(first)}: not compared.</p>"
        for name in alone
    )
    if not compared:
        return warning
    plots = []
    for name in evaluations[0].metrics:
        # Empty series keep the colors of the other plots.
        series: dict[str, list[float]] = {evaluation.name: [] for evaluation in evaluations}
        for other, found in compared:
            series[other.name] = [d for one in found if one.name == name for d in one.differences]
        if any(series.values()):
            plots.append(histogram(series, f"{name}: difference from {first}"))
    return warning + tables.differences(evaluations[0], compared).html() + _plots(plots)


def _examples(evaluations: Sequence[Evaluation], count: int) -> str:
    value = f"{tables.all_metrics(evaluations)[0]}i"
    having = [e for e in evaluations if value.removesuffix("i") in e.metrics]
    return "".join(card(example, having, value) for example in find_examples(evaluations, count))


def _finite(evaluation: Evaluation, name: str) -> list[float]:
    return [v for row in evaluation.rows if math.isfinite(v := row.values[name])]


def _label(name: str) -> str:
    return f"{name}: improvement, {METRICS[name].unit}".rstrip(", ")
