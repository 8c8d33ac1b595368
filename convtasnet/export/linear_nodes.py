"""Linear maps of an ONNX graph, in float32 or in 8-bit integers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from torch import Tensor

from convtasnet.export.builder import GraphBuilder

# Of 8-bit weights. CPUs without VNNI add two products of 8 bits into 16 with saturation, which
# seven bits of weight do not reach.
LARGEST = 63


class LinearNodes:
    """Products of values (k, in) with weights (in, out).

    In 8 bits each column of a weight has a scale of its own, and the values of a step one that is
    found as it runs. ONNX Runtime fuses the nodes.

    Args:
        graph: gets the nodes.
        int8: whether products are of 8-bit integers.
    """

    def __init__(self, graph: GraphBuilder, int8: bool) -> None:
        self.graph, self.int8 = graph, int8
        self.quantized: dict[str, list[str]] = {}

    def product(self, values: str, weight: Tensor, add: str | Tensor | None = None) -> str:
        """``values @ weight + add``."""
        graph, matrix = self.graph, weight.numpy()
        addend = graph.constant(add.numpy()) if isinstance(add, Tensor) else add
        if not self.int8:
            if addend is None:
                return graph.node("MatMul", values, graph.constant(matrix))
            return graph.node("Gemm", values, graph.constant(matrix), addend)
        y = self._int8_product(values, matrix)
        return y if addend is None else graph.node("Add", y, addend)

    def _int8_product(self, values: str, matrix: np.ndarray) -> str:
        graph = self.graph
        if values not in self.quantized:
            self.quantized[values] = graph.nodes_of("DynamicQuantizeLinear", values, n_outputs=3)
        integers, scale, zero = self.quantized[values]
        scales = np.abs(matrix).max(0) / LARGEST
        scales[scales == 0] = 1.0
        weight = np.rint(matrix / scales).astype(np.int8)
        sums = graph.node("MatMulInteger", integers, graph.constant(weight), zero)
        sums = graph.node("Cast", sums, to=TensorProto.FLOAT)
        scale = graph.node("Mul", scale, graph.constant(scales.astype(np.float32)))
        return graph.node("Mul", sums, scale)
