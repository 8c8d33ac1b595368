"""LibriMix's generation lists: which recordings are mixed, and how loud."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from pathlib import Path

from convtasnet.data.shown import some_lines

# A set of the generated tree -> the part of LibriSpeech that its list is named after.
SETS = {
    "train-100": "train-clean-100",
    "train-360": "train-clean-360",
    "dev": "dev-clean",
    "test": "test-clean",
}


@dataclass(frozen=True)
class ListedMixture:
    """One mixture of a list.

    Args:
        name: of its files, without ``.wav``.
        sources: utterances, relative to LibriSpeech's folder.
        gains: factor of each.
        noise: relative to the noise's folder.
        noise_gain: its factor.
    """

    name: str
    sources: tuple[str, ...]
    gains: tuple[float, ...]
    noise: str
    noise_gain: float


def find_list(root: Path, n_src: int, name: str) -> Path:
    """The list of a set, in the generator's folder, in its ``metadata`` or below that.

    Raises:
        FileNotFoundError: it isn't there.
    """
    file = f"libri{n_src}mix_{SETS[name]}.csv"
    inner = f"Libri{n_src}Mix"
    for folder in (root / "metadata" / inner, root / inner, root):
        if (folder / file).is_file():
            return folder / file
    raise FileNotFoundError(
        f"{os.path.abspath(root)}: no list {file} in it, nor in {inner} or metadata/{inner}; it is "
        "part of the generator, github.com/JorisCos/LibriMix"
    )


def read_list(path: Path, n_src: int) -> list[ListedMixture]:
    """Read a list.

    Raises:
        ValueError: columns are missing, or there are wrong lines, which are all listed.
    """
    columns = [f"source_{k + 1}" for k in range(n_src)] + ["noise"]
    wanted = ["mixture_ID", *(f"{one}_{what}" for one in columns for what in ("path", "gain"))]
    mixtures: list[ListedMixture] = []
    wrong: list[str] = []
    seen: set[str] = set()
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        missing = [name for name in wanted if name not in (rows.fieldnames or [])]
        if missing:
            raise ValueError(f"{path}: no columns {missing}, found {rows.fieldnames}")
        for row in rows:
            try:
                mixture = _parse(row, columns)
                if mixture.name in seen:
                    raise ValueError(f"mixture {mixture.name} is there already")
                seen.add(mixture.name)
                mixtures.append(mixture)
            except ValueError as error:
                wrong.append(f"line {rows.line_num}: {error}")
    if wrong:
        raise ValueError(f"{path}: {len(wrong)} wrong lines:{some_lines(wrong)}")
    if not mixtures:
        raise ValueError(f"{path}: no mixtures in it")
    return mixtures


def _parse(row: dict[str, str], columns: list[str]) -> ListedMixture:
    paths = [row[f"{one}_path"] for one in columns]
    if not row["mixture_ID"] or not all(paths):
        raise ValueError("a name or a path is empty")
    gains = [_gain(row[f"{one}_gain"]) for one in columns]
    return ListedMixture(
        row["mixture_ID"], tuple(paths[:-1]), tuple(gains[:-1]), paths[-1], gains[-1]
    )


def _gain(text: str | None) -> float:
    try:
        gain = float(text or "")
    except ValueError:
        gain = math.nan
    if not 0 < gain < math.inf:
        raise ValueError(f"gain '{text}' is not a number above 0")
    return gain
