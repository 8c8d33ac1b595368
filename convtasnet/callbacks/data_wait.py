"""How much of the training's time goes into waiting for data."""

from __future__ import annotations

import logging
import time
from typing import Any

import lightning as L
import torch

log = logging.getLogger(__name__)

NOTABLE_SHARE = 0.1
NOTABLE_SECONDS = 10.0  # the start of the loader's processes takes less


class DataWait(L.Callback):
    """Log ``data_wait``: the share of the training's time in which it waits for its next batch.

    The progress bar and the loggers have the share of each logging interval, ``metrics.csv`` that
    of each epoch, the mean of all processes. Validation does not count. The clock is the host's and
    nothing waits for the device: the share is an upper bound of what data cost, because a GPU may
    still be busy with the step before. A loader without a ``clock``
    (``convtasnet.data.waiting.WaitClock``) is left alone.

    Example:
        >>> wait = DataWait()
        >>> wait.add(elapsed=2.0, waited=0.5)
        >>> wait.interval.share(), wait.epoch.share()
        (0.25, 0.25)
    """

    def __init__(self) -> None:
        self.interval, self.epoch = _Share(), _Share()
        self._last = self._waited = 0.0  # times at the end of the last step
        self._said = False

    def add(self, elapsed: float, waited: float) -> None:
        """Count a step of ``elapsed`` seconds, of which so many were ``waited``."""
        for share in (self.interval, self.epoch):
            share.elapsed += elapsed
            share.waited += waited

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self.interval, self.epoch = _Share(), _Share()
        self._mark(trainer)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the step, and log at the end of an interval."""
        last, waited = self._last, self._waited
        self._mark(trainer)
        self.add(self._last - last, self._waited - waited)
        interval: int = getattr(trainer, "log_every_n_steps")  # noqa: B009 (mypy misses it)
        if interval and (batch_idx + 1) % interval == 0 and _clock(trainer) is not None:
            # A tensor of the host: Lightning would bring a number to the device and wait for it.
            share = torch.tensor(self.interval.share())
            pl_module.log("data_wait", share, prog_bar=True, on_step=True, on_epoch=False)
            self.interval = _Share()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave validation out."""
        self._mark(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the epoch's share; say once if it is high."""
        if _clock(trainer) is None:
            return
        share, waited = self.epoch.share(), self.epoch.waited
        pl_module.log(
            "data_wait",
            share,
            prog_bar=True,
            logger=False,
            on_step=False,
            on_epoch=True,
            sync_dist=True,
        )
        if share > NOTABLE_SHARE and waited > NOTABLE_SECONDS and not self._said:
            self._said = True
            log.warning(
                "%.0f %% of the epoch's training time (%.0f s) went into waiting for data: raise "
                "data.num_workers, or hold the speech in the GPU's memory (data.resident=true)",
                *(100 * share, waited),
            )

    def _mark(self, trainer: L.Trainer) -> None:
        clock = _clock(trainer)
        self._last = time.perf_counter()
        self._waited = 0.0 if clock is None else clock.seconds


class _Share:
    """Seconds, and those among them that were waited."""

    def __init__(self) -> None:
        self.elapsed = self.waited = 0.0

    def share(self) -> float:
        return self.waited / self.elapsed if self.elapsed else 0.0


def _clock(trainer: L.Trainer) -> Any:
    return getattr(trainer.train_dataloader, "clock", None)
