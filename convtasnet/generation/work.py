"""What a recipe makes: planned, done where it isn't done yet, and looked at in the end."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from convtasnet.data.checks import Problem, raise_problems
from convtasnet.files import replacing
from convtasnet.generation.jobs import run_jobs
from convtasnet.generation.target import Target, finished, wrong_files

log = logging.getLogger(__name__)

Job = TypeVar("Job")


@dataclass(frozen=True)
class Portion(Generic[Job]):
    """The mixtures of one list, and the folders that they go to.

    Args:
        title: for the log.
        names: of the mixtures.
        targets: the folders.
        job: from a mixture's name and the folders that lack it, what makes it.
        samples: from a mixture's name and a folder, the length that it has to have there.
    """

    title: str
    names: Sequence[str]
    targets: Sequence[Target]
    job: Callable[[str, tuple[Target, ...]], Job]
    samples: Callable[[str, Target], int]

    def jobs(self) -> list[Job]:
        """What makes the mixtures that are not there yet."""
        done = {target: finished(target) for target in self.targets}
        jobs = []
        for name in self.names:
            todo = tuple(target for target in self.targets if name not in done[target])
            if todo:
                jobs.append(self.job(name, todo))
        log.info("%s: %d mixtures, %d of them to make", self.title, len(self.names), len(jobs))
        return jobs

    def check(self) -> None:
        """Look at all that was made: no file missing or too many, every rate and length right.

        Raises:
            ValueError: something is wrong; all is listed.
        """
        for target in self.targets:
            expected = {name: self.samples(name, target) for name in self.names}
            raise_problems(wrong_files(target, expected))
            hours = sum(expected.values()) / target.sample_rate / 3600
            log.info("%s: %d mixtures, %.2f hours", target.folder, len(expected), hours)


def generate(portions: Sequence[Portion[Job]], make: Callable[[Job], None], workers: int) -> None:
    """Make what isn't there yet, and look at everything.

    Args:
        portions: what to make.
        make: makes a job, each file whole or not at all (``files.replacing``).
        workers: processes.

    Raises:
        ValueError, OSError: from ``make``, or what was made isn't what it should be.
    """
    run_jobs(make, [job for portion in portions for job in portion.jobs()], workers)
    for portion in portions:
        portion.check()


def remember_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Note what determines the samples, so that a tree is never made half one way, half another.

    Args:
        path: a JSON file in the tree.
        settings: plain values; of long ones, a ``digest``.

    Raises:
        ValueError: the tree was begun with other settings; keys that it doesn't have are new.
    """
    before: dict[str, Any] = {}
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        other = [key for key in settings if settings[key] != before.get(key, settings[key])]
        if other:
            raise ValueError(
                f"{path.parent} was begun with other settings ({', '.join(other)}): take another "
                "--out, or delete that folder"
            )
    with replacing(path) as temporary:
        text = json.dumps(before | dict(settings), indent=2)
        temporary.write_text(text + "\n", encoding="utf-8")


def digest(value: object) -> str:
    """A short name of a value made of plain ones.

    >>> digest([1, "a"])
    '4a72386a027702c1'
    """
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def report_dry_run(problems: Sequence[Problem], n_files: int, seen: str = "headers") -> None:
    """Print all problems, each on a line, and fail if there are any.

    Args:
        problems: all that is wrong.
        n_files: recordings that were looked at.
        seen: what of them.

    Raises:
        ValueError: there are problems.
    """
    for problem in problems:
        print(problem)
    if problems:
        raise ValueError(f"{len(problems)} problems with the {n_files} recordings needed")
    print(f"all {n_files} recordings needed are there, with the right {seen}; nothing was written")
