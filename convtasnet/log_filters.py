"""Messages of the libraries that no user of a training run can do anything about."""

from __future__ import annotations

import logging
import warnings

# Starts of warnings, as regular expressions.
WARNINGS = (
    # Lightning's own call of a function that torch deprecates.
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # metrics.csv has each epoch; a short epoch has no step that TensorBoard would show.
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    # train.py says so where it matters: not when a run is resumed.
    r"Checkpoint directory .* exists and is not empty",
    # BestCheckpoint takes the best checkpoint along; the last one has no score.
    r"The dirpath has changed from ",
)
# Starts of log messages: advertisements.
MESSAGES = ("💡 Tip: For seamless cloud",)


def quiet_libraries() -> None:
    """Drop the messages above, and nothing else."""
    for message in WARNINGS:
        warnings.filterwarnings("ignore", message)
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(MESSAGES)
