"""What a resumed run takes from its checkpoint, said before it goes on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from os import PathLike
from typing import Any

from convtasnet.checkpoint import load_weights, parse_checkpoint, read_raw
from convtasnet.model import ConvTasNet

log = logging.getLogger(__name__)
# Groups whose state Lightning restores: the checkpoint's values win over the configuration's.
RESTORED = ("optimizer", "scheduler")


@dataclass(frozen=True)
class Position:
    """Where a training stands.

    Args:
        epochs: number of epochs that are done, or were ended by a limit of steps or time.
        steps: optimizer steps.
        lr: learning rate of the next step.
    """

    epochs: int
    steps: int
    lr: float


def position(raw: dict[str, Any]) -> Position:
    """Where the training of a checkpoint, as ``read_raw`` gives it, stands.

    Raises:
        ValueError: the file holds no training to go on with.
    """
    needed = ("epoch", "global_step", "loops", "optimizer_states")
    missing = [key for key in needed if key not in raw]
    if missing:
        raise ValueError(f"it holds no training to go on with: {', '.join(missing)} missing")
    loop = raw["loops"]["fit_loop"]
    done = raw["epoch"] + int(loop["epoch_loop.batch_progress"]["is_last_batch"])
    rate = float(raw["optimizer_states"][0]["param_groups"][0]["lr"])
    return Position(
        max(done, loop["epoch_progress"]["current"]["processed"]), raw["global_step"], rate
    )


def check_resume(path: str | PathLike[str], model: ConvTasNet, config: dict[str, Any]) -> Position:
    """Check that a checkpoint continues this training, and log what it brings along.

    Args:
        path: the training checkpoint.
        model: the model of the new run.
        config: the new run's resolved configuration.

    Returns:
        Where the training goes on.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no training checkpoint, or one of another model, optimizer or scheduler;
            the message lists what differs.
    """
    raw = read_raw(path)
    checkpoint = parse_checkpoint(raw, path)
    try:
        start = position(raw)
    except ValueError as error:
        raise ValueError(f"ckpt_path={path}: {error}; init_from= takes its weights") from None
    differing = differences(checkpoint.model_args, model.hparams)
    if differing:
        raise ValueError(f"ckpt_path={path} holds another model: {'; '.join(differing)}")
    load_weights(model, checkpoint.state_dict, source=str(path))
    ignored: list[str] = []
    for group in RESTORED:
        old, new = checkpoint.config.get(group) or {}, config.get(group) or {}
        if old.get("_target_", new.get("_target_")) != new.get("_target_"):
            raise ValueError(
                f"ckpt_path={path} was trained with {group} {old['_target_']}, not with "
                f"{new.get('_target_')}: choose the same, or start anew from its weights with "
                "init_from="
            )
        ignored += [f"{group}.{text}" for text in differences(old, new)]
    log.info(
        "resuming %s after %d epochs, %d steps, with learning rate %g",
        path,
        start.epochs,
        start.steps,
        start.lr,
    )
    if ignored:
        log.warning(
            "the checkpoint's own settings stay in force: %s (init_from= starts a new run from its "
            "weights, with the new settings)",
            "; ".join(ignored),
        )
    return start


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Settings that both have, and not equal.

    Example:
        >>> differences({"lr": 1e-3, "n": 2}, {"lr": 1e-2, "n": 2})
        ['lr=0.001, not 0.01']
    """
    return [
        f"{key}={old[key]}, not {new[key]}" for key in old if key in new and old[key] != new[key]
    ]
