"""Moves of values whose types few operators take: 8-bit floats and numbers of less than 8 bits.

Parts of such values are cut and joined like others, but ONNX's Slice and Concat do not take them.
They are moved as a wider type that has all their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, defs, helper

_FLOATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT4E2M1")

_WIDE: Mapping[int, int] = {
    **{TensorProto.DataType.Value(name): TensorProto.FLOAT for name in _FLOATS},
    TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT4: TensorProto.UINT8,
}
"""Types that have all values of a narrow one."""

NARROW = frozenset(_WIDE)
"""Element types that are moved as wider ones."""

_TO = {"Cast": "to", "QuantizeLinear": "output_dtype"}
"""Attributes that say the type of a result."""


def widen_moves(model: ModelProto) -> None:
    """Put conversions around nodes of a model and its functions that do not take narrow types.

    Args:
        model: Its nodes are changed in place.
    """
    graph = model.graph
    elements = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    elements |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    opsets = {one.domain: one.version for one in model.opset_import}
    _Widening({(f.domain, f.name): f for f in model.functions}).rewrite(
        graph.node, elements, opsets
    )


class _Widening:
    """Goes through nodes in order with the element types of what they read."""

    def __init__(self, functions: Mapping[tuple[str, str], FunctionProto]) -> None:
        self._functions = functions
        self._results: dict[tuple[str, str], list[int]] = {}

    def rewrite(
        self,
        nodes: MutableSequence[NodeProto],
        elements: dict[str, int],
        opsets: Mapping[str, int],
    ) -> None:
        """Rewrite the nodes of a graph or function.

        Args:
            nodes: Nodes of the graph, in order.
            elements: Element types by name, 0 where unknown; grows.
            opsets: Versions by domain.
        """
        written = [new for node in nodes for new in self._written(node, elements, opsets)]
        if len(written) > len(nodes):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in written]
            del nodes[:]
            nodes.extend(copies)

    def _written(
        self, node: NodeProto, elements: dict[str, int], opsets: Mapping[str, int]
    ) -> Iterator[NodeProto]:
        given = [elements.get(name, 0) for name in node.input]
        function = self._functions.get((node.domain, node.op_type))
        if function is not None:
            elements.update(zip(node.output, self._called(function, given), strict=True))
            yield node
            return
        schema = _schema(node, opsets)
        result = _result(node, given, schema)
        elements.update(dict.fromkeys(node.output, result))
        strange = [k for k, e in enumerate(given) if e in _WIDE and not _takes(schema, k, e)]
        yield from _between_casts(node, strange, given, result) if strange else (node,)

    def _called(self, function: FunctionProto, given: Sequence[int]) -> list[int]:
        """Return the element types of a function's outputs; its nodes are rewritten once."""
        key = function.domain, function.name
        if key not in self._results:
            elements = dict(zip(function.input, given, strict=False))
            opsets = {one.domain: one.version for one in function.opset_import}
            self.rewrite(function.node, elements, opsets)
            self._results[key] = [elements.get(name, 0) for name in function.output]
        return self._results[key]


def _schema(node: NodeProto, opsets: Mapping[str, int]) -> Any:
    try:
        return defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return None


def _result(node: NodeProto, given: Sequence[int], schema: Any) -> int:
    """Return the element type of a node's outputs, as far as narrow ones are concerned."""
    stated = next((a.i for a in node.attribute if a.name == _TO.get(node.op_type)), 0)
    if stated or schema is None or not schema.outputs:
        return int(stated)
    value = next((a.t for a in node.attribute if a.name == "value"), None)
    if value is not None:
        return int(value.data_type)
    wanted = schema.outputs[0].type_str
    alike = (e for k, e in enumerate(given) if e and _formal(schema, k).type_str == wanted)
    return next(alike, 0)


def _formal(schema: Any, position: int) -> Any:
    """Return the formal input at a position; the last one may stand for several."""
    return schema.inputs[min(position, len(schema.inputs) - 1)]


def _takes(schema: Any, position: int, element: int) -> bool:
    if schema is None:
        return True
    allowed = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
    formal = _formal(schema, position).type_str
    return f"tensor({TensorProto.DataType.Name(element).lower()})" in allowed.get(formal, [formal])


def _between_casts(
    node: NodeProto, strange: Sequence[int], given: Sequence[int], result: int
) -> Iterator[NodeProto]:
    """Yield a node on wider types, between conversions to them and back."""
    wide = NodeProto()
    wide.CopyFrom(node)
    for k in strange:
        wide.input[k] = f"{node.output[0]}@wide{k}"
        yield _cast(node, node.input[k], wide.input[k], _WIDE[given[k]])
    if result not in _WIDE:
        yield wide
        return
    wide.output[:] = [f"{name}@wide" for name in node.output]
    yield wide
    for narrow, name in zip(node.output, wide.output, strict=True):
        yield _cast(node, name, narrow, result)


def _cast(node: NodeProto, name: str, output: str, element: int) -> NodeProto:
    """Return a conversion of a node's value; its values have a place in both types."""
    cast = helper.make_node("Cast", [name], [output], f"{node.name}/{output}", to=element)
    if TensorProto.DataType.Name(element).startswith("FLOAT8"):
        cast.attribute.append(helper.make_attribute("saturate", 0))  # infinities stay
    cast.metadata_props.extend(node.metadata_props)
    return cast
