"""What a model computes in: its coarsest type, which decides how far its numbers may differ."""

from __future__ import annotations

from onnx import TensorProto

from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.verify.compare import Precision
from autoturbo.verify.plain_model import elements_of

_COARSEST_FIRST = {
    TensorProto.BFLOAT16: Precision.BRAIN,
    TensorProto.FLOAT16: Precision.HALF,
    TensorProto.FLOAT: Precision.SINGLE,
    TensorProto.DOUBLE: Precision.DOUBLE,
}


def precision_of(nodes: ModelNodes) -> Precision:
    """The coarsest type of any value that depends on the inputs."""
    if any(_quantises(node.proto.op_type) for node in nodes.nodes):
        return Precision.QUANTISED
    tensors = nodes.graph.tensors
    found = {e for t, e in elements_of(nodes).items() if not tensors[t].constant}
    return next((p for e, p in _COARSEST_FIRST.items() if e in found), Precision.SINGLE)


def _quantises(op_type: str) -> bool:
    return op_type.startswith(("QLinear", "QGemm", "QAttention")) or op_type in _QUANTISING


_QUANTISING = frozenset(("QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"))
