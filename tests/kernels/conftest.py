"""The paths that every law of the kernels is tried on; the interpreter's in a process beside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from interpreter_run import InterpreterRun
from norm_cases import INTERPRET

from convtasnet_kernels import use_backend

HERE = Path(__file__).parent
RUN = pytest.StashKey[InterpreterRun]()
PATHS = [
    pytest.param(("torch", "cpu"), id="torch"),
    pytest.param(
        ("triton", "cpu"),
        id="interpreter",
        marks=pytest.mark.skipif(not INTERPRET, reason="runs in test_interpreter.py"),
    ),
    pytest.param(("triton", "cuda"), id="triton", marks=pytest.mark.gpu),
    pytest.param(("torch", "cuda"), id="torch-cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(params=PATHS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The device of the path under test, which is in use.

    Where the interpreter is, a module's ``shrink_tiles(monkeypatch)`` is called first: short inputs
    then take several tiles, as long ones do on a GPU.
    """
    backend, device = request.param
    if backend == "triton" and device == "cpu" and hasattr(request.module, "shrink_tiles"):
        request.module.shrink_tiles(monkeypatch)
    with use_backend(backend):
        yield device


@pytest.fixture
def exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32, with which PyTorch computes convolutions on a GPU, has ten bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def interpreter_run(pytestconfig: pytest.Config) -> InterpreterRun:
    """Laws in the interpreter, under way since the first test: those of the module's ``LAWS``."""
    return pytestconfig.stash[RUN]


@pytest.hookimpl(trylast=True)  # after what -k and -m leave out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the interpreter's run before the first test, and ask for its result after the last."""
    asking = [item for item in items if "interpreter_run" in getattr(item, "fixturenames", ())]
    if asking and not config.option.collectonly:
        laws = getattr(asking[0], "module").LAWS  # noqa: B009 - functions have one
        config.stash[RUN] = InterpreterRun([HERE / f"{name}.py" for name in laws])
        items[:] = [item for item in items if item not in asking] + asking


def pytest_sessionfinish(session: pytest.Session) -> None:
    if RUN in session.config.stash:
        session.config.stash[RUN].end()
