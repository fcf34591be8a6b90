"""Names and order of the nodes of a graph: what is defined where, and in which order it can run."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

from autoturbo.graph.source import Source, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onnx import GraphProto, NodeProto


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node of control flow."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured_names(node: NodeProto) -> list[str]:
    """Names that the bodies of a node read from outside, in the order of their first use."""
    return list(dict.fromkeys(name for body in bodies(node) for name in _free_names(body)))


def _free_names(graph: GraphProto) -> Iterator[str]:
    defined = {value.name for value in graph.input} | set(initializer_names(graph))
    defined.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (n for n in (*node.input, *captured_names(node)) if n and n not in defined)
    yield from (value.name for value in graph.output if value.name not in defined)


def initializer_names(graph: GraphProto) -> list[str]:
    """Names of the values stored in a graph."""
    dense = [tensor.name for tensor in graph.initializer]
    return dense + [tensor.values.name for tensor in graph.sparse_initializer]


def check_names(graph: GraphProto, outer: Iterable[str], source: Source) -> None:
    """Refuse names that are defined twice or not at all.

    Args:
        graph: the graph, or a body of control flow.
        outer: names that it may read from outside.
        source: where it is from.

    Raises:
        ModelError: naming the value and the node.
    """
    stored = initializer_names(graph)
    inputs = [value.name for value in graph.input]
    made = [name for node in graph.node for name in node.output if name]
    for names in (stored, inputs, [*made, *set(inputs).union(stored)]):
        for name, times in Counter(names).items():
            if times > 1:
                raise source.error(f"defined {times} times", name, "every value has one origin")
    known = {*stored, *inputs, *made, *outer}
    for node in graph.node:
        for name in (*node.input, *captured_names(node)):
            if name and name not in known:
                raise source.error(f"reads {name!r}, which nothing defines", label(node))
    for value in graph.output:
        if value.name not in known:
            raise source.error("is an output of the graph, but nothing defines it", value.name)


def in_order(nodes: Sequence[NodeProto], source: Source) -> list[NodeProto]:
    """The nodes in topological order, as near to the file's order as it allows.

    Raises:
        ModelError: the nodes form a cycle.
    """
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {maker[name] for name in (*node.input, *captured_names(node)) if name in maker}
        for node in nodes
    ]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(needs):
        for needed in sources:
            readers[needed].append(index)
    order = _kahn([len(sources) for sources in needs], readers)
    if len(order) < len(nodes):
        cycle = " -> ".join(_shortened([label(nodes[i]) for i in _cycle(needs, set(order))]))
        raise source.error(f"the graph has a cycle: {cycle}")
    return [nodes[index] for index in order]


def _kahn(waiting: list[int], readers: Sequence[Sequence[int]]) -> list[int]:
    ready = [index for index, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order


_SHOWN = 4
"""Nodes of a cycle that a message names."""


def _cycle(needs: Sequence[set[int]], done: set[int]) -> list[int]:
    """Nodes along one cycle, in the order of execution, the first repeated at the end."""
    path: list[int] = []
    index = min(i for i in range(len(needs)) if i not in done)
    while index not in path:
        path.append(index)
        index = min(needs[index] - done)
    return [index, *reversed(path[path.index(index) :])]


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN + 1 else [*names[:_SHOWN], "...", names[-1]]
