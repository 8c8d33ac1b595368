"""The run's ``metrics.csv``: one row an epoch."""

from __future__ import annotations

import csv
from pathlib import Path

import lightning as L

COLUMNS = ("epoch", "step", "lr", "train_loss", "valid_loss", "valid_si_sdr", "valid_si_sdri")


class MetricsFile(L.Callback):
    """Write the epoch's metrics to a csv file that survives a kill and a resume.

    Each row is on the disk when its epoch ends. A resumed run keeps the rows of the epochs before
    the one it continues with. (Lightning's own CSV logger starts the file anew.)

    Args:
        path: the file.

    Example:
        >>> MetricsFile("metrics.csv").path.name
        'metrics.csv'
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep the rows before this epoch."""
        if not trainer.is_global_zero:
            return
        kept: list[dict[str, str]] = []
        if trainer.current_epoch and self.path.is_file():
            with self.path.open(newline="") as file:
                kept = [r for r in csv.DictReader(file) if int(r["epoch"]) < trainer.current_epoch]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Append this epoch's row."""
        if not trainer.is_global_zero:
            return
        values = {name: value.item() for name, value in trainer.callback_metrics.items()}
        row = {
            **values,
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow(row)
