"""The ONNX graph of one step of a stream: some frames further, from state to state.

The same folded parameters and the same steps as ``convtasnet/streaming/network.py``, in nodes whose
number counts more than their size when frames are few. All state goes in and comes out as tensors.
Of the frames in front of a depthwise convolution only the new ones come out, so that a host which
keeps them in buffers copies little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from torch import Tensor
from torch.nn.functional import pad

from convtasnet.export.builder import GraphBuilder
from convtasnet.export.depthwise_nodes import DepthwiseNodes
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
    before them; ``tail`` (n_src, L − stride); ``count`` (1,) and ``sums`` (2 · M, 1), float64, of M
    cumulative norms; ``past_i`` (1, reach, H) of block i, or ``taps`` (taps, n, k, H) of the n
    blocks of ``DepthwiseNodes.backs``. In the beginning all state is zero, but for ``pending``: the
    first samples of the stream. State that a model does not have is left out.

    Outputs: ``voices`` (n_src, k · stride), final, from the first sample of ``pending`` on;
    ``next_…`` of each state. ``next_past_i`` (1, k, H) goes behind ``past_i``, whose first k frames
    have served. ``new_frames`` (n, k, H) are those of the blocks of ``taps``.

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
        self.convolutions = DepthwiseNodes(self.graph, model.blocks, frames, self.n_frames)
        self._voices(self._masked(features))
        self.convolutions.finish()
        if self.statistics is not None:
            self.statistics.finish()

    def build(self) -> onnx.ModelProto:
        framing = self.model.framing
        about: dict[str, object] = {
            "n_src": self.model.n_src,
            "sample_rate": self.model.sample_rate,
            "kernel_size": framing.kernel_size,
            "stride": framing.stride,
            "frames": self.frames,
            "margin": framing.margin,
            "complete": int(framing.name != "drop"),
        }
        about["backs"] = ",".join(map(str, self.convolutions.backs.flat))
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
        samples = graph.node("Unsqueeze", samples, graph.integers(0, 1))
        frames = graph.node("Conv", samples, self._shifts(), strides=[model.framing.stride])
        frames = graph.node(
            "Transpose", graph.node("Squeeze", frames, graph.integers(0)), perm=[1, 0]
        )
        features = graph.node("MatMul", frames, self._constant(model.encoder))
        return graph.node("Relu", features) if model.encoder_relu else features

    def _masked(self, features: str) -> str:
        """Masks times features, (k, n_src, N)."""
        graph, model = self.graph, self.model
        values = graph.node("Squeeze", self._normalized(features, model.norm), graph.integers(0))
        last = self._last(values)
        last = graph.node("LeakyRelu", last, alpha=model.mask_slope)
        scores = self.linear.product(last, model.mask_weight, model.mask_bias)
        scores = graph.node("Reshape", scores, graph.integers(-1, model.n_src, len(model.decoder)))
        kind, attributes = MASKS[model.mask_act]
        features = graph.node("Unsqueeze", features, graph.integers(1))
        return graph.node("Mul", graph.node(kind, scores, **attributes), features)

    def _last(self, values: str) -> str:
        """What the masks come from, (k, Sc or B), of the normalized features.

        Residual and skip path lie side by side, (k, B + Sc): a block adds to both with one product.
        """
        graph, model = self.graph, self.model
        bn_chan = model.bottleneck.shape[1]
        weight = pad(model.bottleneck, (0, model.skip_chan))
        start = pad(model.mask_offset, (bn_chan, 0)) if model.skip_chan else None
        paths: str = self.linear.product(values, weight, start)
        for number, block in enumerate(model.blocks):
            residual = graph.slice(paths, 0, bn_chan, axis=1) if model.skip_chan else paths
            values = self._block(number, block, residual)
            weight = pad(block.weight_out, (0 if block.n_residual else bn_chan, 0))
            paths = self.linear.product(values, weight, paths)
        if model.skip_chan:
            return graph.slice(paths, bn_chan, None, axis=1)
        return graph.node("Add", paths, self._constant(model.mask_offset))

    def _block(self, number: int, block: FoldedBlock, residual: str) -> str:
        """What the block's last linear map takes, (k, H)."""
        graph = self.graph
        values = self.linear.product(residual, block.weight_in, block.bias_in)
        values = graph.node("LeakyRelu", values, alpha=block.slope_in)
        values = self._normalized(values, block.norm_in)
        values = graph.node("Add", values, self._constant(block.offset))
        values = self.convolutions.convolved(number, values)
        values = graph.node("LeakyRelu", values, alpha=block.slope_out)
        rows = graph.node("Squeeze", values, graph.integers(0))
        values = self._normalized(rows, block.norm_out, values)
        return graph.node("Squeeze", values, graph.integers(0))

    def _normalized(self, rows: str, norm: FoldedNorm, values: str = "") -> str:
        """Rows (k, C), or the same values as (1, k, C), without mean and deviation: (1, k, C)."""
        graph = self.graph
        values = values or graph.node("Unsqueeze", rows, graph.integers(0))
        if norm.kind == "batch":
            return values
        if self.statistics is not None and norm.kind.startswith("cumulative"):
            return self.statistics.normalized(rows, values, norm)
        ones = graph.constant(np.ones(norm.channels, np.float32))
        return graph.node("LayerNormalization", values, ones, axis=2, epsilon=norm.eps)

    def _voices(self, masked: str) -> None:
        """Declare the samples that are final, and what the frames add to later ones."""
        graph, model = self.graph, self.model
        n_src, stride = model.n_src, model.framing.stride
        parts = graph.node("MatMul", masked, self._constant(model.decoder))
        parts = graph.node("Transpose", parts, perm=[1, 2, 0])
        voices = graph.node("ConvTranspose", parts, self._shifts(), strides=[stride])
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

    def _shifts(self) -> str:
        """Filters (L, 1, L) that cut samples into frames, or add frames up."""
        return self.graph.constant(
            np.eye(self.model.framing.kernel_size, dtype=np.float32)[:, None]
        )

    def _constant(self, value: Tensor) -> str:
        return self.graph.constant(value.numpy())
