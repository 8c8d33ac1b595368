"""One list of audio files, as other toolkits write it.

- JSON of kaituoxu's Conv-TasNet and of asteroid: ``[[path, n_samples], …]``. A file's name, below
  the folder that all files of the list share and without its suffix, is its ID.
- scp of Kaldi and ESPnet: lines ``id path``; lengths come from ``utt2num_samples`` beside it, if
  that is there.

Relative paths start at the list's folder; or at ``root``, if the first of the list is there instead
(recipes write paths that are relative to where they were run).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convtasnet.audio import PathLike

SUFFIXES = (".json", ".scp")


@dataclass(frozen=True)
class Entry:
    """One file of a list.

    Args:
        id: its name.
        path: absolute.
        place: where it is written, such as ``FILE, line 3``.
        length: number of samples, if the list tells.
    """

    id: str
    path: str
    place: str
    length: int | None = None


def read_entries(file: Path, root: PathLike | None = None) -> list[Entry]:
    """The entries of a list, each ID once.

    Args:
        file: its suffix, ``.json`` or ``.scp``, tells the format.
        root: folder that relative paths may start from too.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it isn't such a list, or an ID occurs twice.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such list")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text ({error.reason})") from None
    entries = _parse_scp(file, text) if file.suffix.lower() == ".scp" else _parse_json(file, text)
    if not entries:
        raise ValueError(f"{file}: the list is empty")
    base = _base(file.parent, root, entries[0].path)
    paths = [os.path.normpath(os.path.join(base, entry.path)) for entry in entries]
    ids = [entry.id for entry in entries] if entries[0].id else _names(paths)
    first: dict[str, str] = {}
    for name, entry in zip(ids, entries, strict=True):
        if name in first:
            raise ValueError(
                f"{entry.place}: ID '{name}' is there already ({_last(first[name])}), expected "
                "each once"
            )
        first[name] = entry.place
    return [
        Entry(name, path, entry.place, entry.length)
        for name, path, entry in zip(ids, paths, entries, strict=True)
    ]


def _base(folder: Path, root: PathLike | None, path: str) -> PathLike:
    """Where relative paths start."""
    elsewhere = root is not None and os.path.exists(os.path.join(root, path))
    return root if root and elsewhere and not (folder / path).exists() else folder


def _names(paths: Sequence[str]) -> list[str]:
    """Paths below the folder that all share, without their suffixes."""
    shared = os.path.commonpath({os.path.dirname(path) for path in paths})
    below = len(os.path.join(shared, ""))
    return [os.path.splitext(path[below:])[0].replace(os.sep, "/") for path in paths]


def _parse_json(file: Path, text: str) -> list[Entry]:
    """``[[path, n_samples], …]``; the IDs are empty."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}, line {error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(content, list):
        raise ValueError(f"{file}: expected a list [[path, n_samples], …], found {_brief(content)}")
    return [_json_entry(f"{file}, entry {i}", item) for i, item in enumerate(content, start=1)]


def _json_entry(place: str, item: Any) -> Entry:
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str) or not item[0]:
        raise ValueError(f"{place}: expected [path, n_samples], found {_brief(item)}")
    path, length = item
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ValueError(
            f"{place}: {path} has the length {_brief(length)}, expected a whole number above 0"
        )
    return Entry("", path, place, length)


def _brief(item: Any) -> str:
    text = json.dumps(item, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _parse_scp(file: Path, text: str) -> list[Entry]:
    """Lines ``id path``, a path may have spaces."""
    if (file.parent / "segments").exists():
        raise ValueError(
            f"{file.parent / 'segments'}: stretches of recordings are not read; write each as a "
            "file first (ESPnet: format_wav_scp.sh)"
        )
    lengths = _scp_lengths(file.parent / "utt2num_samples")
    entries = []
    for place, name, path in _lines(file, text, "path"):
        if path.endswith("|") or path.startswith("|"):
            raise ValueError(
                f"{place}: '{path}' is a command, expected the path of an audio file; run it first "
                "(Kaldi: wav-copy, ESPnet: format_wav_scp.sh)"
            )
        if ".ark:" in path or path.endswith(".ark"):
            raise ValueError(
                f"{place}: '{path}' is a Kaldi archive, expected the path of an audio file; unpack "
                "it first (Kaldi: wav-copy)"
            )
        entries.append(Entry(name, path, place, lengths.get(name)))
    return entries


def _scp_lengths(file: Path) -> dict[str, int]:
    if not file.is_file():
        return {}
    lengths = {}
    for place, name, length in _lines(file, file.read_text(encoding="utf-8"), "n_samples"):
        if not (length.isascii() and length.isdigit() and int(length)):
            raise ValueError(f"{place}: length is '{length}', expected a whole number above 0")
        lengths[name] = int(length)
    return lengths


def _lines(file: Path, text: str, value: str) -> Iterable[tuple[str, str, str]]:
    """Place, ID and the rest of each line that isn't empty."""
    for number, line in enumerate(text.split("\n"), start=1):
        place = f"{file}, line {number}"
        fields = line.split(maxsplit=1)
        if len(fields) == 1:
            raise ValueError(f"{place}: '{line.strip()}' is not a line 'id {value}'")
        if fields:
            yield place, fields[0], fields[1].strip()


def _last(place: str) -> str:
    """The line of a place."""
    return place.rsplit(", ", 1)[-1]
