"""Concatenations, copies and redistributions before a kernel: GraphTurbo, OSDI '23, section 3.5.

An input that several instances make is concatenated from their pieces; a piece whose scope differs
from the local buffer is copied there, one whose binding differs is redistributed over the
interconnect between cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Placement, binding_book
from autoturbo.schedule.instances import InstanceGraph, part_book
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Template
from autoturbo.schedule.templates import Slot, TemplateTables, template_book, templates_of


class MovementKind(StrEnum):
    """What has to be done to a piece before a kernel can read it in place."""

    COPY = "copy"
    REDISTRIBUTE = "redistribute"


STAY, COPIED, REDISTRIBUTED = range(3)
"""Codes of movements for compiled code."""

_KINDS = (None, MovementKind.COPY, MovementKind.REDISTRIBUTE)


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


@dataclass(frozen=True, slots=True, eq=False)
class Movements:
    """What is done to every link of an instance graph.

    Attributes:
        kind: per link, :data:`STAY`, :data:`COPIED` or :data:`REDISTRIBUTED`.
        crossing: per link, bytes that the busiest core gets from other cores.
        core_bytes: per link, on the first of each input of a reader: bytes of all its moved pieces
            on the busiest core.
    """

    kind: Ints
    crossing: Ints
    core_bytes: Ints


def core_names(placement: Placement, cores: int) -> Ints:
    """Per instance and core of its program, the core of the cluster; no rows if none is named."""
    count = len(placement.bindings) if placement.core_ids else 0
    names = [placement.cores_of(instance, cores) for instance in range(count)]
    return np.asarray(names, np.int64).reshape(count, cores)


def move(
    graph: InstanceGraph,
    order: Ints,
    bindings: Ints,
    scopes: Ints,
    templates: Ints,
    tables: TemplateTables,
    names: Ints,
) -> Movements:
    """Decide the movement of every piece that an order's kernels read from each other.

    Args:
        graph: instances and what they read from each other.
        order: the instances that one cluster runs; what others make is read where it lies.
        bindings: per instance, the number of its output's binding.
        scopes: per instance, where its output is declared.
        templates: per instance, the number of its template.
        tables: the templates.
        names: what :func:`core_names` gives.
    """
    links = graph.links
    found = _move(
        order, links.start, links.slot, links.maker, links.output, links.size,
        graph.in_region, graph.out_region, part_book(graph.problem).regions.rows,
        bindings, scopes, templates, tables, names, np.argsort(names, axis=1),
    )  # fmt: skip
    return Movements(*found)


@njit(cache=True)
def _move(
    order: Ints,
    start: Ints,
    slot: Ints,
    maker: Ints,
    output: Ints,
    size: Ints,
    in_region: Ints,
    out_region: Ints,
    regions: Ints,
    bindings: Ints,
    scopes: Ints,
    templates: Ints,
    tables: TemplateTables,
    names: Ints,
    programs: Ints,
) -> tuple[Ints, Ints, Ints]:
    kind, crossing = np.zeros(len(slot), np.int64), np.zeros(len(slot), np.int64)
    core_bytes = np.zeros(len(slot), np.int64)
    rows, here = out_region[maker] + output, np.zeros(len(start) - 1, np.int64)
    here[order] = 1
    for reader in order:
        head = tables.heads[templates[reader], 2]
        first = start[reader]
        while first < start[reader + 1]:
            end = first + 1
            while end < start[reader + 1] and slot[end] == slot[first]:
                end += 1
            entry, need = tables.slots[head + slot[first]], in_region[reader] + slot[first]
            core_bytes[first] = _move_input(
                first, end, rows, need, regions, maker, here, bindings, scopes, size, entry,
                tables.factors, tables.ranks, names[reader : reader + 1], programs, kind, crossing,
            )  # fmt: skip
            first = end
    return kind, crossing, core_bytes


@borrowing
def _move_input(
    first: int,
    end: int,
    rows: Ints,
    need: int,
    regions: Ints,
    maker: Ints,
    here: Ints,
    bindings: Ints,
    scopes: Ints,
    size: Ints,
    entry: Ints,
    factors: Ints,
    ranks: Ints,
    names: Ints,
    programs: Ints,
    kind: Ints,
    crossing: Ints,
) -> int:
    """Decide the movements of one input's pieces; bytes of the moved ones on the busiest core.

    Equal factors are no sign that a piece stays: four samples over four cores and the first two of
    them over four lie differently.
    """
    wanted, moved = entry[Slot.WANTED], 0
    fits = wanted >= 0 and ranks[wanted] == entry[Slot.RANK]
    for link in range(first, end):
        held = bindings[maker[link]]
        if not here[maker[link]]:
            continue
        if scopes[maker[link]] != 0:
            kind[link] = COPIED
        elif fits and ranks[held] == entry[Slot.RANK]:
            elements = most_crossing(
                regions[rows[link]], regions[need], factors[held], factors[wanted],
                names, programs[maker[link] : maker[link] + 1],
            )  # fmt: skip
            crossing[link] = elements * entry[Slot.ELEMENT]
            kind[link] = REDISTRIBUTED if elements else STAY
        moved += size[link] if kind[link] != STAY else 0
    if not moved or not fits:
        return moved
    worst = 0
    for core in range(_cores(factors[wanted])):
        total = 0
        for link in range(first, end):
            if kind[link] != STAY:
                total += core_share(regions[need], factors[wanted], regions[rows[link]], core)
        worst = max(worst, total)
    return worst * int(entry[Slot.ELEMENT])


@borrowing
def _cores(factors: Ints) -> int:
    cores = 1
    for factor in factors:
        cores *= factor
    return cores


@borrowing
def core_share(need: Ints, wanted: Ints, piece: Ints, core: int) -> int:
    """Elements of a piece that a core wants; cores count row-major over the factors."""
    left, total = core, 1
    for back in range(len(wanted)):
        dim = len(wanted) - 1 - back
        place, left = left % wanted[dim], left // wanted[dim]
        size = -(-(need[dim, 1] - need[dim, 0]) // wanted[dim])
        low = min(need[dim, 0] + place * size, need[dim, 1])
        high = min(low + size, need[dim, 1])
        total *= max(min(high, piece[dim, 1]) - max(low, piece[dim, 0]), 0)
    return total


@borrowing
def _core_kept(need: Ints, wanted: Ints, made: Ints, held: Ints, core: int, same: int) -> int:
    """Elements that a core wants of what it holds already; ``same`` is the producer's number of it.

    Cores count row-major over the factors.
    """
    left, right, total = core, same, 1
    for back in range(len(wanted)):
        dim = len(wanted) - 1 - back
        place, left = left % wanted[dim], left // wanted[dim]
        spot, right = right % held[dim], right // held[dim]
        size = -(-(need[dim, 1] - need[dim, 0]) // wanted[dim])
        part = -(-(made[dim, 1] - made[dim, 0]) // held[dim])
        low = min(need[dim, 0] + place * size, need[dim, 1])
        begin = min(made[dim, 0] + spot * part, made[dim, 1])
        high, end = min(low + size, need[dim, 1]), min(begin + part, made[dim, 1])
        total *= max(min(high, end) - max(low, begin), 0)
    return total if right == 0 else 0


@borrowing
def most_crossing(
    made: Ints, need: Ints, held: Ints, wanted: Ints, names: Ints, programs: Ints
) -> int:
    """Most elements of the common region that any core wants and does not hold.

    ``names`` has a row with the core of the cluster for each core of the consumer's program, and
    ``programs`` one with the producer's program for each core of the cluster; or neither has rows.
    """
    worst = 0
    for core in range(_cores(wanted)):
        same = programs[0, names[0, core]] if len(names) else core
        kept = _core_kept(need, wanted, made, held, core, same)
        worst = max(worst, core_share(need, wanted, made, core) - kept)
    return worst


def concats_of(graph: InstanceGraph, movements: Movements, index: int) -> tuple[Concat, ...]:
    """The inputs of an instance's kernel that other instances make, as objects."""
    links, inputs = graph.links, graph.parts[int(graph.subgraph[index])].inputs
    own = range(int(links.start[index]), int(links.start[index + 1]))
    slots = dict.fromkeys(int(links.slot[link]) for link in own)
    found = []
    for slot in slots:
        mine = [link for link in own if links.slot[link] == slot]
        pieces = tuple(_piece(graph, movements, link, inputs[slot]) for link in mine)
        found.append(Concat(inputs[slot], pieces, int(movements.core_bytes[mine[0]])))
    return tuple(found)


def _piece(graph: InstanceGraph, movements: Movements, link: int, tensor: int) -> Piece:
    links = graph.links
    return Piece(
        int(links.maker[link]), tensor, int(links.size[link]),
        _KINDS[int(movements.kind[link])], int(movements.crossing[link]),
    )  # fmt: skip


def concatenations(
    problem: Problem, graph: InstanceGraph, placement: Placement, index: int, template: Template
) -> tuple[Concat, ...]:
    """The inputs of one instance's kernel, whatever kernel that is."""
    book = binding_book(problem)
    bindings = np.asarray([book.number(b) for b in placement.bindings], np.int64)
    templates = templates_of(problem, graph.shape, bindings)
    scopes = np.asarray(placement.scopes, np.int64)
    if template_book(problem).templates[int(templates[index])].binding != template.binding:
        msg = f"instance {index} is bound {placement.bindings[index]}, not {template.binding}"
        raise ValueError(msg)
    names = core_names(placement, problem.target.cores)
    every, tables = np.arange(graph.count), template_book(problem).tables()
    movements = move(graph, every, bindings, scopes, templates, tables, names)
    return concats_of(graph, movements, index)
