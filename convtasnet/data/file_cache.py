"""What is known of audio files from earlier runs, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from convtasnet.files import replacing

logger = logging.getLogger(__name__)

_VERSION = 1


class Dated(Protocol):
    """Facts of a file with its size in bytes and its time of the last change in nanoseconds."""

    size: int
    changed: int


Facts = TypeVar("Facts", bound=Dated)


@dataclass
class FileFacts:
    """What a sound file's header says, and whether its samples were looked at.

    Args:
        size: bytes.
        changed: time of the last change in nanoseconds.
        n_samples: of one channel.
        sample_rate: in Hz.
        hidden: whether damage can hide behind a good header (float samples, FLAC).
        scanned: whether all samples were decoded and found good.
    """

    size: int
    changed: int
    n_samples: int
    sample_rate: int
    hidden: bool
    scanned: bool = False


def cache_folder() -> Path:
    """``$CONVTASNET_CACHE``, or ``$XDG_CACHE_HOME/convtasnet``, or ``~/.cache/convtasnet``."""
    if own := os.environ.get("CONVTASNET_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "convtasnet"


class FileCache(Generic[Facts]):
    """Facts of the files of one data set, by path; valid while size and time of change stay.

    Args:
        origin: name of the data set (its manifest or folder).
        kind: a dataclass of numbers, what is known of a file.
        folder: name of the folder for this kind, in the cache folder.
    """

    def __init__(self, origin: str, kind: type[Facts], folder: str):
        name = hashlib.sha256(origin.encode(errors="surrogateescape")).hexdigest()[:20]
        self.path = cache_folder() / folder / f"{name}.json"
        self._kind = kind
        self._known: dict[str, Facts] = {}
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["version"] == _VERSION:
                self._known = {path: kind(*facts) for path, facts in stored["files"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("%s is not usable and will be made anew (%s)", self.path, error)

    def get(self, path: str, size: int, changed: int) -> Facts | None:
        """The facts of a file, unless it has changed since."""
        facts = self._known.get(path)
        return facts if facts and (facts.size, facts.changed) == (size, changed) else None

    def save(self, files: dict[str, Facts]) -> None:
        """Keep the facts of good files; a folder that can't be written is logged, not fatal."""
        if files == self._known:
            return
        stored = {path: list(vars(facts).values()) for path, facts in files.items()}
        try:
            with replacing(self.path) as temporary:
                temporary.write_text(json.dumps({"version": _VERSION, "files": stored}), "utf-8")
        except OSError as error:
            logger.warning("file checks can't be remembered in %s (%s)", self.path, error)
            return
        self._known = {path: self._kind(**vars(facts)) for path, facts in files.items()}
