"""Regions that instances make and need, worked out anew from the access maps of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import Interval, Region, hull, volume
from autoturbo.schedule.instances import part_book
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule

Regions = dict[int, Region]
"""Regions by tensor; a tensor without one is not touched."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one part computes.

    Attributes:
        regions: per tensor that it touches, the part of it: made, if a layer of the sub-graph makes
            it, else needed.
        boxes: per operator that it runs, the steps of its loops.
    """

    regions: Regions
    boxes: dict[int, tuple[Interval, ...]]


def part_needs(problem: Problem, layers: Sequence[int], outputs: Mapping[int, Region]) -> Needs:
    """What some outputs of a sub-graph need, going back from its last operator.

    Args:
        problem: where the layers come from.
        layers: the sub-graph's, in topological order.
        outputs: regions of tensors that its last layer makes.
    """
    regions = {t: r for t, r in outputs.items() if volume(r)}
    boxes: dict[int, tuple[Interval, ...]] = {}
    for index in reversed([op for x in layers for op in problem.layers[x].operators]):
        operator = problem.graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        if not wanted:
            continue
        boxes[index] = operator.axis_region(wanted)
        for position, tensor in enumerate(operator.inputs):
            shape = problem.graph.tensors[tensor].shape
            region = operator.input_region(position, boxes[index], shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    return Needs(regions, boxes)


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
            part_needs(
                schedule.problem, graph.subgraphs[int(graph.subgraph[index])].layers,
                made_regions(schedule, index),
            ).regions
            for index in range(graph.count)
        )  # fmt: skip
        _KNOWN[schedule] = found
    return found
