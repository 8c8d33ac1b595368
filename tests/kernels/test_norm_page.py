"""The Triton code of the page about the cumulative norm runs, as files of its own.

Blocks marked ``python triton``; test_docs.py runs those marked ``python run``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks

PAGE = ROOT / "kernels" / "cumulative_norm_in_triton.md"
CODE = blocks(PAGE, "python triton")
RUN_ALL = "import runpy, sys\nfor path in sys.argv[1:]:\n    print(path)\n    runpy.run_path(path)"


def run(folder: Path, environment: dict[str, str]) -> None:
    """Runs every block in one new process; triton reads kernels from their files."""
    files = [folder / f"line_{block.line}.py" for block in CODE]
    for file, block in zip(files, CODE, strict=True):
        file.write_text(block.text, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *files],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_in_the_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    assert CODE
    run(tmp_path, {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    run(tmp_path, {})
