"""Sub-graphs as instances of one graph, each reading whole layers and none reading another.

What a sub-graph takes alone is asked of many at once this way: the layers that they read come
first, each as one part, then the chosen parts of every sub-graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.partition.split import Split
from autoturbo.schedule.place.instances import InstanceGraph, Links, PartBook, Parts, parts_of


def side_by_side(
    book: PartBook,
    subgraphs: Sequence[SubGraph],
    choose: Callable[[Parts], Ints],
) -> tuple[InstanceGraph, int]:
    """A graph of some parts of sub-graphs, and how many whole layers come first in it.

    Args:
        book: what is known of parts of the model.
        subgraphs: each in terms of the problem's layers; they may overlap.
        choose: which parts of a sub-graph, as indices.
    """
    problem = book.problem
    own = [parts_of(book, subgraph) for subgraph in subgraphs]
    layers = sorted({m for p in own for t in p.inputs if (m := problem.producer[t]) >= 0})
    whole = [SubGraph(0, (layer,), Split(-1, 1, 0, 0, 0)) for layer in layers]
    parts = (*(parts_of(book, s) for s in whole), *own)
    chosen = [choose(p) for p in parts]
    owner = np.repeat(np.arange(len(parts)), [len(c) for c in chosen])
    part = np.concatenate(chosen)
    makers = {layer: at for at, layer in enumerate(layers)}
    none = np.zeros(len(owner) + 1, np.int64)
    graph = InstanceGraph(
        book, (*whole, *subgraphs), parts, np.searchsorted(owner, np.arange(len(parts) + 1)),
        owner, np.concatenate([p.shapes[c] for p, c in zip(parts, chosen, strict=True)]),
        _rows(parts, "out_base", "outputs", owner, part),
        _rows(parts, "in_base", "inputs", owner, part),
        np.zeros(len(owner), np.int64), _links(book, parts, owner, part, makers),
        none, none[:0], none, none[:0],
    )  # fmt: skip
    return graph, len(layers)


def _rows(parts: Sequence[Parts], base: str, what: str, owner: Ints, part: Ints) -> Ints:
    """First row of each instance in the book of regions."""
    start = np.asarray([getattr(p, base) for p in parts], np.int64)
    step = np.asarray([len(getattr(p, what)) for p in parts], np.int64)
    found: Ints = start[owner] + part * step[owner]
    return found


def _links(
    book: PartBook, parts: Sequence[Parts], owner: Ints, part: Ints, makers: dict[int, int]
) -> Links:
    """What every instance reads of whole layers, which are the first instances."""
    problem = book.problem
    rows: list[tuple[int, int, int, int, int, int]] = []
    for reader in range(len(makers), len(owner)):
        own = parts[owner[reader]]
        first = own.in_base + int(part[reader]) * len(own.inputs)
        for slot, tensor in enumerate(own.inputs):
            if (layer := problem.producer[tensor]) >= 0:
                output = problem.layers[layer].outputs.index(tensor)
                rows.append((reader, slot, makers[layer], output, first + slot, tensor))
    table = np.asarray(rows, np.int64).reshape(-1, 6)
    regions = book.regions.rows[table[:, 4]]
    size = (regions[..., 1] - regions[..., 0]).prod(axis=1) * problem.arrays.element[table[:, 5]]
    there = size > 0
    readers, slots, made_by, outputs = (np.ascontiguousarray(c) for c in table[there, :4].T)
    start = np.searchsorted(readers, np.arange(len(owner) + 1))
    return Links(start, slots, made_by, outputs, size[there])
