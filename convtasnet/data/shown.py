"""How much of a long list a message shows."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 20


def some(names: Sequence[str], limit: int = SHOWN) -> str:
    """The first names of a list and how many more there are, in a sentence.

    >>> some(["a", "b", "c"], limit=2)
    'a, b, … (1 more)'
    """
    more = f", … ({len(names) - limit} more)" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def some_lines(names: Sequence[str]) -> str:
    r"""The same on lines of their own, indented, below a sentence.

    >>> some_lines([f"{i}.wav" for i in range(23)]).splitlines()[-2:]
    ['  19.wav', '  … and 3 more']
    """
    more = f"\n  … and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return "".join(f"\n  {name}" for name in names[:SHOWN]) + more
