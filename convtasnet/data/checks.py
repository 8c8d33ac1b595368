"""Look at every file of a data set before training, and name all that is wrong at once."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from rich.progress import Progress

from convtasnet.audio import FLOAT_SUBTYPES, audio_info, check_samples
from convtasnet.data.file_cache import FileCache, FileFacts
from convtasnet.data.manifest import Manifest
from convtasnet.data.row import Row, lengths_fit
from convtasnet.pack import file_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Threads hide the latency of network disks; each takes this many headers at a time.
_THREADS = 8
_CHUNK = 64
_SHOWN = 20
_LISTED = 50


class Problem(NamedTuple):
    """One thing wrong: an absolute path, the ID of a row that uses it, and the reason."""

    path: str
    row: str
    reason: str
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.path} (mixture '{self.row}'): {self.reason}"


@dataclass(frozen=True)
class Headers:
    """Of each row: ``n_samples`` that mixture and sources share, ``sample_rates`` in Hz; int64."""

    n_samples: np.ndarray
    sample_rates: np.ndarray


def read_headers(manifest: Manifest) -> Headers:
    """Lengths and rates of all rows, from the files' headers and sizes (threads, cached).

    Raises:
        FileNotFoundError: files are missing (and nothing else is wrong).
        ValueError: files are empty, damaged or not audio; rates differ within a row; or lengths
            differ within a row, or from the list's, by more than 20 ms and 1 %. Everything is
            listed.
    """
    headers, problems = find_problems(manifest)
    raise_problems(problems)
    return headers


def find_problems(manifest: Manifest, samples: bool = False) -> tuple[Headers, list[Problem]]:
    """Headers of all rows, and all that is wrong with them.

    Args:
        manifest: the mixtures.
        samples: also decode, once in the life of a file, those whose header can't tell: float
            wav may hold NaN, FLAC may be cut short.

    Returns:
        The headers (only of use without problems) and the problems in the order of the rows.
    """
    facts, problems = find_facts(manifest, samples)
    bad = {problem.path for problem in problems}
    headers = np.zeros((2, len(manifest)), dtype=np.int64)
    trimmed = stale = 0
    for index, row in enumerate(manifest):
        if bad.isdisjoint(row.files):
            files = [facts[path] for path in row.files]
            lengths = [file.n_samples for file in files]
            headers[:, index] = min(lengths), files[0].sample_rate
            found = list(_row_problems(row, files))
            problems += found
            trimmed += min(lengths) != max(lengths) and not found
            stale += row.length not in (None, lengths[0]) and not found
    if trimmed:
        logger.warning(
            "%s: mixture and sources of %d rows differ in length by a few samples: all are cut "
            "to the shortest",
            *(manifest.origin, trimmed),
        )
    if stale:
        logger.warning(
            "%s: %d lengths are not those of the mixture files, which are used",
            *(manifest.origin, stale),
        )
    return Headers(headers[0], headers[1]), problems


def find_facts(
    manifest: Manifest, samples: bool = False
) -> tuple[dict[str, FileFacts], list[Problem]]:
    """What is known of each file of mixtures, sources and noise, by path, and which are bad.

    Args:
        manifest: the mixtures.
        samples: see ``find_problems``.
    """
    cache = FileCache(manifest.origin, FileFacts, "files")
    owner = {path: row.id for row in manifest for path in row.files}
    facts, problems = gather(owner, lambda path: _look_up(path, cache), _CHUNK)
    if samples:
        hidden = {path: owner[path] for path, f in facts.items() if f.hidden and not f.scanned}
        if hidden:
            logger.info("%s: scanning the samples of %d files", manifest.origin, len(hidden))
            good, damaged = gather(hidden, check_samples, 1, "Scanning samples, once")
            problems += damaged
            for path in good:
                facts[path].scanned = True
    for problem in problems:
        facts.pop(problem.path, None)
    cache.save(facts)
    return facts, problems


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one error that names all problems, or do nothing without any.

    A long list is shown in part, and whole in a text file whose path is given.

    Raises:
        FileNotFoundError: all problems are missing files.
        ValueError: otherwise.
    """
    if not problems:
        return
    problems = list(dict.fromkeys(problems))
    shown = problems if len(problems) <= _LISTED else problems[:_SHOWN]
    lines = [f"{len(problems)} problem{'s' if problems[1:] else ''} in the data:", *map(str, shown)]
    if len(shown) < len(problems):
        with tempfile.NamedTemporaryFile(
            "w", prefix="convtasnet-problems-", suffix=".txt", encoding="utf-8", delete=False
        ) as file:
            file.writelines(f"{problem}\n" for problem in problems)
        lines.append(f"… and {len(problems) - len(shown)} more; all are listed in {file.name}")
    message = "\n  ".join(lines)
    if all(problem.missing for problem in problems):
        raise FileNotFoundError(message)
    raise ValueError(message)


