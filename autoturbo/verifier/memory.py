"""The memory check: buffers in space, their contents in time, and races between instructions.

Buffers of a cluster must not overlap while they live nor leave their zone; the order is replayed
with what every buffer holds (:mod:`autoturbo.verifier.replay`), and accesses at the same time are
checked in :mod:`autoturbo.verifier.races`. Tiles of weights must fit the space that the target and
the schedule have for them. Where they are as small as tiles can be, larger ones pass in several
transfers, which the program has as one. So do streams of tiles, whatever their size; but what a
product reads once though several tiles use it, and partial sums, must fit the streaming zone and
the room beside it, and that room must be free.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.tiling import IN_LB, InstructionRules
from autoturbo.schedule.context import Zones
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.memory.timeline import TILES, Timeline
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import READ, ROOM
from autoturbo.schedule.work import Floats
from autoturbo.verifier.findings import (
    Check,
    Finding,
    buffer_finding,
    buffer_name,
    instance_name,
    layer_name,
)
from autoturbo.verifier.loads import check_loads
from autoturbo.verifier.races import check_races, meeting_pairs
from autoturbo.verifier.replay import replay_of
from autoturbo.verifier.trace import Trace, sizes_of


def check_memory(schedule: Schedule) -> tuple[Finding, ...]:
    """Return the findings about a schedule's buffers; empty if there are none.

    Kinds: ``"overlap"``, ``"capacity"``, ``"alignment"``, ``"lifetime"``, ``"freed buffer"``,
    ``"foreign buffer"``, ``"too small"``, ``"handed over"``, ``"output"``, ``"stream"``,
    ``"residence"``, ``"race"``, ``"load"``.
    """
    findings, replay = check_buffers(schedule) + check_loads(schedule), replay_of(schedule)
    findings += replay.findings + check_rooms(schedule) + check_kept_streams(schedule)
    return (
        findings + check_weight_tiles(schedule, replay.trace) + check_races(schedule, replay.trace)
    )


def check_buffers(schedule: Schedule) -> tuple[Finding, ...]:
    """Return findings about the addresses and lifetimes of all clusters' buffers."""
    return tuple(f for timeline in schedule.timelines for f in _check_cluster(schedule, timeline))


def _check_cluster(schedule: Schedule, timeline: Timeline) -> Iterator[Finding]:
    buffers, zones = timeline.buffers, Zones.of(schedule.context.target)
    yield from _zones(schedule, zones)
    for buffer in np.flatnonzero(buffers.birth > buffers.death).tolist():
        yield buffer_finding(
            schedule, timeline, "lifetime", buffer, "is given back before it is made"
        )
    placed = (buffers.address >= 0) == (buffers.scope != Scope.DDR)
    for buffer in np.flatnonzero(~placed).tolist():
        scope = Scope(int(buffers.scope[buffer])).name
        message = f"is in {scope} at address {buffers.address[buffer]}"
        yield buffer_finding(schedule, timeline, "capacity", buffer, message)
    yield from _check_spare(schedule, timeline, zones)
    for level, limit in ((Scope.LB, zones.lb), (Scope.GB, zones.gb)):
        here = np.flatnonzero((buffers.scope == level) & placed)
        yield from _check_scope(schedule, timeline, level, limit, here)


def _check_spare(schedule: Schedule, timeline: Timeline, zones: Zones) -> Iterator[Finding]:
    """Yield findings about buffers in the space for weights of a kernel's recurrences."""
    buffers = timeline.buffers
    for kernel in np.flatnonzero(timeline.spare.any(axis=1)).tolist():
        first, last = kernel + timeline.rows[kernel], kernel + timeline.rows[kernel + 1]
        stages = timeline.templates[int(timeline.order[kernel])].stages
        recurrences = np.count_nonzero(stages[:, Stage.SEQUENCE])
        for level, limit in ((Scope.LB, zones.lb), (Scope.GB, zones.gb)):
            low = limit - recurrences * int(timeline.spare[kernel, level])
            ends = buffers.address + sizes_of(timeline, level)
            alive = (buffers.birth <= last) & (buffers.death >= first) & (buffers.scope == level)
            for buffer in np.flatnonzero(alive & (ends > low)).tolist():
                message = (
                    f"ends at {ends[buffer]}, where weights of a recurrence stay from {low} on"
                )
                yield buffer_finding(schedule, timeline, "overlap", buffer, message)


