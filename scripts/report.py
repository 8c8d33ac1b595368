"""Report on evaluations: a page with plots and players, and the tables as Markdown.

    python scripts/report.py EVALUATION --out report.html
    python scripts/report.py OLD NEW --names before after --out comparison.html

Each EVALUATION is a folder that scripts/evaluate.py left. The page is one file that needs no
network: sounds and pictures are in it. All others are compared with the first, mixture by mixture.
The tables are beside it, with the ending .md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from convtasnet.cli import Parser, run_main
from convtasnet.files import replacing
from convtasnet.report.evaluations import read_evaluations
from convtasnet.report.page import html_page, markdown


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluations", nargs="+", type=Path, metavar="EVALUATION", help="folders")
    parser.add_argument("--names", nargs="+", default=[], metavar="NAME", help="one each")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="HTML", help="default: %(default)s"
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=3,
        metavar="N",
        help="so many worst and so many best mixtures of each to listen to; default: %(default)s",
    )
    options = parser.parse_args()
    if options.out.suffix != ".html":
        parser.error(f"--out {options.out}: the page needs the ending .html")
    if options.examples < 0:
        parser.error(f"--examples {options.examples} must be 0 or more")
    return options


def main() -> None:
    options = parse()
    evaluations = read_evaluations(options.evaluations, options.names)
    pages = {
        options.out: html_page(evaluations, options.examples),
        options.out.with_suffix(".md"): markdown(evaluations),
    }
    for path, text in pages.items():
        with replacing(path) as temporary:
            temporary.write_bytes(text.encode("utf-8", errors="replace"))
        print(path)


if __name__ == "__main__":
    run_main(main)
