"""train.py as a module, and its configuration for runs of a second."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "train.py"
CONFIGS = ROOT / "configs"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("train", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module
    spec.loader.exec_module(module)
    return module


script = _load()
TINY = (
    "experiment=smoke",
    "data=manifest",
    "data.segment=0.5",
    "trainer.accelerator=cpu",
    "trainer.enable_model_summary=false",
    "trainer.enable_progress_bar=false",
    "callbacks.progress_bar=null",
)


def composed(*overrides: str) -> DictConfig:
    """The configuration of ``python train.py OVERRIDES``; its run folder has to be named."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", list(overrides))


def tiny(root: Path, run_dir: Path, *overrides: str) -> DictConfig:
    """A run of two epochs of two steps, metrics.csv only."""
    own = [f"data.root='{root}'", f"run_dir='{run_dir}'", "logger=none"]
    return composed(*TINY, *own, *overrides)


def read_rows(run_dir: Path) -> list[dict[str, str]]:
    """Rows of the run's metrics.csv."""
    with open(run_dir / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def read_scores(run_dir: Path) -> list[dict[str, str]]:
    """The rows, without what two equal runs differ in: the time they waited for data."""
    return [{k: v for k, v in row.items() if k != "data_wait"} for row in read_rows(run_dir)]
