"""Regions that instances make and need, worked out anew from the access maps of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import Region, hull, volume
from autoturbo.schedule.instances import part_book
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule

Regions = dict[int, Region]
"""Regions by tensor; a tensor without one is not touched."""


def needed_regions(
    problem: Problem, layers: Sequence[int], outputs: Mapping[int, Region]
) -> Regions:
    """Regions of all tensors that some outputs of a sub-graph need, the outputs included.

    Args:
        problem: where the layers come from.
        layers: the sub-graph's, in topological order.
        outputs: regions of tensors that its last layer makes.
    """
    regions = {t: r for t, r in outputs.items() if volume(r)}
    for index in reversed([op for x in layers for op in problem.layers[x].operators]):
        operator = problem.graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        if not wanted:
            continue
        box = operator.axis_region(wanted)
        for position, tensor in enumerate(operator.inputs):
            shape = problem.graph.tensors[tensor].shape
            region = operator.input_region(position, box, shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    return regions


def made_regions(schedule: Schedule, index: int) -> Regions:
    """What an instance makes, as its schedule says: empty regions included."""
    graph = schedule.instances
    outputs = graph.parts[int(graph.subgraph[index])].outputs
    return _rows(schedule, outputs, int(graph.out_region[index]))


def read_regions(schedule: Schedule, index: int) -> Regions:
    """What an instance reads from outside, as its schedule says: empty regions included."""
    graph = schedule.instances
    inputs = graph.parts[int(graph.subgraph[index])].inputs
    return _rows(schedule, inputs, int(graph.in_region[index]))


def _rows(schedule: Schedule, tensors: Sequence[int], first: int) -> Regions:
    problem = schedule.problem
    rows: Ints = part_book(problem).regions.rows[first : first + len(tensors)]
    shapes = [problem.graph.tensors[t].shape for t in tensors]
    return {
        tensor: tuple((low, high) for low, high in row[: len(shape)])
        for tensor, shape, row in zip(tensors, shapes, rows.tolist(), strict=True)
    }


_KNOWN: WeakKeyDictionary[Schedule, tuple[Regions, ...]] = WeakKeyDictionary()


def needs_of(schedule: Schedule) -> tuple[Regions, ...]:
    """Per instance, the regions of all tensors that its outputs need, remembered."""
    found = _KNOWN.get(schedule)
    if found is None:
        graph = schedule.instances
        found = tuple(
            needed_regions(
                schedule.problem, graph.subgraphs[int(graph.subgraph[index])].layers,
                made_regions(schedule, index),
            )
            for index in range(graph.count)
        )  # fmt: skip
        _KNOWN[schedule] = found
    return found
