"""A corpus of single-speaker utterances: its files, and its speakers split into three sets."""

from __future__ import annotations

import csv
import itertools
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from convtasnet.data.manifest import Manifest, Row
from convtasnet.data.patterns import list_files

SPLITS = ("train", "valid", "test")
SUFFIXES = (".wav", ".flac")
HELD_OUT = 0.04  # of the speakers, for each of validation and test


@dataclass(frozen=True)
class Utterance:
    """One file of one speaker.

    Attributes:
        speaker: name of the speaker.
        name: path relative to the corpus, with ``/``: the same wherever the corpus lies.
        path: absolute path.
        length: samples at the file's own rate, if a csv said so.
    """

    speaker: str
    name: str
    path: str
    length: int | None = None


def list_utterances(root: Path) -> list[Utterance]:
    """Utterances of a folder ``SPEAKER/…/utterance.{wav,flac}``, or of a csv.

    A csv has the columns ``speaker,path`` and perhaps ``length`` and ``name`` (which else is the
    path); its paths are absolute or relative to its own folder. Hidden files and folders are passed
    over.

    Raises:
        FileNotFoundError: no such folder or csv.
        ValueError: no utterance in it, or a csv without these columns.

    Returns:
        The utterances in the order of their names.
    """
    if root.is_dir():
        found = _walk(root)
        hint = f"expected {root}/SPEAKER/…/utterance.wav or .flac"
    elif root.is_file():
        found = _read_csv(root)
        hint = "expected a row for each utterance"
    else:
        raise FileNotFoundError(f"data.root={root}: no such folder or csv file")
    utterances = sorted(found, key=lambda utterance: utterance.name)
    if not utterances:
        raise ValueError(f"data.root={root} has no utterances: {hint}")
    for one, other in itertools.pairwise(utterances):
        if one.name == other.name:
            raise ValueError(f"{root}: utterance {one.name} is listed twice")
    return utterances


def _walk(root: Path) -> Iterable[Utterance]:
    for name in list_files(root):
        speaker, _, rest = name.partition("/")
        if rest and Path(name).suffix.lower() in SUFFIXES:
            yield Utterance(speaker, name, os.path.join(root, name))


def _read_csv(file: Path) -> Iterable[Utterance]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        missing = {"speaker", "path"} - set(rows.fieldnames or [])
        if missing:
            raise ValueError(
                f"{file}: no column {sorted(missing)}; expected speaker,path and perhaps length, "
                f"found {rows.fieldnames}"
            )
        for row in rows:
            speaker, name, length = row["speaker"], row["path"], row.get("length")
            if not speaker or not name or (length and not length.isdigit()):
                raise ValueError(f"{file}, line {rows.line_num}: speaker, path or length is wrong")
            path = os.path.abspath(file.parent / name)
            yield Utterance(speaker, row.get("name") or name, path, int(length) if length else None)


def as_manifest(utterances: Iterable[Utterance], root: Path) -> Manifest:
    """The utterances as rows without sources, for the checks that all data sets share."""
    rows = [Row(u.name, u.path, (), length=u.length) for u in utterances]
    return Manifest(rows, root, n_src=0)


def split_speakers(
    speakers: Iterable[str],
    n_src: int,
    seed: int,
    n_valid: int | None = None,
    n_test: int | None = None,
) -> dict[str, list[str]]:
    """Split speakers into train, valid and test, no speaker in two of them.

    The split depends on the names and the seed alone.

    Args:
        speakers: names.
        n_src: speakers in a mixture; each set needs as many.
        seed: of the split.
        n_valid: speakers for validation; default: 4 % of all, at least ``n_src``.
        n_test: speakers for test; same default.

    Raises:
        ValueError: a set has fewer than ``n_src`` speakers; the message has the counts.

    Example:
        >>> split = split_speakers([f"s{i}" for i in range(251)], n_src=2, seed=0)
        >>> {name: len(members) for name, members in split.items()}
        {'train': 231, 'valid': 10, 'test': 10}
    """
    names = sorted(set(speakers))
    default = max(n_src, round(HELD_OUT * len(names)))
    n_valid = default if n_valid is None else n_valid
    n_test = default if n_test is None else n_test
    n_train = len(names) - n_valid - n_test
    if min(n_train, n_valid, n_test) < n_src:
        raise ValueError(
            f"{len(names)} speakers split into {n_train} for training, n_valid_speakers={n_valid} "
            f"and n_test_speakers={n_test}: each needs at least n_src={n_src}, so {3 * n_src} "
            "speakers at least in all"
        )
    random.Random(f"speakers/{seed}").shuffle(names)
    return {
        "train": sorted(names[n_valid + n_test :]),
        "valid": sorted(names[:n_valid]),
        "test": sorted(names[n_valid : n_valid + n_test]),
    }
