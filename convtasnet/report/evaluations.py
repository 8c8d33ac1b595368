"""Finished evaluations, as ``scripts/evaluate.py`` left them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convtasnet.evaluation.examples import LABEL
from convtasnet.evaluation.folder import MARK
from convtasnet.evaluation.rows import Row, RowFile, metrics_in
from convtasnet.metrics import value_names

PARTS = ("median", "ci95", "valid", "reasons")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Args:
        name: what the report calls it.
        folder: where its files are.
        metrics: names.
        summary: of ``summary.json``.
        rows: of ``metrics.csv``.
    """

    name: str
    folder: Path
    metrics: list[str]
    summary: dict[str, Any]
    rows: list[Row]

    def row(self, mixture_id: str) -> Row | None:
        """The row of a mixture, if it was evaluated."""
        return next((row for row in self.rows if row.id == mixture_id), None)


def read_evaluations(folders: Sequence[Path], names: Sequence[str] = ()) -> list[Evaluation]:
    """Read evaluations.

    Args:
        folders: of the evaluations.
        names: one each; without any, baselines have theirs, and models those of their folders as
            far as these differ.

    Raises:
        FileNotFoundError: there is no evaluation in a folder.
        ValueError: an evaluation is not finished, damaged, or a name is there twice.
    """
    if names and len(names) != len(folders):
        raise ValueError(f"{len(names)} names for {len(folders)} evaluations: one each is needed")
    found = [_read(folder) for folder in folders]
    labels = list(names) or _labels(folders, [summary for _, summary, _ in found])
    for name in labels:
        if labels.count(name) > 1:
            raise ValueError(f"two evaluations have the name {name!r}: give --names")
    return [
        Evaluation(name, folder, *parts)
        for name, folder, parts in zip(labels, folders, found, strict=True)
    ]


def _read(folder: Path) -> tuple[list[str], dict[str, Any], list[Row]]:
    path = folder / "metrics.csv"
    metrics = metrics_in(path)
    summary_path = folder / "summary.json"
    if (folder / MARK).exists() or not summary_path.exists():
        raise ValueError(f"{folder}: the evaluation is not finished, start it again to go on")
    try:
        summary = json.loads(summary_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{summary_path} is damaged ({error})") from None
    if not isinstance(summary, dict) or "n" not in summary:
        raise ValueError(f"{summary_path} is not of an evaluation: it holds no object with 'n'")
    lacking = [key for key in (*PARTS, *value_names(metrics)) if key not in summary]
    if lacking:
        raise ValueError(f"{summary_path} is not of {path.name} beside it: it lacks {lacking}")
    for entry in summary.get("examples", ()):
        if not LABEL.fullmatch(str(entry.get("folder"))) or not {"id", "n_src"} <= entry.keys():
            raise ValueError(f"{summary_path} is damaged: {entry} is no example")
    rows = RowFile(path, metrics).read()
    if len(rows) != summary["n"]:
        raise ValueError(f"{path} is damaged: {len(rows)} rows of {summary['n']} are there")
    return metrics, summary, rows


def _labels(folders: Sequence[Path], summaries: Sequence[dict[str, Any]]) -> list[str]:
    """Names of baselines, and of folders from the first part on in which they differ."""
    paths = [folder.resolve().parts for folder in folders]
    common = len(paths[0]) - 1
    if len(paths) > 1:
        common = len(Path(os.path.commonpath(folder.resolve() for folder in folders)).parts)
    return [
        summary.get("baseline") or "/".join(parts[common:]) or parts[-1]
        for parts, summary in zip(paths, summaries, strict=True)
    ]
