"""Scores of the unprocessed mixtures, kept in the user's cache folder for the next model."""

from __future__ import annotations

import hashlib
import logging
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from convtasnet.metrics import Measured, metric_version

log = logging.getLogger(__name__)

_TABLE = """
CREATE TABLE IF NOT EXISTS scores (
    signals TEXT, metric TEXT, version TEXT, value REAL, reason TEXT,
    PRIMARY KEY (signals, metric, version)
) WITHOUT ROWID
"""


class MixtureScores:
    """What mixtures got, by the content of their samples.

    A value is found again only for the same samples of mixture and sources, the same rate and the
    same version of the metric, so nothing has to be deleted by hand. A cache that cannot be read or
    written is logged once and does without.

    Args:
        path: the SQLite file; None keeps nothing.

    Example:
        >>> cache = MixtureScores(Path(":memory:"))
        >>> cache.put("key", Measured({"si_sdr": 0.1}))
        >>> cache.get("key", ["si_sdr", "sdr"]).values, cache.get("other", ["si_sdr"]).values
        ({'si_sdr': 0.1}, {})
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            if str(path) != ":memory:":
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=10, isolation_level=None)
            # A lost entry is computed again: no waiting for the disk.
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute(_TABLE)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def get(self, key: str, metrics: Sequence[str]) -> Measured:
        """Those of the metrics that are known of these signals."""
        known = Measured()
        if self._database is None:
            return known
        query = "SELECT metric, version, value, reason FROM scores WHERE signals = ?"
        try:
            found = self._database.execute(query, (key,)).fetchall()
        except sqlite3.Error as error:
            self._give_up(error)
            return known
        for metric, version, value, reason in found:
            if metric in metrics and version == metric_version(metric):
                known.values[metric] = math.nan if value is None else value
                if value is None:
                    known.reasons[metric] = reason
        return known

    def put(self, key: str, measured: Measured) -> None:
        """Keep what these signals got."""
        if self._database is None:
            return
        rows = [
            # NaN is stored as NULL.
            (key, name, metric_version(name), value, measured.reasons.get(name))
            for name, value in measured.values.items()
        ]
        try:
            self._database.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _give_up(self, error: Exception) -> None:
        log.warning("the scores of mixtures can't be kept in %s (%s)", self.path, error)
        self._database = None


def signals_key(mixture: Tensor, sources: Tensor, sample_rate: int) -> str:
    """A digest of mixture (T,), sources (n_src, T) and rate."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{sample_rate} {tuple(sources.shape)} {sources.dtype}".encode())
    for signal in (mixture, sources):
        digest.update(signal.contiguous().numpy().tobytes())
    return digest.hexdigest()
