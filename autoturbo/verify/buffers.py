"""Buffers in space: none overlaps another that lives at the same time, none leaves its zone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.allocate import ALIGNMENT, Zones
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.timeline import Timeline
from autoturbo.verify.findings import Check, Finding
from autoturbo.verify.names import buffer_name, instance_name


def check_buffers(schedule: Schedule) -> tuple[Finding, ...]:
    """Findings of all clusters' buffers."""
    return tuple(f for timeline in schedule.timelines for f in _check(schedule, timeline))


def finding(
    schedule: Schedule, timeline: Timeline, kind: str, buffer: int, message: str
) -> Finding:
    """A finding about a buffer; its name comes before the message."""
    name = buffer_name(schedule, timeline, buffer)
    owner = int(timeline.owner[buffer])
    return Finding(Check.MEMORY, kind, f"{name} {message}", instance_name(schedule, owner))


def sizes_of(timeline: Timeline, level: int) -> Ints:
    """Bytes that every buffer takes at a level."""
    buffers = timeline.buffers
    return buffers.core_bytes if level == Scope.LB else buffers.cluster_bytes


def _check(schedule: Schedule, timeline: Timeline) -> Iterator[Finding]:
    buffers, zones = timeline.buffers, Zones.of(schedule.problem.target)
    yield from _zones(schedule, zones)
    for buffer in np.flatnonzero(buffers.birth > buffers.death).tolist():
        yield finding(schedule, timeline, "lifetime", buffer, "is given back before it is made")
    placed = (buffers.address >= 0) == (buffers.scope != Scope.DDR)
    for buffer in np.flatnonzero(~placed).tolist():
        scope = Scope(int(buffers.scope[buffer])).name
        message = f"is in {scope} at address {buffers.address[buffer]}"
        yield finding(schedule, timeline, "capacity", buffer, message)
    for level, room in ((Scope.LB, zones.lb), (Scope.GB, zones.gb)):
        here = np.flatnonzero((buffers.scope == level) & placed)
        yield from _level(schedule, timeline, level, room, here)


def _zones(schedule: Schedule, zones: Zones) -> Iterator[Finding]:
    """What is handed out and what is kept for streams fit a buffer together."""
    target = schedule.problem.target
    for name, used, room in (
        ("LB", zones.lb + zones.lb_staging, target.lb.capacity),
        ("GB", zones.gb + zones.gb_staging, target.gb.capacity),
    ):
        if used > room:
            message = f"the zones of {name} take {used} of its {room} bytes"
            yield Finding(Check.MEMORY, "capacity", message)


def _level(
    schedule: Schedule, timeline: Timeline, level: Scope, room: int, here: Ints
) -> Iterator[Finding]:
    buffers, sizes = timeline.buffers, sizes_of(timeline, level)
    low = buffers.address[here]
    high = low + sizes[here]
    for at in np.flatnonzero(high > room).tolist():
        message = f"ends at {high[at]} in {level.name}, which has {room} bytes for buffers"
        yield finding(schedule, timeline, "capacity", int(here[at]), message)
    for at in np.flatnonzero(low % ALIGNMENT).tolist():
        message = f"begins at {low[at]} in {level.name}, not at a multiple of {ALIGNMENT}"
        yield finding(schedule, timeline, "alignment", int(here[at]), message)
    pairs = _clashes(low, high, buffers.birth[here], buffers.death[here])
    for one, two in here[pairs].tolist():
        other = buffer_name(schedule, timeline, two)
        start = max(int(buffers.address[one]), int(buffers.address[two]))
        message = f"and {other} both take byte {start} of {level.name} at the same time"
        yield finding(schedule, timeline, "overlap", one, message)


@njit(cache=True)
def _clashes(low: Ints, high: Ints, birth: Ints, death: Ints) -> Ints:
    """Pairs of intervals that meet in space and in time, in order of their birth."""
    order = np.argsort(birth, kind="mergesort")
    alive, count = np.empty(len(order), np.int64), 0
    found = [(0, 0) for _ in range(0)]
    for new in order:
        kept = 0
        for position in range(count):
            old = alive[position]
            if death[old] < birth[new]:
                continue
            alive[kept] = old
            kept += 1
            if max(low[old], low[new]) < min(high[old], high[new]):
                found.append((old, new))
        alive[kept], count = new, kept + 1
    pairs = np.empty((len(found), 2), np.int64)
    for index in range(len(found)):
        pairs[index, 0], pairs[index, 1] = found[index]
    return pairs
