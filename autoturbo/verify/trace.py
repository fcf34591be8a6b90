"""What happens when, and where: a schedule's instructions and the places that each touches.

A cluster's trace is a list of phases: the movements before a kernel, where there are any, and the
kernel. A barrier ends each, and a kernel waits for those on other clusters that make what it reads.
Within a phase, engines issue and finish their instructions in order, and instructions wait for
those that their program names. Nothing else orders anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.instructions import Role
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch import Stage, Template
from autoturbo.schedule.templates import template_book
from autoturbo.schedule.tiling import MAX_TILES, InstructionRules, Tiling, tile_counts
from autoturbo.schedule.timeline import Timeline
from autoturbo.schedule.work import Floats
from autoturbo.verify.buffers import sizes_of
from autoturbo.verify.replay import Use, Used, replay_of
from autoturbo.verify.rings import events_of, ring_slots, tiles_of

COMPUTE = 1 << Role.MULTIPLY | 1 << Role.APPLY
"""Set of the roles that compute."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The instructions of a kernel and the slots that they use.

    Attributes:
        where: as :class:`autoturbo.schedule.instructions.Column` says.
        amounts: as :class:`autoturbo.schedule.instructions.Amount` says.
        events: what is done to slots, as :class:`autoturbo.verify.rings.Event` says.
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
        kernel: its place in the order of the cluster.
        instance: whose kernel it is, or whose inputs are moved.
        program: the kernel's; None for movements.
        accesses: as :class:`Access` says.
        barrier: nothing after it begins before it has ended.
    """

    kernel: int
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
    """The trace of a schedule."""
    replay = replay_of(schedule)
    programs: dict[bytes, Program] = {}
    at = {
        int(index): (cluster, kernel)
        for cluster, timeline in enumerate(schedule.timelines)
        for kernel, index in enumerate(timeline.order)
    }
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


def _waits(schedule: Schedule, at: Mapping[int, tuple[int, int]]) -> frozenset[Wait]:
    """A kernel waits for the producers of its instance that other clusters run."""
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
    places = _Places.of(schedule, timeline)
    phases = []
    for kernel, signature in enumerate(schedule.signatures(cluster)):
        instance = int(timeline.order[kernel])
        if kernel in before:
            phases.append(Phase(kernel, instance, None, places.table(before[kernel])))
        if signature not in programs:
            programs[signature] = program_of(schedule, kernel, cluster)
        table = places.table(during[kernel])
        phases.append(Phase(kernel, instance, programs[signature], table))
    return phases


def program_of(schedule: Schedule, kernel: int, cluster: int = 0) -> Program:
    """The program of a kernel, by its place in the order of a cluster, with its slots."""
    timeline = schedule.timelines[cluster]
    instance = int(timeline.order[kernel])
    template = template_book(schedule.problem).templates[int(timeline.templates[instance])]
    rules = schedule.rules_of(int(schedule.instances.subgraph[instance]))
    streams = timeline.streams[timeline.rows[kernel] : timeline.rows[kernel + 1]]
    resident = int(timeline.resident[kernel])
    counts = tile_counts(template.stages, streams, rules.as_array(), resident)
    made = schedule.program(kernel, cluster)
    events = events_of(made.where, tiles_of(counts, template.stages), rules, resident)
    finest = [
        _finest(row, stage, rules) for row, stage in zip(counts, template.stages, strict=True)
    ]
    return Program(made.where, made.amounts, events, ring_slots(rules), finest)


def _finest(tiles: Ints, stage: Floats, rules: InstructionRules) -> bool:
    """Whether a layer's weights are cut as finely as tiles can be.

    Every product, column and native depth by itself, or as many rows as there are at most.
    """
    if stage[Stage.MACS] <= 0:
        return bool(tiles[Tiling.PRODUCTS] >= min(stage[Stage.STEPS], MAX_TILES))
    most = (
        max(int(stage[Stage.COUNT]), 1), max(int(stage[Stage.COLUMNS]), 1),
        max(stage[Stage.DEPTH] // rules.native_rows, 1),
    )  # fmt: skip
    return all(tiles[column] >= limit for column, limit in enumerate(most))


def _crossing(schedule: Schedule, template: Template) -> frozenset[tuple[int, int]]:
    """Layers of a kernel and tensors that they read of which cores get some from others."""
    layers = [schedule.problem.layers[layer] for layer in template.layers]
    return frozenset(
        (position, tensor)
        for position, (layer, crossing) in enumerate(zip(layers, template.exchanged, strict=True))
        for tensor, crosses in zip(layer.inputs, crossing, strict=True)
        if crosses
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """Where the buffers of a cluster are: (scope, first byte, one past the last).

    ``exchanging`` has per kernel the layers, with the tensors, of which cores get some from others.
    """

    spans: Sequence[tuple[int, int, int]]
    has_gb: bool
    exchanging: Sequence[frozenset[tuple[int, int]]]

    @staticmethod
    def of(schedule: Schedule, timeline: Timeline) -> _Places:
        buffers = timeline.buffers
        number = np.arange(len(buffers.scope))
        low = np.where(buffers.scope == Scope.DDR, number, buffers.address)
        size = np.where(buffers.scope == Scope.LB, sizes_of(timeline, Scope.LB),
                        sizes_of(timeline, Scope.GB))  # fmt: skip
        high = np.where(buffers.scope == Scope.DDR, number + 1, low + size)
        spans = list(zip(buffers.scope.tolist(), low.tolist(), high.tolist(), strict=True))
        templates = template_book(schedule.problem).templates
        exchanging = [
            _crossing(schedule, templates[int(timeline.templates[index])])
            for index in timeline.order
        ]
        return _Places(spans, schedule.rules.has_gb, exchanging)

    def table(self, used: Sequence[Used]) -> Ints:
        """Accesses of a phase, each once."""
        rows = dict.fromkeys(row for one in used if one.buffer >= 0 for row in self._rows(one))
        return np.asarray(list(rows), np.int64).reshape(-1, len(Access))

    def _rows(self, used: Used) -> list[tuple[int, ...]]:
        scope, low, high = self.spans[used.buffer]
        roles, writes = self._roles(used, scope), int(used.use in _WRITES)
        return [(used.layer, roles, scope, low, high, writes, used.buffer)] if roles else []

    def _roles(self, used: Used, scope: int) -> int:
        """The set of roles that carry out a use of a buffer."""
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
