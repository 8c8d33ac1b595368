"""Tables for the terminal, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTHING = "–"  # in a cell that was not measured


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with aligned columns.

    Args:
        header: the headings.
        rows: cells, as many in each row as there are headings.

    Raises:
        ValueError: a row of another length.

    Example:
        >>> print(markdown(["N", "ours"], [["512", "1.0"], ["1024", "12.5"]]))
        | N    | ours |
        | ---- | ---- |
        | 512  | 1.0  |
        | 1024 | 12.5 |
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    padded = ([cell.ljust(n) for cell, n in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
