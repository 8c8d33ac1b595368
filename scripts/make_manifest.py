"""Make a manifest of a folder of mixtures, once every file is checked.

    python scripts/make_manifest.py /data/tr
    python scripts/make_manifest.py /data/tr --out /data/train.csv
    python scripts/make_manifest.py /data/tr --mixture 'mix/*.wav' --sources 's1/{}.wav' 's2/{}.wav'
    python scripts/make_manifest.py /data --mixture '*/x*.wav' --sources '{}/a{}.wav' '{}/b{}.wav'

Without patterns the folder holds folders mix, s1, s2, … and perhaps noise, with files of the same
names. In the pattern of the mixtures * stands for any text without a slash and ** for any text; {}
in the others stands for what it was, and that is the mixture's ID. Patterns need quotes.

Missing, empty, damaged and leftover files, NaN, rates and lengths that do not fit are all listed,
and then nothing is written. Train with: python train.py data=manifest data.root=FOLDER
data.train=FILE data.valid=FILE
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from convtasnet.cli import Parser, run_main
from convtasnet.data.checks import Headers, Problem, find_facts, find_problems
from convtasnet.data.manifest import Manifest
from convtasnet.data.patterns import Patterns, find_patterns, list_files
from convtasnet.data.row import Row


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of the audio files")
    parser.add_argument(
        "--out", type=Path, metavar="CSV", help="the manifest; default: FOLDER/manifest.csv"
    )
    parser.add_argument("--mixture", metavar="PATTERN", help="of the mixtures, such as 'mix/*.wav'")
    parser.add_argument(
        "--sources", nargs="+", metavar="PATTERN", help="one for each source, such as 's1/{}.wav'"
    )
    parser.add_argument("--noise", metavar="PATTERN", help="of the noise, such as 'noise/{}.wav'")
    parser.add_argument(
        "--absolute",
        action="store_true",
        help="write absolute paths; default: relative to the manifest's folder",
    )
    parser.add_argument("--replace", action="store_true", help="an older manifest may be replaced")
    options = parser.parse_args()
    if bool(options.mixture) != bool(options.sources) or (options.noise and not options.mixture):
        parser.error("--mixture and --sources go together, and --noise with them")
    return options


def make(options: argparse.Namespace) -> None:
    out = (options.out or options.folder / "manifest.csv").absolute()
    if out.suffix != ".csv":  # --replace must not cost a recording
        raise ValueError(f"--out {out}: the name must end in .csv")
    if out.exists() and not options.replace:
        raise ValueError(f"{out} exists: add --replace, or name another file by --out")
    files = list_files(options.folder)
    if options.mixture:
        patterns = Patterns(options.mixture, tuple(options.sources), options.noise)
    else:
        patterns = find_patterns(options.folder, files)
    rows, unused = patterns.rows(options.folder, files)
    everything = Manifest(rows, options.folder.absolute())
    headers, problems = find_problems(everything, samples=True)
    problems += unwritable(everything)
    report(problems, unused, options.folder)
    facts, _ = find_facts(everything)
    lengths = [facts[row.mixture].n_samples for row in rows]
    listed = [
        Row(row.id, row.mixture, row.sources, row.noise, length)
        for row, length in zip(rows, lengths, strict=True)
    ]
    Manifest(listed, out).to_csv(out, "absolute" if options.absolute else "relative")
    Console().print(summary(patterns, headers))
    print(out)


def unwritable(manifest: Manifest) -> list[Problem]:
    """Files whose names no csv can hold."""
    problems = []
    for row in manifest:
        for path in row.files:
            try:
                path.encode()
            except UnicodeEncodeError:
                shown = path.encode(errors="backslashreplace").decode()
                problems.append(Problem(shown, row.id, "its name is not UTF-8: rename it"))
    return problems


def report(problems: Sequence[Problem], unused: Sequence[str], folder: Path) -> None:
    """Print all that is wrong, a line each, and stop."""
    lines = list(dict.fromkeys(map(str, problems)))
    lines += [f"{path}: no mixture has it" for path in unused]
    if lines:
        for line in lines:
            print(line.encode(errors="backslashreplace").decode())
        raise ValueError(
            f"{folder.absolute()}: {len(lines)} problems, listed above; no manifest is written"
        )


def summary(patterns: Patterns, headers: Headers) -> Table:
    seconds = headers.n_samples / headers.sample_rates
    rates = Counter(headers.sample_rates.tolist())
    table = Table(show_header=False)
    table.add_row("mixtures", f"{len(seconds)} like {patterns.mixture}")
    table.add_row("sources", ", ".join(patterns.sources))
    if patterns.noise:
        table.add_row("noise", patterns.noise)
    table.add_row("hours", f"{seconds.sum() / 3600:.2f}")
    table.add_row(
        "seconds",
        f"{seconds.min():.2f} to {seconds.max():.2f}, median {np.median(seconds):.2f}",
    )
    table.add_row("rates", ", ".join(f"{rate} Hz ({count})" for rate, count in rates.items()))
    return table


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    make(options)


if __name__ == "__main__":
    run_main(main)
