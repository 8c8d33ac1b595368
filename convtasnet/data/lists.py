"""Lists of other toolkits that belong together: one for the mixtures and one for each source.

- kaituoxu's Conv-TasNet and asteroid: ``mix.json``, ``s1.json``, ``s2.json``
- Kaldi and ESPnet: ``mix.scp`` or ``wav.scp``, ``spk1.scp``, ``spk2.scp``

They are paired by ID (see ``convtasnet.data.listing`` for what that is). Only JSON lists whose
file names have nothing in common are paired by position, as those toolkits do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convtasnet.audio import PathLike
from convtasnet.data.listing import SUFFIXES, Entry, read_entries
from convtasnet.data.roles import find_roles
from convtasnet.data.row import Row, lengths_fit
from convtasnet.data.shown import some

logger = logging.getLogger(__name__)

_SHOWN = 10
# Lists don't say their rate: what no rate allows is wrong.
_HIGHEST_RATE = 48000


@dataclass(frozen=True)
class Lists:
    """Absolute paths of the lists of the mixtures, of each source and of the noise."""

    mixture: Path
    sources: tuple[Path, ...]
    noise: Path | None = None


def is_list(source: PathLike) -> bool:
    """Is it a folder, or named as a JSON or scp file is?"""
    return os.path.isdir(source) or Path(source).suffix.lower() in SUFFIXES


def find_lists(source: PathLike | Sequence[PathLike]) -> Lists:
    """The lists that belong together.

    Args:
        source: their folder; that of the mixtures, with the others beside it; or all, that of the
            mixtures first.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: it isn't clear which lists are meant, or not all are there.
    """
    if not isinstance(source, str | os.PathLike):
        return _named(source)
    path = Path(os.path.abspath(source))
    if path.is_dir():
        kinds = [kind for kind in SUFFIXES if any(_stems(path, kind))]
        if len(kinds) != 1:
            told = "JSON and scp lists: name that of the mixtures" if kinds else "no lists"
            raise ValueError(
                f"{path}: {told}; expected mix.json, s1.json, s2.json, … or mix.scp, spk1.scp, …"
            )
        folder, suffix, mixture = path, kinds[0], None
    elif path.is_file():
        folder, suffix, mixture = path.parent, path.suffix, path.stem
    else:
        raise FileNotFoundError(f"{path}: no such list of mixtures")
    roles = find_roles(_stems(folder, suffix), f"{folder}/*{suffix}", mixture)

    def file(stem: str) -> Path:
        return folder / f"{stem}{suffix}"

    noise = file(roles.noise) if roles.noise else None
    return Lists(file(roles.mixture), tuple(map(file, roles.sources)), noise)


def read_lists(lists: Lists, root: PathLike | None = None) -> list[Row]:
    """The mixtures in the order of their list.

    Args:
        lists: the files.
        root: folder that relative paths may start from too.

    Raises:
        FileNotFoundError: a list isn't there.
        ValueError: a list can't be read, IDs occur twice or are missing, or the lists' lengths
            disagree; the message names file, line and what would be right.
    """
    mixtures = read_entries(lists.mixture, root)
    others = [*lists.sources, *([lists.noise] if lists.noise else [])]
    paired = [_pair(lists.mixture, mixtures, file, read_entries(file, root)) for file in others]
    n_src = len(lists.sources)
    return [
        Row(
            id=entry.id,
            mixture=entry.path,
            sources=tuple(fellow.path for fellow in fellows[:n_src]),
            noise=fellows[n_src].path if lists.noise else None,
            length=entry.length,
            place=entry.place,
        )
        for entry, *fellows in zip(mixtures, *paired, strict=True)
    ]


def _named(sources: Sequence[PathLike]) -> Lists:
    files = [Path(os.path.abspath(source)) for source in sources]
    wrong = [str(file) for file in files if file.suffix.lower() not in SUFFIXES]
    if wrong or len(files) < 2:
        what = f"{some(wrong)} is neither JSON nor scp" if wrong else f"{len(files)} files named"
        raise ValueError(
            f"{what}: expected the list of the mixtures, then one for each source, such as "
            "[mix.json,s1.json,s2.json]"
        )
    return Lists(files[0], tuple(files[1:]))


def _stems(folder: Path, suffix: str) -> list[str]:
    names = (name for name in os.listdir(folder) if name.endswith(suffix) and name[0] != ".")
    return [name[: -len(suffix)] for name in names]


def _pair(
    mixture_file: Path, mixtures: Sequence[Entry], file: Path, entries: Sequence[Entry]
) -> list[Entry]:
    """The entries in the order of the mixtures."""
    by_id = {entry.id: entry for entry in entries}
    missing = [entry for entry in mixtures if entry.id not in by_id]
    if len(missing) == len(mixtures) and file.suffix.lower() == ".json":
        return _pair_by_position(mixture_file, mixtures, file, entries)
    wanted = {entry.id for entry in mixtures}
    extra = [entry for entry in entries if entry.id not in wanted]
    if missing or extra:
        counts = f"{file} has {len(entries)} entries, {mixture_file} has {len(mixtures)}"
        lacking = [f"'{entry.id}' ({entry.place})" for entry in missing]
        beyond = [f"'{entry.id}' ({entry.place})" for entry in extra]
        told = [f"it lacks the IDs {some(lacking, _SHOWN)}"] * bool(missing)
        told += [f"no mixture has the IDs {some(beyond, _SHOWN)}"] * bool(extra)
        raise ValueError(f"{counts}, expected the same IDs in both: {'; '.join(told)}")
    pairs = [by_id[entry.id] for entry in mixtures]
    for entry, fellow in zip(mixtures, pairs, strict=True):
        if entry.length is None or fellow.length is None:
            continue
        if not lengths_fit(entry.length, fellow.length, _HIGHEST_RATE):
            _refuse_lengths(entry, fellow)
    return pairs


def _pair_by_position(
    mixture_file: Path, mixtures: Sequence[Entry], file: Path, entries: Sequence[Entry]
) -> list[Entry]:
    """For lists whose names have nothing in common: number and lengths have to be the same."""
    if len(entries) != len(mixtures):
        raise ValueError(
            f"{file} has {len(entries)} entries, {mixture_file} has {len(mixtures)}, and no file "
            f"name is in both ('{entries[0].id}', '{mixtures[0].id}'): expected the same names, or "
            "as many entries in the same order"
        )
    for entry, fellow in zip(mixtures, entries, strict=True):
        if entry.length != fellow.length:
            _refuse_lengths(entry, fellow)
    logger.warning(
        "%s and %s have no file name in common ('%s', '%s'): they are paired by position",
        *(mixture_file, file, mixtures[0].id, entries[0].id),
    )
    return list(entries)


def _refuse_lengths(mixture: Entry, source: Entry) -> None:
    raise ValueError(
        f"{source.place}: {source.path} has the length {source.length}, expected that of its "
        f"mixture, {mixture.length} ({mixture.place})"
    )
