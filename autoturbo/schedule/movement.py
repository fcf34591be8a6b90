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


def move(
    graph: InstanceGraph, bindings: Ints, scopes: Ints, templates: Ints, tables: TemplateTables
) -> Movements:
    """Decide the movement of every piece.

    Args:
        graph: instances and what they read from each other.
        bindings: per instance, the number of its output's binding.
        scopes: per instance, where its output is declared.
        templates: per instance, the number of its template.
        tables: the templates.
    """
    links = graph.links
    found = _move(
        links.start, links.slot, links.maker, links.output, links.size,
        graph.in_region, graph.out_region, part_book(graph.problem).regions.rows,
        bindings, scopes, templates, tables,
    )  # fmt: skip
    return Movements(*found)


@njit(cache=True)
def _move(
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
) -> tuple[Ints, Ints, Ints]:
    kind, crossing = np.zeros(len(slot), np.int64), np.zeros(len(slot), np.int64)
    core_bytes = np.zeros(len(slot), np.int64)
    for reader in range(len(start) - 1):
        first = start[reader]
        while first < start[reader + 1]:
            end = first
            while end < start[reader + 1] and slot[end] == slot[first]:
                end += 1
            entry = tables.slots[tables.heads[templates[reader], 2] + slot[first]]
            need = regions[in_region[reader] + slot[first]]
            for link in range(first, end):
                made = regions[out_region[maker[link]] + output[link]]
                kind[link], crossing[link] = _movement(
                    made, need, bindings[maker[link]], scopes[maker[link]], entry, tables
                )
            core_bytes[first] = _moved_share(
                first, end, kind, size, maker, output, out_region, regions, need, entry, tables
            )
            first = end
    return kind, crossing, core_bytes


@njit(cache=True)
def _movement(
    made: Ints, need: Ints, held: int, scope: int, entry: Ints, tables: TemplateTables
) -> tuple[int, int]:
    """What one piece needs, and the bytes that the busiest core gets from others."""
    wanted = entry[Slot.WANTED]
    if scope != 0:
        return COPIED, 0
    if wanted < 0 or wanted == held:
        return STAY, 0
    if tables.ranks[wanted] != entry[Slot.RANK] or tables.ranks[held] != entry[Slot.RANK]:
        return STAY, 0
    factors = tables.factors
    crossing = most_crossing(made, need, factors[held], factors[wanted]) * entry[Slot.ELEMENT]
    return REDISTRIBUTED if crossing else STAY, crossing


@njit(cache=True)
def _moved_share(
    first: int,
    end: int,
    kind: Ints,
    size: Ints,
    maker: Ints,
    output: Ints,
    out_region: Ints,
    regions: Ints,
    need: Ints,
    entry: Ints,
    tables: TemplateTables,
) -> int:
    """Bytes of an input's moved pieces on the busiest core."""
    total, rows, count = 0, np.empty(end - first, np.int64), 0
    for link in range(first, end):
        if kind[link] != STAY:
            rows[count] = out_region[maker[link]] + output[link]
            total += size[link]
            count += 1
    wanted = entry[Slot.WANTED]
    if count == 0 or wanted < 0 or tables.ranks[wanted] != entry[Slot.RANK]:
        return total
    shared: int = most_shared(need, tables.factors[wanted], regions, rows[:count])
    return shared * int(entry[Slot.ELEMENT])


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
def most_crossing(made: Ints, need: Ints, held: Ints, wanted: Ints) -> int:
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
def most_shared(need: Ints, wanted: Ints, regions: Ints, rows: Ints) -> int:
    """Most elements of several pieces together that any core wants."""
    mine = np.empty_like(need)
    worst = 0
    for core in range(_cores(wanted)):
        _box(need, wanted, core, mine)
        total = 0
        for row in rows:
            total += _common(mine, regions[row], regions[row])
        worst = max(worst, total)
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
    movements = move(graph, bindings, scopes, templates, template_book(problem).tables())
    return concats_of(graph, movements, index)
