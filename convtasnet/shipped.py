"""The trained model that comes with the package."""

from __future__ import annotations

from pathlib import Path

from convtasnet.portable import is_portable

FOLDER = Path(__file__).with_name("pretrained") / "causal_8k"


def shipped_model() -> Path:
    """Folder of the package's own model: causal, 8 kHz, two voices; its README.md is a model card.

    Raises:
        FileNotFoundError: the installation has lost it.
    """
    if not is_portable(FOLDER):
        raise FileNotFoundError(
            f"--checkpoint is missing, and so is the model that comes with convtasnet ({FOLDER}): "
            "install convtasnet anew, or name a training checkpoint (….ckpt), a saved folder, or a "
            "model of the hub"
        )
    return FOLDER
