"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``; what is there in the end becomes ``path``.

    The name is hidden and has the suffix of ``path``; missing folders are made. After an error
    nothing is left of it, and an older ``path`` stays.

    Raises:
        OSError: the folder cannot be made, or the file not be renamed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(Path(folder, "new", "a.txt")) as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [file.name for file in Path(folder, "new").iterdir()]
        ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def renewing(folder: Path) -> Iterator[Path]:
    """Give a temporary folder; what is in it in the end is in ``folder``, other files stay there.

    A new folder appears with all its files; in one that is there, each file is replaced whole.
    After an error nothing is left of the temporary folder, and older files stay.

    Raises:
        ValueError: it is a file.
        OSError: it cannot be made or written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     for text in ("old", "new"):
        ...         with renewing(Path(parent, "model")) as temporary:
        ...             _ = (temporary / "a.txt").write_text(text)
        ...     Path(parent, "model", "a.txt").read_text()
        'new'
    """
    folder = folder.absolute()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder")
    is_new = not folder.exists()
    home = folder.parent if is_new else folder  # on one file system with what it becomes
    temporary = home / f".{uuid.uuid4().hex}"
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if is_new:
            os.replace(temporary, folder)
        else:
            for file in temporary.iterdir():
                os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
