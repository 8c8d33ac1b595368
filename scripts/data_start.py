"""How soon a large data set is ready for training, and what its loader needs: for bench_data.py."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
from data_made import RATE, list_mixtures, make_wsj0_2mix, pack_mixtures
from rich.table import Table

from convtasnet.audio import read_audio, write_audio
from convtasnet.data.module import ManifestData, MixtureData, Wsj0MixData

ROUNDS = 3
CROPS = 200
HOUR = 3600  # seconds of the long files
EARLY = 50  # batches after which a loader's process is first looked at
PAUSE = 0.5  # seconds, in which it makes what is made in advance and comes to rest
MEMORY = "/proc/{}/smaps_rollup"  # of a process, by its number


def start_tables(place: Path, count: int, segment: float, batch_size: int) -> Iterator[Table]:
    """Tables of starts, of a loader's memory and of crops out of long files.

    Args:
        place: an empty folder, for mixtures of noise.
        count: mixtures.
        segment: seconds of a crop.
        batch_size: of the loader.

    Raises:
        ValueError: there are not two batches, a crop is no part of an hour, or the system doesn't
            tell what memory is a process's own.
    """
    if count < 2 * batch_size:
        raise ValueError(f"--start {count}: expected at least {2 * batch_size}, two batches")
    if not 1 / RATE <= segment < HOUR:
        raise ValueError(f"--segment {segment}: expected part of a file of {HOUR} s")
    if not os.path.exists(MEMORY.format("self")):
        raise ValueError("--start reads the memory of a process from /proc, as Linux has it")
    with empty_cache():
        make_wsj0_2mix(place / "wsj0", count)
        list_mixtures(Wsj0MixData(place / "wsj0").manifest("train"), place / "lists" / "train.csv")
        pack_mixtures("wsj0_mix", place / "wsj0", place / "packed")

        def files(num_workers: int = 0) -> MixtureData:
            return Wsj0MixData(
                place / "wsj0", segment=segment, batch_size=batch_size, num_workers=num_workers
            )

        def listed(name: str) -> MixtureData:
            return ManifestData(place / name, segment=segment, batch_size=batch_size, num_workers=0)

        sets = {
            f"wsj0_mix, {3 * count:,} wav files": files,
            "the same from a manifest": lambda: listed("lists"),
            "the same packed": lambda: listed("packed"),
        }
        yield table_of_starts(count, start_seconds(sets))
        yield table_of_memory(worker_megabytes(files(num_workers=1)))
    yield table_of_crops(segment, crop_milliseconds(place, segment))


@contextmanager
def empty_cache() -> Iterator[None]:
    """Nothing is known of any file."""
    with TemporaryDirectory() as folder, mock.patch.dict(os.environ, CONVTASNET_CACHE=folder):
        yield


def start_seconds(sets: Mapping[str, Callable[[], MixtureData]]) -> dict[str, tuple[float, float]]:
    """Seconds of a first and of a later start: the best of some rounds, taken in turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sets}
    for _ in range(ROUNDS):
        for name, make in sets.items():
            with empty_cache():
                found[name].append((ready_seconds(make), ready_seconds(make)))
    best = {name: np.min(times, axis=0) for name, times in found.items()}
    return {name: (float(first), float(later)) for name, (first, later) in best.items()}


def ready_seconds(make: Callable[[], MixtureData]) -> float:
    """Seconds until everything is checked and the first training batch is there."""
    began = time.perf_counter()
    data = make()
    data.check(["train"])
    next(iter(data.train_dataloader()))
    return time.perf_counter() - began


def worker_megabytes(data: MixtureData) -> dict[int, float]:
    """Memory that is a loader's one process's own, by the batches that it has made of an epoch."""
    loader = data.train_dataloader()
    last = len(loader)
    looks = (min(EARLY, last // 2), last)
    others = set(multiprocessing.active_children())
    found = {}
    for number, _ in enumerate(loader, 1):
        if number in looks:
            time.sleep(PAUSE)
            (worker,) = set(multiprocessing.active_children()) - others
            found[number] = own_megabytes(worker.pid)
    return found


def own_megabytes(process: int | None) -> float:
    """Memory that a process shares with no other."""
    text = Path(MEMORY.format(process)).read_text()
    return sum(map(int, re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE))) * 1024 / 1e6


def crop_milliseconds(place: Path, segment: float) -> dict[str, float]:
    """Milliseconds of reading a crop at a random place of a file of an hour: the median."""
    rng = np.random.default_rng(0)
    noise = rng.random(HOUR * RATE, np.float32) - 0.5
    files = {"16-bit wav": place / "hour.wav", "FLAC": place / "hour.flac"}
    for file in files.values():
        write_audio(file, noise, RATE)
    n_samples = round(segment * RATE)
    times: dict[str, list[float]] = {name: [] for name in files}
    for start in rng.integers(0, len(noise) - n_samples, CROPS, endpoint=True).tolist():
        for name, file in files.items():
            began = time.perf_counter()
            read_audio(file, start=start, n_samples=n_samples)
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: float(np.median(each)) for name, each in times.items()}


def table_of_starts(count: int, seconds: Mapping[str, tuple[float, float]]) -> Table:
    table = Table(f"{count:,} mixtures ready", "first start, s", "later, s", "later : first")
    for name, (first, later) in seconds.items():
        table.add_row(name, f"{first:.2f}", f"{later:.2f}", f"{later / first:.2f}")
    return table


def table_of_memory(megabytes: Mapping[int, float]) -> Table:
    table = Table("a loader's process after", "its own memory, MB", "relative")
    early = next(iter(megabytes.values()))
    for number, size in megabytes.items():
        table.add_row(f"{number:,} batches", f"{size:.1f}", f"{size / early:.2f}")
    return table


def table_of_crops(segment: float, milliseconds: Mapping[str, float]) -> Table:
    table = Table(f"a crop of {segment:g} s out of one hour", "ms", "relative")
    fastest = next(iter(milliseconds.values()))
    for name, each in milliseconds.items():
        table.add_row(name, f"{each:.2f}", f"{each / fastest:.1f}")
    return table
