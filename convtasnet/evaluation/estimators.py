"""What is evaluated: a model, or a baseline that may look at the sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from convtasnet.evaluation.masks import MASKS, masked
from convtasnet.inference import evaluating, separate
from convtasnet.pieces import chunk_samples

Item = dict[str, Any]  # {"mixture": (T,), "sources": (n_src, T), "id": str}
# From items to their estimates, (n_src, T) float32 on the CPU each, in any order.
Estimator = Callable[[Sequence[Item]], list[Tensor]]


class ModelEstimator:
    """Separates whole items with a model.

    Args:
        model: see :func:`convtasnet.inference.separate`; run where its weights are. Several items
            at once, padded, go to ``model(mixtures, lengths)``; those too long for one pass go
            alone.

    Attributes:
        n_src: sources that the items have to have.
        sample_rate: of model and items, in Hz.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.n_src = int(model.n_src)  # type: ignore[arg-type]
        self.sample_rate = int(model.sample_rate)  # type: ignore[arg-type]

    def __call__(self, items: Sequence[Item]) -> list[Tensor]:
        """Estimates of the items.

        Raises:
            ValueError: an item has another number of sources.
        """
        for item in items:
            if item["sources"].shape[0] != self.n_src:
                raise ValueError(
                    f"mixture {item['id']} has {item['sources'].shape[0]} sources, the model "
                    f"separates {self.n_src}"
                )
        mixtures = [item["mixture"] for item in items]
        longest = max(map(len, mixtures))
        if len(items) == 1 or chunk_samples(self.model, longest) < longest:
            return [separate(self.model, mixture, self.sample_rate) for mixture in mixtures]
        return self._together(mixtures)

    def _together(self, mixtures: Sequence[Tensor]) -> list[Tensor]:
        weight = next(self.model.parameters(), mixtures[0])
        lengths = [len(mixture) for mixture in mixtures]
        padded = pad_sequence(list(mixtures), batch_first=True).to(weight.device, weight.dtype)
        with evaluating(self.model), torch.inference_mode():
            estimates = self.model(padded, torch.tensor(lengths, device=weight.device))
        whole = estimates.float().cpu()
        return [item[:, :end] for item, end in zip(whole, lengths, strict=True)]


class Baseline:
    """Estimates that need no model.

    Args:
        name: "mixture" (the mixture for each source), "irm", "ibm" or "wfm" (ideal masks), or
            "oracle" (the sources).
        sample_rate: of the items, in Hz.

    Raises:
        ValueError: another name.

    Example:
        >>> sources = torch.randn(2, 800)
        >>> item = {"mixture": sources.sum(0), "sources": sources, "id": "a"}
        >>> (estimates,) = Baseline("oracle", 8000)([item])
        >>> torch.equal(estimates, sources)
        True
    """

    def __init__(self, name: str, sample_rate: int) -> None:
        if name not in BASELINES:
            raise ValueError(f"baseline={name!r}: choose from {', '.join(BASELINES)}")
        self.name, self.sample_rate = name, sample_rate

    def __call__(self, items: Sequence[Item]) -> list[Tensor]:
        """Estimates of the items."""
        return [self._estimate(item["mixture"], item["sources"]) for item in items]

    def _estimate(self, mixture: Tensor, sources: Tensor) -> Tensor:
        if self.name == "mixture":
            return mixture.expand_as(sources).clone()
        if self.name == "oracle":
            return sources.clone()
        return masked(mixture, sources, self.sample_rate, self.name)


BASELINES = ("mixture", *MASKS, "oracle")
