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
from autoturbo.schedule.bind import Binding, Placement, Scope
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
        movement: what must be done first, None if it is read where it lies.
        crossing_bytes: bytes that the busiest core gets from other cores.
    """

    producer: int
    tensor: int
    cluster_bytes: int
    movement: MovementKind | None
    crossing_bytes: int


@dataclass(frozen=True, slots=True)
class Concat:
    """An input of a kernel, put together from pieces.

    Attributes:
        tensor: which tensor.
        pieces: in order of their producers.
        core_bytes: bytes of all moved pieces on the busiest core, once the input is bound as
            wanted: pieces that go to different cores share one address.
    """

    tensor: int
    pieces: tuple[Piece, ...]
    core_bytes: int

    @property
    def moved(self) -> tuple[Piece, ...]:
        """Pieces that a movement brings in before the kernel."""
        return tuple(piece for piece in self.pieces if piece.movement is not None)


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
            need = instance.inputs[tensor]
            made = (_piece(problem, graph, placement, p, tensor, need, wanted) for p in makers)
            pieces = tuple(piece for piece in made if piece.cluster_bytes)
            found.append(Concat(tensor, pieces, _moved_share(problem, graph, pieces, need, wanted)))
    return tuple(found)


def _moved_share(
    problem: Problem, graph: InstanceGraph, pieces: Sequence[Piece], need: Ints, wanted: Binding
) -> int:
    moved = [piece for piece in pieces if piece.movement is not None]
    if not moved or len(wanted) != len(need):
        return sum(piece.cluster_bytes for piece in moved)
    made = np.stack([graph.instances[p.producer].outputs[p.tensor] for p in moved])
    most = _most_shared(need, np.asarray(wanted, np.int64), made)
    return int(most) * int(problem.arrays.element[moved[0].tensor])


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
    element = int(problem.arrays.element[tensor])
    size = int(np.maximum(high - low, 0).prod()) * element
    held = placement.bindings[producer]
    fits = len(wanted) == len(made) == len(held)
    if placement.scopes[producer] is Scope.LB and (not fits or wanted == held or not size):
        return Piece(producer, tensor, size, None, 0)
    if placement.scopes[producer] is not Scope.LB:
        return Piece(producer, tensor, size, MovementKind.COPY, 0)
    factors = np.asarray((held, wanted), np.int64)
    crossing = int(_most_crossing(made, need, factors[0], factors[1])) * element
    return Piece(producer, tensor, size, MovementKind.REDISTRIBUTE if crossing else None, crossing)


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
def _cores(factors: Ints) -> int:
    cores = 1
    for factor in factors:
        cores *= factor
    return cores


@njit(cache=True)
def _common(first: Ints, second: Ints, third: Ints) -> int:
    """Elements in all three boxes."""
    total = 1
    for dim in range(len(first)):
        low = max(first[dim, 0], second[dim, 0], third[dim, 0])
        total *= max(min(first[dim, 1], second[dim, 1], third[dim, 1]) - low, 0)
    return total


@njit(cache=True)
def _most_crossing(made: Ints, need: Ints, held: Ints, wanted: Ints) -> int:
    """Most elements of the common region that any core wants and does not hold."""
    mine, theirs = np.empty_like(made), np.empty_like(made)
    worst = 0
    for core in range(_cores(wanted)):
        _box(need, wanted, core, mine)
        has = _box(made, held, core, theirs)
        kept = _common(mine, made, theirs) if has else 0
        worst = max(worst, _common(mine, made, made) - kept)
    return worst


@njit(cache=True)
def _most_shared(need: Ints, wanted: Ints, made: Ints) -> int:
    """Most elements of several pieces together that any core wants."""
    mine = np.empty_like(need)
    worst = 0
    for core in range(_cores(wanted)):
        _box(need, wanted, core, mine)
        total = 0
        for piece in range(len(made)):
            total += _common(mine, made[piece], made[piece])
        worst = max(worst, total)
    return worst
