"""What happens when, and where: a schedule's instructions and the memory that each touches.

A cluster's trace is a list of phases: the movements before a kernel, where there are any, and the
kernel. A barrier ends each, and a kernel waits for those on other clusters that make what it reads.
Within a phase, engines issue and finish their instructions in order, and instructions wait for
those that their program names. Nothing else orders anything.

Streams and weights pass through ring buffers of a few slots each. What is brought in is a piece; a
slot holds a unit of one or more pieces, and is filled anew when as many units have come after it
as the ring has slots. Which tile uses what is worked out from the table of tiles, not from the
program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import Column
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.stitch import Template
from autoturbo.schedule.codegen.tiling import (
    IN_LB,
    MAX_TILES,
    InstructionRules,
    Role,
    Tiling,
    tile_counts,
)
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.replay import Use, Used, replay_of

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
    """Return how many slots each ring buffer has, by :class:`RingBuffer`.

    One is computed from while ``ahead`` are fetched, and one more is on its way from DDR to GB.
    What tiles exchange is fetched one tile ahead; inputs that stay in GB are those of two layers;
    the matrix engine makes one tile's sums while the vector engine works on another's.
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
    """Return what the tiles of a kernel share, from its table of tiles."""
    first, first_weight = [0], [0]
    columns: list[list[NDArray[np.int64]]] = [[] for _ in range(5)]
    for row, stage in zip(counts, stages, strict=True):
        own = _layer_tiles(row)
        for column, values, base in zip(
            columns, own, (first_weight[-1], *(first[-1],) * 3, 0), strict=True
        ):
            column.append(values + base)
        has = stage[Stage.WEIGHTS] > 0
        first_weight.append(first_weight[-1] + (int(own[0].max()) + 1 if has else 0))
        first.append(first[-1] + len(own[0]))
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
    """Return all writes and reads of slots by a program: a row per :class:`Event`."""
    kernel = _TiledProgram(where, tiles, rules)
    found = [
        *_weight_events(kernel, resident),
        *_input_events(kernel),
        *_late_input_events(kernel),
        *_result_events(kernel),
    ]
    return np.concatenate(found) if found else np.zeros((0, len(Event)), np.int64)


class _TiledProgram:
    """A program by roles: instructions and the tiles, over the whole kernel, that they are for."""

    def __init__(self, where: Ints, tiles: Tiles, rules: InstructionRules) -> None:
        role, layer = where[:, Column.ROLE], where[:, Column.LAYER]
        self.tiles, self.rules = tiles, rules
        self.role, self.layer = role, layer
        brings = (role == Role.FETCH_WEIGHTS) | (role == Role.PASS_WEIGHTS)
        base = np.where(brings, tiles.first_weight[layer], tiles.first[layer])
        self.tile = base + where[:, Column.TILE]

    def of(self, *roles: Role) -> Ints:
        """Return the instructions with some roles."""
        return np.flatnonzero(np.isin(self.role, roles))

    @property
    def computes(self) -> Ints:
        """Instructions that compute."""
        return self.of(Role.MULTIPLY, Role.APPLY)


def _event_rows(
    ring: RingBuffer, instructions: Ints, pieces: Ints, units: Ints, *, writes: bool
) -> Ints:
    table = np.empty((len(instructions), len(Event)), np.int64)
    table[:, Event.INSTRUCTION], table[:, Event.RING] = instructions, ring
    table[:, Event.PIECE], table[:, Event.UNIT] = pieces, units
    table[:, Event.WRITES] = writes
    return table


def _ring_events(
    ring: RingBuffer,
    writers: Ints,
    written: Ints,
    readers: Ints,
    read: Ints,
    held: Ints | None = None,
) -> list[Ints]:
    """Return the events of one ring buffer, with the unit of each piece.

    Units are numbered as they come; readers of what is not brought in do not take part.
    """
    if not len(writers):
        return []
    kept = np.isin(read, written)
    readers, read = readers[kept], read[kept]
    unit_of = written if held is None else held[written]
    order = np.unique(unit_of)
    reads = np.searchsorted(order, read if held is None else held[read])
    return [
        _event_rows(ring, writers, written, np.searchsorted(order, unit_of), writes=True),
        _event_rows(ring, readers, read, reads, writes=False),
    ]


