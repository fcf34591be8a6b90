"""Names and order of a graph's nodes: definitions, captured names, topological order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx import GraphProto, NodeProto, TensorProto

from autoturbo.graph.ordering import back_from, in_topological_order
from autoturbo.graph.source import Source, domain_of, label


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Return the graphs inside a node of control flow."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_in(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Return nodes, with those in their control-flow bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from nodes_in(body.node)


def captured_names(node: NodeProto) -> list[str]:
    """Return the names that a node's bodies read from outside, each once."""
    return list(dict.fromkeys(name for body in bodies(node) for name in free_names(body)))


def outer_names(node: NodeProto) -> list[str]:
    """Return the names that only the bodies of a node read, not the node itself."""
    return [name for name in captured_names(node) if name not in node.input]


def stored_tensor(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a Constant node, or None if it holds none."""
    if node.op_type != "Constant" or domain_of(node):
        return None
    return next((a.t for a in node.attribute if a.name == "value"), None)


def free_names(graph: GraphProto) -> Iterator[str]:
    """Return the names that a body reads from outside, from what its first output needs on."""
    defined = {value.name for value in graph.input} | set(initializer_names(graph))
    defined.update(name for node in graph.node for name in node.output)
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    reads = [[n for n in (*node.input, *captured_names(node)) if n] for node in graph.node]
    ends = [made[value.name] for value in graph.output if value.name in made]
    needs = [[made[name] for name in names if name in made] for names in reads]
    for at in back_from((*ends, *range(len(reads))), needs):
        yield from (name for name in reads[at] if name not in defined)
    yield from (value.name for value in graph.output if value.name not in defined)


class LoopCondition(NamedTuple):
    """The part of a Loop's body that says whether it goes on.

    Attributes:
        graph: Its outputs are the condition, then the carried values that it reads.
        carried: The numbers of these carried values.
        constant: It reads neither those nor the number of the trip.
    """

    graph: GraphProto
    carried: tuple[int, ...]
    constant: bool


def loop_condition(body: GraphProto) -> LoopCondition:
    """Return the nodes and carried values that decide whether a Loop goes on."""
    number, _, *formal = (value.name for value in body.input)
    places = {name: k for k, name in enumerate(formal)}
    makers = {name: node for node in body.node for name in node.output}
    read: set[str] = set()
    waiting = [body.output[0].name]
    while waiting:
        name = waiting.pop()
        if name in read:
            continue
        read.add(name)
        if name in makers:
            waiting += [*makers[name].input, *captured_names(makers[name])]
        elif name in places:
            waiting.append(body.output[1 + places[name]].name)
    carried = tuple(places[name] for name in formal if name in read)
    graph = GraphProto(input=body.input)
    graph.node.extend(node for node in body.node if not read.isdisjoint(node.output))
    graph.initializer.extend(tensor for tensor in body.initializer if tensor.name in read)
    graph.output.extend(body.output[k] for k in (0, *(1 + place for place in carried)))
    return LoopCondition(graph, carried, not carried and number not in read)


def rename_read(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename the outer values that a graph reads, except those that it defines."""
    defined = {value.name for value in graph.input} | set(initializer_names(graph))
    defined.update(name for node in graph.node for name in node.output)
    outer = {old: new for old, new in names.items() if old != new and old not in defined}
    if not outer:
        return
    for node in graph.node:
        node.input[:] = [outer.get(name, name) for name in node.input]
        for body in bodies(node):
            rename_read(body, outer)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)


def initializer_names(graph: GraphProto) -> list[str]:
    """Return the names of the values stored in a graph."""
    dense = [tensor.name for tensor in graph.initializer]
    return dense + [tensor.values.name for tensor in graph.sparse_initializer]


def check_names(graph: GraphProto, outer: Iterable[str], source: Source) -> None:
    """Refuse names that are defined twice or not at all.

    Args:
        graph: The graph, or a body of control flow.
        outer: Names that it may read from outside.
        source: The file that the graph comes from.

    Raises:
        ModelError: Naming the value and the node.
    """
    stored = initializer_names(graph)
    inputs = [value.name for value in graph.input]
    outputs = [name for node in graph.node for name in node.output if name]
    for names in (stored, inputs, [*outputs, *set(inputs).union(stored)]):
        for name, times in Counter(names).items():
            if times > 1:
                raise source.error(f"defined {times} times", name, "every value has one origin")
    known = {*stored, *inputs, *outputs, *outer}
    for node in graph.node:
        for name in (*node.input, *captured_names(node)):
            if name and name not in known:
                raise source.error(f"reads {name!r}, which nothing defines", label(node))
    for value in graph.output:
        if value.name not in known:
            raise source.error("is an output of the graph, but nothing defines it", value.name)


def shared_names(graph: GraphProto) -> list[str]:
    """Return the names that several nodes of a graph, or of one body in it, have.

    Constants are not nodes for ONNX Runtime: it keeps them as stored values.
    """
    nodes = (node for node in graph.node if node.op_type != "Constant" or domain_of(node))
    times = Counter(node.name for node in nodes if node.name)
    inner = (name for node in graph.node for body in bodies(node) for name in shared_names(body))
    return list(dict.fromkeys([*(name for name, n in times.items() if n > 1), *inner]))


def drop_shared_names(graph: GraphProto) -> None:
    """Leave nodes without a name that others have: runtimes refuse it, and none need be there."""
    shared = set(shared_names(graph))
    for node in nodes_in(graph.node):
        if node.name in shared:
            node.name = ""


_SHOWN = 4
"""Nodes of a cycle that a message names."""


def in_order(nodes: Sequence[NodeProto], source: Source) -> list[NodeProto]:
    """Return the nodes in topological order, as near to the file's order as possible.

    Raises:
        ModelError: The nodes form a cycle.
    """
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {maker[name] for name in (*node.input, *captured_names(node)) if name in maker}
        for node in nodes
    ]
    order, around = in_topological_order(needs)
    if around:
        first = around.index(min(around))
        cycle = [label(nodes[i]) for i in (*around[first:-1], *around[:first], around[first])]
        if len(cycle) > _SHOWN + 1:
            cycle = [*cycle[:_SHOWN], "...", cycle[-1]]
        raise source.error(f"the graph has a cycle: {' -> '.join(cycle)}")
    return [nodes[index] for index in order]
