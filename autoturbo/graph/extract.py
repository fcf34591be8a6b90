"""A part of a graph as a graph of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from autoturbo.graph.operators import Graph


def extract(graph: Graph, operators: Iterable[int]) -> Graph:
    """Return the sub-graph of the given operators as a graph.

    Tensors that they read and do not make are inputs, or weights if constant. Tensors that others
    read, or that the model returns, are outputs. Tensors and operators keep their names and their
    order.

    Args:
        graph: The whole.
        operators: Indices into ``graph.operators``; at least one.

    Raises:
        ValueError: Nothing that the operators make is used.
    """
    chosen = sorted(set(operators))
    inside = set(chosen)
    made_tensors = {t for index in chosen for t in graph.operators[index].outputs}
    touched = made_tensors | {t for index in chosen for t in graph.operators[index].inputs}
    old = sorted(touched)
    new = {tensor: position for position, tensor in enumerate(old)}
    read = [t for t in old if t not in made_tensors and not graph.tensors[t].constant]
    used = [t for t in old if t in made_tensors and _is_used(graph, t, inside)]
    if not used:
        raise ValueError("the operators make nothing that is used")
    return dataclasses.replace(
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
    )


def _is_used(graph: Graph, tensor: int, inside: set[int]) -> bool:
    """Return whether a tensor is an output of the model or has a reader outside."""
    return tensor in graph.outputs or bool(set(graph.consumers[tensor]) - inside)
