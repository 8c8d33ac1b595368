"""Checks of settings from a command line, before anything is built from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Whole:
    """A whole number from ``least`` on, or None where ``or_none``."""

    least: int
    or_none: bool = False

    def accepts(self, value: Any) -> bool:
        """Is the value one of these?"""
        if value is None:
            return self.or_none
        return isinstance(value, int) and not isinstance(value, bool) and value >= self.least

    def __str__(self) -> str:
        return f"a whole number >= {self.least}" + (" or null" if self.or_none else "")


@dataclass(frozen=True)
class Number:
    """A finite number from ``least`` on, or None where ``or_none``."""

    least: float
    or_none: bool = False

    def accepts(self, value: Any) -> bool:
        """Is the value one of these?"""
        if value is None:
            return self.or_none
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and math.isfinite(value) and value >= self.least

    def __str__(self) -> str:
        return f"a number >= {self.least:g}" + (" or null" if self.or_none else "")


@dataclass(frozen=True)
class Name:
    """A text that is not empty, such as a path, or None."""

    def accepts(self, value: Any) -> bool:
        """Is the value one of these?"""
        return value is None or (isinstance(value, str) and bool(value.strip()))

    def __str__(self) -> str:
        return "a name or null"


class Choice:
    """One of some values."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def accepts(self, value: Any) -> bool:
        """Is the value one of these?"""
        return any(value is v or (isinstance(v, str) and value == v) for v in self.values)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


Kind = Whole | Number | Name | Choice


def check_settings(config: Any, expected: Mapping[str, Kind]) -> None:
    """Compare settings with what they may be; those that are not there are passed over.

    Args:
        config: nested dictionaries.
        expected: dotted name -> what is right.

    Raises:
        ValueError: names the first wrong setting, its value, and what would be right.

    Example:
        >>> check_settings({"data": {"batch_size": 8}}, {"data.batch_size": Whole(1)})
        >>> check_settings({"data": {"batch_size": "x"}}, {"data.batch_size": Whole(1)})
        Traceback (most recent call last):
            ...
        ValueError: data.batch_size='x' must be a whole number >= 1
    """
    for name, kind in expected.items():
        node = config
        for key in name.split("."):
            if not isinstance(node, Mapping) or key not in node:
                break
            node = node[key]
        else:
            interpolated = isinstance(node, str) and node.startswith("${")
            if not interpolated and not kind.accepts(node):
                raise ValueError(f"{name}={node!r} must be {kind}")
