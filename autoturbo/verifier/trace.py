"""Trace of a schedule in time: its instructions and the memory that each accesses.

A cluster's trace is a list of phases: the copies before a kernel, where there are any, and the
kernel. A barrier ends each, and a kernel waits for those on other clusters that make what it reads.
Within a phase, engines issue and finish their instructions in order, and instructions wait for
those that their program names. Nothing else orders anything.

Streams and weights pass through ring buffers of a few slots each. What is brought in is a piece; a
slot holds a unit of one or more pieces, and is filled anew when as many units have come after it
as the ring has slots. Which tile uses what is worked out from the table of tiles, not from the
program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import Column
from autoturbo.schedule.codegen.tiling import (
    IN_LB,
    MAX_TILES,
    Amount,
    InstructionRules,
    Role,
    Tiling,
)
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import Floats

Bools = NDArray[np.bool_]


class RingBuffer(IntEnum):
    """Ring buffers of slots, in LB of every core and in GB."""

    WEIGHTS_IN_LB = 0
    WEIGHTS_IN_GB = 1
    INPUTS_IN_LB = 2
    INPUTS_IN_GB = 3
    KEPT_INPUTS_IN_GB = 4
    LATE_INPUTS_IN_LB = 5
    LATE_INPUTS_IN_GB = 6
    RESULTS_IN_LB = 7
    RESULTS_IN_GB = 8
    SUMS_IN_LB = 9


class Event(IntEnum):
    """Columns of a table of events: instruction, ring, piece, unit, 1 for writing."""

    INSTRUCTION = 0
    RING = 1
    PIECE = 2
    UNIT = 3
    WRITES = 4


def ring_slots(rules: InstructionRules) -> Ints:
    """Return the number of slots of each ring buffer, by :class:`RingBuffer`.

    One is computed from while ``ahead`` are fetched, and one more is on its way from DDR to GB.
    Exchanged pieces are fetched one tile ahead; inputs that stay in GB are those of two layers; the
    matrix engine makes one tile's sums while the vector engine works on another's.
    """
    here = rules.ahead + 1
    return np.asarray([here, here + 1, here, here + 1, 2, 2, 2, here, here, 2], np.int64)


class Tiles(NamedTuple):
    """The tiles of a kernel in order; all entries but the last two count over the whole kernel.

    ``weight`` is the tile of weights that a tile reads; ``source`` the tile whose inputs it reads
    in LB, ``from_gb`` the one whose inputs in GB; ``held`` the first tile of those whose inputs
    share a slot; ``kept`` where inputs stay in GB.
    """

    first: Ints
    weight: Ints
    source: Ints
    from_gb: Ints
    held: Ints
    kept: Bools
    first_weight: Ints


def tiles_of(counts: Ints, stages: Floats) -> Tiles:
    """Return the shared properties of a kernel's tiles, from its table of tiles."""
    first, first_weight = [0], [0]
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(5)]
    for row, stage in zip(counts, stages, strict=True):
        layer_tiles = _layer_tiles(row)
        for column, values, base in zip(
            columns, layer_tiles, (first_weight[-1], *(first[-1],) * 3, 0), strict=True
        ):
            column.append(values + base)
        has = stage[Stage.WEIGHTS] > 0
        first_weight.append(first_weight[-1] + (int(layer_tiles[0].max()) + 1 if has else 0))
        first.append(first[-1] + len(layer_tiles[0]))
    weight, source, from_gb, held, kept = (np.concatenate(c) for c in columns)
    return Tiles(
        np.asarray(first), weight, source, from_gb, held, kept > 0,
        np.asarray(first_weight),
    )  # fmt: skip


