"""Noise recordings and impulse responses: which files there are, and who gets which."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from convtasnet.audio import audio_info
from convtasnet.data.checks import gather, raise_problems
from convtasnet.data.corpus import SPLITS, SUFFIXES, Utterance, split_speakers
from convtasnet.data.part import Part, measured
from convtasnet.data.patterns import list_files
from convtasnet.data.shown import some

logger = logging.getLogger(__name__)

_COLUMNS = ("path", "noise_path")  # of a csv; a list of noisy mixtures is one of noises, too
_CHUNK = 64


def read_noise(root: Path, samples: bool) -> Part:
    """Noise recordings of a folder (wav and FLAC, at any depth) or of a csv with a column ``path``.

    Args:
        root: the folder or csv.
        samples: see ``part.measured``.

    Raises:
        FileNotFoundError: no such folder or csv, or files of it are missing.
        ValueError: no recordings in it, or damaged ones; all are listed.
    """
    part = measured(_sounds(root, "noise_root"), root, samples)
    logger.info("noise of %s: %d recordings, %.2f hours", root, len(part), part.hours)
    return part


def read_rooms(root: Path, n_talkers: int, samples: bool) -> Part:
    """Impulse responses of a folder or csv; those of one folder are of one room.

    Args:
        root: the folder or csv.
        n_talkers: so many places are needed in a room.
        samples: see ``part.measured``.

    Raises:
        FileNotFoundError, ValueError: as ``read_noise``; and ValueError for files of several
            channels, and for rooms of too few responses.
    """
    utterances = _sounds(root, "rir_root")
    _, problems = gather({u.path: u.name for u in utterances}, _one_channel, _CHUNK)
    raise_problems(problems)
    part = measured(utterances, root, samples)
    rooms = part.by_speaker()
    small = [f"{room} ({len(names)})" for room, names in rooms.items() if len(names) < n_talkers]
    if small:
        raise ValueError(
            f"rir_root {root}: each folder is a room and needs {n_talkers} impulse responses, one "
            f"for each talker; fewer are in {some(small)}"
        )
    logger.info("rooms of %s: %d with %d impulse responses", root, len(rooms), len(part))
    return part


def share_out(part: Part | None, groups: Sequence[str], seed: int) -> dict[str, Part | None]:
    """Recordings for training, validation and test, no group in two of them.

    Fewer than three groups can't be shared out: all three sets get everything then, and the log
    says so.

    Args:
        part: the recordings, if there are any.
        groups: the group of each.
        seed: of the split.
    """
    if part is None:
        return dict.fromkeys(SPLITS)
    if len(set(groups)) < len(SPLITS):
        logger.info(
            "%s: too few to hold some out, validation and test get the same as training",
            some(sorted(set(groups))),
        )
        return dict.fromkeys(SPLITS, part)
    shares: dict[str, Part | None] = {}
    for name, members in split_speakers(groups, n_src=1, seed=seed).items():
        mine = set(members)
        shares[name] = part.take([i for i, group in enumerate(groups) if group in mine])
    return shares


def _sounds(root: Path, setting: str) -> list[Utterance]:
    """Files, their folders as "speakers"."""
    if root.is_dir():
        names = [name for name in list_files(root) if Path(name).suffix.lower() in SUFFIXES]
        paths = [os.path.join(root, name) for name in names]
    elif root.is_file():
        paths = names = _read_csv(root)
    else:
        raise FileNotFoundError(f"{setting}={root}: no such folder or csv file")
    if not paths:
        raise ValueError(f"{setting}={root}: no wav or FLAC file in it")
    folders = [os.path.dirname(path) for path in paths]
    return [Utterance(*one) for one in zip(folders, names, paths, strict=True)]


def _read_csv(file: Path) -> list[str]:
    """Absolute paths, each once."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.DictReader(stream)
        columns = [name for name in _COLUMNS if name in (rows.fieldnames or [])]
        if not columns:
            raise ValueError(f"{file}: no column path or noise_path, found {rows.fieldnames}")
        named = [(rows.line_num, row[columns[0]]) for row in rows]
    empty = [str(line) for line, name in named if not name]
    if empty:
        raise ValueError(f"{file}: no {columns[0]} in line {some(empty)}")
    return sorted({os.path.abspath(file.parent / name) for _, name in named})


def _one_channel(path: str) -> None:
    channels = audio_info(path).channels
    if channels != 1:
        raise ValueError(
            f"{channels} channels: an impulse response has one, write each to a file of its own"
        )
