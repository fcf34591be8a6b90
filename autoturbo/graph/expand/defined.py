"""Operators of ONNX that are defined by a body and have no row of their own."""

from __future__ import annotations

from typing import Any

from onnx import FunctionProto, GraphProto, NodeProto, defs, helper

from autoturbo.graph.expand.renaming import Renaming
from autoturbo.graph.expand.writer import NoExpansionError, refuse_unless
from autoturbo.graph.source import Source, domain_of
from autoturbo.graph.values import Step


def defined_body(step: Step, schema: defs.OpSchema, source: Source) -> GraphProto:
    """Return ONNX's own body of a node, under the names of its inputs and outputs.

    Args:
        step: the node.
        schema: its operator's definition.
        source: where the versions are from.

    Raises:
        NoExpansionError: there is none for the model's opset.
    """
    function = _function(step, schema, source.opsets.get("", 1))
    return _graph(step.node, function, schema)


def _function(step: Step, schema: Any, opset: int) -> FunctionProto:
    """The body of the newest version up to the model's; its operators must mean the same there."""
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
    else:
        versions = schema.function_opset_versions
    usable = [version for version in versions if version <= opset]
    if not usable:
        raise NoExpansionError("no body for this opset")
    newest = max(usable)
    function = FunctionProto()
    if schema.has_context_dependent_function:
        types = [b"" if v is None else v.type.SerializeToString() for v in step.inputs]
        node = step.node.SerializeToString()
        text = schema.get_context_dependent_function_with_opset_version(newest, node, types)
    else:
        text = schema.get_function_with_opset_version(newest)
    function.ParseFromString(text)
    written = {i.version for i in function.opset_import if not i.domain} or {newest}
    for inner in function.node:
        known = (_since(inner, version) for version in (*written, opset))
        refuse_unless(len(set(known)) == 1, f"{inner.op_type} has changed since")
    return function


def _since(node: NodeProto, opset: int) -> int:
    if domain_of(node):
        raise NoExpansionError(f"{node.op_type} is of another domain")
    return int(defs.get_schema(node.op_type, opset, "").since_version)


def _graph(node: NodeProto, function: FunctionProto, schema: defs.OpSchema) -> GraphProto:
    """The body with the names and attributes of the node."""
    stem = next(name for name in node.output if name)
    names = dict(zip(function.input, [*node.input, *[""] * len(function.input)], strict=False))
    made = zip(function.output, node.output, strict=False)
    names |= {formal: actual for formal, actual in made if actual}
    given = {name: item.default_value for name, item in schema.attributes.items()}
    given = {name: item for name, item in given.items() if item.name}
    given |= {item.name: item for item in node.attribute}
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    inner = Renaming(stem, names, given).nodes(function.node)
    return helper.make_graph(inner, "body", [], outputs)
