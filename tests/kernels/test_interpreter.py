"""The Triton kernels without a GPU: the laws of other files in Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

# Files of laws, and how many of their tests take the interpreter's path at least.
LAWS = {
    "test_cumulative.py": 40,
    "test_channelwise.py": 40,
    "test_layer.py": 40,
    "test_depthwise.py": 100,
    "test_partials.py": 6,
}


@pytest.mark.parametrize("file", LAWS)
def test_laws_hold_in_the_interpreter(file: str) -> None:
    laws = Path(__file__).with_name(file)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "interpreter", laws],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= LAWS[file], done.stdout[-2000:]
