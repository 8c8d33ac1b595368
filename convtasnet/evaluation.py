"""Score a model on a data set of full-length mixtures, and write the reports."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

from convtasnet.audio import write_audio
from convtasnet.cores import available_cores
from convtasnet.files import replacing
from convtasnet.inference import rescale, separate
from convtasnet.metrics import METRICS, Scores, ordered, score, value_names

MAX_WORKERS = 8
ITEMS_PER_WORKER = 20  # fewer would not repay the start of a process


class Mixtures(Protocol):
    """What is evaluated: items ``{"mixture": (T,), "sources": (n_src, T), "id": str}``."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Row:
    """One evaluated mixture: its id, its length in samples and its scores."""

    id: str
    n_samples: int
    scores: Scores


def evaluate(
    model: nn.Module,
    dataset: Mixtures,
    metrics: Sequence[str] = tuple(METRICS),
    limit: int | None = None,
    num_workers: int | None = None,
    audio_folder: Path | None = None,
) -> list[Row]:
    """Separate every mixture whole and score it.

    Args:
        model: see :func:`convtasnet.inference.separate`; run where its weights are.
        dataset: mixtures at the model's rate, with its number of sources.
        metrics: of "si_sdr", "sdr", "stoi" and "pesq".
        limit: only the first so many items.
        num_workers: processes that compute metrics; 0 computes them in this one, None takes one
            for every 20 items, at most 8 and at most one a core.
        audio_folder: where the separated voices are written, in the order of the sources.

    Returns:
        One row a mixture, in the order of the data set.

    Raises:
        ValueError: unknown metrics, a limit below 1, no items, or items that do not fit the model.
    """
    names = ordered(metrics)
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit} must be at least 1 (or null for all items)")
    count = len(dataset) if limit is None else min(limit, len(dataset))
    if count == 0:
        raise ValueError("the data set has no items to evaluate")
    if num_workers is None:
        num_workers = min(MAX_WORKERS, available_cores(), count // ITEMS_PER_WORKER)
    rate = int(model.sample_rate)  # type: ignore[arg-type]
    items = (dataset[index] for index in range(count))
    separated = (_separated(model, _checked(item, model)) for item in items)
    scored = _scored(separated, rate, names, num_workers)
    rows = []
    console = Console(stderr=True)
    for item, scores in track(scored, "evaluating", count, console=console, transient=True):
        rows.append(Row(item.id, item.mixture.shape[-1], scores))
        if audio_folder is not None:
            _write_voices(item, scores, rate, audio_folder)
    return rows


@dataclass(frozen=True)
class _Separated:
    """A separated mixture that waits for its scores."""

    id: str
    mixture: Tensor
    sources: Tensor
    estimates: Tensor


def _separated(model: nn.Module, item: dict[str, Any]) -> _Separated:
    rate = int(model.sample_rate)  # type: ignore[arg-type]
    estimates = separate(model, item["mixture"], rate)
    return _Separated(item["id"], item["mixture"], item["sources"], estimates)


def _scored(
    items: Iterable[_Separated], rate: int, metrics: list[str], num_workers: int
) -> Iterator[tuple[_Separated, Scores]]:
    """Score in order, in this process or, a bounded number of items ahead, in others."""
    if num_workers == 0:
        for item in items:
            yield item, score(item.estimates, item.sources, item.mixture, rate, metrics)
        return
    # spawn: a forked child could use neither CUDA nor OpenMP's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_workers, context, torch.set_num_threads, (1,)) as pool:
        waiting: deque[tuple[_Separated, Future[Scores]]] = deque()
        try:
            for item in items:
                # Arrays travel by copy; tensors would take shared memory and file handles.
                arrays = [x.numpy() for x in (item.estimates, item.sources, item.mixture)]
                waiting.append((item, pool.submit(_score_arrays, arrays, rate, metrics)))
                if len(waiting) > 2 * num_workers:
                    item, scores = waiting.popleft()
                    yield item, scores.result()
            while waiting:
                item, scores = waiting.popleft()
                yield item, scores.result()
        finally:
            for _, scores in waiting:
                scores.cancel()


def _score_arrays(arrays: list[np.ndarray], rate: int, metrics: list[str]) -> Scores:
    estimates, sources, mixture = map(torch.from_numpy, arrays)
    return score(estimates, sources, mixture, rate, metrics)


def _write_voices(item: _Separated, scores: Scores, rate: int, folder: Path) -> None:
    """``ID_s1.wav``, … in the order of the sources, at the level that they have in the mixture."""
    name = item.id.replace("%", "%25").replace("/", "%2F")  # other ids, other files
    voices = rescale(item.estimates[list(scores.permutation)], item.mixture)
    for number, voice in enumerate(voices, start=1):
        write_audio(folder / f"{name}_s{number}.wav", voice, rate)


def _checked(item: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    n_src = item["sources"].shape[0]
    if n_src != model.n_src:
        raise ValueError(
            f"mixture {item['id']} has {n_src} sources, the model separates {model.n_src}"
        )
    return item


def summarize(rows: Sequence[Row], metrics: Sequence[str] = tuple(METRICS)) -> dict[str, Any]:
    """Means over the valid rows of each value, with counts.

    Returns:
        ``n`` and ``n_valid`` (rows with at least one valid value), the mean of every value (None
        where no row is valid), ``valid``: value -> number of rows in its mean, ``reasons``:
        value -> reason -> number of rows left out.

    Example:
        >>> good = Row("a", 8000, Scores({"si_sdr": 10.0, "si_sdri": math.nan}, {"si_sdri": "why"}))
        >>> summarize([good], ["si_sdr"])["si_sdr"], summarize([good], ["si_sdr"])["reasons"]
        (10.0, {'si_sdri': {'why': 1}})
    """
    summary: dict[str, Any] = {
        "n": len(rows),
        "n_valid": sum(any(map(math.isfinite, row.scores.values.values())) for row in rows),
    }
    names = value_names(metrics)
    valid = {
        name: [v for row in rows if math.isfinite(v := row.scores.values[name])] for name in names
    }
    summary |= {name: math.fsum(vs) / len(vs) if vs else None for name, vs in valid.items()}
    summary["valid"] = {name: len(values) for name, values in valid.items()}
    counts = {name: Counter(row.scores.reasons.get(name) for row in rows) for name in names}
    summary["reasons"] = {
        name: {reason: n for reason, n in counter.items() if reason is not None}
        for name, counter in counts.items()
        if len(rows) > counter[None]
    }
    return summary


def write_csv(path: Path, rows: Sequence[Row], metrics: Sequence[str] = tuple(METRICS)) -> None:
    """Write one line a mixture: id, length, values (``nan`` where invalid) and the reasons."""
    names = value_names(metrics)
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["mixture_id", "n_samples", *names, "reasons"])
        for row in rows:
            values = [f"{row.scores.values[name]:.6g}" for name in names]
            writer.writerow([row.id, row.n_samples, *values, _reasons_cell(row.scores)])


def _reasons_cell(scores: Scores) -> str:
    """``value, value: reason`` for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in scores.reasons.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def write_json(path: Path, summary: dict[str, Any]) -> None:
    """Write the summary whole or not at all; it must hold neither NaN nor infinity."""
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False, default=str)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def summary_table(summary: dict[str, Any], metrics: Sequence[str] = tuple(METRICS)) -> Table:
    """The summary for a terminal: value, improvement and valid rows of each metric."""
    table = Table(title=f"{summary['n']} mixtures, {summary['n_valid']} valid")
    for header in ("metric", "mean", "improvement", "valid"):
        table.add_column(header, justify="left" if header == "metric" else "right")
    for name in ordered(metrics):
        unit = f" {METRICS[name].unit}".rstrip()
        cells = (summary[name], summary[f"{name}i"])
        mean, gain = ("–" if cell is None else f"{cell:.2f}{unit}" for cell in cells)
        table.add_row(name, mean, gain, f"{summary['valid'][name]}/{summary['n']}")
    for name, reasons in summary["reasons"].items():
        if name in METRICS:
            for reason, count in reasons.items():
                text = f"[dim]{name}: {escape(reason)}[/dim]"
                table.add_row(text, "", "", f"[dim]-{count}[/dim]")
    return table
