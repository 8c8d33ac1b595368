"""Folders that hold a model for any machine: ``config.json``, ``model.safetensors``, a model card.

``config.json`` holds the format's version, the constructor arguments of ``ConvTasNet``, the
resolved configuration of the training and what is known of the model: ``scores`` (as evaluation
gives them), ``source`` (of an imported one), ``software``, ``card`` (``name``, ``use``, ``data``,
``scored_on``, ``license`` and ``limits``, texts for the model card). Absolute paths in it are cut
to their last part: they say nothing on another machine, and are nobody's business there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from convtasnet.checkpoint import (
    FORMAT_VERSION,
    Checkpoint,
    check_finite,
    check_format,
    package_version,
    plain_keys,
)
from convtasnet.files import replacing

CONFIG, WEIGHTS = "config.json", "model.safetensors"
ABOUT = ("scores", "source", "software", "card")


def is_portable(folder: Path) -> bool:
    """Does the folder hold a model of this format, or part of one?"""
    return (folder / CONFIG).is_file() or (folder / WEIGHTS).is_file()


def check_new_folder(folder: Path, option: str) -> None:
    """Refuse to write a model among other files.

    Args:
        folder: where to.
        option: who names it, for the message.

    Raises:
        ValueError: it holds something, or is no folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{option} {folder} is there already: name a new or an empty folder")


def write_portable(
    folder: Path,
    model_args: Mapping[str, Any],
    state_dict: Mapping[str, Tensor],
    config: Mapping[str, Any],
    about: Mapping[str, Any],
) -> None:
    """Write both files, each whole or not at all; the folder is made.

    Args:
        folder: where to.
        model_args: constructor arguments of ``ConvTasNet``.
        state_dict: its weights, on any device, in the precision to be stored.
        config: the resolved configuration of the training, plain data.
        about: what else is known: a part of ``ABOUT``.

    Raises:
        OSError: they cannot be written.
        ValueError: weights are NaN or infinite, or the plain data, which JSON cannot hold.
    """
    check_finite(state_dict, "the weights")
    content = {
        "format_version": FORMAT_VERSION,
        "model": dict(model_args),
        "training": without_paths(config),
        "software": {"convtasnet": package_version(), "torch": str(torch.__version__)},
        **{key: without_paths(value) for key, value in about.items() if key in ABOUT},
    }
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    weights = {key: value.detach().cpu().contiguous() for key, value in state_dict.items()}
    with replacing(folder / WEIGHTS) as temporary:
        # Not save_file, which would let nobody but the owner read it.
        temporary.write_bytes(save(weights, metadata={"format": "pt"}))
    with replacing(folder / CONFIG) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_portable(folder: Path) -> Checkpoint:
    """Read a folder that ``write_portable`` wrote.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: one is damaged, of another program, or of a newer format.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{(folder / name).absolute()} does not exist")
    where = (folder / CONFIG).absolute()
    try:
        content = json.loads(where.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{where} is no JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise ValueError(f"{where} is not of convtasnet: it names no arguments of a model")
    check_format(content, where)
    try:
        state = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{(folder / WEIGHTS).absolute()} is damaged: {error}") from None
    about = {key: content[key] for key in ABOUT if content.get(key)}
    training = content.get("training")
    config = training if isinstance(training, dict) else {}
    return Checkpoint(folder.absolute(), content["model"], plain_keys(state), config, about)


def without_paths(value: Any) -> Any:
    """Plain data with absolute paths cut to their last part.

    Example:
        >>> without_paths({"root": "/home/me/speech", "names": ["a/b"], "n": 3})
        {'root': '…/speech', 'names': ['a/b'], 'n': 3}
    """
    if isinstance(value, Mapping):
        return {key: without_paths(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(entry) for entry in value]
    if isinstance(value, str) and os.path.isabs(value):
        return f"…/{os.path.basename(value.rstrip(os.sep))}"
    return value
