"""The Triton kernels without a GPU: the laws of other files in Triton's interpreter."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import pytest
from interpreter_run import InterpreterRun

pytest.importorskip("triton")

# Files of laws, and how many of their tests take the interpreter's path at least.
LAWS = {
    "test_cumulative": 45,
    "test_global": 60,
    "test_channelwise": 45,
    "test_layer": 45,
    "test_out_dtype": 36,
    "test_depthwise": 95,
    "test_partials": 6,
    "test_masked_decode": 18,
    "test_pit_si_sdr": 18,
    "test_overlap": 10,
    "test_block": 8,
    "test_block_backward": 20,
    "test_block_stack": 2,
}


def test_laws_hold_in_the_interpreter(interpreter_run: InterpreterRun) -> None:
    """All files in one process, which starts slowly and has run beside the other tests."""
    code, printed = interpreter_run.wait()
    assert code == 0, printed
    cases = ElementTree.parse(interpreter_run.report).iter("testcase")
    passed = Counter(c.attrib["classname"].split(".")[-1] for c in cases if len(c) == 0)
    for name, least in LAWS.items():
        assert passed[name] >= least, (name, passed)
