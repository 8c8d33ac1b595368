"""ONNX graphs node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 18, 8  # ONNX Runtime reads them from version 1.14 on


class GraphBuilder:
    """Nodes, constants, inputs and outputs of a graph; values are their names.

    Example:
        >>> graph = GraphBuilder()
        >>> x = graph.input("x", np.float32, ["n"])
        >>> y = graph.node("Add", x, graph.constant(np.float32(1)))
        >>> graph.output("y", y, np.float32, ["n"])
        'y'
        >>> len(graph.model({"sample_rate": "8000"}).graph.node)
        1
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants: dict[tuple[bytes, str, tuple[int, ...]], onnx.TensorProto] = {}
        self.count = 0

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        """Declare an input; names among the sizes stand for any size."""
        self.inputs.append(_described(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: Any, shape: Sequence[int | str]) -> str:
        """Declare a node's value an output, by this name from now on."""
        for node in self.nodes:
            for names in (node.input, node.output):
                names[:] = [name if each == value else each for each in names]
        self.outputs.append(_described(name, dtype, shape))
        return name

    def constant(self, value: Any) -> str:
        """A constant; equal ones are stored once."""
        array = np.ascontiguousarray(value)
        array = array.reshape(np.shape(value))  # which ascontiguousarray makes at least (1,)
        key = (array.tobytes(), str(array.dtype), array.shape)
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(array, name)
        return self.constants[key].name

    def integers(self, *values: int) -> str:
        """A constant vector, such as axes and shapes are."""
        return self.constant(np.array(values, np.int64))

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; gives its name."""
        return self.nodes_of(kind, *inputs, n_outputs=1, **attributes)[0]

    def nodes_of(self, kind: str, *inputs: str, n_outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; gives their names."""
        names = [f"value_{self.count + i}" for i in range(n_outputs)]
        self.count += n_outputs
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def slice(self, value: str, start: int, end: int | str | None, axis: int = 0) -> str:
        """``value[start:end]`` along an axis; ``end`` may be a value (1,)."""
        if not isinstance(end, str):
            end = self.integers(np.iinfo(np.int64).max if end is None else end)
        return self.node("Slice", value, self.integers(start), end, self.integers(axis))

    def model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The checked model with its metadata."""
        graph = helper.make_graph(
            self.nodes, "convtasnet", self.inputs, self.outputs, list(self.constants.values())
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model)
        return model


def _described(name: str, dtype: Any, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, list(shape))
