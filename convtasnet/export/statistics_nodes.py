"""Cumulative norms in an ONNX graph: sums over all frames so far, from state to state."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convtasnet.export.builder import GraphBuilder
from convtasnet.streaming.folded import FoldedModel, FoldedNorm

MANY_FRAMES = 16  # from here on ReduceSumSquare takes longer than the two nodes that it stands for


class StatisticsNodes:
    """The state of all cumulative norms, and the nodes that move it on and use it.

    Of each norm it holds the sum and the sum of squares of all elements so far, in float64: only
    the sums of one frame are float32, and their errors do not add up. With a decay below 1, older
    frames weigh less; until a step ends, sums are in units of the weight of the last frame before.

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
        self.n_norms = model.n_cumulative
        count = graph.input("count", np.float64, [1, 1])
        sums = graph.input("sums", np.float64, [1, 2 * self.n_norms])
        steps = np.arange(1, frames + 1, dtype=np.float64)[:, None]
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
        self.before = graph.nodes_of(
            "Split", sums, n_outputs=self.n_norms, axis=1, num_outputs=self.n_norms
        )
        self.after: list[str] = []
        self.factors: dict[tuple[str, int], str] = {}

    def normalized(self, values: str, norm: FoldedNorm) -> str:
        """Values (k, C) without the mean and the deviation of all frames so far; norms in order."""
        graph, channels = self.graph, self.graph.integers(1)
        squares, reduction = values, "ReduceSumSquare"
        if self.frames >= MANY_FRAMES:
            squares, reduction = graph.node("Mul", values, values), "ReduceSum"
        sums = graph.node(
            "Concat",
            graph.node("ReduceSum", values, channels, keepdims=1),
            graph.node(reduction, squares, channels, keepdims=1),
            axis=1,
        )
        sums = graph.node("Cast", sums, to=TensorProto.DOUBLE)
        if self.grow is not None:
            sums = graph.node("Mul", sums, self.grow)
        if self.frames > 1:
            sums = graph.node("CumSum", sums, graph.constant(np.int64(0)))
        sums = graph.node("Add", sums, self.before[norm.number])
        self.after.append(sums)
        moments = graph.node("Mul", sums, self._factor(norm))
        moments = graph.node("Cast", moments, to=TensorProto.FLOAT)
        mean, square = graph.nodes_of("Split", moments, n_outputs=2, axis=1, num_outputs=2)
        variance = graph.node("Sub", square, graph.node("Mul", mean, mean))
        variance = graph.node("Add", variance, graph.constant(np.float32(norm.eps)))
        std = graph.node("Sqrt", variance)
        return graph.node("Div", graph.node("Sub", values, mean), std)

    def finish(self) -> None:
        """Declare the state after the step."""
        graph = self.graph
        count = graph.slice(self.counts, -1, None)
        sums = graph.slice(graph.node("Concat", *self.after, axis=1), -1, None)
        if self.faded is not None:
            sums = graph.node("Mul", sums, graph.slice(self.faded, -1, None))
        graph.output("next_count", count, np.float64, [1, 1])
        graph.output("next_sums", sums, np.float64, [1, 2 * self.n_norms])

    def _first(self, values: np.ndarray, n_frames: str) -> str:
        """The first rows of a constant."""
        return self.graph.slice(self.graph.constant(values), 0, n_frames)

    def _factor(self, norm: FoldedNorm) -> str:
        """What sums are multiplied by: (k, 1), or (k, 2) of the sum and of the sum of squares."""
        key = (norm.kind, norm.channels)
        if key not in self.factors:
            graph = self.graph
            factor = graph.node("Mul", self.share, graph.constant(1.0 / norm.channels))
            if norm.kind == "cumulative_legacy":  # see convtasnet.other_norms
                ones = self.faded or graph.node("Div", self.counts, self.counts)
                factor = graph.node("Concat", factor, ones, axis=1)
            self.factors[key] = factor
        return self.factors[key]
