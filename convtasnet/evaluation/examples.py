"""The worst and the best mixtures, to listen to and to look at."""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from convtasnet.audio import write_audio
from convtasnet.evaluation.estimators import Estimator, Item
from convtasnet.evaluation.mixtures import Mixtures
from convtasnet.evaluation.rows import Row
from convtasnet.inference import rescale
from convtasnet.metrics import score
from convtasnet.spectrograms import MISSING, draw_spectrograms

log = logging.getLogger(__name__)

FOLDER = "examples"
LABEL = re.compile(r"(worst|best)_\d+")


def pick(rows: Sequence[Row], name: str, count: int) -> dict[str, int]:
    """Places of the worst and best rows.

    Args:
        rows: the evaluated mixtures.
        name: of the value that decides; rows without it are left out.
        count: how many of each; at most half of the rows, so that none is both.

    Returns:
        ``worst_01``, ``worst_02``, …, ``best_01``, … -> place in ``rows``.

    Example:
        >>> rows = [Row(str(v), 8, {"sdri": v}) for v in (3.0, 1.0, 2.0, math.nan)]
        >>> pick(rows, "sdri", 10)
        {'worst_01': 1, 'best_01': 0}
    """
    ranked = [place for place, row in enumerate(rows) if math.isfinite(row.values[name])]
    ranked.sort(key=lambda place: (rows[place].values[name], place))
    count = min(count, len(ranked) // 2)
    worst = {f"worst_{i + 1:02d}": ranked[i] for i in range(count)}
    return worst | {f"best_{i + 1:02d}": ranked[-1 - i] for i in range(count)}


def write_examples(
    estimator: Estimator,
    dataset: Mixtures,
    rows: Sequence[Row],
    name: str,
    count: int,
    sample_rate: int,
    folder: Path,
) -> list[dict[str, Any]]:
    """Write mixture, sources and estimates of the worst and best mixtures, with spectrograms.

    Args:
        estimator: what was evaluated.
        dataset: of which ``rows`` are the first, in order.
        rows: the evaluated mixtures.
        name: of the value that decides.
        count: how many of each.
        sample_rate: Hz.
        folder: gets a folder for each; the examples that are in it are removed.

    Returns:
        For each: its ``folder``'s name, the mixture's ``id`` and its ``n_src``.
    """
    for old in folder.iterdir() if folder.is_dir() else ():
        if LABEL.fullmatch(old.name):
            shutil.rmtree(old)
    drawn = find_spec("matplotlib") is not None
    picked = pick(rows, name, count)
    if picked and not drawn:
        log.warning("the examples have no pictures: %s", MISSING)
    examples = []
    for label, place in picked.items():
        item, row = dataset[place], rows[place]
        signals = _signals(estimator, item, sample_rate)
        for signal, wav in signals.items():
            write_audio(folder / label / f"{signal}.wav", wav, sample_rate)
        if drawn:
            title = f"{label.replace('_', ' ')}: {row.id}, {name} {row.values[name]:.2f}"
            titled = {signal.replace("_", " "): wav for signal, wav in signals.items()}
            draw_spectrograms(titled, sample_rate, title, folder / label / "spectrogram.png")
        examples.append({"folder": label, "id": row.id, "n_src": len(item["sources"])})
    return examples


def _signals(estimator: Estimator, item: Item, sample_rate: int) -> dict[str, Tensor]:
    """What is written of an item, within full scale; estimates in the order of the sources."""
    (estimates,) = estimator([item])
    mixture, sources = item["mixture"], item["sources"]
    matched = estimates[list(score(estimates, sources, mixture, sample_rate).permutation)]
    peak = max(1.0, float(torch.cat([sources, mixture[None]]).abs().max()))
    signals = {"mixture": mixture / peak}
    for number, pair in enumerate(zip(sources / peak, rescale(matched, mixture), strict=True), 1):
        signals |= {f"source_{number}": pair[0], f"estimate_{number}": pair[1]}
    return signals
