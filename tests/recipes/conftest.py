"""A small WSJ0: as it is, and to be spoiled."""

import shutil
from pathlib import Path

import pytest
from wsj0_corpus import write_corpus


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    """The corpus of ``wsj0_corpus``."""
    return write_corpus(tmp_path_factory.mktemp("wsj0"))


@pytest.fixture
def corpus(original, tmp_path):
    """A copy."""
    return Path(shutil.copytree(original, tmp_path / "corpus"))
