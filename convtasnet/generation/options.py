"""The command line of the recipes: what all of them have."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from convtasnet.cli import run_main
from convtasnet.cores import available_cores

RATES = (8000, 16000)
MODES = ("min", "max")


def run_recipe(
    parser: argparse.ArgumentParser,
    prepare: Callable[[argparse.Namespace], None],
    arguments: Sequence[str] | None,
) -> None:
    """Call ``prepare`` with the options, its log on the screen, errors in one line.

    Args:
        parser: a ``cli.Parser`` with the options of ``add_common``.
        prepare: all of the recipe.
        arguments: words of the command line; None for the process's own.

    Raises:
        SystemExit: 2, where an option is wrong or ``prepare`` raises ValueError or OSError.
    """

    def run() -> None:
        options = parser.parse_args(arguments)
        options.out = Path(os.path.abspath(options.out))
        prepare(options)

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run_main(run)


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """Add ``--out``, ``--sample-rate``, ``--mode``, ``--workers`` and ``--dry-run``.

    Args:
        parser: of the recipe.
        out: what is made below ``--out``, for the help.
    """
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help=f"where {out} is made")
    add(
        "--sample-rate",
        type=int,
        nargs="+",
        choices=RATES,
        default=[8000],
        help="in Hz; default: 8000",
    )
    add("--mode", nargs="+", choices=MODES, default=["min"], help="default: min")
    add("--workers", type=above(0), default=available_cores(), help="default: one for each core")
    add(
        "--dry-run",
        action="store_true",
        help="write nothing, list all that is missing or has a wrong header",
    )


def add_n_src(parser: argparse.ArgumentParser, choices: Sequence[int] | None = None) -> None:
    """Add ``--n-src``: one number of talkers or more."""
    parser.add_argument(
        "--n-src",
        type=above(1),
        nargs="+",
        default=[2],
        choices=choices,
        metavar="N",
        help="talkers in a mixture; default: 2",
    )


def above(limit: int) -> Callable[[str], int]:
    """A type for argparse: whole numbers above the limit."""

    def whole(text: str) -> int:
        number = int(text)
        if number <= limit:
            raise ValueError
        return number

    whole.__name__ = f"whole number above {limit}"
    return whole


def folders(options: argparse.Namespace) -> list[tuple[int, str]]:
    """Each rate with each mode that was asked for, once.

    >>> folders(argparse.Namespace(sample_rate=[16000, 8000], mode=["min"]))
    [(8000, 'min'), (16000, 'min')]
    """
    rates, modes = sorted(set(options.sample_rate)), sorted(set(options.mode))
    return [(rate, mode) for rate in rates for mode in modes]
