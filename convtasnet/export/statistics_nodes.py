"""Cumulative norms in an ONNX graph: sums over all frames so far, from state to state."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convtasnet.export.builder import GraphBuilder
from convtasnet.streaming.folded import FoldedModel, FoldedNorm

LONG_STEP = 64  # frames; sums of more are float64 within a step, too


class StatisticsNodes:
    """The state of all cumulative norms, and the nodes that move it on and use it.

    Of each norm it holds the sum and the sum of squares of all elements so far, in float64: only
    the sums of one step are float32, and their errors do not add up. What the frames before a step
    mean to each of its frames is found for all norms at once, in float64, in the beginning; so is
    the new state, in the end. With a decay below 1, older frames weigh less.

    Args:
        graph: gets the nodes.
        model: the model.
        frames: most frames of a step.
        n_frames: value (1,), frames of this step.
        decay: of a frame's weight, with every later frame.
    """

    def __init__(
        self, graph: GraphBuilder, model: FoldedModel, frames: int, n_frames: str, decay: float
    ) -> None:
        self.graph, self.frames = graph, frames
        self.norms = [norm for norm in model.norms if norm.number >= 0]
        self.before = graph.input("sums", np.float64, [2 * len(self.norms), 1])
        count = graph.input("count", np.float64, [1])
        steps = np.arange(1, frames + 1, dtype=np.float64)
        self.grow = self.faded = None
        if decay == 1:
            self.counts = graph.node("Add", count, self._first(steps, n_frames))
            self.share = graph.node("Reciprocal", self.counts)
        else:
            faded = decay**steps
            self.grow = self._first(1 / faded, n_frames)
            self.faded = self._first(faded, n_frames)
            new = self._first((1 - faded) / (1 - decay), n_frames)
            self.counts = graph.node("Add", graph.node("Mul", count, self.faded), new)
            self.share = graph.node("Div", self.faded, self.counts)
        self.grow_float = self.grow and graph.node("Cast", self.grow, to=TensorProto.FLOAT)
        self.ones = self._first(np.ones(frames, np.float32), n_frames)
        self.zeros = self._first(np.zeros(frames, np.float32), n_frames)
        self.factors: dict[int, str] = {}
        self.moments = self._moments_before()
        self.sums: list[str] = []

    def normalized(self, rows: str, values: str, norm: FoldedNorm) -> str:
        """Values (1, k, C) without mean and deviation of all frames so far; norms in order."""
        graph = self.graph
        mean, square = self._moments(rows, norm)
        variance = graph.node("Sub", square, graph.node("Mul", mean, mean))
        # What the operator calls channels are the frames here: it does all the rest at once.
        return graph.node(
            "BatchNormalization", values, self.ones, self.zeros, mean, variance, epsilon=norm.eps
        )

    def finish(self) -> None:
        """Declare the state after the step."""
        graph = self.graph
        sums = graph.node("Concat", *self.sums, axis=0)
        sums = graph.node("Reshape", sums, graph.integers(2 * len(self.norms), -1))
        sums = graph.node("Cast", sums, to=TensorProto.DOUBLE)
        sums = self._times(sums, self.grow)
        if self.frames > 1:
            sums = graph.node("ReduceSum", sums, graph.integers(1), keepdims=1)
        sums = graph.node("Add", sums, self.before)
        if self.faded is not None:
            sums = graph.node("Mul", sums, graph.slice(self.faded, -1, None))
        graph.output("next_sums", sums, np.float64, [2 * len(self.norms), 1])
        graph.output("next_count", graph.slice(self.counts, -1, None), np.float64, [1])

    def _moments(self, rows: str, norm: FoldedNorm) -> list[str]:
        """Mean (k,) and mean square (k,) of all frames so far."""
        graph, channels = self.graph, self.graph.integers(1)
        # ReduceSumSquare takes longer than the two nodes that it stands for.
        pair = [
            graph.node("ReduceSum", each, channels, keepdims=0)
            for each in (rows, graph.node("Mul", rows, rows))
        ]
        self.sums += pair
        factor: str | None = self._factor(norm.channels)
        factors = [factor, factor]
        if norm.kind == "cumulative_legacy":
            factors[1] = self.faded and graph.node("Cast", self.faded, to=TensorProto.FLOAT)
        return [
            graph.node("Add", self._times(self._cumulated(sums), factor), before)
            for sums, factor, before in zip(pair, factors, self.moments[norm.number], strict=True)
        ]

    def _cumulated(self, sums: str) -> str:
        """Sums (k,) over the frames up to each; by no product, in which NaN would go backward."""
        graph = self.graph
        sums = self._times(sums, self.grow_float)
        if self.frames == 1:
            return sums
        frames = graph.constant(np.int64(0))  # the axis
        if self.frames <= LONG_STEP:
            return graph.node("CumSum", sums, frames)
        sums = graph.node("Cast", sums, to=TensorProto.DOUBLE)
        return graph.node("Cast", graph.node("CumSum", sums, frames), to=TensorProto.FLOAT)

    def _moments_before(self) -> list[list[str]]:
        """What the frames before the step add to the two moments (k,) of each norm."""
        graph = self.graph
        scales, legacy = np.zeros((2, len(self.norms), 2, 1))
        for i, norm in enumerate(self.norms):
            scales[i] = 1 / norm.channels
            if norm.kind == "cumulative_legacy":
                scales[i, 1], legacy[i, 1] = 0, 1
        moments = self._scaled(scales, self.share)
        if legacy.any():  # see convtasnet.other_norms
            moments = graph.node("Add", moments, self._scaled(legacy, self.faded))
        moments = graph.node("Cast", moments, to=TensorProto.FLOAT)
        moments = graph.node("Reshape", moments, graph.integers(-1))
        n_values = 2 * len(self.norms)
        split = graph.nodes_of("Split", moments, n_outputs=n_values, axis=0, num_outputs=n_values)
        return [split[i : i + 2] for i in range(0, n_values, 2)]

    def _scaled(self, scales: np.ndarray, factor: str | None) -> str:
        """The state times one number for each sum and one for each frame, (2 · M, k or 1)."""
        graph = self.graph
        sums = graph.node("Mul", self.before, graph.constant(scales.reshape(-1, 1)))
        return self._times(sums, factor)

    def _times(self, values: str, factor: str | None) -> str:
        return values if factor is None else self.graph.node("Mul", values, factor)

    def _factor(self, channels: int) -> str:
        """What sums (k,) are multiplied by to be means."""
        if channels not in self.factors:
            factor = self.graph.node("Mul", self.share, self.graph.constant(1.0 / channels))
            self.factors[channels] = self.graph.node("Cast", factor, to=TensorProto.FLOAT)
        return self.factors[channels]

    def _first(self, values: np.ndarray, n_frames: str) -> str:
        """The first of some numbers, one for each frame."""
        return self.graph.slice(self.graph.constant(values), 0, n_frames)
