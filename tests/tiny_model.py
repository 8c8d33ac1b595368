"""A model of a few parameters, and a checkpoint of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from convtasnet import ConvTasNet
from convtasnet.checkpoint import checkpoint_entry

TINY: dict[str, Any] = {
    "n_filters": 16,
    "bn_chan": 8,
    "hid_chan": 16,
    "skip_chan": 8,
    "n_blocks": 2,
    "n_repeats": 1,
}


def checkpoint_content(config: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """What a training checkpoint holds of a model of ``TINY`` with these changes."""
    model = ConvTasNet(**{**TINY, **changes})
    state = {f"model.{key}": value for key, value in model.state_dict().items()}
    return {"state_dict": state, "convtasnet": checkpoint_entry(model.hparams, config or {})}


def write_checkpoint(path: Path, config: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Write it, folders included; gives ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint_content(config, **changes), path)
    return path
