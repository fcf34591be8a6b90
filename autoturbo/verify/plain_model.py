"""A model written again as it is, node by node, at the shapes that were asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from autoturbo.graph.model_nodes import ModelNodes
from autoturbo.verify.body import Body, used
from autoturbo.verify.regional import restrict
from autoturbo.verify.repeats import repeat


def plain_model(nodes: ModelNodes) -> ModelProto:
    """The model of some nodes; every tensor of the graph has its name there."""
    graph = nodes.graph
    body = Body(nodes.opsets[""])
    body.nodes.extend(nodes.constants)
    body.taken.update(nodes.stored, (tensor.name for tensor in graph.tensors))
    repeat(body, nodes.repeated, {})
    body.regions.update({t: graph.tensors[t].whole for t in graph.inputs})
    shapes = [tensor.shape for tensor in graph.tensors]
    for node, operator in zip(nodes.nodes, graph.operators, strict=True):
        body.layer = operator.name
        body.regions.update({t: graph.tensors[t].whole for t in operator.outputs})
        full = tuple((0, extent) for extent in operator.extents)
        restrict(body, node, operator, shapes, full)
    for name, value in nodes.outputs:
        if name != value.name:
            body.node("Identity", [value.name], [name])
    types = elements_of(nodes)
    inputs = [_info(graph.tensors[t].name, types[t], graph.tensors[t].shape) for t in graph.inputs]
    inputs += [_info(o.name, o.element, o.shape) for o in nodes.given]
    outputs = [_info(name, value.element, value.shape) for name, value in nodes.outputs]
    stored = used(body.nodes, nodes.stored, (name for name, _ in nodes.outputs))
    return helper.make_model(
        helper.make_graph(body.nodes, graph.name, inputs, outputs, stored),
        opset_imports=[helper.make_opsetid(d, v) for d, v in nodes.opsets.items()],
        ir_version=nodes.ir_version,
    )


def elements_of(nodes: ModelNodes) -> dict[int, int]:
    """ONNX element type of every tensor of the graph that is an input, or that a node uses.

    Inputs of which only the extents are asked for are read by no node.
    """
    values = [v for n in nodes.nodes for v in (*n.inputs, *n.captured, *n.outputs)]
    values += [value for _, value in nodes.outputs]
    found = {v.tensor: v.element for v in values if v is not None and v.tensor >= 0}
    unread = [t for t in nodes.graph.inputs if t not in found]
    return found | {t: _element(nodes.graph.tensors[t].dtype) for t in unread}


def _element(dtype: str) -> int:
    if dtype == "string":
        return TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _info(name: str, element: int, shape: Sequence[int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, list(shape))
