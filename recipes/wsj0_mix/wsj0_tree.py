"""The folders that the recipe fills: what is there, and whether it is right."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track
from wsj0_corpus import RATE

from convtasnet.audio import audio_info
from convtasnet.data.checks import Problem

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.wav")
_THREADS = 8


@dataclass(frozen=True)
class Target:
    """A folder ``…/wav8k/min/tr`` to fill.

    Args:
        folder: holds ``mix``, ``s1``, ``s2``, ….
        sample_rate: in Hz.
        mode: "min" cuts to the shortest source, "max" pads to the longest.
    """

    folder: Path
    sample_rate: int
    mode: str

    def files(self, name: str, n_src: int) -> list[Path]:
        """Files of a mixture: its sources, and then the mixture."""
        kinds = [*(f"s{k + 1}" for k in range(n_src)), "mix"]
        return [self.folder / kind / f"{name}.wav" for kind in kinds]

    def length(self, at_16k: Iterable[int]) -> int:
        """Samples of a mixture of sources of these lengths."""
        chosen = min(at_16k) if self.mode == "min" else max(at_16k)
        return -(-chosen * self.sample_rate // RATE)


def finished(target: Target, n_src: int) -> set[str]:
    """Names of the mixtures that are there with all their sources.

    What a killed run left half-written has temporary names, and is deleted.
    """
    there = []
    for file in target.files("", n_src):
        names = os.listdir(file.parent) if file.parent.is_dir() else []
        for name in names:
            if _TEMPORARY.fullmatch(name):
                (file.parent / name).unlink()
        there.append({name[:-4] for name in names if name.endswith(".wav") and name[0] != "."})
    return set.intersection(*there)


def wrong_files(target: Target, n_src: int, expected: Mapping[str, int]) -> list[Problem]:
    """All that is wrong with a folder: files missing, unreadable, of a wrong rate or length, extra.

    Args:
        target: the folder.
        n_src: sources in a mixture.
        expected: name of each mixture -> samples.
    """
    owner = {file: name for name in expected for file in target.files(name, n_src)}

    def look(file: Path) -> Problem | None:
        name = owner[file]
        right = (expected[name], target.sample_rate)
        try:
            info = audio_info(file)
        except (ValueError, OSError) as error:
            return Problem(str(file), name, str(error).removeprefix(f"{file}: "))
        found = (info.n_samples, info.sample_rate)
        if found != right:
            reason = "{} samples at {} Hz, expected {} at {} Hz".format(*found, *right)
            return Problem(str(file), name, reason)
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        looks = track(pool.map(look, owner), "Checking", len(owner), transient=True)
        problems = [problem for problem in looks if problem]
    extra = sorted(finished(target, n_src) - expected.keys())
    mix = target.folder / "mix"
    return problems + [Problem(str(mix / f"{n}.wav"), n, "not in the list") for n in extra]
