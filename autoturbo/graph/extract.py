"""A part of a graph as a graph of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from autoturbo.graph.batch import trace_batch
from autoturbo.graph.operators import Graph


def extract(graph: Graph, operators: Iterable[int]) -> Graph:
    """Return the sub-graph of the given operators as a graph.

    Tensors that they read and do not make are inputs, or weights if constant. Tensors that others
    read, or that the model returns, are outputs. Tensors and operators keep their names and their
    order, and samples their dimensions.

    Args:
        graph: The whole.
        operators: Indices into ``graph.operators``; at least one.

    Raises:
        ValueError: Nothing that the operators make is used.
    """
    chosen = sorted(set(operators))
    of = [graph.operators[index] for index in chosen]
    old = sorted({t for operator in of for t in (*operator.inputs, *operator.outputs)})
    new = {tensor: position for position, tensor in enumerate(old)}
    read, used = entering(graph, chosen), leaving(graph, chosen)
    if not used:
        raise ValueError("the operators make nothing that is used")
    part = dataclasses.replace(
        graph,
        tensors=tuple(graph.tensors[t] for t in old),
        operators=tuple(
            dataclasses.replace(
                graph.operators[index],
                inputs=tuple(new[t] for t in graph.operators[index].inputs),
                outputs=tuple(new[t] for t in graph.operators[index].outputs),
            )
            for index in chosen
        ),
        inputs=tuple(new[t] for t in read),
        outputs=tuple(new[t] for t in used),
        notes=(),
        sample_dims=(),
        file_places=tuple(graph.file_places[index] for index in chosen if graph.file_places),
    )
    if not graph.sample_dims:
        return part
    places = trace_batch(graph).tensors
    alone = {new[t]: places[t][0] for t in read if places.get(t, (0, 0))[1] == 1}
    return part.sampled(graph.batch, {t: d for t, d in alone.items() if _apart(part, t, d)})


def _apart(graph: Graph, tensor: int, dim: int) -> bool:
    """Return whether a dimension has samples and nothing else."""
    return graph.tensors[tensor].shape[dim] == graph.batch


def entering(graph: Graph, operators: Iterable[int]) -> list[int]:
    """Return the tensors that some operators read and do not make, but for constants; ascending."""
    of = [graph.operators[index] for index in operators]
    read = {tensor for operator in of for tensor in operator.inputs}
    made = {tensor for operator in of for tensor in operator.outputs}
    return sorted(tensor for tensor in read - made if not graph.tensors[tensor].constant)


def leaving(graph: Graph, operators: Iterable[int]) -> list[int]:
    """Return the tensors that leave a set of operators, ascending."""
    inside = set(operators)
    made = {tensor for index in inside for tensor in graph.operators[index].outputs}
    return sorted(
        tensor
        for tensor in made
        if tensor in graph.returned or set(graph.consumers[tensor]) - inside
    )