def _layer_tiles(row: Ints) -> tuple[Ints, ...]:
    """Return, per tile of a layer: weight tile, source, source in GB, slot, kept."""
    products, columns, depths, rows, outside, keeps = row.tolist()
    weights = columns * depths
    tile = np.arange(products * weights * rows)
    # Products are outermost: nothing stays from one to the next.
    base, inner = tile // (weights * rows) * (weights * rows), tile % (weights * rows)
    weight, line = (inner % weights, inner // weights) if outside else (inner // rows, inner % rows)
    depth = weight % depths
    row = base + line * weights if outside else base  # first tile of what stays together
    begin = row + depth if outside else base + depth * rows + line
    source = begin if keeps == IN_LB else tile
    from_gb = begin if keeps else tile
    held = row if keeps == IN_LB and columns > 1 else source
    return (
        tile if outside else tile // rows, source, from_gb, held, np.full(len(tile), keeps == 1),
    )  # fmt: skip


def events_of(where: Ints, tiles: Tiles, rules: InstructionRules, resident: int) -> Ints:
    """Return all writes and reads of slots by a program: a row per :class:`Event`.

    Without a GB, fetches arrive in LB itself.

    Args:
        where: The program, a row per instruction.
        tiles: Tiles of the kernel.
        rules: Rules of the kernel's instructions.
        resident: Where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
    """
    role, layer = where[:, Column.ROLE], where[:, Column.LAYER]
    brings = np.isin(role, (Role.FETCH_WEIGHTS, Role.PASS_WEIGHTS))
    base = np.where(brings, tiles.first_weight[layer], tiles.first[layer])
    tile = base + where[:, Column.TILE]
    rows: list[Ints] = []

    def of(*roles: Role) -> Ints:
        return np.flatnonzero(np.isin(role, roles))

    def note(
        ring: RingBuffer, writers: Ints, readers: Ints,
        read: Ints | None = None, held: Ints | None = None,
    ) -> None:  # fmt: skip
        read = tile[readers] if read is None else read
        rows.extend(_ring_events(ring, writers, tile[writers], readers, read, held))

    computes, multiplied, applied = of(Role.MULTIPLY, Role.APPLY), of(Role.MULTIPLY), of(Role.APPLY)
    # weights
    fetched, passed = of(Role.FETCH_WEIGHTS), of(Role.PASS_WEIGHTS)
    reading = computes[np.diff(tiles.first_weight)[layer[computes]] > 0]
    reading = reading[:0] if resident == 2 else reading  # noqa: PLR2004 - in LB
    arriving = passed if rules.has_gb else fetched
    note(RingBuffer.WEIGHTS_IN_LB, arriving, reading, tiles.weight[tile[reading]])
    if rules.has_gb:
        note(RingBuffer.WEIGHTS_IN_GB, fetched, passed)
    # inputs that were there before the kernel
    fetched, passed = of(Role.FETCH_INPUT), of(Role.PASS_INPUT)
    source, arriving = tiles.source[tile[computes]], passed if rules.has_gb else fetched
    note(RingBuffer.INPUTS_IN_LB, arriving, computes, source, tiles.held)
    if rules.has_gb:
        by_layer = np.repeat(tiles.first[:-1], np.diff(tiles.first))
        for ring, stays in ((RingBuffer.INPUTS_IN_GB, False), (RingBuffer.KEPT_INPUTS_IN_GB, True)):
            put = fetched[tiles.kept[tile[fetched]] == stays]
            taken = passed[tiles.kept[tile[passed]] == stays]
            note(ring, put, taken, tiles.from_gb[tile[taken]], by_layer if stays else None)
    # what comes from other cores, and what the kernel spilled
    fetched, passed = of(Role.FETCH_LATE), of(Role.PASS_LATE)
    arriving = passed if rules.has_gb else of(Role.FETCH_LATE, Role.PASS_LATE)
    note(RingBuffer.LATE_INPUTS_IN_LB, arriving, computes, source, tiles.held)
    if rules.has_gb:
        note(RingBuffer.LATE_INPUTS_IN_GB, fetched, passed)
    # products that vector work follows; results on their way to GB and DDR, once complete
    note(RingBuffer.SUMS_IN_LB, multiplied[np.isin(tile[multiplied], tile[applied])], applied)
    stored, saved = of(Role.STORE), of(Role.SAVE)
    leaving = stored if rules.has_gb else saved
    note(RingBuffer.RESULTS_IN_LB, computes[np.isin(tile[computes], tile[leaving])], leaving)
    if rules.has_gb:
        note(RingBuffer.RESULTS_IN_GB, stored[np.isin(tile[stored], tile[saved])], saved)
    return np.concatenate(rows) if rows else np.zeros((0, len(Event)), np.int64)


def _ring_events(
    ring: RingBuffer, writers: Ints, written: Ints, readers: Ints, read: Ints, held: Ints | None
) -> Iterator[Ints]:
    """Yield the events of one ring buffer, with the unit of each piece.

    Units are numbered as they are filled; readers of pieces that are not moved in are left out.

    Args:
        ring: Number of the ring.
        writers: Instructions that write a piece.
        written: The piece of each.
        readers: Instructions that read a piece.
        read: The piece of each.
        held: Per piece, the first of those that share a slot with it; None where each has its own.
    """
    if not len(writers):
        return
    brought = np.isin(read, written)
    filled = written if held is None else held[written]
    known, first = np.unique(filled, return_index=True)
    # Ranks by first write: slots are taken in that order.
    turn = first.argsort().argsort()  # of each unit, as they are filled
    for instructions, pieces, writes in (
        (writers, written, 1), (readers[brought], read[brought], 0),
    ):  # fmt: skip
        units = turn[np.searchsorted(known, pieces if held is None else held[pieces])]
        columns = np.broadcast_arrays(instructions, int(ring), pieces, units, writes)
        yield np.column_stack(columns)


COMPUTE = 1 << Role.MULTIPLY | 1 << Role.APPLY
"""Set of the roles that compute."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The instructions of a kernel and the slots that they use.

    Attributes:
        where: Rows as :class:`autoturbo.schedule.codegen.instructions.Column` says.
        events: Accesses to slots, by :class:`Event`.
        slots: Per ring, its number of slots.
        weights: Bytes of all slots with the largest tile of weights, and the layer that has it;
            of tiles that could be smaller.
    """

    where: Ints
    events: Ints
    slots: Ints
    weights: tuple[int, int]


class Access(IntEnum):
    """Columns of a table of accesses to buffers.

    Which layer of the kernel, the set of roles (bits) whose instructions touch it, the memory (a
    :class:`Scope`), first byte and one past the last (the buffer's number in DDR, where nothing
    shares), 1 for writing, and the buffer.
    """

    LAYER = 0
    ROLES = 1
    SCOPE = 2
    LOW = 3
    HIGH = 4
    WRITES = 5
    BUFFER = 6


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Accesses of a cluster between two barriers.

    Attributes:
        instance: Whose kernel it is, or whose inputs are moved.
        program: The kernel's; None for copies.
        accesses: Rows with the columns of :class:`Access`.
        barrier: Nothing after it begins before it has ended.
    """

    instance: int
    program: Program | None
    accesses: Ints
    barrier: bool = True


class Wait(NamedTuple):
    """A kernel of one cluster waits for one of another: clusters and kernels by number."""

    cluster: int
    kernel: int
    maker: int
    made: int


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A schedule in time.

    Attributes:
        clusters: Per cluster, its phases in order.
        waits: Between clusters.
        handed: Reads of other clusters' tensors: the wait that each needs, tensor and instance.
    """

    clusters: tuple[tuple[Phase, ...], ...]
    waits: frozenset[Wait]
    handed: tuple[tuple[Wait, int, int], ...]


def program_of(schedule: Schedule, kernel: int, cluster: int = 0) -> Program:
    """Return the program of a kernel, by its place in a cluster's order, with its slots."""
    made = schedule.kernel(kernel, cluster)
    stages, rules, resident, counts = made.stages, made.rules, made.weights_resident, made.tiles
    slots = ring_slots(rules)
    instructions = schedule.program(kernel, cluster)
    events = events_of(instructions.where, tiles_of(counts, stages), rules, resident)
    role, layer = instructions.where[:, Column.ROLE], instructions.where[:, Column.LAYER]
    finest = [_finest(row, stage, rules) for row, stage in zip(counts, stages, strict=True)]
    passes = (role == Role.PASS_WEIGHTS).any()
    arrives = role == (Role.PASS_WEIGHTS if passes else Role.FETCH_WEIGHTS)
    divisible = np.flatnonzero(arrives & ~np.asarray(finest)[layer])
    largest, weights = instructions.amounts[divisible, Amount.CORE], (0, -1)
    if len(divisible):
        size = int(largest.max() * slots[RingBuffer.WEIGHTS_IN_LB])
        weights = size, int(layer[divisible[largest.argmax()]])
    return Program(instructions.where, events, slots, weights)


def _finest(tiles: Ints, stage: Floats, rules: InstructionRules) -> bool:
    """Return whether a layer's weights are split as finely as tiles can be.

    Every product, column and native depth is separate, or there are as many rows as possible.
    Weights of a recurrence are not split: they stay whole, or stream through at every step.
    """
    if stage[Stage.SEQUENCE] > 0:
        return True
    if stage[Stage.MACS] <= 0:
        return bool(tiles[Tiling.PRODUCTS] >= min(stage[Stage.STEPS], MAX_TILES))
    most = (
        max(int(stage[Stage.COUNT]), 1), max(int(stage[Stage.COLUMNS]), 1),
        max(stage[Stage.DEPTH] // rules.native_rows, 1),
    )  # fmt: skip
    return all(tiles[column] >= limit for column, limit in enumerate(most))


def kernel_positions(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return the cluster of each instance and the place of its kernel in that cluster's order."""
    return {
        int(index): (cluster, kernel)
        for cluster, timeline in enumerate(schedule.timelines)
        for kernel, index in enumerate(timeline.order)
    }


def sizes_of(timeline: Timeline, level: int) -> Ints:
    """Return the bytes that every buffer takes at a memory level."""
    buffers = timeline.buffers
    return buffers.core_bytes if level == Scope.LB else buffers.cluster_bytes
