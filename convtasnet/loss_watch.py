"""What a training loss tells while it is computed: that it is not finite, or that it is stuck."""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)
Batch = dict[str, Any]
# dB. A silent output costs 138 (the resolution of float32), one that has nothing to do with its
# source seldom more than 50.
STUCK_LOSS = 60.0
STUCK_STEPS = 100


class LossWatch:
    """Whether a loss is finite on every rank, known without stalling the device.

    Asked after the backward pass was launched, the answer, computed before it, has arrived.

    Args:
        loss: a scalar.
        batch: what it was computed from.

    Example:
        >>> signals = torch.zeros(2, 3, 8)
        >>> signals[1, 0, 4] = torch.nan
        >>> batch = {"mixture": signals[:, 0], "sources": signals[:, 1:], "ids": ["a", "b"]}
        >>> watch = LossWatch(torch.tensor(torch.nan), batch)
        >>> watch.was_finite(), watch.reason()
        (False, "the items ['b'] hold NaN or infinity")
    """

    def __init__(self, loss: Tensor, batch: Batch) -> None:
        self._batch = batch
        told = loss.detach().float()[None]  # one copy, and no launch besides
        if _is_distributed():
            finite = told.isfinite().float()
            torch.distributed.all_reduce(finite, torch.distributed.ReduceOp.MIN)
            told = torch.cat([told, finite])
        self._known = told.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if told.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def was_finite(self) -> bool:
        """Wait for the copy of the loss, not for what was launched after it."""
        if self._copied is not None:
            self._copied.synchronize()
        own, *all_ranks = self._known.tolist()
        return math.isfinite(own) and all(all_ranks)

    def value(self) -> float:
        """The loss of this rank, once ``was_finite`` has waited for it."""
        return float(self._known[0])

    def reason(self) -> str:
        """Name the items of a bad loss; called on every rank at once."""
        ids = [] if math.isfinite(self.value()) else list(self._batch["ids"])
        signals = torch.cat([self._batch["mixture"][:, None], self._batch["sources"]], 1)
        finite = signals.isfinite().flatten(1).all(1).tolist()
        bad = [name for name, fine in zip(self._batch["ids"], finite, strict=True) if not fine]
        ids, bad = _from_all_ranks(ids), _from_all_ranks(bad)
        if bad:
            return f"the items {bad} hold NaN or infinity"
        return f"the items {ids} are finite, the training diverges: try a lower optimizer.lr"


class StuckLoss:
    """Warns, once, of a loss that has not left the floor of SI-SDR for many steps.

    Example:
        >>> stuck = StuckLoss()
        >>> [stuck.update(138.0) for _ in range(100)].index(True)
        99
    """

    def __init__(self) -> None:
        self._steps = 0

    def update(self, loss: float) -> bool:
        """Take the next step's loss in dB; was this the step to warn?"""
        self._steps = self._steps + 1 if loss >= STUCK_LOSS else 0
        if self._steps == STUCK_STEPS:
            log.warning(
                "the training loss has been above %.0f dB for %d steps, now %.0f: the model's "
                "outputs are silent; try a lower optimizer.lr, and look at the data",
                *(STUCK_LOSS, STUCK_STEPS, loss),
            )
        return self._steps == STUCK_STEPS


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _from_all_ranks(names: list[str]) -> list[str]:
    if not _is_distributed():
        return names
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, names)
    return [name for part in gathered for name in part]
