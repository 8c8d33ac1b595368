"""The Triton kernels without a GPU: the laws of other files in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("triton")

# Files of laws, and how many of their tests take the interpreter's path at least.
LAWS = {
    "test_cumulative": 45,
    "test_global": 60,
    "test_channelwise": 45,
    "test_layer": 45,
    "test_depthwise": 95,
    "test_partials": 6,
    "test_masked_decode": 18,
    "test_block": 8,
    "test_block_backward": 20,
}


def test_laws_hold_in_the_interpreter(tmp_path: Path) -> None:
    """All files in one process, which starts slowly."""
    report = tmp_path / "report.xml"
    files = [Path(__file__).with_name(f"{name}.py") for name in LAWS]
    options = ["-p", "no:cacheprovider", "-k", "interpreter", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    cases = [case for case in ElementTree.parse(report).iter("testcase") if len(case) == 0]
    passed = Counter(case.attrib["classname"].split(".")[-1] for case in cases)
    for name, least in LAWS.items():
        assert passed[name] >= least, (name, passed)
