"""The paths that every law of the kernels is tried on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from norm_cases import INTERPRET

from convtasnet_kernels import use_backend

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
