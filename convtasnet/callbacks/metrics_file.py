"""The run's ``metrics.csv``: one row an epoch."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import lightning as L
from torch.optim import Optimizer

SCORES = ("train_loss", "valid_loss", "valid_si_sdr", "valid_si_sdri")
COLUMNS = ("epoch", "step", "lr", *SCORES, "data_wait")


class MetricsFile(L.Callback):
    """Write the epoch's metrics to a csv file that survives a kill and a resume.

    Each row is on the disk when its epoch ends; ``lr`` is the rate of the epoch's last step, and
    the validation's columns are empty in an epoch without one. A resumed run keeps the rows of the
    epochs before the one it continues with; in another folder it takes them along from there.
    (Lightning's own CSV logger starts the file anew.)

    Args:
        path: the file.

    Example:
        >>> MetricsFile("metrics.csv").path.name
        'metrics.csv'
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._rate: Any = float("nan")
        self._validated = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the rows before this epoch."""
        if not trainer.is_global_zero:
            return
        kept = [r for r in self._earlier(trainer) if int(r["epoch"]) < trainer.current_epoch]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer
    ) -> None:
        """Remember the learning rate: at the epoch's end some schedulers have moved on."""
        self._rate = optimizer.param_groups[0]["lr"]

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Know that the validation's metrics are of this epoch."""
        self._validated = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Append this epoch's row."""
        validated, self._validated = self._validated, False
        if not trainer.is_global_zero:
            return
        row = {
            name: value.item()
            for name, value in trainer.callback_metrics.items()
            if validated or not name.startswith("valid_")
        }
        row |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        row["lr"] = float(self._rate)
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow(row)

    def _earlier(self, trainer: L.Trainer) -> list[dict[str, str]]:
        """Rows of the run that is resumed: in this folder, or beside its checkpoints' folder."""
        if not trainer.ckpt_path:
            return []
        there = Path(trainer.ckpt_path).absolute().parent.with_name(self.path.name)
        for path in (self.path, there):
            if path.is_file():
                with path.open(newline="") as file:
                    return list(csv.DictReader(file))
        return []
