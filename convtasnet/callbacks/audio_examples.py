"""Sound to listen to in TensorBoard."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor


class AudioExamples(L.Callback):
    """Log the first validation mixtures, their sources and the estimates of each epoch.

    Each signal is scaled to a peak of 0.9 on its own. Mixtures and sources are logged once.

    Args:
        count: how many mixtures, at most the first validation batch.

    Example:
        >>> AudioExamples(count=2).count
        2
    """

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self._references_logged = False

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: dict[str, Any],
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log the examples of the first batch."""
        if batch_idx or trainer.sanity_checking:
            return
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                self._log(logger, trainer, pl_module, outputs, batch)

    def _log(
        self,
        logger: TensorBoardLogger,
        trainer: L.Trainer,
        pl_module: Any,
        estimates: Tensor,
        batch: dict[str, Any],
    ) -> None:
        tracks: dict[str, Tensor] = {}
        for i in range(min(self.count, len(estimates))):
            end = None if batch["lengths"] is None else int(batch["lengths"][i])
            if not self._references_logged:
                tracks[f"{i}/mixture"] = batch["mixture"][i, :end]
                for j, source in enumerate(batch["sources"][i]):
                    tracks[f"{i}/source_{j + 1}"] = source[:end]
            for j, estimate in enumerate(estimates[i]):
                tracks[f"{i}/estimate_{j + 1}"] = estimate[:end]
        self._references_logged = True
        for name, wav in tracks.items():
            peak = wav.abs().max().clamp(min=1e-8)
            logger.experiment.add_audio(
                name,
                (0.9 * wav / peak)[None].cpu(),
                trainer.global_step,
                sample_rate=pl_module.model.sample_rate,
            )
