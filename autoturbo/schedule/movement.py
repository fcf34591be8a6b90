"""Concatenations and the movements before them: GraphTurbo, OSDI '23, section 3.5, Fig. 8, 9.

Before every consumer of several producers stands a ``concat``. It costs nothing where all pieces
are in LB with the binding that the consumer wants; a piece in GB needs a ``copy`` and one bound
differently a ``redistribute`` (core-to-core traffic). A tensor from one producer needs them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Binding, Placement, Scope, cores_used
from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Template


class MovementKind(StrEnum):
    """What has to be done to a piece before a kernel can read it in place."""

    COPY = "copy"
    REDISTRIBUTE = "redistribute"


@dataclass(frozen=True, slots=True)
class Piece:
    """What one producer contributes to an input of a consumer.

    Attributes:
        producer: instance that made it.
        tensor: which tensor.
        cluster_bytes: bytes of the region that the consumer reads.
        core_bytes: bytes on the busiest core once it is bound as wanted.
        movement: what must be done first, None if it is read where it lies.
        crossing_bytes: bytes that the busiest core gets from other cores.
    """

    producer: int
    tensor: int
    cluster_bytes: int
    core_bytes: int
    movement: MovementKind | None
    crossing_bytes: int


@dataclass(frozen=True, slots=True)
class Concat:
    """An input of a kernel, put together from pieces.

    Attributes:
        tensor: which tensor.
        pieces: in order of their producers.
    """

    tensor: int
    pieces: tuple[Piece, ...]


def concatenations(
    problem: Problem,
    graph: InstanceGraph,
    placement: Placement,
    index: int,
    template: Template,
) -> tuple[Concat, ...]:
    """The inputs of an instance's kernel that other instances make."""
    instance = graph.instances[index]
    found = []
    for tensor in template.inputs:
        makers = [p for p in graph.producers[index] if tensor in graph.instances[p].outputs]
        if makers:
            wanted = template.wanted.get(tensor, ())
            pieces = tuple(
                _piece(problem, graph, placement, p, tensor, instance.inputs[tensor], wanted)
                for p in makers
            )
            found.append(Concat(tensor, tuple(p for p in pieces if p.cluster_bytes)))
    return tuple(found)


def _piece(
    problem: Problem,
    graph: InstanceGraph,
    placement: Placement,
    producer: int,
    tensor: int,
    need: Ints,
    wanted: Binding,
) -> Piece:
    made = graph.instances[producer].outputs[tensor]
    low, high = np.maximum(made[:, 0], need[:, 0]), np.minimum(made[:, 1], need[:, 1])
    extents = np.maximum(high - low, 0)
    element = int(problem.arrays.element[tensor])
    size = int(extents.prod()) * element
    held = placement.bindings[producer]
    target = wanted if len(wanted) == len(extents) else held
    per_core = size
    if len(target) == len(extents):
        per_core = int((-(-extents // np.asarray(target, np.int64))).prod()) * element
    if placement.scopes[producer] is not Scope.LB:
        return Piece(producer, tensor, size, per_core, MovementKind.COPY, 0)
    if target == held or not size or cores_used(held) == 1 == cores_used(target):
        return Piece(producer, tensor, size, per_core, None, 0)
    crossing = _crossing(made, need, held, target) * element
    kind = MovementKind.REDISTRIBUTE if crossing else None
    return Piece(producer, tensor, size, per_core, kind, crossing)


def _crossing(made: Ints, need: Ints, held: Binding, wanted: Binding) -> int:
    if len(held) != len(made):
        return 0
    factors = np.asarray((held, wanted), np.int64)
    return int(_most_crossing(made, need, factors[0], factors[1]))


@njit(cache=True)
def _box(region: Ints, factors: Ints, core: int, out: Ints) -> bool:
    """A core's part of a region; cores count row-major over the factors."""
    left = core
    for back in range(len(factors)):
        dim = len(factors) - 1 - back
        place, left = left % factors[dim], left // factors[dim]
        size = -(-(region[dim, 1] - region[dim, 0]) // factors[dim])
        out[dim, 0] = min(region[dim, 0] + place * size, region[dim, 1])
        out[dim, 1] = min(out[dim, 0] + size, region[dim, 1])
    return left == 0


@njit(cache=True)
def _most_crossing(made: Ints, need: Ints, held: Ints, wanted: Ints) -> int:
    """Most elements of the common region that any core wants and does not hold."""
    cores = 1
    for factor in wanted:
        cores *= factor
    mine, theirs = np.empty_like(made), np.empty_like(made)
    worst = 0
    for core in range(cores):
        _box(need, wanted, core, mine)
        has = _box(made, held, core, theirs)
        total, common = 1, 1
        for dim in range(len(made)):
            low, high = max(mine[dim, 0], made[dim, 0]), min(mine[dim, 1], made[dim, 1])
            total *= max(high - low, 0)
            shared = min(high, theirs[dim, 1]) - max(low, theirs[dim, 0])
            common *= max(shared, 0) if has else 0
        worst = max(worst, total - common)
    return worst


def moved_pieces(concats: Sequence[Concat]) -> list[Piece]:
    """Pieces that a movement brings in before the kernel."""
    return [p for concat in concats for p in concat.pieces if p.movement is not None]
