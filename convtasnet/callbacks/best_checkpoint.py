"""The run's ``best.ckpt``."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from convtasnet.files import replacing

log = logging.getLogger(__name__)


class BestCheckpoint(ModelCheckpoint):
    """Keep the checkpoint with the best score, also across a resume in another folder.

    Two rules beyond Lightning's: a score of NaN is never the best, not even the first one; and a
    run that is resumed in another folder takes the best checkpoint so far along, from beside the
    checkpoint it resumes, with its score (Lightning forgets both).

    Args:
        dirpath: folder of the checkpoint.
        filename: its name without ``.ckpt``.
        monitor: name of the logged score.
        mode: "min" or "max", whichever is better.

    Example:
        >>> BestCheckpoint("checkpoints", monitor="valid_loss", mode="min").filename
        'best'
    """

    def __init__(
        self, dirpath: str, filename: str = "best", *, monitor: str, mode: str = "max"
    ) -> None:
        super().__init__(
            dirpath, filename, monitor=monitor, mode=mode, enable_version_counter=False
        )
        self._taken_along = False

    @property
    def path(self) -> Path:
        """The file."""
        return Path(str(self.dirpath)) / f"{self.filename}.ckpt"

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Copy the best checkpoint of the run that is resumed, if it lies elsewhere."""
        source = Path(str(trainer.ckpt_path)).absolute().with_name(self.path.name)
        self._taken_along = source.is_file() and source.resolve() != self.path.resolve()
        if self._taken_along and trainer.is_global_zero:
            with replacing(self.path) as temporary:
                shutil.copyfile(source, temporary)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score so far."""
        score, path = state_dict["best_model_score"], str(self.path)
        if state_dict["dirpath"] != self.dirpath and score is not None:
            if not self._taken_along:
                log.warning(
                    "no %s lies beside the checkpoint that is resumed: its best score, %g, is "
                    "forgotten",
                    self.path.name,
                    score,
                )
                return
            state_dict = {
                **state_dict,
                "dirpath": self.dirpath,
                "best_model_path": path,
                "kth_best_model_path": path,
                "best_k_models": {path: score},
            }
        super().load_state_dict(state_dict)

    def check_monitor_top_k(self, trainer: L.Trainer, current: Tensor | None = None) -> bool:
        """Whether this score is better than the best so far."""
        if current is None or bool(current.isnan()):
            return False
        return super().check_monitor_top_k(trainer, current)
