"""What scripts/evaluate.py evaluates, and on which data: from its configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from convtasnet.cli import resolve_device
from convtasnet.data.stored import stored_data
from convtasnet.evaluation import Baseline, ModelEstimator
from convtasnet.evaluation.estimators import Estimator
from convtasnet.model import ConvTasNet

log = logging.getLogger(__name__)
NOT_GIVEN = "???"
GPU_BATCH_SECONDS = 128.0


@dataclass(frozen=True)
class Subject:
    """What is evaluated.

    Args:
        what: the model, or the name of a baseline.
        data: settings of the data.
        estimator: of ``what``, given the rate of the data in Hz.
        batch_seconds: see ``convtasnet.evaluation.Settings``.
        provenance: for the summary.
    """

    what: ConvTasNet | str
    data: dict[str, Any]
    estimator: Callable[[int], Estimator]
    batch_seconds: float | None
    provenance: dict[str, Any]


def find_subject(cfg: DictConfig) -> Subject:
    """The model of ``checkpoint=``; or the baseline, on that checkpoint's data or on ``data=``."""
    if cfg.checkpoint is None and cfg.baseline is None:
        raise ValueError("checkpoint is not set: name a checkpoint, or a baseline")
    provenance = {"checkpoint": None, "baseline": cfg.baseline}
    if cfg.checkpoint is None:
        return Subject(
            cfg.baseline, data_alone(cfg), partial(Baseline, cfg.baseline), None, provenance
        )
    check_run_dir(Path(cfg.run_dir), Path(cfg.checkpoint))
    device = resolve_device(cfg.device)
    hparams = OmegaConf.to_container(cfg.hparams) if cfg.hparams is not None else None
    model = ConvTasNet.from_pretrained(cfg.checkpoint, hparams)
    data = resolve_data(cfg, model)
    if cfg.baseline is not None:
        return Subject(cfg.baseline, data, partial(Baseline, cfg.baseline), None, provenance)
    model = model.to(device)
    log.info("the model runs on %s", device)
    where = Path(cfg.checkpoint)
    named = str(where.absolute()) if where.exists() else cfg.checkpoint  # a model of the hub
    provenance |= {"checkpoint": named, "model": model.hparams}
    seconds = batch_seconds(cfg, device)
    return Subject(model, data, lambda _: ModelEstimator(model), seconds, provenance)


def batch_seconds(cfg: DictConfig, device: torch.device) -> float | None:
    """Audio that goes through the model at once; on a CPU batches gain nothing."""
    if cfg.batch_seconds is None:
        return None if device.type == "cpu" else GPU_BATCH_SECONDS
    return float(cfg.batch_seconds) or None


def data_alone(cfg: DictConfig) -> dict[str, Any]:
    """The data of ``data=``, for a baseline without a checkpoint."""
    config = given_data(cfg)
    if "_target_" not in config:
        raise ValueError(f"baseline={cfg.baseline}: set data=, or checkpoint= to take its data")
    check_root(config)
    return config


def resolve_data(cfg: DictConfig, model: ConvTasNet) -> dict[str, Any]:
    """The data configuration: ``data=`` or else the checkpoint's, with what ``data.…=`` sets."""
    config = given_data(cfg)
    stored = model.training_config
    own = stored.get("data") or {}
    if "_target_" not in config:
        if not own:
            raise ValueError(
                f"{cfg.checkpoint} does not say on what data it was trained: set data="
            )
        config = stored_data(stored, cfg.checkpoint) | config
    elif own.get("_target_") == config["_target_"]:
        # What decided the training's split decides this one: no training speaker gets into it.
        config = own | {key: v for key, v in config.items() if is_overridden(f"data.{key}")}
    else:
        check_root(config)
    for name, needed in (("sample_rate", model.sample_rate), ("n_src", model.n_src)):
        if is_overridden(f"data.{name}") and config[name] != needed:
            raise ValueError(f"data.{name}={config[name]}, but the model has {name}={needed}")
        config[name] = needed
    return config


def given_data(cfg: DictConfig) -> dict[str, Any]:
    """What files and command line set of ``data``."""
    given = OmegaConf.to_container(cfg.data, resolve=True)
    assert isinstance(given, dict)
    return {str(key): value for key, value in given.items() if value != NOT_GIVEN}


def check_root(config: dict[str, Any]) -> None:
    """The data's folder is named (null where the data have one of their own)."""
    if "root" not in config:
        raise ValueError("data.root is not set: name the folder of the data")


def is_overridden(key: str) -> bool:
    """Is the key set on the command line, rather than by a file?"""
    if not HydraConfig.initialized():
        return False
    return any(item.lstrip("+").startswith(f"{key}=") for item in HydraConfig.get().overrides.task)


def check_run_dir(run_dir: Path, checkpoint: Path) -> None:
    """Never write among the files of a training run."""
    run_dir, home = run_dir.resolve(), checkpoint.resolve().parent
    if (run_dir / "checkpoints").exists() or (run_dir == home and home.name == "checkpoints"):
        raise ValueError(f"hydra.run.dir={run_dir} holds a training run: choose another folder")
