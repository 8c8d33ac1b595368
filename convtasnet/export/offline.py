"""A model as one ONNX graph for whole recordings."""

from __future__ import annotations

import onnx
import torch

from convtasnet.export.program import export_program
from convtasnet.model import ConvTasNet


def offline_onnx(model: ConvTasNet) -> onnx.ModelProto:
    """Build the graph of ``model(mixture)``, for any batch and length.

    Input ``mixture`` (batch, samples), output ``voices`` (batch, n_src, samples), float32. Sums
    over time are float64: in float32, ONNX Runtime's are wrong in the third digit after an hour.

    Args:
        model: any model on the CPU, in float32; is exported in eval mode.
    """
    program = torch.onnx.export(
        export_program(model),
        input_names=["mixture"],
        output_names=["voices"],
        dynamo=True,
        verbose=False,
        optimize=False,  # it takes the norms' eps, 1e-8, for a zero that need not be added
    )
    assert program is not None
    proto = program.model_proto
    sizes = [size.dim_param for size in proto.graph.input[0].type.tensor_type.shape.dim]
    names = dict(zip(sizes, ("batch", "samples"), strict=True))
    for value in (*proto.graph.input, *proto.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in names:
                size.dim_param = names[size.dim_param]
    _forget_origins(proto)
    about = {"n_src": model.n_src, "sample_rate": model.sample_rate}
    onnx.helper.set_model_props(proto, {name: str(value) for name, value in about.items()})
    return proto


def _forget_origins(proto: onnx.ModelProto) -> None:
    """Remove notes on the source lines of each node: they are longer than the graph."""
    graph = proto.graph
    del graph.value_info[:]
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
