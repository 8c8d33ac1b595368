"""Patterns that tell which files of a folder are a mixture, its sources and its noise.

In the pattern of the mixtures ``*`` stands for any text without ``/`` and ``**`` for any text; in
those of the sources ``{}`` stands for what it was. All are relative to the folder.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convtasnet.audio import PathLike
from convtasnet.data.roles import find_roles
from convtasnet.data.row import Row
from convtasnet.data.shown import some

_AUDIO = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff", ".au", ".w64")
_DEEPER = re.compile(r"(.+)/mix\w*/[^/]+")
_STARS = re.compile(r"(\*\*|\*)")


@dataclass(frozen=True)
class Patterns:
    """Patterns of the files of a mixture.

    Args:
        mixture: of the mixtures, with at least one ``*``.
        sources: of the sources, in their order.
        noise: of the noise, if there is one.

    Raises:
        ValueError: no ``*`` or no ``{}``, another number of them, a pattern that is absolute or
            there twice.

    >>> patterns = Patterns("mix/*.wav", ("s1/{}.wav", "s2/{}.wav"))
    >>> files = ["mix/a.wav", "s1/a.wav", "s2/a.wav", "s2/b.wav"]
    >>> rows, unused = patterns.rows("/data", files)
    >>> rows[0].id, rows[0].sources, unused
    ('a', ('/data/s1/a.wav', '/data/s2/a.wav'), ['/data/s2/b.wav'])
    """

    mixture: str
    sources: tuple[str, ...]
    noise: str | None = None

    def __post_init__(self) -> None:
        everything = (self.mixture, *self._others())
        for pattern in everything:
            if everything.count(pattern) > 1:
                raise ValueError(f"pattern '{pattern}' is there twice")
            if os.path.isabs(pattern):
                raise ValueError(f"pattern '{pattern}' is absolute, expected one below the folder")
        stars = len(_STARS.findall(self.mixture))
        if not stars:
            raise ValueError(f"pattern '{self.mixture}' of the mixtures has no *")
        for pattern in self._others():
            if "*" in pattern:
                raise ValueError(f"pattern '{pattern}' has a *, expected {{}} in its place")
            gaps = pattern.count("{}")
            if not gaps or (stars > 1 and gaps != stars):
                raise ValueError(
                    f"pattern '{pattern}' has {gaps} {{}}, expected one for each of the {stars} * "
                    f"in '{self.mixture}'"
                )

    def _others(self) -> tuple[str, ...]:
        return self.sources + ((self.noise,) if self.noise else ())

    def rows(self, folder: PathLike, files: Sequence[str]) -> tuple[list[Row], list[str]]:
        """The mixtures, and the files that belong to none.

        Args:
            folder: where the files are.
            files: their paths relative to it, with ``/``.

        Returns:
            Rows in the order of the files, whose sources may be missing on the disk; and the
            absolute paths of sources and noises of which there is no mixture.

        Raises:
            ValueError: no file is a mixture.
        """
        root = os.path.abspath(folder)
        expression = _expression(_STARS.split(self.mixture))
        matches = [match for name in files if (match := expression.fullmatch(name))]
        if not matches:
            raise ValueError(f"{root}: none of its {len(files)} files is like '{self.mixture}'")
        rows, used = [], set()
        for match in matches:
            mixture, *others = (
                os.path.normpath(os.path.join(root, name))
                for name in (match[0], *(_filled(one, match.groups()) for one in self._others()))
            )
            used.update(others)
            noise = others.pop() if self.noise else None
            rows.append(Row("/".join(match.groups()), mixture, tuple(others), noise))
        stars = _STARS.findall(self.mixture)
        expressions = [_expression(_STARS.split(_filled(one, stars))) for one in self._others()]
        like = [name for name in files if any(one.fullmatch(name) for one in expressions)]
        paths = [os.path.normpath(os.path.join(root, name)) for name in like]
        return rows, [path for path in paths if path not in used]


def list_files(folder: PathLike) -> list[str]:
    """All files below a folder, relative with ``/``, in order; none that are hidden.

    Raises:
        FileNotFoundError: no such folder.
    """
    root = os.path.abspath(folder)
    if not os.path.isdir(root):
        raise FileNotFoundError(f"{root}: no such folder")
    found = []
    for here, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(here, name) for name in names if not name.startswith(".")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def find_patterns(folder: PathLike, files: Sequence[str]) -> Patterns:
    """Patterns of a folder that holds folders ``mix``, ``s1``, ``s2``, … and perhaps ``noise``.

    Args:
        folder: for messages.
        files: their paths relative to it, with ``/``.

    Raises:
        ValueError: there are no such folders, or one holds audio of several formats.
    """
    root = os.path.abspath(folder)
    audio = [name for name in files if Path(name).suffix.lower() in _AUDIO and "/" in name]
    try:
        roles = find_roles({name.split("/", 1)[0] for name in audio}, f"the folders of {root}")
    except ValueError as error:
        deeper = sorted({match[1] for name in audio if (match := _DEEPER.match(name))})
        hint = f"; name one of the folders below, {some(deeper)}" if deeper else ""
        raise ValueError(f"{error}{hint}; or tell the patterns of the files") from None

    def pattern(name: str, stars: str) -> str:
        suffixes = Counter(Path(one).suffix for one in audio if one.startswith(f"{name}/"))
        if len(suffixes) > 1:
            raise ValueError(f"{root}/{name}: files of {dict(suffixes)}: tell the patterns")
        return f"{name}/{stars}{next(iter(suffixes))}"

    return Patterns(
        pattern(roles.mixture, "**"),
        tuple(pattern(name, "{}") for name in roles.sources),
        pattern(roles.noise, "{}") if roles.noise else None,
    )


def _filled(pattern: str, texts: Sequence[str]) -> str:
    """The pattern with each ``{}`` replaced; one text serves all of them."""
    first, *rest = pattern.split("{}")
    texts = texts if len(texts) > 1 else [texts[0]] * len(rest)
    return first + "".join(text + part for text, part in zip(texts, rest, strict=True))


def _expression(pieces: Sequence[str]) -> re.Pattern[str]:
    """A regular expression of a pattern that was split at its stars."""
    meaning = {"*": "([^/]+)", "**": "(.+)"}
    return re.compile("".join(meaning.get(one) or re.escape(one) for one in pieces), re.DOTALL)
