"""Train a separator: ``python train.py experiment=causal``; ``--help`` lists what can be set."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import hydra
import lightning as L
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from lightning.pytorch.callbacks import LearningRateMonitor, ProgressBar
from omegaconf import DictConfig, OmegaConf, read_write

from convtasnet.checkpoint import load_weights
from convtasnet.cli import run_hydra, run_main
from convtasnet.data.dataset import MixtureDataset
from convtasnet.data.folders import FOLDERS, check_apart
from convtasnet.data.module import MixtureData
from convtasnet.log_filters import quiet_libraries
from convtasnet.model import ConvTasNet
from convtasnet.resume import Position, check_resume, differences
from convtasnet.sources import read_model
from convtasnet.system import MONITORS, SeparationSystem
from convtasnet.training_settings import check_training

log = logging.getLogger(__name__)
OmegaConf.register_new_resolver("mode_of", lambda name: MONITORS.get(name, "max"), replace=True)
PATIENCE = 5.0  # seconds
RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def train(cfg: DictConfig) -> dict[str, float]:
    """Run one training.

    Args:
        cfg: the composed configuration of ``configs/train.yaml``.

    Returns:
        The last epoch's metrics and ``best``, the best value of ``cfg.monitor``.

    Raises:
        ValueError, FileNotFoundError: whatever is wrong with the configuration, the data or a
            checkpoint, before the first step.
    """
    check_training(OmegaConf.to_container(cfg, resolve=True))
    L.seed_everything(cfg.seed, workers=True, verbose=False)
    set_tf32(cfg.matmul_precision)
    for name in FOLDERS:
        if cfg.data.get(name):  # the checkpoint names the data for whoever evaluates it elsewhere
            cfg.data[name] = os.path.abspath(os.path.expanduser(cfg.data[name]))
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    check_apart(Path(cfg.run_dir), config["data"], ["checkpoints"])
    data = instantiate(cfg.data)
    system = build_system(cfg, config)
    if cfg.ckpt_path:
        start = check_resume(cfg.ckpt_path, system.model, config)
        if _is_done(start, cfg.trainer):
            return {"best": float("nan")}
    trainer = build_trainer(cfg)
    if trainer.is_global_zero:
        if (Path(cfg.run_dir) / "checkpoints").exists() and not cfg.ckpt_path:
            log.warning("%s holds an earlier run: its files are replaced", cfg.run_dir)
        Path(cfg.run_dir).mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, Path(cfg.run_dir) / "config.yaml", resolve=True)
    try:
        trainer.fit(system, data, ckpt_path=cfg.ckpt_path, weights_only=True)
    except BaseException:
        _end_other_ranks(trainer)
        raise
    if trainer.is_global_zero:
        _print_next_steps(cfg.run_dir, _a_mixture(data))
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    best = getattr(trainer.checkpoint_callback, "best_model_score", None)
    return {**metrics, "best": float("nan") if best is None else float(best)}


def set_tf32(matmul_precision: str) -> None:
    """Let float32 products and convolutions use TF32, or not ("highest")."""
    torch.set_float32_matmul_precision(matmul_precision)
    torch.backends.cudnn.allow_tf32 = matmul_precision != "highest"


def build_system(cfg: DictConfig, config: dict[str, Any]) -> SeparationSystem:
    """The Lightning module of a configuration, with the weights of ``init_from`` if given."""
    model = instantiate(cfg.model)
    if cfg.init_from:
        _take_weights(model, cfg.init_from)
    return SeparationSystem(
        model,
        loss=instantiate(cfg.loss),
        optimizer=instantiate(cfg.optimizer),
        scheduler=instantiate(cfg.scheduler),
        monitor=cfg.monitor,
        config=config,
        compile=cfg.compile,
    )


def _take_weights(model: ConvTasNet, source: str) -> None:
    """Start from the weights of another model; say what of it this one does not share."""
    checkpoint = read_model(source)
    load_weights(model, checkpoint.state_dict, source=source)
    differing = differences(checkpoint.model_args, model.hparams)
    if differing:
        log.warning("init_from=%s is of a model with %s", source, "; ".join(differing))


def build_trainer(cfg: DictConfig) -> L.Trainer:
    """The Trainer of a configuration, with its callbacks and loggers."""
    return instantiate(
        cfg.trainer,
        default_root_dir=cfg.run_dir,
        callbacks=_callbacks(cfg),
        logger=_instantiate_all(cfg.logger),
    )


def _callbacks(cfg: DictConfig) -> list[L.Callback]:
    """The callbacks, but for those that a switch of the trainer or the logger rules out."""
    unwanted: list[type[L.Callback]] = []
    if not cfg.trainer.enable_progress_bar:
        unwanted.append(ProgressBar)
    if not any(cfg.logger.values()):
        unwanted.append(LearningRateMonitor)
    return [c for c in _instantiate_all(cfg.callbacks) if not isinstance(c, tuple(unwanted))]


def _instantiate_all(group: DictConfig) -> list[Any]:
    return [instantiate(node) for node in group.values() if node]


def _is_done(start: Position, trainer: DictConfig) -> bool:
    """Whether nothing is left to train; says so, which Lightning does not always."""
    limits = {"max_epochs": start.epochs, "max_steps": start.steps}
    reached = [
        f"trainer.{name}={trainer[name]} (the checkpoint has {done})"
        for name, done in limits.items()
        if trainer[name] is not None and 0 <= trainer[name] <= done
    ]
    if reached:
        log.warning("nothing is left to train and nothing is written: raise %s", reached[0])
    return bool(reached)


def _let_lightning_start_ranks(cfg: DictConfig) -> None:
    """Make this job's own command line what Lightning starts further processes with.

    It would repeat ``sys.argv``: in a sweep every rank would run the whole sweep, elsewhere.
    """
    hydra_config: Any = HydraConfig.get()
    if "LOCAL_RANK" in os.environ:
        return
    overrides = [str(item) for item in hydra_config.overrides.task]
    sys.argv = [sys.argv[0], *overrides, f"run_dir='{cfg.run_dir}'"]
    with read_write(hydra_config):
        hydra_config.run.dir = cfg.run_dir


def _end_other_ranks(trainer: L.Trainer) -> None:
    """After an error here, let no process wait for this one for ever."""
    for process in getattr(trainer.strategy.launcher, "procs", []):
        try:
            process.wait(PATIENCE)  # it may have the same error, or the cause, to print
        except subprocess.TimeoutExpired:
            process.kill()


def _forget_ranks() -> None:
    """Leave no trace of this job's process group to the next job of a sweep."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name in RANK_VARIABLES:
        os.environ.pop(name, None)


