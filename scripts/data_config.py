"""The data that overrides of the training's configuration name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from convtasnet.data.module import MixtureData

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def data_of(overrides: Sequence[str]) -> MixtureData:
    """The data of ``train.py OVERRIDES``.

    Raises:
        ValueError: from the data; hydra's errors for what it can't compose.
    """
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return instantiate(compose("train", [*overrides, "run_dir=."]).data)
