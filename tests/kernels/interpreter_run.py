"""Tests in Triton's interpreter, in a process beside."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


class InterpreterRun:
    """Runs the tests of some files that take the interpreter's path, from now on.

    It takes minutes of one core: meanwhile the tests of this process go on.

    Args:
        files: of tests.
    """

    def __init__(self, files: list[Path]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.report = Path(self._folder.name) / "report.xml"
        self._log = (Path(self._folder.name) / "log.txt").open("w+", encoding="utf-8")
        options = ["-p", "no:cacheprovider", "-k", "interpreter", f"--junitxml={self.report}"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def wait(self) -> tuple[int, str]:
        """Exit code, and the end of what it printed."""
        code = self._process.wait()
        self._log.seek(0)
        return code, self._log.read()[-8000:]

    def end(self) -> None:
        """Stop it if it still runs; its files go."""
        self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()