def _a_mixture(data: L.LightningDataModule) -> str:
    """A file to try the model on, as typed in the shell."""
    dataset = data.dataset("valid") if isinstance(data, MixtureData) else None
    return _shown(dataset.mixture_path(0)) if isinstance(dataset, MixtureDataset) else "FILE.wav"


def _shown(path: str | Path) -> str:
    """As typed in the shell: relative where that is inside the current folder."""
    return shlex.quote(min(os.path.relpath(path), os.path.abspath(path), key=len))


def _print_next_steps(run_dir: str, mixture: str) -> None:
    folder = Path(run_dir) / "checkpoints"
    files = [folder / "best.ckpt", folder / "last.ckpt"]
    present = [file for file in files if file.is_file()]
    if not present:
        log.warning("no epoch came to its end: %s holds neither best.ckpt nor last.ckpt", folder)
        return
    if files[0] not in present:
        log.warning("no epoch had a score: there is no %s", files[0])
    python, checkpoint = _shown(sys.executable), _shown(present[0])
    print(
        f"\nThe run is in {_shown(run_dir)}: metrics.csv, config.yaml, checkpoints.\nNext:\n"
        f"  {python} scripts/evaluate.py checkpoint={checkpoint}\n"
        f"  {python} scripts/separate.py {mixture} --checkpoint {checkpoint} --out separated\n"
        f"  {python} -m tensorboard.main --logdir {_shown(run_dir)}"
    )


@hydra.main(version_base="1.3", config_path="configs", config_name="train")
def main(cfg: DictConfig) -> float | None:
    """Entry point; returns the best score, for sweepers."""
    quiet_libraries()
    started_by_lightning = "LOCAL_RANK" in os.environ
    argv = sys.argv
    _let_lightning_start_ranks(cfg)
    try:
        metrics = run_main(lambda: train(cfg))
    finally:
        sys.argv = argv
        if not started_by_lightning:
            _forget_ranks()
    return metrics["best"]


if __name__ == "__main__":
    run_hydra(main)
