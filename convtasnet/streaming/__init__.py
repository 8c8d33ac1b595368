"""Causal models on samples as they come in."""

from convtasnet.streaming.separator import StreamingSeparator

__all__ = ["StreamingSeparator"]
