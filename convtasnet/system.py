"""Training and validation of a separator, as a Lightning module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MeanMetric

from convtasnet.checkpoint import ENTRY, checkpoint_entry
from convtasnet.metrics import score

Batch = dict[str, Any]  # mixture (B, T), sources (B, n_src, T), lengths (B,) or None, ids
LossFunction = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
MONITORS = {"valid_loss": "min", "valid_si_sdr": "max", "valid_si_sdri": "max"}


class SeparationSystem(L.LightningModule):
    """Trains any separator called as ``model(mixture, lengths) -> (B, n_src, T)``.

    Logs, each epoch: ``train_loss``, ``valid_loss`` and, over the full-length validation items,
    the means ``valid_si_sdr`` and ``valid_si_sdri`` (improvement over the mixture), all in dB.

    Args:
        model: the separator; ``model.hparams`` are its constructor arguments and
            ``model.sample_rate`` its rate in Hz.
        loss: ``loss(estimates, sources, lengths) -> (scalar, permutation)``.
        optimizer: builds an optimizer from the parameters.
        scheduler: builds a learning-rate scheduler from the optimizer; stepped once an epoch.
        monitor: what a plateau scheduler watches, a key of ``MONITORS``.
        config: resolved configuration, plain data, kept in the checkpoints.
        compile: train through ``torch.compile``, in its default mode (True) or another one
            ("reduce-overhead" replays CUDA graphs); validation runs the plain model.

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
        self.model = model
        self.loss, self.optimizer, self.scheduler = loss, optimizer, scheduler
        self.monitor, self.config = monitor, config or {}
        # A function, not a module: the checkpoint's keys stay those of the plain model.
        self.train_forward = model.forward
        if compile:
            mode = "default" if compile is True else compile
            self.train_forward = torch.compile(model.forward, mode=mode, dynamic=False)
        self.means = nn.ModuleDict({name: MeanMetric() for name in MONITORS})
        self._watched: LossWatch | None = None

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        self._raise_if_last_loss_was_bad()
        estimates = self.train_forward(batch["mixture"], batch["lengths"])
        loss, _ = self.loss(estimates, batch["sources"], batch["lengths"])
        self._watched = LossWatch(loss, batch["ids"])
        self.log("loss", loss, prog_bar=True)
        self.log(
            "train_loss",
            loss,
            on_step=False,
            on_epoch=True,
            batch_size=len(estimates),
            sync_dist=True,
        )
        return loss

    def on_train_epoch_end(self) -> None:
        """Look at the epoch's last loss too."""
        self._raise_if_last_loss_was_bad()

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss and scores of full-length items; returns the estimates, for examples."""
        mixture, sources, lengths = batch["mixture"], batch["sources"], batch["lengths"]
        estimates = self.model(mixture, lengths)
        loss, _ = self.loss(estimates, sources, lengths)
        self._mean("valid_loss").update(loss, weight=len(estimates))
        for i, item in enumerate(estimates):
            end = mixture.shape[-1] if lengths is None else int(lengths[i])
            scores = score(
                item[:, :end], sources[i, :, :end], mixture[i, :end], self.model.sample_rate
            )
            for name in ("si_sdr", "si_sdri"):
                value = scores.values[name]
                if value == value:  # a silent item has no score
                    self._mean(f"valid_{name}").update(value)
        return estimates

    def on_validation_epoch_end(self) -> None:
        """Log the means, exact over batches of different sizes."""
        for name in MONITORS:
            metric = self._mean(name)
            self.log(name, metric.compute(), prog_bar=name == "valid_si_sdri", sync_dist=True)
            metric.reset()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Optimizer and scheduler; a plateau scheduler watches ``monitor``."""
        optimizer = self.optimizer(self.model.parameters())
        if self.scheduler is None:
            return optimizer
        scheduler = self.scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau) and scheduler.mode != MONITORS[self.monitor]:
            raise ValueError(
                f"the plateau scheduler has mode={scheduler.mode!r}, but {self.monitor} is better "
                f"{MONITORS[self.monitor]}: set scheduler.mode={MONITORS[self.monitor]}"
            )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "epoch", "monitor": self.monitor},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what rebuilds the model."""
        checkpoint[ENTRY] = checkpoint_entry(self.model.hparams, self.config)

    def _mean(self, name: str) -> MeanMetric:
        metric = self.means[name]
        assert isinstance(metric, MeanMetric)
        return metric

    def _raise_if_last_loss_was_bad(self) -> None:
        """Stop, on all ranks at the same step, before an epoch is built on NaN weights."""
        watched, self._watched = self._watched, None
        if watched is not None and not watched.was_finite():
            raise ValueError(
                f"the training loss was not finite at step {self.global_step - 1}; the items were "
                f"{watched.ids} (on one of the processes): look for NaN in these files"
            )


class LossWatch:
    """Whether a loss is finite on every rank, known a step later without stalling the device.

    Args:
        loss: a scalar.
        ids: names of the batch's items.

    Example:
        >>> LossWatch(torch.tensor(float("nan")), ["a", "b"]).was_finite()
        False
    """

    def __init__(self, loss: Tensor, ids: list[str]) -> None:
        self.ids = ids
        finite = loss.detach().isfinite().float()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(finite, torch.distributed.ReduceOp.MIN)
        self._finite = finite.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if finite.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def was_finite(self) -> bool:
        """Wait for the copy of the flag, not for what was launched after it."""
        if self._copied is not None:
            self._copied.synchronize()
        return bool(self._finite)
