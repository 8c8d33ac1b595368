"""The trained model that comes with the package."""

from __future__ import annotations

from pathlib import Path

from convtasnet.portable import is_portable

FOLDER = Path(__file__).with_name("pretrained") / "causal_8k"


def shipped_model() -> Path:
    """Folder of the package's own model: causal, 8 kHz, two voices; its README.md is a model card.

    Raises:
        FileNotFoundError: this version has none.
    """
    if not is_portable(FOLDER):
        raise FileNotFoundError(
            "--checkpoint is missing: this version of convtasnet comes without a trained model; "
            "name a training checkpoint (….ckpt), a saved folder, or a model of the hub"
        )
    return FOLDER
