"""Lists of mixtures to make, in WSJ0-mix's text format: a line ``path gain path gain`` each."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from convtasnet.data.mixing import draw_mixtures
from convtasnet.files import replacing

VALID_SHARE = 0.2  # of each training speaker's utterances, for drawn validation lists
_SHOWN = 20


@dataclass(frozen=True)
class ListedMixture:
    """One line of a list: which utterances are mixed at which relative levels.

    Args:
        paths: of the utterances, as the list has them, with ``/``.
        gains_db: relative level of each.

    >>> paths = ("wsj0/si_tr_s/40n/40na010x.wav", "wsj0/si_tr_s/01x/01xo031a.wav")
    >>> ListedMixture(paths, (2.0, -2.0)).name
    '40na010x_2_01xo031a_-2'
    """

    paths: tuple[str, ...]
    gains_db: tuple[float, ...]

    @property
    def name(self) -> str:
        """Name of the mixture's files, without ``.wav``: utterances and gains as MATLAB shows them.

        That is five significant digits (``num2str``).
        """
        parts = zip(self.paths, self.gains_db, strict=True)
        return "_".join(f"{PurePosixPath(path).stem}_{gain + 0.0:.5g}" for path, gain in parts)


def read_list(path: Path, n_src: int) -> list[ListedMixture]:
    """Read a list; lines may end in spaces, empty ones are passed over.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no mixtures in it, or wrong lines: other than ``n_src`` paths and gains, a gain
            that is not a number, an utterance mixed with itself, the same mixture again. All are
            listed, with file and line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{os.path.abspath(path)}: no such list of mixtures")
    recipes: list[ListedMixture] = []
    line_of: dict[str, int] = {}
    wrong = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error.reason})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            recipe = _parse(line, n_src)
            if recipe.name in line_of:
                raise ValueError(f"the same mixture as in line {line_of[recipe.name]}")
        except ValueError as error:
            wrong.append(f"{path}, line {number}: {error}")
            continue
        line_of[recipe.name] = number
        recipes.append(recipe)
    if wrong:
        more = f"\n… and {len(wrong) - _SHOWN} more wrong lines" if len(wrong) > _SHOWN else ""
        raise ValueError("\n".join(wrong[:_SHOWN]) + more)
    if not recipes:
        raise ValueError(f"{path}: no mixtures in it")
    return recipes


def write_list(path: Path, recipes: Iterable[ListedMixture]) -> None:
    """Write a list that ``read_list`` reads back, whole or not at all."""
    with replacing(path) as temporary:
        lines = (
            " ".join(f"{p} {g:.5g}" for p, g in zip(r.paths, r.gains_db, strict=True)) + " \n"
            for r in recipes
        )
        temporary.write_text("".join(lines), encoding="utf-8")


def draw_lists(
    train: Mapping[str, Sequence[str]],
    test: Mapping[str, Sequence[str]],
    counts: Sequence[int],
    n_src: int,
    seed: int,
) -> dict[str, list[ListedMixture]]:
    """Draw lists for tr, cv and tt, after the description of WSJ0-mix.

    The speakers of tr and cv are the same and those of tt others. A fifth of each training
    speaker's utterances (rounded, none of a speaker who has only one) is for cv and never heard in
    tr. Mixtures are drawn by ``mixing.draw_mixtures``: utterances of different speakers, every set
    of them equally likely and none twice, gains in opposite pairs uniform in [0, 2.5] dB and 0 dB
    for an odd last speaker. The lists depend on names and seed alone.

    Args:
        train: paths of each training speaker's utterances.
        test: paths of each test speaker's utterances.
        counts: numbers of mixtures of tr, cv and tt.
        n_src: speakers in a mixture.
        seed: of the draw.

    Raises:
        ValueError: a speaker of both, or more mixtures than the utterances give; the message
            counts them.

    >>> lists = draw_lists({"a": ["a1", "a2"], "b": ["b1", "b2"]}, {"c": ["c1"], "d": ["d1"]},
    ...                    (4, 0, 1), n_src=2, seed=0)
    >>> {split: len(recipes) for split, recipes in lists.items()}
    {'tr': 4, 'cv': 0, 'tt': 1}
    """
    shared = sorted(train.keys() & test.keys())
    if shared:
        raise ValueError(f"speakers {', '.join(shared)} are both for training and for test")
    rng = random.Random(f"cv/{seed}")
    parts: dict[str, dict[str, list[str]]] = {"tr": {}, "cv": {}, "tt": {}}
    for speaker in sorted(train):
        names = sorted(train[speaker])
        rng.shuffle(names)
        n_valid = round(VALID_SHARE * len(names))
        parts["tr"][speaker], parts["cv"][speaker] = names[n_valid:], names[:n_valid]
    parts["tt"] = {speaker: list(names) for speaker, names in test.items()}
    lists = {}
    for (split, names_of), count in zip(parts.items(), counts, strict=True):
        try:
            drawn = draw_mixtures(names_of, count, n_src, f"{split}/{seed}")
        except ValueError as error:
            raise ValueError(f"{split}: {error}") from None
        # Rounded as they are written, so that a list read back makes the same mixtures.
        lists[split] = [
            ListedMixture(mixture.paths, tuple(float(f"{gain:.5g}") for gain in mixture.gains_db))
            for mixture in drawn
        ]
    return lists


def _parse(line: str, n_src: int) -> ListedMixture:
    fields = line.split()
    if len(fields) != 2 * n_src:
        raise ValueError(f"{len(fields)} fields, expected {n_src} times a path and a gain in dB")
    paths = tuple(fields[::2])
    gains = []
    for field in fields[1::2]:
        try:
            gain = float(field)
        except ValueError:
            gain = math.nan
        if not math.isfinite(gain):
            raise ValueError(f"gain '{field}' is not a number")
        gains.append(gain)
    if len(set(paths)) < n_src:
        raise ValueError("an utterance is mixed with itself")
    return ListedMixture(paths, tuple(gains))
