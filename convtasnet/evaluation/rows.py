"""Rows of ``metrics.csv``: written as they come, read again after a kill."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from convtasnet.evaluation.facts import Facts
from convtasnet.files import replacing
from convtasnet.metrics import METRICS, value_names

END = "\r\n"  # of a line, as csv files have it
TEXTS = ("speakers", "genders")
FACTS = tuple(item.name for item in fields(Facts))


@dataclass(frozen=True)
class Row:
    """One evaluated mixture.

    Args:
        id: of the mixture.
        n_samples: its length at the model's rate.
        values: name -> value of each metric and improvement, NaN where it has no meaning.
        reasons: name -> why, for each NaN of ``values``.
        facts: what else is known of the mixture.
    """

    id: str
    n_samples: int
    values: dict[str, float]
    reasons: dict[str, str] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)


class RowFile:
    """``metrics.csv`` of one evaluation.

    A line is written whole and flushed to the disk before the next item counts as done; what a
    kill leaves of a line is cut off when the file is read again.

    Args:
        path: the file.
        metrics: their names; they decide the columns.

    Columns: ``mixture_id, n_samples``, each metric and its improvement, ``reasons``, facts.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = RowFile(Path(folder, "metrics.csv"), ["si_sdr"])
        ...     values = {"si_sdr": 1.5, "si_sdri": math.nan}
        ...     file.append([Row("a", 80, values, {"si_sdri": "why"})])
        ...     RowFile(file.path, ["si_sdr"]).read()[0].reasons
        {'si_sdri': 'why'}
    """

    def __init__(self, path: Path, metrics: Sequence[str]) -> None:
        self.path = path
        self.names = value_names(metrics)
        self.columns = ["mixture_id", "n_samples", *self.names, "reasons", *FACTS]

    def recover(self) -> list[Row]:
        """What :meth:`read` gives, after the file is left with it alone: rows can be appended."""
        rows = self.read()
        if self.path.exists():
            text = self._text()
            if self._whole(text) != text:
                self._write(self._whole(text))
        return rows

    def read(self) -> list[Row]:
        """All whole lines; the file stays as it is.

        Raises:
            ValueError: other columns, or a line that is none of this file.
        """
        if not self.path.exists():
            return []
        lines = list(csv.reader(io.StringIO(self._whole(self._text()), newline="")))
        if lines and lines[0] != self.columns:
            raise ValueError(f"{self.path} has columns {lines[0]}, expected {self.columns}")
        return [self._parse(number, line) for number, line in enumerate(lines[1:], start=2)]

    def _text(self) -> str:
        return self.path.read_bytes().decode("utf-8", errors="surrogateescape")

    @staticmethod
    def _whole(text: str) -> str:
        """The lines that were written to their end, also where an editor changed all line ends."""
        header = text[: text.find("\n") + 1]
        if header and not header.endswith(END):
            text = text.replace("\n", END)
        return text[: text.rfind(END) + len(END)] if END in text else ""

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows to the end, safe on the disk when this returns."""
        text = self._lines(rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as file:
            if file.tell() == 0:
                text = self._header() + text
            file.write(text.encode("utf-8", errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())

    def replace(self, rows: Sequence[Row]) -> None:
        """Write the whole file anew, in this order, at once or not at all."""
        self._write(self._header() + self._lines(rows))

    def _write(self, text: str) -> None:
        with replacing(self.path) as temporary:
            temporary.write_bytes(text.encode("utf-8", errors="surrogateescape"))

    def _header(self) -> str:
        return _csv([self.columns])

    def _lines(self, rows: Sequence[Row]) -> str:
        return _csv(
            [
                row.id,
                row.n_samples,
                *(f"{row.values[name]:.6f}" for name in self.names),
                reasons_cell(row.reasons),
                *(_cell(getattr(row.facts, name)) for name in FACTS),
            ]
            for row in rows
        )

    def _parse(self, number: int, line: list[str]) -> Row:
        try:
            cells = dict(zip(self.columns, line, strict=True))
            values = {name: float(cells[name]) for name in self.names}
            known = {name: cells[name] for name in FACTS if cells[name]}
            facts: dict[str, Any] = {
                name: cell if name in TEXTS else float(cell) for name, cell in known.items()
            }
            length, reasons = int(cells["n_samples"]), parse_reasons(cells["reasons"])
        except ValueError as error:
            raise ValueError(f"{self.path}, line {number}: {error}") from None
        return Row(cells["mixture_id"], length, values, reasons, Facts(**facts))


def metrics_in(path: Path) -> list[str]:
    """Metrics of an evaluation's ``metrics.csv``, by its first line.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: name the folder of an evaluation")
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        columns = next(csv.reader(file), [])
    metrics = [name for name in METRICS if name in columns and f"{name}i" in columns]
    if not metrics or columns[:2] != ["mixture_id", "n_samples"]:
        raise ValueError(f"{path} is not of an evaluation: its columns are {columns}")
    return metrics


def reasons_cell(reasons: dict[str, str]) -> str:
    """``value, value: reason; …``, the names of each reason together.

    Example:
        >>> reasons_cell({"stoi": "too short", "stoii": "too short", "sir": "one source"})
        'stoi, stoii: too short; sir: one source'
    """
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason.replace("; ", ", "), []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def parse_reasons(cell: str) -> dict[str, str]:
    """What :func:`reasons_cell` wrote.

    Raises:
        ValueError: something else.

    Example:
        >>> parse_reasons("stoi, stoii: too short; sir: one source")
        {'stoi': 'too short', 'stoii': 'too short', 'sir': 'one source'}
    """
    reasons: dict[str, str] = {}
    for part in cell.split("; ") if cell else []:
        names, colon, reason = part.partition(": ")
        if not colon:
            raise ValueError(f"reasons {cell!r} are not of the form 'name: reason'")
        reasons |= dict.fromkeys(names.split(", "), reason)
    return reasons


def is_valid(row: Row) -> bool:
    """Has the row at least one value?"""
    return any(map(math.isfinite, row.values.values()))


def _cell(fact: float | str | None) -> str:
    if fact is None:
        return ""
    return fact if isinstance(fact, str) else f"{fact:.6f}"


def _csv(lines: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=END).writerows(lines)
    return buffer.getvalue()
