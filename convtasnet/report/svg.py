"""Plots as SVG, drawn by hand: small, and with texts for the pointer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
MOST_BINS = 40
MAX_POINTS = 3000  # of a series in a scatter plot
COLORS = 7  # in the page's style sheet: the classes c0, c1, …


@dataclass
class Axes:
    """A plot's frame: what is drawn in it is given in the values' own units.

    Args:
        x: least and largest value shown.
        y: the same.
        x_label: below the plot.
        y_label: beside it.
        height: of the whole picture, in pixels.
        left: margin for the labels of the y axis, in pixels.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str
    y_label: str
    height: int = HEIGHT
    left: int = LEFT
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        right = self.left + across * (WIDTH - self.left - RIGHT)
        return right, self.height - BOTTOM - up * (self.height - TOP - BOTTOM)

    def add(self, part: str) -> None:
        """Draw one more element."""
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, style: str = "") -> None:
        """Words at a place in pixels."""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>')

    def line(self, points: Sequence[tuple[float, float]], kind: str, title: str = "") -> None:
        """A line through points; ``kind`` is its class."""
        path = " ".join("{:.1f},{:.1f}".format(*self.at(*point)) for point in points)
        told = f"<title>{escape(title)}</title>" if title else ""
        self.add(f'<polyline class="{kind}" points="{path}">{told}</polyline>')

    def dot(self, x: float, y: float, kind: str, title: str, radius: float = 3) -> None:
        """A dot, with words for the pointer."""
        right, down = self.at(x, y)
        self.add(
            f'<circle class="{kind}" cx="{right:.1f}" cy="{down:.1f}" r="{radius:g}">'
            f"<title>{escape(title)}</title></circle>"
        )

    def frame(self, y_ticks: bool = True) -> None:
        """Axes with their ticks and labels."""
        for tick in ticks(*self.x):
            right, _ = self.at(tick, self.y[0])
            self.line([(tick, self.y[0]), (tick, self.y[1])], "grid")
            self.text(right, self.height - BOTTOM + 16, f"{tick:g}", 'text-anchor="middle"')
        for tick in ticks(*self.y) if y_ticks else ():
            _, down = self.at(self.x[0], tick)
            self.line([(self.x[0], tick), (self.x[1], tick)], "grid")
            self.text(self.left - 6, down + 4, f"{tick:g}", 'text-anchor="end"')
        middle = (self.left + WIDTH - RIGHT) / 2
        self.text(middle, self.height - 8, self.x_label, 'text-anchor="middle"')
        if self.y_label:
            turned = f'text-anchor="middle" transform="rotate(-90 14 {self.height / 2:.0f})"'
            self.text(14, self.height / 2, self.y_label, turned)

    def svg(self, title: str) -> str:
        """The picture."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape(title)}">'
            + "".join(self.parts)
            + "</svg>"
        )


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers between two others, about so many.

    Example:
        >>> ticks(-0.3, 10.2), ticks(0, 1)
        ([0, 2, 4, 6, 8, 10], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    """
    rough = (high - low) / count
    power = 10 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(factor * power - rough))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def histogram(series: Mapping[str, Sequence[float]], label: str) -> str:
    """Outlines of the distributions of some values in the same bins, in percent of each.

    Args:
        series: name -> finite values, in the order of the colors.
        label: of the values.
    """
    values = [value for group in series.values() for value in group]
    low, high = spread_out(values)
    # Rice's rule: more bins for more mixtures, or chance is all that one sees.
    longest = max(map(len, series.values()), default=0)
    bins = min(MOST_BINS, max(4, round(2 * longest ** (1 / 3))))
    width = (high - low) / bins
    counts = {}
    for name, group in series.items():
        shares = [0.0] * bins
        for value in group:
            shares[min(bins - 1, int((value - low) / width))] += 100 / len(group)
        counts[name] = shares
    top = max((max(shares) for shares in counts.values()), default=1.0) or 1.0
    axes = Axes((low, high), (0, 1.05 * top), label, "% of the mixtures")
    axes.frame()
    for number, (name, shares) in enumerate(counts.items()):
        if not series[name]:
            continue  # its color stays free
        outline = [(low, 0.0)]
        for place, share in enumerate(shares):
            outline += [(low + place * width, share), (low + (place + 1) * width, share)]
        axes.line([*outline, (high, 0.0)], f"step c{number % COLORS}", name)
    if low < 0 < high:
        axes.line([(0, 0), (0, 1.05 * top)], "zero")
    return axes.svg(f"distribution of {label}")


Point = tuple[float, float, str]  # x, y, and words for the pointer


def scatter(series: Mapping[str, Sequence[Point]], x_label: str, y_label: str) -> str:
    """Points of some series; of more than 3,000 every second, third, … is drawn.

    Args:
        series: name -> points, in the order of the colors.
        x_label: of the first coordinate.
        y_label: of the second.
    """
    points = [point for group in series.values() for point in group]
    x, y = spread_out([point[0] for point in points]), spread_out([point[1] for point in points])
    axes = Axes(x, y, x_label, y_label)
    axes.frame()
    if y[0] < 0 < y[1]:
        axes.line([(x[0], 0), (x[1], 0)], "zero")
    for number, (name, group) in enumerate(series.items()):
        for right, up, words in group[:: -(-len(group) // MAX_POINTS) or 1]:
            title = f"{name}, {words}: {right:.2f}, {up:.2f}"
            axes.dot(right, up, f"dot c{number % COLORS}", title, 2)
    return axes.svg(f"{y_label} against {x_label}")


Bar = tuple[float, tuple[float, float] | None, int]  # mean, interval, mixtures


def intervals(groups: Mapping[str, Mapping[str, Bar]], names: Sequence[str], label: str) -> str:
    """Means with their intervals, a line a group and a dot a series.

    Args:
        groups: name of the group -> name of the series -> mean, interval and mixtures.
        names: of all series, in the order of the colors.
        label: of the values.
    """
    bars = [bar for group in groups.values() for bar in group.values()]
    ends = [end for mean, interval, _ in bars for end in (interval or (mean, mean))]
    lines = len(groups) * (len(names) + 1)
    height = TOP + BOTTOM + 12 * max(lines, 4)
    axes = Axes(spread_out(ends), (lines, 0), label, "", height, left=190)
    axes.frame(y_ticks=False)
    for place, (group, series) in enumerate(groups.items()):
        top = place * (len(names) + 1)
        _, down = axes.at(axes.x[0], top + (len(names) + 1) / 2)
        axes.text(axes.left - 8, down + 4, group, 'text-anchor="end"')
        for name, (mean, interval, n) in series.items():
            number = names.index(name)
            y, kind = top + 1 + number, f"c{number % COLORS}"
            title = f"{name}, {group}: {mean:.2f} ({n} mixtures)"
            if interval is not None:
                axes.line([(interval[0], y), (interval[1], y)], f"bar {kind}", title)
            axes.dot(mean, y, f"dot {kind}", title, 4)
    return axes.svg(f"{label} by group")


def spread_out(values: Sequence[float]) -> tuple[float, float]:
    """Least and largest of some values with a margin.

    Example:
        >>> spread_out([1.0, 3.0]), spread_out([2.0]), spread_out([])
        ((0.9, 3.1), (1.5, 2.5), (0.0, 1.0))
    """
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin
