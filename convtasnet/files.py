"""Files that are written whole or not at all."""

from __future__ import annotations

import os
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
