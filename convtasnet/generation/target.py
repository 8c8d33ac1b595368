"""The folders that a recipe fills: what is there, and whether it is right."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

from convtasnet.audio import audio_info
from convtasnet.data.checks import Problem

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.wav")
_THREADS = 8
AGAIN = " (delete it and start again)"  # a run makes what is not there


@dataclass(frozen=True)
class Target:
    """A folder ``…/wav8k/min/tr`` to fill.

    Args:
        folder: holds one folder of each kind.
        kinds: such as ``("s1", "s2", "mix")``.
        sample_rate: in Hz.
        mode: "min" cuts to the shortest source, "max" pads to the longest.

    >>> target = Target(Path("wav8k/min/tr"), ("s1", "mix"), 8000, "min")
    >>> [file.as_posix() for file in target.files("a").values()], target.samples([16001, 20000])
    (['wav8k/min/tr/s1/a.wav', 'wav8k/min/tr/mix/a.wav'], 8001)
    """

    folder: Path
    kinds: tuple[str, ...]
    sample_rate: int
    mode: str

    def files(self, name: str) -> dict[str, Path]:
        """Files of a mixture by their kinds."""
        return {kind: self.folder / kind / f"{name}.wav" for kind in self.kinds}

    def samples(self, lengths: Iterable[int], rate: int = 16000) -> int:
        """Samples of a mixture of sources of these lengths at a rate in Hz."""
        chosen = min(lengths) if self.mode == "min" else max(lengths)
        return -(-chosen * self.sample_rate // rate)


def finished(target: Target) -> set[str]:
    """Names of the mixtures of which all files are there.

    What a killed run left half-written has temporary names, and is deleted.
    """
    return set.intersection(*_there(target).values())


def _there(target: Target) -> dict[str, set[str]]:
    """Names of the files of each kind; half-written ones are deleted."""
    there = {}
    for kind, file in target.files("").items():
        names = os.listdir(file.parent) if file.parent.is_dir() else []
        for name in names:
            if _TEMPORARY.fullmatch(name):
                (file.parent / name).unlink()
        there[kind] = {name[:-4] for name in names if name.endswith(".wav") and name[0] != "."}
    return there


def wrong_files(target: Target, expected: Mapping[str, int]) -> list[Problem]:
    """All that is wrong with a folder: files missing, unreadable, of a wrong rate or length, extra.

    Args:
        target: the folder.
        expected: name of each mixture -> samples.
    """
    owner = {file: name for name in expected for file in target.files(name).values()}

    def look(file: Path) -> Problem | None:
        name = owner[file]
        right = (expected[name], target.sample_rate)
        try:
            info = audio_info(file)
        except (ValueError, OSError) as error:
            return Problem(str(file), name, str(error).removeprefix(f"{file}: ") + AGAIN)
        found = (info.n_samples, info.sample_rate)
        if found != right:
            reason = "{} samples at {} Hz, expected {} at {} Hz".format(*found, *right)
            return Problem(str(file), name, reason + AGAIN)
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        looks = track(pool.map(look, owner), "Checking", len(owner), transient=True)
        problems = [problem for problem in looks if problem]
    extra = {
        name: str(target.files(name)[kind])
        for kind, names in _there(target).items()
        for name in names - expected.keys()
    }
    return problems + [Problem(extra[name], name, "not in the list") for name in sorted(extra)]