def _weight_events(kernel: _TiledProgram, resident: int) -> list[Ints]:
    """Return the events of weights: DDR to GB to LB, or straight to LB without a GB."""
    fetched, passed = kernel.of(Role.FETCH_WEIGHTS), kernel.of(Role.PASS_WEIGHTS)
    arriving = passed if kernel.rules.has_gb else fetched
    computes = kernel.computes
    has = np.diff(kernel.tiles.first_weight) > 0
    computes = computes[has[kernel.layer[computes]]] if resident != 2 else computes[:0]  # noqa: PLR2004
    weight = kernel.tiles.weight[kernel.tile[computes]]
    found = _ring_events(
        RingBuffer.WEIGHTS_IN_LB, arriving, kernel.tile[arriving], computes, weight
    )
    if kernel.rules.has_gb:
        tile = kernel.tile
        found += _ring_events(
            RingBuffer.WEIGHTS_IN_GB, fetched, tile[fetched], passed, tile[passed]
        )
    return found


def _input_events(kernel: _TiledProgram) -> list[Ints]:
    """Return the events of inputs that were there before the kernel."""
    fetched, passed = kernel.of(Role.FETCH_INPUT), kernel.of(Role.PASS_INPUT)
    found = _arriving_events(
        kernel, RingBuffer.INPUTS_IN_LB, passed if kernel.rules.has_gb else fetched
    )
    if not kernel.rules.has_gb:
        return found
    kept, tile, first = kernel.tiles.kept, kernel.tile, kernel.tiles.first
    for ring, stays in ((RingBuffer.INPUTS_IN_GB, False), (RingBuffer.KEPT_INPUTS_IN_GB, True)):
        put = fetched[kept[tile[fetched]] == stays]
        taken = passed[kept[tile[passed]] == stays]
        held = np.repeat(first[:-1], np.diff(first)) if stays else None
        source = kernel.tiles.from_gb[tile[taken]]
        found += _ring_events(ring, put, tile[put], taken, source, held)
    return found


def _arriving_events(kernel: _TiledProgram, ring: RingBuffer, arriving: Ints) -> list[Ints]:
    """Return the events of what arrives in LB for tiles."""
    computes, tiles = kernel.computes, kernel.tiles
    source = tiles.source[kernel.tile[computes]]
    return _ring_events(ring, arriving, kernel.tile[arriving], computes, source, tiles.held)


def _late_input_events(kernel: _TiledProgram) -> list[Ints]:
    """Return the events of what comes from other cores, and what the kernel spilled."""
    fetched, passed = kernel.of(Role.FETCH_LATE), kernel.of(Role.PASS_LATE)
    if not kernel.rules.has_gb:
        return _arriving_events(
            kernel, RingBuffer.LATE_INPUTS_IN_LB, np.sort(np.append(fetched, passed))
        )
    tile = kernel.tile
    found = _arriving_events(kernel, RingBuffer.LATE_INPUTS_IN_LB, passed)
    return found + _ring_events(
        RingBuffer.LATE_INPUTS_IN_GB, fetched, tile[fetched], passed, tile[passed]
    )


def _result_events(kernel: _TiledProgram) -> list[Ints]:
    """Return the events of results on their way to GB and DDR, once they are complete."""
    stored, saved, tile = kernel.of(Role.STORE), kernel.of(Role.SAVE), kernel.tile
    leaving = stored if kernel.rules.has_gb else saved
    computes = kernel.computes
    made = computes[np.isin(tile[computes], tile[leaving])]
    found = _sum_events(kernel) + _ring_events(
        RingBuffer.RESULTS_IN_LB, made, tile[made], leaving, tile[leaving]
    )
    if kernel.rules.has_gb:
        put = stored[np.isin(tile[stored], tile[saved])]
        found += _ring_events(RingBuffer.RESULTS_IN_GB, put, tile[put], saved, tile[saved])
    return found


def _sum_events(kernel: _TiledProgram) -> list[Ints]:
    """Return the events of products that vector work follows."""
    multiplied, applied, tile = kernel.of(Role.MULTIPLY), kernel.of(Role.APPLY), kernel.tile
    multiplied = multiplied[np.isin(tile[multiplied], tile[applied])]
    return _ring_events(RingBuffer.SUMS_IN_LB, multiplied, tile[multiplied], applied, tile[applied])


