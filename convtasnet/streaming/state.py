"""What a stream carries from one push to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from convtasnet.streaming.folded import FoldedModel
from convtasnet.streaming.history import History
from convtasnet.streaming.statistics import Statistics


@dataclass
class StreamState:
    """The state between two pushes.

    Args:
        pending: (k,) samples from the start of the next frame on; all earlier ones are done.
        tail: (n_src, L − stride), what the frames so far add to the samples from there on.
        statistics: of the cumulative norms.
        histories: of the blocks' depthwise convolutions.
    """

    pending: Tensor
    tail: Tensor
    statistics: Statistics
    histories: list[History]

    @classmethod
    def initial(cls, model: FoldedModel, decay: float) -> StreamState:
        """The state in front of the first sample.

        Args:
            model: the model that it is for.
            decay: of the statistics.
        """
        like, framing = model.encoder, model.framing
        return cls(
            pending=like.new_zeros(framing.margin),
            tail=like.new_zeros(model.n_src, framing.kernel_size - framing.stride),
            statistics=Statistics(model.n_cumulative, decay),
            histories=[History(block.offset, block.reach) for block in model.blocks],
        )

    def state_dict(self) -> dict[str, Tensor]:
        """A copy as plain tensors, of the same shapes whatever the lengths of the pushes were."""
        return {name: value.detach().clone() for name, value in self._tensors().items()}

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from there.

        Raises:
            ValueError: a tensor is missing, unknown or of another shape, as from another model.
        """
        own = self._tensors()
        differing = sorted(own.keys() ^ saved.keys())
        differing += [
            f"{name} {tuple(saved[name].shape)} instead of {tuple(value.shape)}"
            for name, value in own.items()
            if name in saved and name != "pending" and saved[name].shape != value.shape
        ]
        if differing:
            raise ValueError(f"the state is of another model: {', '.join(differing[:5])}")
        self.pending, self.tail = (
            saved[name].detach().to(self.tail, copy=True) for name in ("pending", "tail")
        )
        self.statistics.count = float(saved["count"])
        self.statistics.means = saved["means"].tolist()
        self.statistics.deviations = saved["deviations"].tolist()
        with torch.inference_mode():  # in which pushes made the buffers
            for i, history in enumerate(self.histories):
                history.frames().copy_(saved[f"history.{i}"])

    def _tensors(self) -> dict[str, Tensor]:
        statistics = self.statistics
        return {
            "pending": self.pending,
            "tail": self.tail,
            "count": torch.tensor(statistics.count, dtype=torch.float64),
            "means": torch.tensor(statistics.means, dtype=torch.float64),
            "deviations": torch.tensor(statistics.deviations, dtype=torch.float64),
            **{f"history.{i}": each.frames() for i, each in enumerate(self.histories)},
        }