def _zones(schedule: Schedule, zones: Zones) -> Iterator[Finding]:
    """Yield findings about buffer and streaming zones that together exceed a memory."""
    target = schedule.context.target
    for name, used, limit in (
        ("LB", zones.lb + zones.lb_staging, target.lb.capacity),
        ("GB", zones.gb + zones.gb_staging, target.gb.capacity),
    ):
        if used > limit:
            message = f"the zones of {name} take {used} of its {limit} bytes"
            yield Finding(Check.MEMORY, "capacity", message)


def _check_scope(
    schedule: Schedule, timeline: Timeline, level: Scope, limit: int, here: Ints
) -> Iterator[Finding]:
    buffers, sizes = timeline.buffers, sizes_of(timeline, level)
    low = buffers.address[here]
    high = low + sizes[here]
    for place in np.flatnonzero(high > limit).tolist():
        message = f"ends at {high[place]} in {level.name}, which has {limit} bytes for buffers"
        yield buffer_finding(schedule, timeline, "capacity", int(here[place]), message)
    for place in np.flatnonzero(low % ALIGNMENT).tolist():
        message = f"begins at {low[place]} in {level.name}, not at a multiple of {ALIGNMENT}"
        yield buffer_finding(schedule, timeline, "alignment", int(here[place]), message)
    pairs = _clashes(low, high, buffers.birth[here], buffers.death[here])
    for one, two in here[pairs].tolist():
        second_name = buffer_name(schedule, timeline, two)
        start = max(int(buffers.address[one]), int(buffers.address[two]))
        message = f"and {second_name} both take byte {start} of {level.name} at the same time"
        yield buffer_finding(schedule, timeline, "overlap", one, message)


def _clashes(low: Ints, high: Ints, birth: Ints, death: Ints) -> Ints:
    """Return pairs of intervals that overlap in space and time, ``(n, 2)``, by birth.

    Args:
        low: First address of each.
        high: One past the last.
        birth: First step.
        death: Last step.
    """
    found = [np.empty((0, 2), np.int64)]
    for pairs in meeting_pairs(birth, death + 1):
        shared = high[pairs].min(axis=1) > low[pairs].max(axis=1)
        found.append(pairs[shared])
    rows = np.concatenate(found)
    # Ranks by birth, of equals as they are listed: findings come in the same order every time.
    place = np.argsort(np.argsort(birth, kind="stable"), kind="stable")
    return rows[np.lexsort(place[rows].T)]


def check_rooms(schedule: Schedule) -> tuple[Finding, ...]:
    """Return findings of kind ``"overlap"`` about tensors in the room for streams.

    While a layer runs, its room and that of the next of its kernel, which fetches ahead, lie in one
    gap between buffers.
    """
    findings, zone = list[Finding](), Zones.of(schedule.context.target).lb
    for timeline in schedule.timelines:
        buffers, rows = timeline.buffers, timeline.rows.tolist()
        here = np.flatnonzero((buffers.scope == Scope.LB) & (buffers.core_bytes > 0))
        for kernel, (first, end) in enumerate(itertools.pairwise(rows)):
            instance, streams = int(timeline.order[kernel]), timeline.streams[first:end]
            reads = streams[:, READ].any(axis=1)
            reads |= timeline.templates[instance].stages[:, Stage.EXCHANGED] > 0
            ahead = np.append((streams[:, ROOM] * reads)[1:], 0)
            for position, wanted in enumerate((streams[:, ROOM] + ahead).tolist()):
                step = first + kernel + 1 + position
                alive = here[(buffers.birth[here] <= step) & (buffers.death[here] >= step)]
                gap = _largest_gap(buffers.address[alive], buffers.core_bytes[alive], zone)
                if wanted > gap:
                    name = instance_name(schedule, instance)
                    message = (
                        f"{name}: streams have {wanted} bytes of LB to stay in, {gap} are free"
                    )
                    findings.append(Finding(Check.MEMORY, "overlap", message, name))
    return tuple(findings)


