"""Nodes that stand for a body: loops, and operators that ONNX defines by others.

Each trip of a loop is scheduled as what it computes, and values that do not change from trip to
trip are computed once. Loops that a value may end early, or that are long, stay whole; of a long
one the first trip is written, so that its work is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, defs, helper, numpy_helper

from autoturbo.graph.expand.writer import NoExpansionError, Writer, refuse_unless
from autoturbo.graph.source import Source, domain_of
from autoturbo.graph.structure import free_names
from autoturbo.graph.values import Step


@dataclass(frozen=True, slots=True, eq=False)
class Renaming:
    """Gives the values of a body names of their own.

    Attributes:
        stem: Text that is put in front of names.
        names: New names by formal name; grows.
        given: Attributes of the node that the body stands for.
    """

    stem: str
    names: dict[str, str]
    given: Mapping[str, AttributeProto]

    def nodes(self, nodes: Iterable[NodeProto]) -> list[NodeProto]:
        """Return copies of some nodes under the new names."""
        return [self._node(node, f"{self.stem}/{k}_{node.op_type}") for k, node in enumerate(nodes)]

    def name(self, formal: str) -> str:
        """Return the new name of a value of the body."""
        return self.names.setdefault(formal, f"{self.stem}/{formal}") if formal else ""

    def _node(self, node: NodeProto, label: str) -> NodeProto:
        copy = NodeProto(op_type=node.op_type, domain=node.domain, name=label)
        copy.input.extend(map(self.name, node.input))
        copy.output.extend(map(self.name, node.output))
        for item in node.attribute:
            if item.ref_attr_name and item.ref_attr_name not in self.given:
                continue
            copy.attribute.append(self.given[item.ref_attr_name] if item.ref_attr_name else item)
            copy.attribute[-1].name = item.name
            if item.HasField("g"):
                self._branch(copy.attribute[-1].g)
        return copy

    def _branch(self, graph: GraphProto) -> None:
        inner = self.nodes(graph.node)
        del graph.node[:]
        graph.node.extend(inner)
        for value in (*graph.input, *graph.output):
            value.name = self.name(value.name)
        for tensor in graph.initializer:
            tensor.name = self.name(tensor.name)


# ------------------------------------------------------------------ loops, written out trip by trip


MOST_NODES = 4000
"""Nodes that a loop may become."""


@dataclass(frozen=True, slots=True)
class TripCount:
    """Number of trips of a loop, with the values that it carries.

    Attributes:
        count: Trips.
        nodes: Nodes of the body.
        carried: Names of the values that go from trip to trip: before the first and behind the
            last that is written.
    """

    count: int
    nodes: int
    carried: tuple[tuple[str, str], ...]


def loop(w: Writer, *, once: bool = False) -> TripCount:
    """Write a Loop of known trip count; write only the first trip if asked."""
    body = _body(w)
    count = w.step.trips
    if count is None:
        raise NoExpansionError("its end depends on data")
    carried = [w.input(k) for k in range(2, len(w.step.inputs))]
    results = range(len(carried), len(body.output) - 1)
    _check(body, count, once=once)
    stacked: list[list[str]] = []
    begun = carried
    # Trips are known, so the condition holds in all of them.
    on = w.constant(np.array(True))  # noqa: FBT003 - ONNX's condition
    for trip in range(1 if once else count):
        number = w.number(trip)
        trip_outputs = _trip(w, body, trip, [number, on, *carried])[1:]
        carried, rows = trip_outputs[: len(carried)], trip_outputs[len(carried) :]
        stacked.append(rows)
    _finish(w, carried, stacked, [0] * len(results))
    return TripCount(count, len(body.node), tuple(zip(begun, carried, strict=True)))


def scan(w: Writer, *, once: bool = False) -> TripCount:
    """Write a Scan, one trip per entry of its scanned inputs."""
    body, count = _body(w), int(w.attribute("num_scan_inputs", 0))
    states = len(w.step.inputs) - count
    refuse_unless(w.attribute("directions", None) is None, "a batch of scans")
    axes = [
        axis % len(w.shape(states + k)) for k, axis in enumerate(_list(w, "scan_input_axes", count))
    ]
    turned = _list(w, "scan_input_directions", count)
    trips = w.shape(states)[axes[0]]
    _check(body, trips, once=once)
    begun = carried = [w.input(k) for k in range(states)]
    results = len(body.output) - states
    stacked: list[list[str]] = []
    for trip in range(1 if once else trips):
        places = [trips - 1 - trip if back else trip for back in turned]
        rows = [
            w.pick(w.input(states + k), axis, place)
            for k, (axis, place) in enumerate(zip(axes, places, strict=True))
        ]
        trip_outputs = _trip(w, body, trip, [*carried, *rows])
        carried = trip_outputs[:states]
        stacked.append(trip_outputs[states:])
    backwards = _list(w, "scan_output_directions", results)
    _finish(w, carried, stacked, _list(w, "scan_output_axes", results), backwards)
    return TripCount(trips, len(body.node), tuple(zip(begun, carried, strict=True)))


def _body(w: Writer) -> GraphProto:
    body: GraphProto | None = w.attribute("body", None)
    if body is None:
        raise LookupError("body")
    return body


def _list(w: Writer, name: str, count: int) -> list[int]:
    given = w.attribute(name, None)
    return [int(item) for item in given] if given else [0] * count


def _check(body: GraphProto, trips: int, *, once: bool) -> None:
    refuse_unless(trips > 0 or not once, "no trip at all")
    short = once or trips * len(body.node) <= MOST_NODES
    refuse_unless(short, "too long to be written out")


def _trip(w: Writer, body: GraphProto, trip: int, given: Sequence[str]) -> list[str]:
    """Write one trip and return the names of its outputs."""
    formal = [value.name for value in body.input]
    names = dict(zip(formal, given, strict=True))
    # What the body reads from outside keeps its name.
    names |= {name: name for name in free_names(body)}
    for tensor in body.initializer:
        names[tensor.name] = w.constant(np.asarray(numpy_helper.to_array(tensor)))
    renaming = Renaming(f"{w.stem}/trip_{trip}", names, {})
    w.nodes.extend(renaming.nodes(body.node))
    return [renaming.name(value.name) for value in body.output]


def _finish(
    w: Writer,
    carried: Sequence[str],
    stacked: Sequence[Sequence[str]],
    axes: Sequence[int],
    backwards: Sequence[int] = (),
) -> None:
    """Write the outputs: the last carried values, and the stacked values of all trips."""
    for position, name in enumerate(carried):
        if w.wants(position):
            w.op("Identity", name, to=w.output(position))
    for k, axis in enumerate(axes):
        position = len(carried) + k
        if not w.wants(position):
            continue
        # A Concat of nothing has no shape.
        refuse_unless(stacked, "no trip at all")
        rows = [w.unsqueeze(trip[k], axis) for trip in stacked]
        if backwards and backwards[k]:
            rows.reverse()
        w.concat(*rows, axis=axis, to=w.output(position))


# ------------------------------------------------------------ operators that ONNX defines by a body


def defined_body(step: Step, schema: defs.OpSchema, source: Source) -> GraphProto:
    """Return ONNX's function body of a node, under the names of its inputs and outputs.

    Args:
        step: The node.
        schema: The definition of the node's operator.
        source: The file that the versions of operators come from.

    Raises:
        NoExpansionError: There is none for the model's opset.
    """
    function = _function(step, schema, source.opsets.get("", 1))
    return _graph(step.node, function, schema)


def _function(step: Step, schema: Any, opset: int) -> FunctionProto:
    """Return the function body of the newest version up to the model's opset.

    Its operators must mean the same in both opsets.

    Raises:
        NoExpansionError: There is no body for this opset, or an operator in it has changed since.
    """
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
    else:
        versions = schema.function_opset_versions
    usable = [version for version in versions if version <= opset]
    if not usable:
        raise NoExpansionError("no body for this opset")
    # The one that is nearest to what the model's opset means.
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
    """Return the body with the names and attributes of the node."""
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
