"""A list of mixtures and their sources: a csv file with LibriMix's columns, or others' lists.

Whatever was read, the rows are the same.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from convtasnet.audio import PathLike
from convtasnet.data.lists import find_lists, is_list, read_lists
from convtasnet.data.row import Row
from convtasnet.data.shown import some
from convtasnet.files import replacing

_SOURCE = re.compile(r"source_(\d+)_path")
_PATHS = ("below", "relative", "absolute")


class Manifest(Sequence[Row]):
    """Rows of mixtures, all with the same number of sources.

    Columns of the csv: ``mixture_ID, mixture_path, source_1_path, …, source_N_path, [noise_path,]
    length`` and perhaps ``source_1_speaker, …, source_N_speaker``; others are ignored. Paths are
    absolute or relative to the folder of the csv.

    ``Manifest.read`` reads lists of other toolkits as well.

    Args:
        rows: the mixtures.
        origin: where they come from (file or folder), for messages.
        n_src: number of sources wanted; None takes the first row's.

    Raises:
        ValueError: no rows, two rows with one ID, or another number of sources than ``n_src``.

    >>> manifest = Manifest([Row("a", "/data/mix/a.wav", ("/data/s1/a.wav", "/data/s2/a.wav"))])
    >>> len(manifest), manifest.n_src, manifest[0].id
    (1, 2, 'a')
    """

    def __init__(self, rows: Sequence[Row], origin: PathLike = "rows", n_src: int | None = None):
        self.rows = list(rows)
        self.origin = os.fspath(origin)
        if not self.rows:
            raise ValueError(f"{self.origin}: no mixtures in it")
        self.n_src = len(self.rows[0].sources) if n_src is None else n_src
        wrong = [row for row in self.rows if len(row.sources) != self.n_src]
        if wrong:
            raise ValueError(
                f"{self.origin}: {len(wrong)} of {len(self.rows)} mixtures don't have n_src = "
                f"{self.n_src} sources, the first is '{wrong[0].id}' with {len(wrong[0].sources)}"
            )
        counts = Counter(row.id for row in self.rows)
        repeated = [name for name, count in counts.items() if count > 1]
        if repeated:
            raise ValueError(
                f"{self.origin}: {len(repeated)} mixture IDs occur more than once: "
                + some(repeated)
            )

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @classmethod
    def read(
        cls,
        source: PathLike | Sequence[PathLike],
        n_src: int | None = None,
        root: PathLike | None = None,
    ) -> Manifest:
        """Read a csv or other toolkits' lists, whichever it is.

        Args:
            source: a csv; a folder of JSON or scp lists; one of the lists, that of the mixtures,
                beside the others; or all lists, that of the mixtures first.
            n_src: number of sources that there have to be; None takes what is there.
            root: folder that relative paths in the lists may start from too.

        Raises:
            FileNotFoundError: no such file or folder.
            ValueError: see ``from_csv`` and ``lists.read_lists``.
        """
        if isinstance(source, str | os.PathLike) and not is_list(source):
            return cls.from_csv(source, n_src)
        lists = find_lists(source)
        count = len(lists.sources)
        if n_src is not None and count != n_src:
            raise ValueError(
                f"{lists.mixture}: has {count} sources a mixture, n_src is {n_src}; their lists "
                f"are {some([file.name for file in lists.sources])}"
            )
        return cls(read_lists(lists, root), lists.mixture, count)

    @classmethod
    def from_csv(cls, path: PathLike, n_src: int | None = None) -> Manifest:
        """Read a csv (UTF-8, with or without a byte order mark).

        Args:
            path: the csv.
            n_src: number of sources that the file has to have; None takes what is there.

        Raises:
            FileNotFoundError: no such file.
            ValueError: columns are missing, the number of sources isn't ``n_src``, no rows, IDs
                occur twice, a path is empty or a length isn't a positive whole number.
        """
        path = Path(os.path.abspath(path))
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such manifest")
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file)
                columns = [name.strip() for name in reader.fieldnames or []]
                reader.fieldnames = columns
                count = _check_columns(path, columns, n_src)
                name, folder = str(path), str(path.parent)  # a path makes its text anew each time
                rows = [
                    _parse(f"{name}, line {reader.line_num}", folder, record, count)
                    for record in reader
                ]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text ({error.reason})") from None
        except csv.Error as error:
            raise ValueError(f"{path}: not a csv file ({error})") from None
        return cls(rows, path, count)

    def to_csv(self, path: PathLike, paths: str = "below") -> None:
        """Write a csv.

        Args:
            path: the csv.
            paths: which paths become relative to the csv's folder: ``"below"`` those of files
                below it, so that the folder can be moved, ``"relative"`` all, ``"absolute"`` none.

        Raises:
            ValueError: a row without a length, or another word for ``paths``.
        """
        if paths not in _PATHS:
            raise ValueError(f"paths is '{paths}', expected one of {_PATHS}")
        path = Path(os.path.abspath(path))
        noise = any(row.noise for row in self.rows)
        header = ["mixture_ID", "mixture_path"]
        header += [f"source_{k + 1}_path" for k in range(self.n_src)]
        header += ["noise_path"] * noise + ["length"]
        speakers = all(row.speakers for row in self.rows)
        header += [f"source_{k + 1}_speaker" for k in range(self.n_src)] * speakers
        with (
            replacing(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            for row in self.rows:
                if row.length is None:
                    raise ValueError(f"{path}: the length of mixture '{row.id}' isn't known")
                names = [row.mixture, *row.sources] + [row.noise or ""] * noise
                written = [_written(name, path.parent, paths) for name in names]
                who = (row.speakers or ()) if speakers else ()
                writer.writerow([row.id, *written, row.length, *who])


def _check_columns(path: Path, columns: list[str], n_src: int | None) -> int:
    """Number of sources of a csv with these columns."""
    if not columns:
        raise ValueError(f"{path}: the file is empty")
    sources = sorted(int(match[1]) for name in columns if (match := _SOURCE.fullmatch(name)))
    count = len(sources)
    wanted = ["mixture_ID", "mixture_path", "length"]
    wanted += [f"source_{k + 1}_path" for k in range(max(count, 1))]
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing, found are {columns}")
    if n_src is not None and count != n_src:
        raise ValueError(
            f"{path}: has {count} sources a mixture, n_src is {n_src}; its columns are {columns}"
        )
    return count


def _parse(place: str, folder: str, record: dict[str, str | None], n_src: int) -> Row:
    """A row of the csv at a place, whose relative paths start at a folder."""

    def field(name: str) -> str:
        value = record[name]
        if value is None or not value.strip():
            raise ValueError(f"{place}: no {name}")
        return value.strip()

    def absolute(name: str) -> str:
        return os.path.normpath(os.path.join(folder, field(name)))

    if any(record.get(None) or ()):  # type: ignore[call-overload]
        raise ValueError(f"{place}: more fields than columns; what holds a comma needs quotes")
    length = field("length")
    if not length.isascii() or not length.isdigit() or int(length) == 0:
        raise ValueError(f"{place}: length is '{length}', expected a whole number above 0")
    has_noise = bool((record.get("noise_path") or "").strip())
    speakers = [(record.get(f"source_{k + 1}_speaker") or "").strip() for k in range(n_src)]
    return Row(
        id=field("mixture_ID"),
        mixture=absolute("mixture_path"),
        sources=tuple(absolute(f"source_{k + 1}_path") for k in range(n_src)),
        noise=absolute("noise_path") if has_noise else None,
        length=int(length),
        speakers=tuple(speakers) if all(speakers) else None,
        place=place,
    )


def _written(name: str, folder: Path, paths: str) -> str:
    """A path as the csv in ``folder`` has it."""
    below = bool(name) and Path(name).is_relative_to(folder)
    if not name or paths == "absolute" or (paths == "below" and not below):
        return name
    relative = Path(os.path.relpath(name, folder)).as_posix()
    # Readers strip spaces, so a name that begins with one must not come first.
    return f"./{relative}" if relative[0].isspace() else relative