def _largest_gap(address: Ints, size: Ints, zone: int) -> int:
    """Return the most contiguous bytes of a zone that no buffer occupies."""
    order = address.argsort()
    ends = np.maximum.accumulate(np.append(0, (address + size)[order]))
    gaps: Ints = np.append(address[order], zone) - ends
    return int(gaps.max())


def check_kept_streams(schedule: Schedule) -> tuple[Finding, ...]:
    """Return findings of kind ``"capacity"`` about the kept streams of products."""
    findings = list[Finding]()
    for cluster, timeline in enumerate(schedule.timelines):
        for place, instance in enumerate(timeline.order.tolist()):
            kernel, template = schedule.kernel(place, cluster), timeline.templates[instance]
            for layer, one, stage, moved in zip(
                template.layers, kernel.tiles, kernel.stages, kernel.streams, strict=True
            ):
                need, room = _kept_bytes(one, stage, moved, kernel.rules)
                if need > room:
                    name, of = instance_name(schedule, instance), layer_name(schedule, layer)
                    message = (
                        f"{name}, layer {of}: inputs and sums that stay take {need} bytes of "
                        f"{room} per core"
                    )
                    findings.append(Finding(Check.MEMORY, "capacity", message, name, of))
    return tuple(findings)


def _kept_bytes(
    tiles: Ints, stage: Floats, streams: Ints, rules: InstructionRules
) -> tuple[int, int]:
    """Return the bytes of a core that a layer's kept streams need, and the bytes that it has.

    Kept are a product's inputs, if they are read once for several column tiles: all of them, or as
    many row tiles as there are slots. Partial sums are kept too, at twice the width of the result:
    those of all row tiles between two depth tiles. A single row and column keeps nothing.

    Args:
        tiles: Tile counts of the layer.
        stage: The layer's row of stages.
        streams: The layer's row of streams.
        rules: Rules of the layer's kernel.
    """
    products, columns, depths, rows, outside, kept = tiles.tolist()
    room = int(rules.staging + streams[ROOM])
    if stage[Stage.MACS] <= 0 or stage[Stage.SEQUENCE] > 0:
        return 0, room
    cut = products * (rows if outside else 1)
    need = 0.0
    if kept == IN_LB and columns > 1:
        read = streams[READ].sum() / rules.cores
        slots = rules.ahead + 1 if cut > 1 else 1
        need += (read + stage[Stage.EXCHANGED]) / cut * slots
    if depths > 1 and cut * columns < stage[Stage.STEPS]:
        need += 2.0 * stage[Stage.WRITTEN] / cut / columns
    return math.ceil(need), room


def check_weight_tiles(schedule: Schedule, trace: Trace) -> tuple[Finding, ...]:
    """Return findings of kind ``"capacity"`` about weight tiles."""
    findings: list[Finding] = []
    for cluster, phases in enumerate(trace.clusters):
        limits = _weight_tile_limits(schedule, cluster)
        for phase in phases:
            need, position = phase.program.weights if phase.program else (0, -1)
            limit = limits.get(phase.instance, limits[-1])
            if need > limit:
                graph = schedule.instances
                layers = graph.subgraphs[int(graph.subgraph[phase.instance])].layers
                name = instance_name(schedule, phase.instance)
                layer = layer_name(schedule, layers[position])
                message = (
                    f"{name}, layer {layer}: slots for its weights take {need} bytes of {limit} "
                    f"per core"
                )
                findings.append(Finding(Check.MEMORY, "capacity", message, name, layer))
    return tuple(findings)


def _weight_tile_limits(schedule: Schedule, cluster: int) -> dict[int, int]:
    """Return a core's bytes for weight tiles by instance; ``-1`` stands for all others."""
    target, timeline = schedule.context.target, schedule.timelines[cluster]
    # A target without a buffer for weights has the size of the staging zone for them.
    capacity = max(target.lb.weight_capacity, Zones.of(target).lb_staging)
    buffers = np.flatnonzero(timeline.kind == TILES).tolist()
    sizes = timeline.buffers.core_bytes
    return {-1: capacity} | {int(timeline.owner[b]): capacity + int(sizes[b]) for b in buffers}
