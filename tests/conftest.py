"""Shared by all tests: GPU markers, seeds, a cache folder of the tests' own."""

from __future__ import annotations

import logging
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from launches import Launches

torch.set_num_threads(1)  # more only wait for each other on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs = {"gpu": 1, "multigpu": 2}
    present = torch.cuda.device_count()
    for item in items:
        for marker, count in needs.items():
            if item.get_closest_marker(marker) and present < count:
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {count} CUDA device(s) needed"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing of the tests reads or writes the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ.pop("CONVTASNET_CACHE", None)
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, in which other tests have left nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test starts are forks of this one and need no seconds of imports.

    Not where CUDA is, which forks cannot use.
    """
    if not torch.cuda.is_available() and "fork" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("fork")
        monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: context)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """A training loss captures and replays on the CPU, with this in the place of CUDA graphs."""
    from convtasnet import graphed_loss, loss_graphs

    found = Launches()
    monkeypatch.setattr(loss_graphs, "GraphMaker", found)
    monkeypatch.setattr(graphed_loss, "can_capture", lambda x: True)
    monkeypatch.setattr(loss_graphs, "capture_stream", lambda device: None)
    return found


@pytest.fixture
def run_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[Any, str, str]]]:
    """Run a Hydra script as ``__main__`` in this process; (exit code, stdout, stderr)."""
    root_logger = logging.getLogger()
    handlers, level = root_logger.handlers[:], root_logger.level

    def run(script: str, *overrides: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", [script, *overrides])
        monkeypatch.syspath_prepend(Path(script).parent)  # as Python does for a script
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        capsys.readouterr()
        code: Any = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stop:
            code = stop.code
        finally:
            GlobalHydra.instance().clear()
        return code, *capsys.readouterr()

    yield run
    root_logger.handlers[:] = handlers
    root_logger.setLevel(level)
