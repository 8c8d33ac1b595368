"""Checks of the settings of a training, before anything is built from them."""

from __future__ import annotations

from typing import Any

from convtasnet.settings import Choice, Kind, Name, Number, Whole, check_settings
from convtasnet.system import MONITORS

SETTINGS: dict[str, Kind] = {
    "seed": Whole(0),
    "compile": Choice(
        *("graph", True, False, "default", "reduce-overhead"),
        *("max-autotune", "max-autotune-no-cudagraphs"),
    ),
    "matmul_precision": Choice("highest", "high", "medium"),
    "ckpt_path": Name(),
    "init_from": Name(),
    "optimizer.lr": Number(0.0),
    "optimizer.weight_decay": Number(0.0),
    "scheduler.patience": Whole(0),
    "scheduler.factor": Number(0.0),
    "scheduler.threshold": Number(0.0),
    "scheduler.min_lr": Number(0.0),
    "scheduler.T_max": Whole(1),  # epochs: with trainer.max_epochs=-1 there is no such number
    "callbacks.early_stopping.patience": Whole(0),
    "callbacks.audio_examples.count": Whole(0),
    "data.root": Name(),
    "data.noise_root": Name(),
    "data.rir_root": Name(),
    "data.sample_rate": Whole(1),
    "data.n_src": Whole(1),
    "data.segment": Number(0.0),
    "data.batch_size": Whole(1),
    "data.eval_batch_size": Whole(1),
    "data.num_workers": Whole(0, or_none=True),
    "data.epoch_size": Whole(1, or_none=True),
    "data.resident": Choice(True, False, "auto"),
    "trainer.max_epochs": Whole(-1, or_none=True),
    "trainer.min_epochs": Whole(0, or_none=True),
    "trainer.max_steps": Whole(-1),
    "trainer.min_steps": Whole(0, or_none=True),
    "trainer.gradient_clip_val": Number(0.0, or_none=True),
    "trainer.accumulate_grad_batches": Whole(1),
    "trainer.check_val_every_n_epoch": Whole(1, or_none=True),
    "trainer.log_every_n_steps": Whole(0),
}
COARSE = ("bf16-true", "16-true", "transformer-engine")


def check_training(config: Any) -> None:
    """Refuse what would fail or mislead an epoch later.

    Args:
        config: the resolved configuration of ``configs/train.yaml``, as nested dictionaries.

    Raises:
        ValueError: names the setting, its value, and what would be right.
    """
    check_settings(config, SETTINGS)
    if config["init_from"] and config["ckpt_path"]:
        raise ValueError("set either ckpt_path= (to resume) or init_from= (to start anew)")
    _check_monitors(config)
    _check_trainer(config)
    for name in ("n_src", "sample_rate"):
        own, needed = config["model"].get(name), config["data"].get(name)
        if own != needed:
            raise ValueError(
                f"model.{name}={own}, but data.{name}={needed}: set data.{name} alone, "
                "the model follows it"
            )


def _check_monitors(config: Any) -> None:
    monitors = {"monitor": config["monitor"]}
    for name, node in config["callbacks"].items():
        if node and node.get("monitor"):
            monitor = monitors[f"callbacks.{name}.monitor"] = node["monitor"]
            better = MONITORS.get(monitor, node.get("mode"))
            if node.get("mode", better) != better:
                raise ValueError(
                    f"callbacks.{name}.mode={node['mode']}, but {monitor} is better {better}"
                )
    for name, monitor in monitors.items():
        if monitor not in MONITORS:
            raise ValueError(f"{name}={monitor} is unknown; choose one of {sorted(MONITORS)}")


def _check_trainer(config: Any) -> None:
    """What Lightning takes, but leaves without a training, a score or a meaning."""
    trainer = config["trainer"]
    if trainer["limit_train_batches"] == 0:
        raise ValueError("trainer.limit_train_batches=0 leaves nothing to train on")
    for name in ("max_epochs", "max_steps"):
        if trainer[name] == 0 and not config["ckpt_path"]:
            raise ValueError(f"trainer.{name}=0 leaves nothing to train")
    if trainer["limit_val_batches"] == 0:
        raise ValueError(
            f"trainer.limit_val_batches=0 leaves no {config['monitor']} to choose best.ckpt"
        )
    interval = trainer["val_check_interval"]
    if isinstance(interval, int | float) and interval <= 0:
        raise ValueError(f"trainer.val_check_interval={interval} must be above 0")
    if isinstance(interval, str) and config["callbacks"].get("early_stopping"):
        raise ValueError(  # Lightning's callback would fail
            f"trainer.val_check_interval={interval}, a time, needs callbacks.early_stopping=null"
        )
    if str(trainer["precision"]).startswith(COARSE):
        raise ValueError(
            f"trainer.precision={trainer['precision']} rounds weights, waveforms and scores to "
            "16 bits or less: use bf16-mixed or 16-mixed"
        )
