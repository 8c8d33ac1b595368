"""Training and validation of a separator, as a Lightning module."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MeanMetric

from convtasnet.checkpoint import ENTRY, checkpoint_entry, plain_keys
from convtasnet.epoch_mean import EpochMean
from convtasnet.flat_adam import join_updates
from convtasnet.flat_clip import clipped_as_one
from convtasnet.graphed_loss import GraphedLoss, LossOfBatch
from convtasnet.loss_watch import LossWatch, StuckLoss
from convtasnet.metrics import (
    SILENT_ESTIMATE,
    SILENT_MIXTURE,
    SILENT_REFERENCE,
    UNMIXED,
    score_batch,
)

log = logging.getLogger(__name__)
Batch = dict[str, Any]  # mixture (B, T), sources (B, n_src, T), lengths (B,) or None, ids
LossFunction = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
Built = TypeVar("Built")
MONITORS = {"valid_loss": "min", "valid_si_sdr": "max", "valid_si_sdri": "max"}
SHOW_SECONDS = 0.1
SILENCE = (SILENT_REFERENCE, SILENT_MIXTURE, SILENT_ESTIMATE)


class SeparationSystem(L.LightningModule):
    """Trains any separator called as ``model(mixture, lengths) -> (B, n_src, T)``.

    Logs, each epoch: ``train_loss``, ``valid_loss`` and, over the full-length validation items,
    the means ``valid_si_sdr`` and ``valid_si_sdri`` (improvement over the mixture), all in dB.
    Silent items have no score and are left out; an estimate that holds NaN makes the means NaN.
    Where the mixture is its only source, the SI-SDR stands for the improvement that there cannot
    be; where it is one of several, such as equal ones, there is none and it is left out.
    A training loss that is not finite stops the run before it reaches the weights; one that stands
    where only silent or unrelated outputs put it is warned of.

    Args:
        model: the separator; ``model.hparams`` are its constructor arguments and
            ``model.sample_rate`` its rate in Hz.
        loss: ``loss(estimates, sources, lengths) -> (scalar, permutation)``.
        optimizer: builds an optimizer from the parameters.
        scheduler: builds a learning-rate scheduler from the optimizer; stepped once an epoch.
        monitor: what a plateau scheduler watches, a key of ``MONITORS``.
        config: resolved configuration, plain data, kept in the checkpoints.
        compile: how a training step is launched. "graph" replays CUDA graphs of it
            (``graphed_loss.GraphedLoss``), False launches each kernel; the others go through
            ``torch.compile``, in its default mode (True) or the one named. Validation runs the
            plain model.

    Raises:
        ValueError: an unknown ``monitor``.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        monitor: str = "valid_si_sdri",
        config: dict[str, Any] | None = None,
        compile: bool | str = False,
    ) -> None:
        super().__init__()
        if monitor not in MONITORS:
            raise ValueError(f"monitor={monitor!r} is unknown; choose one of {sorted(MONITORS)}")
        self.model: Any = model  # a module with the attributes above
        self.loss, self.optimizer, self.scheduler = loss, optimizer, scheduler
        self.monitor, self.config = monitor, config or {}
        # Functions, not modules: the checkpoint's keys stay those of the plain model.
        self._forward = model.forward
        self._train_loss: LossOfBatch = self._loss_of
        if compile == "graph":
            self._train_loss = GraphedLoss(self._loss_of, model)
        elif compile:
            mode = "default" if compile is True else compile
            self._forward = torch.compile(model.forward, mode=mode, dynamic=False)
        self.train_mean = EpochMean()
        self.means = nn.ModuleDict({name: MeanMetric(nan_strategy="disable") for name in MONITORS})
        self._watched: LossWatch | None = None
        self._stuck = StuckLoss()
        self._shown = -math.inf  # when the loss was logged last, in seconds
        self._silent_estimates = 0
        self._score: Tensor | None = None  # this epoch's value of ``monitor``

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        loss = self._train_loss(batch["mixture"], batch["sources"], batch["lengths"])
        self._watched = LossWatch(loss, batch)
        if not self.train_mean.update_called:  # Lightning keeps it and reads it in the end
            self.log("train_loss", self.train_mean, on_step=False, on_epoch=True)
        self.train_mean.update(loss, len(batch["mixture"]))
        return loss

    def _loss_of(self, mixture: Tensor, sources: Tensor, lengths: Tensor | None) -> Tensor:
        loss, _ = self.loss(self._forward(mixture, lengths), sources, lengths)
        return loss

    def on_after_backward(self) -> None:
        """Stop on a bad loss, on all ranks at once: the optimizer has not stepped yet."""
        watched, self._watched = self._watched, None
        if watched is None:
            return
        if not watched.was_finite():
            raise ValueError(
                f"the training loss is not finite at step {self.global_step}: {watched.reason()}"
            )
        self._stuck.update(watched.value())
        self._show(watched.value())

    def _show(self, loss: float) -> None:
        """Log the loss of a step, as often as one can read it: Lightning takes a millisecond."""
        now = time.perf_counter()
        interval: int = getattr(self.trainer, "log_every_n_steps")  # noqa: B009 (mypy misses it)
        if now - self._shown > SHOW_SECONDS or (self.global_step + 1) % max(interval, 1) == 0:
            self._shown = now
            # A tensor of the host: Lightning would wait for the device to read one from there.
            self.log("loss", torch.tensor(loss), prog_bar=True, on_step=True, on_epoch=False)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Let a run that ``max_steps`` ends within an epoch be validated before it stops."""
        if 0 <= self.trainer.max_steps <= self.global_step:
            self.trainer.should_stop = True

    def on_train_epoch_end(self) -> None:
        """Step a plateau scheduler.

        Lightning would step it after the epoch's checkpoint is written, and a resumed run would
        have missed that step.
        """
        value, self._score = self._score, None
        schedulers = self.lr_schedulers()
        for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
            if isinstance(scheduler, ReduceLROnPlateau) and value is not None:
                scheduler.step(float(value))

    def lr_scheduler_step(self, scheduler: LRScheduler, metric: Any) -> None:
        """Step the others, as Lightning does."""
        if not isinstance(scheduler, ReduceLROnPlateau):
            super().lr_scheduler_step(scheduler, metric)

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss and scores of full-length items; returns the estimates, for examples."""
        mixture, sources, lengths = batch["mixture"], batch["sources"], batch["lengths"]
        estimates = self.model(mixture, lengths)
        for i in range(len(estimates)):
            one = slice(i, i + 1)
            # Item by item: a batch's loss would weigh silent sources by who shares the batch.
            loss, _ = self.loss(
                estimates[one], sources[one], None if lengths is None else lengths[one]
            )
            self._mean("valid_loss").update(loss)
        for scores in score_batch(estimates, sources, mixture, self.model.sample_rate, lengths):
            reason = scores.reasons.get("si_sdr")
            self._silent_estimates += reason == SILENT_ESTIMATE
            if reason not in SILENCE:
                self._mean("valid_si_sdr").update(scores.values["si_sdr"])
                unmixed = scores.reasons.get("si_sdri") == UNMIXED
                if unmixed and sources.shape[1] > 1:
                    continue
                # Without a mixture to improve, the output's own score is all that there is.
                better = "si_sdr" if unmixed else "si_sdri"
                self._mean("valid_si_sdri").update(scores.values[better])
        return estimates

    def on_validation_epoch_end(self) -> None:
        """Log the means, exact over batches of different sizes."""
        for name in MONITORS:
            metric = self._mean(name)
            value = metric.compute()
            self.log(name, value, prog_bar=name == "valid_si_sdri", sync_dist=True)
            metric.reset()
            if name == self.monitor:
                self._score = value
        if self._silent_estimates:
            log.warning(
                "the model is silent on %d validation items: they are left out of the scores",
                self._silent_estimates,
            )
        self._silent_estimates = 0

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimizer and scheduler; a plateau scheduler watches ``monitor``."""
        optimizer = _built("optimizer", self.optimizer, self.model.parameters())
        # Fused ones can unscale gradients themselves: too late for Lightning, which clips them.
        setattr(optimizer, "_step_supports_amp_scaling", False)  # noqa: B010 (mypy misses it)
        if isinstance(self._train_loss, GraphedLoss):
            join_updates(optimizer)
        if self.scheduler is None:
            return optimizer
        scheduler = _built("scheduler", self.scheduler, optimizer)
        if isinstance(scheduler, ReduceLROnPlateau) and scheduler.mode != MONITORS[self.monitor]:
            raise ValueError(
                f"the plateau scheduler has mode={scheduler.mode!r}, but {self.monitor} is better "
                f"{MONITORS[self.monitor]}: set scheduler.mode={MONITORS[self.monitor]}"
            )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "epoch", "monitor": self.monitor},
        }

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Lightning's clipping; that by the norm in a few launches where it can be."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        by_norm = gradient_clip_val and gradient_clip_algorithm in (None, "norm")
        if not by_norm or not clipped_as_one(parameters, float(gradient_clip_val or 0)):
            super().configure_gradient_clipping(
                optimizer, gradient_clip_val, gradient_clip_algorithm
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what rebuilds the model."""
        checkpoint[ENTRY] = checkpoint_entry(self.model.hparams, self.config)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take weights saved through a wrapper too."""
        checkpoint["state_dict"] = plain_keys(checkpoint["state_dict"])

    def _mean(self, name: str) -> MeanMetric:
        metric = self.means[name]
        assert isinstance(metric, MeanMetric)
        return metric


def _built(name: str, factory: Callable[[Any], Built], argument: Any) -> Built:
    """What a factory makes of its argument; a ValueError names a setting that it does not take."""
    try:
        return factory(argument)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}") from error
