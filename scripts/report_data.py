"""Report on a data set: hours, lengths, levels and all problems, as a table and a picture.

    python scripts/report_data.py /data/train.csv /data/valid.csv
    python scripts/report_data.py data=wsj0_mix data.root=/data/wsj0-mix --out report.png
    python scripts/report_data.py data=manifest data.root=/data data.train=tr --splits train

The data are manifests (csv, or a folder of JSON or scp lists), or overrides of configs/train.yaml
as for train.py. Levels are root mean squares over whole files, in dB of full scale. Every file is
decoded once; what was found is kept in the cache folder, so that the next report takes seconds.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from data_config import data_of
from data_plot import draw
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from convtasnet.cli import Parser, run_main
from convtasnet.data.checks import Problem, find_problems
from convtasnet.data.corpus import SPLITS, as_manifest, list_utterances
from convtasnet.data.manifest import Manifest
from convtasnet.data.scan import Scan, decibels, find_faults, scan_files
from convtasnet.data.speakers import SpeakersData

SHOWN = 20
WIDTH = 100  # a narrower table would lose digits


@dataclass(frozen=True)
class Part:
    """Files of one kind in one set: measurements with path and ID of each."""

    split: str
    kind: str
    files: list[tuple[str, str, Scan]]

    @property
    def scans(self) -> list[Scan]:
        """The measurements alone."""
        return [scan for _, _, scan in self.files]


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="manifests, or overrides: data=NAME data.root=DIR"
    )
    parser.add_argument(
        "--splits", nargs="+", choices=SPLITS, default=SPLITS, help="sets; default: all three"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("data.png"), metavar="PNG", help="default: %(default)s"
    )
    parser.add_argument(
        "--all", action="store_true", help=f"list all problems, not {SHOWN} of each kind"
    )
    options = parser.parse_intermixed_args()
    if not options.out.suffix:
        parser.error(f"--out {options.out}: a picture needs an ending, such as .png")
    return options


def report(options: argparse.Namespace) -> None:
    sets = find_sets(options.data, options.splits)
    parts: list[Part] = []
    problems: list[tuple[str, Problem]] = []
    for split, manifest, kinds in sets:
        found, faults = examine(split, manifest, kinds)
        parts += found
        problems += faults
    if not any(part.files for part in parts):
        print_problems(problems, options.all)
        raise ValueError(f"{', '.join(options.data)}: not one file can be read, see above")
    Console(width=max(WIDTH, Console().width)).print(table_of(parts))
    print_problems(problems, options.all)
    draw([(part.split, part.kind, part.scans) for part in parts if part.files], options.out)
    print(options.out)


def find_sets(named: Sequence[str], splits: Sequence[str]) -> list[tuple[str, Manifest, list[str]]]:
    """Name, rows and kinds of files (mixture, sources, noise) of each set."""
    overrides = [item for item in named if "=" in item and not Path(item).exists()]
    if overrides and len(overrides) < len(named):
        files = [item for item in named if item not in overrides]
        raise ValueError(f"{files} and {overrides}: name either manifests or overrides")
    if not overrides:
        return [with_kinds(Path(item).stem, Manifest.read(item)) for item in named]
    data = data_of(overrides)
    if isinstance(data, SpeakersData):  # its mixtures are made in training
        utterances = as_manifest(list_utterances(data.root), data.root)
        return [("all", utterances, ["utterance"])]
    return [with_kinds(split, data.manifest(split)) for split in splits]


def with_kinds(split: str, manifest: Manifest) -> tuple[str, Manifest, list[str]]:
    """A set with the kinds of its files."""
    kinds = ["mixture", *(f"source {k + 1}" for k in range(manifest.n_src))]
    return split, manifest, kinds + ["noise"] * any(row.noise for row in manifest)


def examine(
    split: str, manifest: Manifest, kinds: Sequence[str]
) -> tuple[list[Part], list[tuple[str, Problem]]]:
    """Measure all files of a set; kinds of problems and what they are."""
    _, problems = find_problems(manifest)
    files = [dict(column) for column in columns(manifest, len(kinds))]  # one may be in many rows
    owner = {path: row for column in files for path, row in column.items()}
    scans, damaged = scan_files(owner, manifest.origin)
    told = {(problem.path, problem.reason) for problem in problems}
    problems += [problem for problem in damaged if (problem.path, problem.reason) not in told]
    parts = [
        Part(
            split, kind, [(path, row, scans[path]) for path, row in column.items() if path in scans]
        )
        for kind, column in zip(kinds, files, strict=True)
    ]
    found = [("files, rates, lengths", problem) for problem in dict.fromkeys(problems)]
    faults = find_faults((path, owner[path], scan) for path, scan in scans.items())
    return parts, found + faults


def columns(manifest: Manifest, count: int) -> Iterator[list[tuple[str, str]]]:
    """(path, ID) of all mixtures, then of all first sources, and so on."""
    for k in range(count):
        yield [(row.files[k], row.id) for row in manifest if k < len(row.files)]


def table_of(parts: Sequence[Part]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("set", "kind"):
        table.add_column(name, no_wrap=True)
    for name in ("files", "hours", "Hz", "seconds", "level, dB", "peak, dB"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in parts:
        table.add_row(part.split, part.kind, str(len(part.files)), *numbers(part.scans))
    table.caption = "seconds: least, median, most; level: 5 %, median, 95 % of the files"
    return table


def numbers(scans: Sequence[Scan]) -> list[str]:
    """Hours, rates, seconds, level and peak of files, as the table has them."""
    if not scans:
        return []
    seconds = [scan.seconds for scan in scans]
    levels = [decibels(scan.level) for scan in scans if not scan.silent]
    return [
        f"{sum(seconds) / 3600:.2f}",
        ", ".join(str(rate) for rate in sorted({scan.sample_rate for scan in scans})),
        spread(seconds, [0, 50, 100]),
        spread(levels, [5, 50, 95]) if levels else "silent",
        f"{decibels(max(scan.peak for scan in scans)):.1f}",
    ]


def spread(values: Sequence[float], percents: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in np.percentile(values, percents))


def print_problems(problems: Sequence[tuple[str, Problem]], everything: bool) -> None:
    """Counts of each kind, and the first of them."""
    counts = Counter(kind for kind, _ in problems)
    told = ", ".join(f"{kind} ({count})" for kind, count in counts.items())
    print(f"problems: {told or 'none'}")
    for kind, count in counts.items():
        lines = [str(problem) for one, problem in problems if one == kind]
        shown = lines if everything else lines[:SHOWN]
        print(f"{kind}:")
        for line in shown:
            print(f"  {line.encode(errors='backslashreplace').decode()}")
        if count > len(shown):
            print(f"  … and {count - len(shown)} more: --all lists them")


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    report(options)


if __name__ == "__main__":
    run_main(main)
