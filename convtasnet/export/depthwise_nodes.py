"""The depthwise convolutions of an ONNX graph, over frames of this step and of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from convtasnet.export.builder import GraphBuilder
from convtasnet.streaming.folded import FoldedBlock

SHORT_STEP = 8  # frames; the more there are, the less is won by fewer nodes


class DepthwiseNodes:
    """Inputs of earlier frames, outputs of new ones, and the nodes between them.

    In short steps, a block all of whose taps look back as far as a step is long sees earlier frames
    alone. For all such blocks at once the host picks these frames out, and what they come to is a
    few nodes in the beginning. The others get all frames that they reach back to.

    Args:
        graph: gets the nodes.
        blocks: all blocks of a model.
        frames: most frames of a step.
        n_frames: value (1,), frames of this step.

    Attributes:
        backs: (taps, blocks), how far the frames lie back that the host picks out.
    """

    def __init__(
        self, graph: GraphBuilder, blocks: Sequence[FoldedBlock], frames: int, n_frames: str
    ) -> None:
        self.graph, self.blocks, self.frames = graph, blocks, frames
        self.n_frames, self.n_channels = n_frames, len(blocks[0].offset)
        n_taps = max(len(_earlier(block)) for block in blocks)
        picked = [
            number
            for number, block in enumerate(blocks)
            if n_taps == len(_earlier(block)) > 0 and frames <= min(SHORT_STEP, _nearest(block))
        ]
        self.backs = np.array([[back for _, back in _earlier(blocks[i])] for i in picked], int).T
        self.sums = dict(zip(picked, self._sums_of_earlier(picked), strict=True))
        self.new: list[str] = []

    def convolved(self, number: int, new: str) -> str:
        """Outputs (1, k, H) of a block's convolution for its new frames; blocks in order."""
        graph, block = self.graph, self.blocks[number]
        if number not in self.sums:
            return self._joined(number, new)
        self.new.append(new)
        outputs = self.sums[number]
        for weight in (weight for weight, back in block.taps if not back):
            outputs = graph.node("Add", outputs, self._weighted(new, weight))
        return outputs

    def finish(self) -> None:
        """Declare the new frames of the blocks whose earlier ones the host picks out."""
        if self.new:
            new = self.graph.node("Concat", *self.new, axis=0)
            shape: list[int | str] = [len(self.new), "frames", self.n_channels]
            self.graph.output("new_frames", new, np.float32, shape)

    def _sums_of_earlier(self, picked: list[int]) -> list[str]:
        """For each of these blocks its bias and the share (1, k, H) of the taps that look back."""
        if not picked:
            return []
        graph, shape = self.graph, [*self.backs.shape, "frames", self.n_channels]
        weights = [[weight.numpy() for weight, _ in _earlier(self.blocks[i])] for i in picked]
        bias = np.stack([self.blocks[i].bias_mid.numpy() for i in picked])[:, None]
        frames = graph.input("taps", np.float32, shape)
        weight = graph.constant(np.swapaxes(weights, 0, 1)[:, :, None])
        sums = graph.node(
            "ReduceSum", graph.node("Mul", frames, weight), graph.integers(0), keepdims=0
        )
        sums = graph.node("Add", sums, graph.constant(bias))
        n_blocks = len(picked)
        return graph.nodes_of("Split", sums, n_outputs=n_blocks, axis=0, num_outputs=n_blocks)

    def _joined(self, number: int, new: str) -> str:
        block = self.blocks[number]
        seen = self._seen(number, new) if block.reach else [new] * len(block.taps)
        taps = [
            self._weighted(frames, weight)
            for frames, (weight, _) in zip(seen, block.taps, strict=True)
        ]
        return self.graph.node("Sum", *taps, self.graph.constant(block.bias_mid.numpy()))

    def _seen(self, number: int, new: str) -> list[str]:
        """The frames (1, k, H) that each tap of a block sees."""
        graph, block = self.graph, self.blocks[number]
        past = graph.input(f"past_{number}", np.float32, [1, block.reach, self.n_channels])
        new = graph.output(f"next_past_{number}", new, np.float32, [1, "frames", self.n_channels])
        far = self.frames <= _nearest(block)
        source, seen = past if far else graph.node("Concat", past, new, axis=1), []
        for _, back in block.taps:
            start = block.reach - back
            end = self.n_frames
            if start:
                end = graph.node("Add", end, graph.integers(start))
            seen.append(graph.slice(source, start, end, axis=1) if back else new)
        return seen

    def _weighted(self, values: str, weight: Tensor) -> str:
        return self.graph.node("Mul", values, self.graph.constant(weight.numpy()))


def _earlier(block: FoldedBlock) -> list[tuple[Tensor, int]]:
    """Its taps that look back."""
    return [tap for tap in block.taps if tap[1]]


def _nearest(block: FoldedBlock) -> int:
    """How far the nearest of them looks back."""
    return min(back for _, back in _earlier(block))