COMPUTE = 1 << Role.MULTIPLY | 1 << Role.APPLY
"""Set of the roles that compute."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The instructions of a kernel and the slots that they use.

    Attributes:
        where: as :class:`autoturbo.schedule.codegen.instructions.Column` says.
        amounts: as :class:`autoturbo.schedule.codegen.tiling.Amount` says.
        events: what is done to slots, as :class:`Event` says.
        slots: per ring, how many there are.
        finest: per layer, True if its weights cannot be cut into smaller tiles.
    """

    where: Ints
    amounts: Floats
    events: Ints
    slots: Ints
    finest: Sequence[bool]


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
    """What a cluster does between two barriers.

    Attributes:
        instance: whose kernel it is, or whose inputs are moved.
        program: the kernel's; None for movements.
        accesses: as :class:`Access` says.
        barrier: nothing after it begins before it has ended.
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
        clusters: per cluster, its phases in order.
        waits: between clusters.
        handed: what kernels read of other clusters: the wait that it needs, tensor and instance.
    """

    clusters: tuple[tuple[Phase, ...], ...]
    waits: frozenset[Wait]
    handed: tuple[tuple[Wait, int, int], ...]


def trace_of(schedule: Schedule) -> Trace:
    """Return the trace of a schedule."""
    replay = replay_of(schedule)
    programs: dict[bytes, Program] = {}
    at = kernel_positions(schedule)
    clusters = tuple(
        tuple(_phases(schedule, cluster, replay.used[cluster], programs))
        for cluster in range(len(schedule.timelines))
    )
    handed = tuple(
        (Wait(cluster, used.kernel, *at[used.instance]), used.tensor, used.instance)
        for cluster, own in enumerate(replay.used)
        for used in own
        if used.buffer < 0 <= used.instance and at.get(used.instance, (cluster, 0))[0] != cluster
    )
    return Trace(clusters, _waits(schedule, at), handed)


