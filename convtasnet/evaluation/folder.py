"""The folder of an evaluation: what is in it belongs to one model on one data set."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from convtasnet.evaluation.rows import Row, RowFile
from convtasnet.evaluation.summary import write_json
from convtasnet.files import replacing
from convtasnet.metrics import metric_version, ordered
from convtasnet.pack import file_of

MARK = ".unfinished.json"  # there from the first row until the summary is written
IDENTITY = "identity"
NAMES = ("metrics.csv", "summary.json", "audio", "examples")  # what an evaluation writes
# Settings of the data that change no item.
NO_MATTER = ("batch_size", "eval_batch_size", "num_workers", "resident", "check", "segment")


class EvaluationFolder:
    """Files of an evaluation that may be interrupted and gone on with.

    Args:
        path: the folder; is made when there is something to write.
        identity: all that the rows depend on, plain data; see :func:`identity_of`.
        metrics: names.
        resume: whether to go on with what is there; False replaces it.

    Attributes:
        done: rows that are there: of an interrupted evaluation in its order, or all.
        finished: whether all are there.

    Raises:
        ValueError: the folder holds the files of a training run or of another evaluation, or
            anything under a name that an evaluation would write to.
    """

    def __init__(
        self, path: Path, identity: dict[str, Any], metrics: Sequence[str], resume: bool = True
    ) -> None:
        self.path, self.identity = path, json.loads(json.dumps(identity, default=str))
        self.rows = RowFile(path / "metrics.csv", metrics)
        self._mark, self._summary = path / MARK, path / "summary.json"
        if not self._mark.exists() and IDENTITY not in _content(self._summary):
            self._refuse_others()
        before = _content(self._mark) or _content(self._summary).get(IDENTITY) or {}
        if resume and before and before != self.identity:
            other = _differences(before, self.identity)
            raise ValueError(
                f"{path} holds an evaluation with other {other}: choose another folder, or replace "
                "what is there with resume=false"
            )
        goes_on = resume and bool(before)
        self.done = self.rows.recover() if goes_on else []
        is_whole = len(self.done) == _content(self._summary).get("n")
        self.finished = goes_on and is_whole and not self._mark.exists()

    def _refuse_others(self) -> None:
        """An error if something is there that no evaluation has written."""
        there = [name for name in NAMES if os.path.lexists(self.path / name)]
        if there == [self.rows.path.name]:
            raise ValueError(f"{self.path} holds a training run: choose another folder")
        if there:
            raise ValueError(
                f"{self.path} holds {', '.join(there)}, which are of no evaluation: choose another "
                "folder"
            )

    def start(self) -> None:
        """Mark the folder as belonging to this evaluation; without ``resume``, empty it."""
        if self.finished:
            return
        with replacing(self._mark) as temporary:
            temporary.write_text(json.dumps(self.identity), encoding="utf-8")
        if not self.done:
            self.rows.path.unlink(missing_ok=True)
        self._summary.unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        """Keep a row, whatever happens next."""
        self.rows.append([row])

    def sort(self, rows: Sequence[Row]) -> list[Row]:
        """Write all rows in their order; gives them with the digits that the file has."""
        self.rows.replace(rows)
        return self.rows.read()

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary: the evaluation is complete."""
        write_json(self._summary, summary | {IDENTITY: self.identity})
        self._mark.unlink(missing_ok=True)


def identity_of(
    model: nn.Module | str, dataset: Any, data: dict[str, Any], metrics: Sequence[str]
) -> dict[str, Any]:
    """What rows depend on.

    Args:
        model: the model, told by its weights, or the name of a baseline.
        dataset: told by its length, and size and time of change of the files that it names.
        data: its settings.
        metrics: names.
    """
    return {
        "checkpoint" if isinstance(model, nn.Module) else "baseline": (
            weights_digest(model) if isinstance(model, nn.Module) else model
        ),
        "data": {key: value for key, value in data.items() if key not in NO_MATTER},
        "files": files_digest(getattr(dataset, "paths", ())),
        "metrics": {name: metric_version(name) for name in ordered(metrics)},
    }


def weights_digest(model: nn.Module) -> str:
    """A digest of all weights and buffers, wherever they are.

    Example:
        >>> weights_digest(nn.Linear(1, 1)) == weights_digest(nn.Linear(1, 1))
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def files_digest(paths: Sequence[str]) -> str:
    """A digest of the files' paths, sizes and times of change."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        status = os.stat(file_of(path))
        digest.update(
            f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "replace")
        )
    return digest.hexdigest()


def _content(path: Path) -> dict[str, Any]:
    """The dictionary in a file, or {} if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Which parts of two identities differ, for a message."""
    names = []
    for key in sorted(before.keys() | now.keys()):
        one, other = before.get(key), now.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            inner = sorted(one.keys() | other.keys())
            names += [f"{key}.{name}" for name in inner if one.get(name) != other.get(name)]
        elif one != other:
            names.append(key)
    return ", ".join(names)