def _look_up(path: str, cache: FileCache[FileFacts]) -> FileFacts:
    """Facts of a file: from the cache, or from its header."""
    try:
        status = os.stat(file_of(path))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: no such file") from None
    known = cache.get(path, status.st_size, status.st_mtime_ns)
    if known:
        return FileFacts(**vars(known))
    info = audio_info(path)
    hidden = info.subtype in FLOAT_SUBTYPES or info.format not in ("WAV", "PACK")
    return FileFacts(status.st_size, status.st_mtime_ns, info.n_samples, info.sample_rate, hidden)


def gather(
    owner: dict[str, str], function: Callable[[str], T], size: int, title: str | None = None
) -> tuple[dict[str, T], list[Problem]]:
    """Call a function for each file, by threads.

    Args:
        owner: path of each file -> the ID of a row that uses it.
        function: takes a path; what it raises, ValueError or OSError, becomes a problem.
        size: files that a thread takes at a time.
        title: of the progress bar; None shows none.

    Returns:
        Results by path, in the order of ``owner``, and the problems.
    """
    paths = list(owner)
    chunks = [paths[i : i + size] for i in range(0, len(paths), size)]
    results: dict[str, T] = {}
    problems: list[Problem] = []

    def work(chunk: list[str]) -> list[T | Problem]:
        return [_attempt(path, owner[path], function) for path in chunk]

    with ThreadPoolExecutor(_THREADS) as pool, Progress(disable=title is None) as progress:
        task = progress.add_task(title or "", total=len(paths))
        for chunk, outcomes in zip(chunks, pool.map(work, chunks), strict=True):
            progress.advance(task, len(chunk))
            for path, outcome in zip(chunk, outcomes, strict=True):
                if isinstance(outcome, Problem):
                    problems.append(outcome)
                else:
                    results[path] = outcome
    return results, problems


def _attempt(path: str, row: str, function: Callable[[str], T]) -> T | Problem:
    try:
        return function(path)
    except FileNotFoundError:
        return Problem(path, row, "no such file", missing=True)
    except (ValueError, OSError) as error:
        return Problem(path, row, str(error).removeprefix(f"{path}: "))


def _row_problems(row: Row, files: Sequence[FileFacts]) -> Iterable[Problem]:
    """A length that the list has wrong; files whose rate or length doesn't fit the mixture's."""
    mixture = files[0]
    told = row.length
    if told is not None and not lengths_fit(told, mixture.n_samples, mixture.sample_rate):
        yield Problem(
            row.mixture,
            row.id,
            f"has {mixture.n_samples} samples at {mixture.sample_rate} Hz, but "
            f"{row.place or 'its list'} says {told}: is it of other files, or of another rate?",
        )
    for path, source in zip(row.files[1:], files[1:], strict=True):
        if source.sample_rate != mixture.sample_rate:
            yield Problem(
                path,
                row.id,
                f"is {source.sample_rate} Hz, its mixture {row.mixture} is "
                f"{mixture.sample_rate} Hz: a row needs one rate",
            )
            continue
        if not lengths_fit(source.n_samples, mixture.n_samples, mixture.sample_rate):
            yield Problem(
                path,
                row.id,
                f"has {source.n_samples} samples, its mixture {row.mixture} has "
                f"{mixture.n_samples}",
            )
