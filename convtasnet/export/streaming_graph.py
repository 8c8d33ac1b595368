"""The ONNX graph of one step of a stream: some frames further, from state to state.

The same folded parameters and the same steps as ``convtasnet/streaming/network.py``. All state
goes in and comes out as tensors. Of the frames in front of a depthwise convolution only the new
ones come out, so that a host which appends them to a buffer copies little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from torch import Tensor

from convtasnet.export.builder import GraphBuilder
from convtasnet.export.linear_nodes import LinearNodes
from convtasnet.export.statistics_nodes import StatisticsNodes
from convtasnet.streaming.folded import FoldedBlock, FoldedModel, FoldedNorm

MASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "softmax": ("Softmax", {"axis": 1}),
    "softmax_filters": ("Softmax", {"axis": 2}),
}


def streaming_graph(
    model: FoldedModel, frames: int, decay: float = 1.0, int8: bool = False
) -> onnx.ModelProto:
    """Build the graph of a step of up to ``frames`` frames.

    Inputs: ``samples`` (k · stride,) with 1 <= k <= frames; ``pending`` (L − stride,), the samples
    before them; ``tail`` (n_src, L − stride); ``count`` (1, 1) and ``sums`` (1, 2 · M), float64, of
    M cumulative norms; ``past_i`` (reach, H) of block i. In the beginning all state is zero, but
    for ``pending``: the first samples of the stream. State that a model does not have is left out.

    Outputs: ``voices`` (n_src, k · stride), final, from the first sample of ``pending`` on;
    ``next_…`` of each state. ``next_past_i`` (k, H) goes behind ``past_i``, whose first k rows
    have served.

    Args:
        model: a causal model in float32, folded.
        frames: most frames of a step.
        decay: of the statistics; below 1 they forget, see ``StreamingSeparator``.
        int8: products of 8-bit integers, with scales found as they run.

    Returns:
        The model; its metadata say what a host needs to know.
    """
    return _Step(model, frames, decay, int8).build()


class _Step:
    def __init__(self, model: FoldedModel, frames: int, decay: float, int8: bool) -> None:
        self.model, self.frames = model, frames
        self.graph = GraphBuilder()
        self.linear = LinearNodes(self.graph, int8)
        self.overlap = model.framing.kernel_size - model.framing.stride
        features = self._features()
        self.n_frames = self.graph.node("Shape", features, start=0, end=1)
        self.statistics = None
        if model.n_cumulative:
            self.statistics = StatisticsNodes(self.graph, model, frames, self.n_frames, decay)
        self._voices(self._masked(features))
        if self.statistics is not None:
            self.statistics.finish()

    def build(self) -> onnx.ModelProto:
        framing = self.model.framing
        about = {
            "n_src": self.model.n_src,
            "sample_rate": self.model.sample_rate,
            "kernel_size": framing.kernel_size,
            "stride": framing.stride,
            "frames": self.frames,
            "margin": framing.margin,
            "complete": int(framing.name != "drop"),
        }
        return self.graph.model({name: str(value) for name, value in about.items()})

    def _features(self) -> str:
        """(k, N) of the samples."""
        graph, model = self.graph, self.model
        samples = graph.input("samples", np.float32, ["samples"])
        if self.overlap:
            pending = graph.input("pending", np.float32, [self.overlap])
            samples = graph.node("Concat", pending, samples, axis=0)
            waiting = graph.slice(samples, -self.overlap, None)
            graph.output("next_pending", waiting, np.float32, [self.overlap])
        filters = graph.constant(model.encoder.T.numpy()[:, None])
        samples = graph.node("Unsqueeze", samples, graph.integers(0, 1))
        features = graph.node("Conv", samples, filters, strides=[model.framing.stride])
        features = graph.node("Squeeze", features, graph.integers(0))
        features = graph.node("Transpose", features, perm=[1, 0])
        return graph.node("Relu", features) if model.encoder_relu else features

    def _masked(self, features: str) -> str:
        """Masks times features, (k, n_src, N)."""
        graph, model = self.graph, self.model
        values = self._normalized(features, model.norm)
        residual: str = self.linear.product(values, model.bottleneck)
        skip: str | Tensor = model.mask_offset
        for number, block in enumerate(model.blocks):
            values = self._block(number, block, residual)
            if block.n_residual:
                residual = self.linear.product(values, block.weight_residual, residual)
            if model.skip_chan:
                skip = self.linear.product(values, block.weight_skip, skip)
        if not isinstance(skip, str):
            skip = graph.node("Add", residual, self._constant(skip))
        last = graph.node("LeakyRelu", skip, alpha=model.mask_slope)
        scores = self.linear.product(last, model.mask_weight, model.mask_bias)
        scores = graph.node("Reshape", scores, graph.integers(-1, model.n_src, len(model.decoder)))
        kind, attributes = MASKS[model.mask_act]
        features = graph.node("Unsqueeze", features, graph.integers(1))
        return graph.node("Mul", graph.node(kind, scores, **attributes), features)

    def _block(self, number: int, block: FoldedBlock, residual: str) -> str:
        """What the block's last linear map takes, (k, H)."""
        graph = self.graph
        values = self.linear.product(residual, block.weight_in, block.bias_in)
        values = graph.node("LeakyRelu", values, alpha=block.slope_in)
        values = self._normalized(values, block.norm_in)
        values = graph.node("Mul", values, self._constant(block.gain))
        values = graph.node("Add", values, self._constant(block.offset))
        seen = self._history(number, block, values)
        taps = [
            graph.node("Mul", frames, self._constant(weight))
            for frames, (weight, _) in zip(seen, block.taps, strict=True)
        ]
        values = graph.node("Sum", *taps, self._constant(block.bias_mid))
        values = graph.node("LeakyRelu", values, alpha=block.slope_out)
        return self._normalized(values, block.norm_out)

    def _history(self, number: int, block: FoldedBlock, new: str) -> list[str]:
        """The frames (k, H) that each tap of a block sees."""
        graph, n_channels = self.graph, len(block.gain)
        if not block.reach:
            return [new] * len(block.taps)
        past = graph.input(f"past_{number}", np.float32, [block.reach, n_channels])
        new = graph.output(f"next_past_{number}", new, np.float32, ["frames", n_channels])
        # A step that is no longer than the distance of the taps sees the past alone.
        near = min((back for _, back in block.taps if back), default=0)
        source = past if self.frames <= near else graph.node("Concat", past, new, axis=0)
        seen = []
        for _, back in block.taps:
            start = block.reach - back
            end = self.n_frames
            if start:
                end = graph.node("Add", end, graph.integers(start))
            seen.append(graph.slice(source, start, end) if back else new)
        return seen

    def _normalized(self, values: str, norm: FoldedNorm) -> str:
        if norm.kind == "batch":
            return values
        if self.statistics is not None and norm.kind.startswith("cumulative"):
            return self.statistics.normalized(values, norm)
        return self.graph.node(
            "LayerNormalization",
            values,
            self.graph.constant(np.ones(norm.channels, np.float32)),
            axis=1,
            epsilon=norm.eps,
        )

    def _voices(self, masked: str) -> None:
        """Declare the samples that are final, and what the frames add to later ones."""
        graph, model = self.graph, self.model
        n_src, stride = model.n_src, model.framing.stride
        filters = graph.constant(model.decoder.numpy()[:, None])
        masked = graph.node("Transpose", masked, perm=[1, 2, 0])
        voices = graph.node("ConvTranspose", masked, filters, strides=[stride])
        voices = graph.node("Squeeze", voices, graph.integers(1))
        if self.overlap:
            tail = graph.input("tail", np.float32, [n_src, self.overlap])
            done = graph.node("Mul", self.n_frames, graph.integers(stride))
            pads = graph.node("Concat", graph.integers(0, 0, 0), done, axis=0)
            voices = graph.node("Add", voices, graph.node("Pad", tail, pads))
            rest = graph.slice(voices, -self.overlap, None, axis=1)
            graph.output("next_tail", rest, np.float32, [n_src, self.overlap])
            voices = graph.slice(voices, 0, -self.overlap, axis=1)
        graph.output("voices", voices, np.float32, [n_src, "samples"])

    def _constant(self, value: Tensor) -> str:
        return self.graph.constant(value.numpy())