def kernel_positions(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return the cluster of each instance and the place of its kernel in that cluster's order."""
    return {
        int(index): (cluster, kernel)
        for cluster, timeline in enumerate(schedule.timelines)
        for kernel, index in enumerate(timeline.order)
    }


def _waits(schedule: Schedule, at: Mapping[int, tuple[int, int]]) -> frozenset[Wait]:
    """Return the waits of kernels for producers that other clusters run."""
    found = (
        Wait(*at[reader], *at[maker])
        for reader, makers in enumerate(schedule.instances.producers)
        for maker in makers
        if reader in at and maker in at
    )
    return frozenset(wait for wait in found if wait.cluster != wait.maker)


def _phases(
    schedule: Schedule, cluster: int, used: Sequence[Used], programs: dict[bytes, Program]
) -> list[Phase]:
    timeline = schedule.timelines[cluster]
    before: dict[int, list[Used]] = defaultdict(list)
    during: dict[int, list[Used]] = defaultdict(list)
    for one in used:
        movement = one.use in (Use.BRING_FROM, Use.BRING_TO)
        (before if movement else during)[one.kernel].append(one)
    places = _BufferAddresses.of(schedule, timeline)
    phases = []
    for kernel, signature in enumerate(schedule.signatures(cluster)):
        instance = int(timeline.order[kernel])
        if kernel in before:
            phases.append(Phase(instance, None, places.table(before[kernel])))
        if signature not in programs:
            programs[signature] = program_of(schedule, kernel, cluster)
        table = places.table(during[kernel])
        phases.append(Phase(instance, programs[signature], table))
    return phases


def program_of(schedule: Schedule, kernel: int, cluster: int = 0) -> Program:
    """Return the program of a kernel, by its place in a cluster's order, with its slots."""
    timeline = schedule.timelines[cluster]
    instance = int(timeline.order[kernel])
    template = timeline.templates[instance]
    _, streams, _, rules, resident, _ = schedule.kernel(kernel, cluster)
    counts = tile_counts(template.stages, streams, rules, resident)
    made = schedule.program(kernel, cluster)
    events = events_of(made.where, tiles_of(counts, template.stages), rules, resident)
    finest = [
        _finest(row, stage, rules) for row, stage in zip(counts, template.stages, strict=True)
    ]
    return Program(made.where, made.amounts, events, ring_slots(rules), finest)


def _finest(tiles: Ints, stage: Floats, rules: InstructionRules) -> bool:
    """Return whether a layer's weights are cut as finely as tiles can be.

    Every product, column and native depth by itself, or as many rows as there are at most. Weights
    of a recurrence are not cut: they stay as a whole, or stream through at every step.
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


def _crossing(schedule: Schedule, template: Template) -> frozenset[tuple[int, int]]:
    """Return the layers of a kernel, with tensors, of which cores get some from others."""
    layers = [schedule.problem.layers[layer] for layer in template.layers]
    return frozenset(
        (position, tensor)
        for position, (layer, crossing) in enumerate(zip(layers, template.exchanged, strict=True))
        for tensor, crosses in zip(layer.inputs, crossing, strict=True)
        if crosses
    )


@dataclass(frozen=True, slots=True, eq=False)
class _BufferAddresses:
    """Where the buffers of a cluster are: (scope, first byte, one past the last).

    ``exchanging`` has per kernel the layers, with the tensors, of which cores get some from others.
    """

    spans: Sequence[tuple[int, int, int]]
    has_gb: bool
    exchanging: Sequence[frozenset[tuple[int, int]]]

    @staticmethod
    def of(schedule: Schedule, timeline: Timeline) -> _BufferAddresses:
        buffers = timeline.buffers
        number = np.arange(len(buffers.scope))
        low = np.where(buffers.scope == Scope.DDR, number, buffers.address)
        size = np.where(buffers.scope == Scope.LB, sizes_of(timeline, Scope.LB),
                        sizes_of(timeline, Scope.GB))  # fmt: skip
        high = np.where(buffers.scope == Scope.DDR, number + 1, low + size)
        spans = list(zip(buffers.scope.tolist(), low.tolist(), high.tolist(), strict=True))
        exchanging = [_crossing(schedule, timeline.templates[i]) for i in timeline.order]
        return _BufferAddresses(spans, bool(schedule.rules.has_gb), exchanging)

    def table(self, used: Sequence[Used]) -> Ints:
        """Return the accesses of a phase, each once."""
        rows = dict.fromkeys(row for one in used if one.buffer >= 0 for row in self._rows(one))
        return np.asarray(list(rows), np.int64).reshape(-1, len(Access))

    def _rows(self, used: Used) -> list[tuple[int, ...]]:
        scope, low, high = self.spans[used.buffer]
        roles, writes = self._roles(used, scope), int(used.use in _WRITES)
        return [(used.layer, roles, scope, low, high, writes, used.buffer)] if roles else []

    def _roles(self, used: Used, scope: int) -> int:
        """Return the set of roles (bits) that carry out a use of a buffer."""
        passing = 1 << (Role.PASS_INPUT if self.has_gb else Role.FETCH_INPUT)
        if used.use is Use.BRING_TO:
            return passing | 1 << Role.PASS_INPUT
        roles = _ROLES[used.use][scope]
        if used.use in (Use.READ, Use.LATE) and scope == Scope.LB:
            exchanges = (used.layer, used.tensor) in self.exchanging[used.kernel]
            roles |= 1 << Role.PASS_LATE if exchanges else 0
        if used.use is Use.KEEP and not self.has_gb:
            return 1 << Role.FETCH_WEIGHTS
        return roles


_WRITES = (Use.BRING_TO, Use.WRITE, Use.KEEP)

_ROLES = {
    Use.BRING_FROM: (1 << Role.PASS_INPUT, 1 << Role.PASS_INPUT, 1 << Role.FETCH_INPUT),
    Use.READ: (COMPUTE, 1 << Role.PASS_INPUT, 1 << Role.FETCH_INPUT),
    Use.LATE: (COMPUTE, 1 << Role.PASS_LATE, 1 << Role.FETCH_LATE),
    Use.WRITE: (COMPUTE, 1 << Role.STORE, 1 << Role.SAVE),
    Use.COPY_OUT: (0, 0, 0),
    Use.HOLD: (COMPUTE, 1 << Role.PASS_WEIGHTS, 0),
    Use.KEEP: (1 << Role.PASS_WEIGHTS, 1 << Role.FETCH_WEIGHTS, 0),
}
"""Roles by use and scope. A copy of an output has a place of its own in DDR."""


def sizes_of(timeline: Timeline, level: int) -> Ints:
    """Return the bytes that every buffer takes at a memory level."""
    buffers = timeline.buffers
    return buffers.core_bytes if level == Scope.LB else buffers.cluster_bytes
