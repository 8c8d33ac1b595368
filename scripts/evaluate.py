"""Evaluate a checkpoint: ``python scripts/evaluate.py checkpoint=FILE [data=…] [split=test]``.

Leaves ``metrics.csv`` (one row a mixture) and ``summary.json`` in a folder of its own,
``hydra.run.dir``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from rich.console import Console

from convtasnet.cli import resolve_device, run_hydra, run_main
from convtasnet.data.stored import stored_data
from convtasnet.evaluation import evaluate, summarize, summary_table, write_csv, write_json
from convtasnet.model import ConvTasNet
from convtasnet.settings import Choice, Kind, Whole, check_settings

log = logging.getLogger(__name__)
NOT_GIVEN = "???"
SETTINGS: dict[str, Kind] = {
    "split": Choice("train", "valid", "test"),
    "limit": Whole(1, or_none=True),
    "num_workers": Whole(1, or_none=True),
    "save_audio": Choice(True, False),
}


def evaluate_checkpoint(cfg: DictConfig) -> dict[str, Any]:
    check_settings(OmegaConf.to_container(cfg), SETTINGS)
    if not isinstance(cfg.metrics, ListConfig):
        raise ValueError(f"metrics={cfg.metrics} must be a list, such as metrics=[si_sdr,sdr]")
    run_dir = Path(cfg.run_dir)
    check_run_dir(run_dir, Path(cfg.checkpoint))
    device = resolve_device(cfg.device)
    model = ConvTasNet.from_pretrained(cfg.checkpoint).to(device)
    data_config = resolve_data(cfg, model)
    data = instantiate(data_config, _recursive_=False)  # a checkpoint's values call nothing
    data.check((cfg.split,))
    dataset = data.dataset(cfg.split)
    log.info("%d mixtures of the %s set on %s", len(dataset), cfg.split, device)
    metrics = list(cfg.metrics)
    folder = run_dir / "audio" if cfg.save_audio else None
    rows = evaluate(model, dataset, metrics, cfg.limit, cfg.num_workers, folder)
    summary = summarize(rows, metrics)
    Console().print(summary_table(summary, metrics))
    if summary["n_valid"] < summary["n"]:
        log.warning("%d rows are not valid: see metrics.csv", summary["n"] - summary["n_valid"])
    summary |= {
        "checkpoint": str(Path(cfg.checkpoint).absolute()),
        "split": cfg.split,
        "data": data_config,
        "model": model.hparams,
    }
    run_dir.mkdir(parents=True, exist_ok=True)
    write_csv(run_dir / "metrics.csv", rows, metrics)
    write_json(run_dir / "summary.json", summary)
    log.info("metrics.csv and summary.json are in %s", run_dir)
    return summary


def resolve_data(cfg: DictConfig, model: ConvTasNet) -> dict[str, Any]:
    """The data configuration: ``data=`` or else the checkpoint's, with what ``data.…=`` sets."""
    given = OmegaConf.to_container(cfg.data, resolve=True)
    assert isinstance(given, dict)
    config = {str(key): value for key, value in given.items() if value != NOT_GIVEN}
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
    elif "root" not in config:
        raise ValueError("data.root is not set: name the folder of the data")
    for name, needed in (("sample_rate", model.sample_rate), ("n_src", model.n_src)):
        if is_overridden(f"data.{name}") and config[name] != needed:
            raise ValueError(f"data.{name}={config[name]}, but the model has {name}={needed}")
        config[name] = needed
    return config


def is_overridden(key: str) -> bool:
    """Is the key set on the command line, rather than by a file?"""
    if not HydraConfig.initialized():
        return False
    return any(item.lstrip("+").startswith(f"{key}=") for item in HydraConfig.get().overrides.task)


def check_run_dir(run_dir: Path, checkpoint: Path) -> None:
    """Never write among the files of a training run."""
    run_dir, home = run_dir.resolve(), checkpoint.resolve().parent
    is_run = (run_dir / "checkpoints").exists() or (run_dir == home and home.name == "checkpoints")
    foreign = (run_dir / "metrics.csv").exists() and not (run_dir / "summary.json").exists()
    if is_run or foreign:
        raise ValueError(f"hydra.run.dir={run_dir} holds a training run: choose another folder")


@hydra.main(version_base="1.3", config_path="../configs", config_name="evaluate")
def main(cfg: DictConfig) -> None:
    run_main(lambda: evaluate_checkpoint(cfg))


if __name__ == "__main__":
    run_hydra(main)
