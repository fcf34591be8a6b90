"""Types and shapes of one node's outputs, by ONNX's own inference.

Nodes are inferred one at a time in topological order, with the values of small constants given:
a whole-model inference would not see the values that folding makes on the way.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import (
    NodeProto,
    OperatorSetIdProto,
    TypeProto,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from autoturbo.graph.external_data import SMALL
from autoturbo.graph.source import Source, domain_of
from autoturbo.graph.values import Value, element_type, static_shape


class InferenceError(Exception):
    """The node contradicts its operator's definition."""


def schema_of(node: NodeProto, source: Source) -> defs.OpSchema | None:
    """The definition of a node's operator at the model's opset, or None for an unknown one."""
    domain = domain_of(node)
    try:
        return defs.get_schema(node.op_type, source.opsets.get(domain, 1), domain)
    except (defs.SchemaError, TypeError):  # the second of a name that is no text
        return None


def drop_unknown_attributes(node: NodeProto, source: Source) -> list[str]:
    """Take away the attributes of a node that its operator does not have; return their names."""
    schema = schema_of(node, source)
    unknown = [a.name for a in node.attribute if schema and a.name not in schema.attributes]
    kept = [a for a in node.attribute if a.name not in unknown]
    if unknown:
        del node.attribute[:]
        node.attribute.extend(kept)
    return unknown


def infer(
    node: NodeProto, schema: defs.OpSchema, inputs: Mapping[str, Value], source: Source
) -> dict[str, TypeProto]:
    """Types of a node's outputs by name, as far as they follow from its inputs.

    Args:
        node: the node.
        schema: its operator's definition.
        inputs: its inputs, and the outer values that its bodies read, by name.
        source: where the versions are from.

    Raises:
        InferenceError: shapes or types do not fit together.
    """
    if any(element_type(value.type) == 0 for value in inputs.values()):
        return {}
    try:
        if schema.has_type_and_shape_inference_function:
            return _by_definition(node, schema, inputs, source)
        return _as_first(node, inputs)
    except Exception as error:  # the library raises its own classes and RuntimeError
        raise InferenceError(str(error)) from error


def _by_definition(
    node: NodeProto, schema: defs.OpSchema, inputs: Mapping[str, Value], source: Source
) -> dict[str, TypeProto]:
    data = {
        name: numpy_helper.from_array(value.data, name)
        for name, value in inputs.items()
        if value.data is not None and value.data.size <= SMALL
    }
    return shape_inference.infer_node_outputs(
        schema,
        _with_default(node),
        {name: value.type for name, value in inputs.items()},
        data,
        opset_imports=_opset_ids(source),
        ir_version=source.ir_version,
    )


def _with_default(node: NodeProto) -> NodeProto:
    """An STFT that says that it is one-sided: inference takes one that does not say for two-sided.

    The definition has one-sided as the default, and runtimes follow it.
    """
    if node.op_type != "STFT" or any(item.name == "onesided" for item in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.attribute.append(helper.make_attribute("onesided", 1))
    return copy


_KEEP_SHAPE = frozenset(("GroupNormalization", "MeanVarianceNormalization"))
"""Operators that ONNX defines by a body and gives no inference."""


def _as_first(node: NodeProto, inputs: Mapping[str, Value]) -> dict[str, TypeProto]:
    if node.op_type not in _KEEP_SHAPE:
        return {}
    return {node.output[0]: inputs[node.input[0]].type}


def _opset_ids(source: Source) -> list[OperatorSetIdProto]:
    return [helper.make_opsetid(domain, version) for domain, version in source.opsets.items()]


def merge(first: TypeProto | None, second: TypeProto | None) -> TypeProto:
    """The first type, with what it leaves open taken from the second where they agree in rank."""
    if first is None or element_type(first) == 0:
        return second or first or TypeProto()
    if second is None or static_shape(first) is not None or not _is_tensor(first, second):
        return first
    merged = TypeProto()
    merged.CopyFrom(first)
    shape, other = merged.tensor_type.shape, second.tensor_type.shape
    if not merged.tensor_type.HasField("shape"):
        shape.CopyFrom(other)
    elif len(shape.dim) == len(other.dim):
        for dim, known in zip(shape.dim, other.dim, strict=True):
            if not dim.HasField("dim_value"):
                dim.CopyFrom(known)
    return merged


def _is_tensor(first: TypeProto, second: TypeProto) -> bool:
    return bool(
        first.HasField("tensor_type")
        and second.HasField("tensor_type")
        and second.tensor_type.HasField("shape")
    )
