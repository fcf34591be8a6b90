"""What a part of a sub-graph needs, from the access maps alone: plain Python, nothing compiled.

The scheduler derives the same regions with compiled code; a check that asked it again would believe
its mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoturbo.graph.arrays import Ints
from autoturbo.graph.domain import Interval, Region, hull, volume
from autoturbo.schedule.problem import Problem


@dataclass(frozen=True, slots=True)
class Needs:
    """What one part computes.

    Attributes:
        regions: per tensor that it touches, the part of it: made, if a layer of the sub-graph makes
            it, else needed.
        boxes: per operator that it runs, the steps of its loops.
    """

    regions: Mapping[int, Region]
    boxes: Mapping[int, tuple[Interval, ...]]


def part_needs(problem: Problem, layers: Sequence[int], outputs: Mapping[int, Region]) -> Needs:
    """What some regions of a sub-graph's outputs need, going back from its last operator."""
    graph = problem.graph
    regions = {t: region for t, region in outputs.items() if volume(region)}
    boxes: dict[int, tuple[Interval, ...]] = {}
    for index in reversed([op for layer in layers for op in problem.layers[layer].operators]):
        operator = graph.operators[index]
        wanted = {p: regions[t] for p, t in enumerate(operator.outputs) if t in regions}
        if not wanted:
            continue
        boxes[index] = operator.axis_region(wanted)
        for position, tensor in enumerate(operator.inputs):
            region = operator.input_region(position, boxes[index], graph.tensors[tensor].shape)
            if volume(region):
                regions[tensor] = hull(regions.get(tensor, region), region)
    return Needs(regions, boxes)


def region_of(rows: Ints) -> Region:
    """A region from an array ``(rank, 2)``."""
    return tuple((int(low), int(high)) for low, high in rows)


def meet(first: Region, second: Region) -> Region:
    """What two regions have in common; empty if any of its intervals is."""
    return tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(first, second, strict=True))
