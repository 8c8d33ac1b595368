"""Active levels of WSJ0's utterances that were measured elsewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath


def read_levels(paths: Iterable[Path]) -> dict[str, float]:
    """Active levels measured elsewhere, from files with lines ``utterance power``.

    Returns:
        Power (mean square while active, not dB) by the utterance's name without folder and suffix.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is not a name and a power above 0, with file and line.
    """
    levels = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{os.path.abspath(path)}: no such file of active levels")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            fields = line.split()
            if not fields:
                continue
            try:
                name, power = fields[0], float(fields[1])
            except (IndexError, ValueError):
                name, power = "", math.nan
            if len(fields) != 2 or not 0 < power < math.inf:
                raise ValueError(
                    f"{path}, line {number}: '{line.strip()}' is not a name and a power above 0"
                )
            levels[PurePosixPath(name).stem] = power
    return levels
