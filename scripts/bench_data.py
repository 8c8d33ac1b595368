"""How many training mixtures a core reads in a second, beside other toolkits on the same files.

    python scripts/bench_data.py
    python scripts/bench_data.py --root /data/librimix --segment 3

Random crops of a Libri2Mix (8 kHz, min, train-100, mix_clean) are loaded in this process in batches
of 16; without --root one of noise is made in a temporary folder. Rates are mixtures in a second of
processor time, which is what one worker of a loader can do: the best of five rounds, in which all
take turns, after one that brings the files into memory.

asteroid's and torchaudio's LibriMix are measured where they are installed. torchaudio reads whole
files, by soundfile where torchcodec isn't installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from data_peers import TorchaudioCrops, asteroid_dataset, stacked
from pack_data import pack
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader

from convtasnet.audio import write_audio
from convtasnet.cli import Parser, run_main
from convtasnet.data.checks import read_headers
from convtasnet.data.librimix import LibriMixData
from convtasnet.data.manifest import Manifest
from convtasnet.data.module import ManifestData

RATE = 8000
BATCH = 16
ROUNDS = 5

Loader = Iterable[dict[str, Any]]


def parse() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, metavar="DIR", help="holds Libri2Mix")
    parser.add_argument("--segment", type=float, default=4.0, help="seconds; default: 4")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured of each; default: 4")
    parser.add_argument(
        "--count", type=int, default=200, help="mixtures to make without --root; default: 200"
    )
    return parser.parse_args()


def bench(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        root = options.root or make_mixtures(place, options.count)
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
        options = [f"data.root='{root}'", "data=librimix", "data.num_workers=0"]
        pack(argparse.Namespace(data=options, out=place / "packed", splits=["train"]))
        return ManifestData(place / "packed", **own).train_dataloader()

    def ours(**changes: Any) -> Loader:
        return LibriMixData(root, **own, **changes).train_dataloader()

    def asteroid() -> Loader:
        return loader(asteroid_dataset(csv_of(root, place / "csv"), RATE, segment))

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


def make_mixtures(place: Path, count: int) -> Path:
    """A Libri2Mix of noise of 10 to 20 s, as long as LibriMix's mixtures."""
    rng = np.random.default_rng(0)
    folder = place / "Libri2Mix" / "wav8k" / "min" / "train-100"
    for i in range(count):
        name = f"{i % 50}-1-{i:04d}_{50 + i % 50}-1-{i:04d}.wav"
        sources = rng.uniform(-0.4, 0.4, (2, RATE * rng.integers(10, 21)))
        for kind, wav in zip(("mix_clean", "s1", "s2"), [sources.sum(0), *sources], strict=True):
            write_audio(folder / kind / name, wav, RATE)
    return place


def csv_of(root: Path, folder: Path) -> Path:
    """A list of the mixtures with absolute paths, alone in a folder."""
    manifest = LibriMixData(root).manifest("train")
    lengths = read_headers(manifest).n_samples.tolist()
    rows = [replace(row, length=n) for row, n in zip(manifest, lengths, strict=True)]
    folder.mkdir()
    Manifest(rows).to_csv(folder / "mix_clean.csv", "absolute")
    return folder / "mix_clean.csv"


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
