"""What names such as ``mix``, ``s1`` and ``noise`` stand for, of folders and of lists."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from convtasnet.data.shown import some

_MIXTURE = re.compile(r"mix|mixture|mixtures|wav|mix_\w+")
_SOURCE = re.compile(r"(s|spk|src|source|source_)([1-9]\d*)")
_NOISE = re.compile(r"noise1?")


@dataclass(frozen=True)
class Roles:
    """Names of what a mixture is made of.

    Args:
        mixture: the name of the mixtures.
        sources: the names of the sources, in the order of their numbers.
        noise: the name of the noise, if there is one.
    """

    mixture: str
    sources: tuple[str, ...]
    noise: str | None = None


def find_roles(names: Iterable[str], place: str, mixture: str | None = None) -> Roles:
    """Tell the roles of names: ``mix``, ``mixture``, ``wav`` or ``mix_both`` is the mixture;
    ``s1, s2, …``, ``spk1, …`` or ``source_1, …`` are the sources; ``noise`` is the noise.

    Args:
        names: of folders, or of lists without their suffixes; others are passed over.
        place: where they are, for messages.
        mixture: the name of the mixtures, whatever it is; None finds it.

    Raises:
        ValueError: no mixture, no sources, a gap in their numbers, or several may be meant.

    >>> find_roles(["s2", "mix", "noise", "s1", "text"], "/data/tr")
    Roles(mixture='mix', sources=('s1', 's2'), noise='noise')
    """
    names = sorted(names)
    there = f"found are {some(names) or 'none'}"
    if mixture is None:
        found = [name for name in names if _MIXTURE.fullmatch(name)]
        if not found:
            raise ValueError(f"{place}: no mixtures, expected the name mix; {there}")
        if len(found) > 1:
            raise ValueError(f"{place}: {found} could all be the mixtures: name one of them")
        mixture = found[0]
    families: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := _SOURCE.fullmatch(name):
            families[match[1]][int(match[2])] = name
    if len(families) != 1:
        told = "sources of several kinds" if families else "no sources"
        raise ValueError(f"{place}: {told}, expected the names s1, s2, …; {there}")
    ((prefix, numbered),) = families.items()
    missing = [f"{prefix}{k + 1}" for k in range(max(numbered)) if k + 1 not in numbered]
    if missing:
        raise ValueError(f"{place}: {missing} missing beside {list(numbered.values())}")
    noise = [name for name in names if _NOISE.fullmatch(name)]
    sources = tuple(numbered[k] for k in sorted(numbered))
    return Roles(mixture, sources, noise[0] if noise else None)
