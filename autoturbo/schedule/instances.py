"""Sub-graphs become instances: GraphTurbo, OSDI '23, section 3.3.

Each sub-graph is split into ``f`` homogeneous parts. Edges between instances are inherited from
those between sub-graphs (complete bipartite), and an edge is dropped when the consumer does not
use the producer's output: their regions do not meet. (The printed sentence says the opposite, a
clear slip.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from autoturbo.graph.arrays import GraphArrays, Ints, propagate
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import operators_of, seed_outputs, sink


@dataclass(frozen=True, slots=True, eq=False)
class PartShape:
    """Regions of one part of a sub-graph; parts of equal extents share one.

    Attributes:
        low: over all dimensions of all tensors: first element needed, where ``seen``.
        high: one past the last.
        seen: per tensor, 1 if the part touches it.
        box_low: over all axes: first step of each operator's loops.
        box_high: one past the last.
    """

    low: Ints
    high: Ints
    seen: Ints
    box_low: Ints
    box_high: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """One part of a sub-graph.

    Attributes:
        index: position in the list of instances (not in the order of execution).
        subgraph: index of its sub-graph.
        part: which part.
        shape: index into :attr:`InstanceGraph.shapes`.
        outputs: per output tensor of the sub-graph, the region made: array (rank, 2).
        inputs: per external input tensor, the region needed.
    """

    index: int
    subgraph: int
    part: int
    shape: int
    outputs: dict[int, Ints]
    inputs: dict[int, Ints]


@dataclass(frozen=True, slots=True, eq=False)
class InstanceGraph:
    """Instances and what they wait for.

    Attributes:
        subgraphs: what was split.
        instances: all parts of all sub-graphs, sub-graph by sub-graph.
        shapes: distinct part shapes.
        producers: per instance, the instances whose output it reads, ascending.
        consumers: per instance, the instances that read its output, ascending.
    """

    subgraphs: tuple[SubGraph, ...]
    instances: tuple[Instance, ...]
    shapes: tuple[PartShape, ...]
    producers: tuple[tuple[int, ...], ...]
    consumers: tuple[tuple[int, ...], ...]


def external_inputs(problem: Problem, layers: Sequence[int]) -> tuple[int, ...]:
    """Tensors that a sub-graph reads and does not make, in order of first use."""
    made = {t for layer in layers for t in problem.layers[layer].outputs}
    read = (t for layer in layers for t in problem.layers[layer].inputs)
    return tuple(dict.fromkeys(t for t in read if t not in made))


def make_instances(problem: Problem, subgraphs: tuple[SubGraph, ...]) -> InstanceGraph:
    """Split every sub-graph and connect the parts."""
    shapes: list[PartShape] = []
    instances: list[Instance] = []
    by_subgraph: list[list[int]] = []
    for subgraph in subgraphs:
        first = len(instances)
        _add_parts(problem, subgraph, shapes, instances)
        by_subgraph.append(list(range(first, len(instances))))
    producers = _connect(problem, subgraphs, instances, by_subgraph)
    consumers: list[list[int]] = [[] for _ in instances]
    for reader, made_by in enumerate(producers):
        for instance in made_by:
            consumers[instance].append(reader)
    return InstanceGraph(
        subgraphs,
        tuple(instances),
        tuple(shapes),
        tuple(tuple(p) for p in producers),
        tuple(tuple(c) for c in consumers),
    )


def part_bounds(extent: int, factor: int) -> list[tuple[int, int]]:
    """Contiguous parts of near-equal length that cover ``range(extent)``; larger ones first."""
    size, rest = divmod(extent, factor)
    sizes = [size + (part < rest) for part in range(factor)]
    ends = np.cumsum(sizes).tolist()
    return [(end - length, end) for end, length in zip(ends, sizes, strict=True)]


def _add_parts(
    problem: Problem, subgraph: SubGraph, shapes: list[PartShape], instances: list[Instance]
) -> None:
    split, layers = subgraph.split, subgraph.layers
    outputs = problem.layers[layers[-1]].outputs
    inputs = external_inputs(problem, layers)
    bounds = [(0, 0)]
    if split.axis >= 0:
        bounds = part_bounds(sink(problem, layers).axes[split.axis].extent, split.instances)
    seen_before: dict[bytes, int] = {}
    for part, (start, stop) in enumerate(bounds):
        shape = part_regions(problem, layers, split.axis, start, stop)
        key = _extents_key(shape)
        if key not in seen_before:
            seen_before[key] = len(shapes)
            shapes.append(shape)
        instances.append(
            Instance(
                len(instances),
                subgraph.index,
                part,
                seen_before[key],
                {t: region_of(problem, shape, t) for t in outputs},
                {t: region_of(problem, shape, t) for t in inputs},
            )
        )


def part_regions(
    problem: Problem, layers: Sequence[int], axis: int, start: int, stop: int
) -> PartShape:
    """Regions of all tensors and loops of one part (whole if ``axis`` is negative)."""
    arrays = _part_regions(
        problem.arrays, problem.layer_arrays, np.asarray(layers, np.int64), axis, start, stop
    )
    return PartShape(*arrays)


@njit(cache=True)
def _part_regions(
    g: GraphArrays, a: LayerArrays, layers: Ints, axis: int, start: int, stop: int
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    ops = operators_of(a, layers)
    low, high = np.zeros(len(g.extent), np.int64), np.zeros(len(g.extent), np.int64)
    seen = np.zeros(len(g.element), np.int64)
    box_low, box_high = (
        np.zeros(len(g.axis_extent), np.int64),
        np.zeros(len(g.axis_extent), np.int64),
    )
    seed_outputs(g, ops[-1], axis, start, stop, low, high, seen)
    propagate(g, ops, low, high, seen, box_low, box_high)
    return low, high, seen, box_low, box_high


def _extents_key(shape: PartShape) -> bytes:
    return (shape.high - shape.low).tobytes() + (shape.box_high - shape.box_low).tobytes()


def region_of(problem: Problem, shape: PartShape, tensor: int) -> Ints:
    """The region of a tensor as an array (rank, 2); all zero where it is not touched."""
    first, end = problem.arrays.dim_start[tensor], problem.arrays.dim_start[tensor + 1]
    return np.stack((shape.low[first:end], shape.high[first:end]), axis=1)


def _connect(
    problem: Problem,
    subgraphs: tuple[SubGraph, ...],
    instances: list[Instance],
    by_subgraph: list[list[int]],
) -> list[list[int]]:
    maker = {t: s.index for s in subgraphs for t in problem.layers[s.layers[-1]].outputs}
    producers: list[set[int]] = [set() for _ in instances]
    for subgraph in subgraphs:
        own = by_subgraph[subgraph.index]
        for tensor in external_inputs(problem, subgraph.layers):
            if tensor in maker:
                for reader, made_by in _meetings(
                    instances, own, by_subgraph[maker[tensor]], tensor
                ):
                    producers[reader].add(made_by)
    return [sorted(p) for p in producers]


def _meetings(
    instances: list[Instance], readers: list[int], makers: list[int], tensor: int
) -> list[tuple[int, int]]:
    """Pairs (reader, maker) whose regions of a tensor meet."""
    need = np.stack([instances[i].inputs[tensor] for i in readers])
    made = np.stack([instances[i].outputs[tensor] for i in makers])
    low = np.maximum(need[:, None, :, 0], made[None, :, :, 0])
    high = np.minimum(need[:, None, :, 1], made[None, :, :, 1])
    pairs = np.argwhere((low < high).all(axis=2))
    return [(readers[r], makers[m]) for r, m in pairs.tolist()]
