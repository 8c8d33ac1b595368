"""How many training mixtures a core reads in a second, beside other toolkits on the same files.

    python scripts/bench_data.py
    python scripts/bench_data.py --root /data/librimix --segment 3
    python scripts/bench_data.py --start 20000

Random crops of a Libri2Mix (8 kHz, min, train-100, mix_clean) are loaded in this process in batches
of 16; without --root one of noise is made in a temporary folder. Rates are mixtures in a second of
processor time, which is what one worker of a loader can do: the best of five rounds, in which all
take turns, after one that brings the files into memory.

asteroid's and torchaudio's LibriMix are measured where they are installed. torchaudio reads whole
files, by soundfile where torchcodec isn't installed.

--start N measures something else: how soon N mixtures are ready for training, with files in memory
and the libraries imported (the best of three rounds), the memory of a loader's process, which no
other shares, in an epoch of them, and crops out of files of an hour (the median).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from data_made import RATE, list_mixtures, make_libri2mix, pack_mixtures
from data_peers import TorchaudioCrops, asteroid_dataset, stacked
from data_start import start_tables
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader

from convtasnet.cli import Parser, run_main
from convtasnet.data.librimix import LibriMixData
from convtasnet.data.module import ManifestData

BATCH = 16
ROUNDS = 5

Loader = Iterable[dict[str, Any]]


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mixtures = parser.add_mutually_exclusive_group()
    mixtures.add_argument("--root", type=Path, metavar="DIR", help="holds Libri2Mix")
    mixtures.add_argument(
        "--count", type=int, default=200, help="mixtures to make without --root; default: 200"
    )
    mixtures.add_argument(
        "--start", type=int, metavar="N", help="make N mixtures of 0.1 s and measure their start"
    )
    parser.add_argument("--segment", type=float, default=4.0, help="seconds; default: 4")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured of each; default: 4")
    return parser.parse_args()


def bench(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        if options.start is not None:
            for table in start_tables(place, options.start, options.segment, BATCH):
                Console().print(table)
            return
        if options.root is None:
            make_libri2mix(place, options.count)
        root = options.root or place
        loaders = {}
        for name, make in contenders(root, place, options.segment).items():
            try:
                loaders[name] = make()
            except ImportError as error:
                print(f"{name}: not installed ({error.name})")
        rates = measured(loaders, options.seconds)
    table = Table("crops of mixtures of two talkers", "a second and core", "relative")
    ours = next(iter(rates.values()))
    for name, rate in rates.items():
        table.add_row(name, f"{rate:.0f}", f"{rate / ours:.2f}")
    Console().print(table)


def contenders(root: Path, place: Path, segment: float) -> dict[str, Callable[[], Loader]]:
    """What makes a loader, by name."""
    own: dict[str, Any] = {"segment": segment, "batch_size": BATCH, "num_workers": 0}

    def packed() -> Loader:
        pack_mixtures("librimix", root, place / "packed")
        return ManifestData(place / "packed", **own).train_dataloader()

    def ours(**changes: Any) -> Loader:
        return LibriMixData(root, **own, **changes).train_dataloader()

    def asteroid() -> Loader:
        csv = place / "csv" / "mix_clean.csv"  # alone in its folder
        list_mixtures(LibriMixData(root).manifest("train"), csv)
        return loader(asteroid_dataset(csv, RATE, segment))

    return {
        "this project, wav files": ours,
        "this project, a pack": packed,
        "this project, mixed anew": lambda: ours(remix=True),
        "this project, mixed anew at other speeds": lambda: ours(remix=True, speed=True),
        "asteroid, LibriMix": asteroid,
        "torchaudio, LibriMix": lambda: loader(TorchaudioCrops(root, RATE, segment)),
    }


def loader(dataset: Any) -> Loader:
    """Shuffled batches of another toolkit's items."""
    return DataLoader(dataset, BATCH, shuffle=True, drop_last=True, collate_fn=stacked)


def measured(loaders: Mapping[str, Loader], seconds: float) -> dict[str, float]:
    """Items in a second of this process's time: the best of some rounds, taken in turns.

    Args:
        loaders: by name.
        seconds: of each, in all rounds.
    """
    rates = dict.fromkeys(loaders, 0.0)
    for turn in range(1 + ROUNDS):
        for name, batches in loaders.items():
            rate = rate_of(batches, seconds / ROUNDS)
            rates[name] = max(rates[name], rate if turn else 0.0)  # the first warms up
    return rates


def rate_of(batches: Loader, seconds: float) -> float:
    """Items in a second of this process's time, over whole rounds of the set."""
    items, began = 0, time.process_time()
    while (spent := time.process_time() - began) < seconds:
        for batch in batches:
            items += len(batch["mixture"])
    return items / spent


def main() -> None:
    bench(parse())


if __name__ == "__main__":
    run_main(main)
