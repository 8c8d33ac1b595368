"""Active levels of whole files, measured once and remembered."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.progress import track

from convtasnet.audio import iter_blocks
from convtasnet.data.checks import Problem, raise_problems
from convtasnet.data.file_cache import cache_folder
from convtasnet.data.mixing import FRAME, frame_powers, gated_level
from convtasnet.files import replacing
from convtasnet.pack import file_of

logger = logging.getLogger(__name__)

_THREADS = 16


def file_levels(paths: Sequence[str]) -> np.ndarray:
    """Active level (``mixing.active_level``) of each file; 0 where all is silence.

    All files are decoded, which finds damage as well. The result is kept in the user's cache
    folder under a name made of the paths, sizes and times of change.

    Args:
        paths: existing files.

    Returns:
        (len(paths),) float64, in units of full scale.

    Raises:
        ValueError: files are cut short or hold NaN or infinite samples; all are listed.
    """
    store = cache_folder() / "levels" / f"{_fingerprint(paths)}.npy"
    if (known := _remembered(store, len(paths))) is not None:
        return known
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(_level_or_problem, paths)
        results = list(track(found, "Scanning samples, once", len(paths), transient=True))
    raise_problems([result for result in results if isinstance(result, Problem)])
    levels = np.array(results, dtype=np.float64)
    try:
        with replacing(store) as temporary:
            np.save(temporary, levels)
    except OSError as error:
        logger.warning("levels can't be remembered in %s (%s)", store, error)
    return levels


def _remembered(store: Path, count: int) -> np.ndarray | None:
    """The stored levels, if there are any and they can be read."""
    if not store.is_file():
        return None
    try:
        levels = np.load(store)
    except (ValueError, OSError, EOFError) as error:
        logger.warning("%s can't be read (%s): the samples are scanned again", store, error)
        return None
    return levels if levels.shape == (count,) else None


def _fingerprint(paths: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        status = os.stat(file_of(path))
        facts = f"\0{status.st_size}\0{status.st_mtime_ns}\0"
        digest.update(os.fsencode(path) + facts.encode())
    return digest.hexdigest()[:32]


def _level_or_problem(path: str) -> float | Problem:
    powers = []
    try:
        for block in iter_blocks(path, FRAME * 1024):
            powers.append(frame_powers(block))
    except (ValueError, OSError) as error:
        return Problem(path, os.path.basename(path), str(error).removeprefix(f"{path}: "))
    power = np.concatenate(powers)
    if not np.isfinite(power).all():
        return Problem(path, os.path.basename(path), "holds NaN or infinite samples")
    return gated_level(power)
