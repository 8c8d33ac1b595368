"""Shared by all tests: GPU markers, seeds, a cache folder of the tests' own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

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
