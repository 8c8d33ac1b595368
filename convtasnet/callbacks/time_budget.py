"""Training for a fixed time, for comparisons and for rented machines."""

from __future__ import annotations

import time
from typing import Any

import lightning as L
from torch.optim.lr_scheduler import ConstantLR

AGREEING_STEPS = 10  # processes agree on the time so seldom: each time they wait for their GPUs


class TimeBudget(L.Callback):
    """Train for a number of seconds; the learning rate falls to zero over the last part.

    Only steps count: validation, and the first steps of a run (compilation, warm-up) do not.
    It goes with no other learning-rate scheduler than a constant one (``scheduler=constant``).

    Args:
        seconds: training time.
        decay: fraction of the time, at its end, over which the rate falls linearly to zero.
        warmup_steps: first steps that are not counted.

    Raises:
        ValueError: no positive time, or a decay outside [0, 1]; at the start of the training:
            another scheduler, whose rates would be overwritten.

    Example:
        >>> TimeBudget(seconds=210, decay=0.4).factor(elapsed=168.0)
        0.5
    """

    def __init__(self, seconds: float, decay: float = 0.4, warmup_steps: int = 20) -> None:
        if not seconds > 0 or not 0 <= decay <= 1:
            raise ValueError(f"seconds={seconds} must be above 0 and decay={decay} within [0, 1]")
        self.seconds, self.decay, self.warmup_steps = seconds, decay, warmup_steps
        self.elapsed = 0.0
        self._last: float | None = None
        self._rates: list[float] = []

    def factor(self, elapsed: float) -> float:
        """Fraction of the initial learning rate after ``elapsed`` seconds."""
        left = max(0.0, 1 - elapsed / self.seconds)
        return round(min(1.0, left / self.decay), 9) if self.decay else float(left > 0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Remember the initial learning rates."""
        for config in trainer.lr_scheduler_configs:
            if not isinstance(config.scheduler, ConstantLR):
                raise ValueError(
                    "the time budget sets the learning rate, so does the scheduler "
                    f"{type(config.scheduler).__name__}: set scheduler=constant"
                )
        if not self._rates:
            self._rates = [g["lr"] for o in trainer.optimizers for g in o.param_groups]
        self._counted_from = trainer.global_step + self.warmup_steps

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the step, set the learning rate, stop when the time is over."""
        now = time.perf_counter()
        if self._last is not None and trainer.global_step > self._counted_from:
            self.elapsed += now - self._last
        self._last = now
        if trainer.world_size > 1 and trainer.global_step % AGREEING_STEPS:
            return
        factor = trainer.strategy.broadcast(self.factor(self.elapsed))
        groups = [g for o in trainer.optimizers for g in o.param_groups]
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"] = rate * factor
        if factor == 0:
            trainer.should_stop = True

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop the clock: validation is not counted."""
        self._last = None

    def state_dict(self) -> dict[str, Any]:
        """Time used and initial rates, so that a resumed run has only the rest."""
        return {"elapsed": self.elapsed, "rates": self._rates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the clock."""
        self.elapsed, self._rates = state_dict["elapsed"], state_dict["rates"]
