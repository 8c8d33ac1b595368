"""The folders that a configuration of data names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FOLDERS = ("root", "noise_root", "rir_root")


def check_apart(run_dir: Path, data: Mapping[str, Any], written: Iterable[str]) -> None:
    """Refuse a run whose files would come among those of the data.

    Args:
        run_dir: the folder of the run.
        data: configuration of the data.
        written: folders that the run makes in its own.

    Raises:
        ValueError: the data lie in ``run_dir`` itself, or in one of those folders.

    >>> check_apart(Path("/runs/1"), {"root": "/data"}, ["checkpoints"])
    >>> check_apart(Path("/data/"), {"root": "/data"}, ["checkpoints"])
    Traceback (most recent call last):
        ...
    ValueError: hydra.run.dir=/data would write among the files of data.root: choose another folder
    """
    run_dir = run_dir.resolve()
    for name in FOLDERS:
        if data.get(name):
            root = Path(data[name]).expanduser().resolve()
            if root == run_dir or any(root.is_relative_to(run_dir / part) for part in written):
                raise ValueError(
                    f"hydra.run.dir={run_dir} would write among the files of data.{name}: choose "
                    "another folder"
                )
