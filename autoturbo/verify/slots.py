"""Slots in space: tiles of weights fit the room that the target and the schedule have for them.

Streams have no such check: the program moves what a tile reads and writes in one transfer where the
hardware would pass a large one through the staging zone in several.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autoturbo.schedule.allocate import Zones
from autoturbo.schedule.instructions import Amount, Column, Role
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.writer import TILES
from autoturbo.verify.findings import Check, Finding
from autoturbo.verify.names import instance_name, layer_name
from autoturbo.verify.rings import Ring
from autoturbo.verify.trace import Program, Trace


def check_slots(schedule: Schedule, trace: Trace) -> tuple[Finding, ...]:
    """Findings of kind ``"capacity"`` about tiles of weights."""
    found: list[Finding] = []
    known: dict[int, tuple[int, int]] = {}
    for cluster, phases in enumerate(trace.clusters):
        rooms = _rooms(schedule, cluster)
        for phase in phases:
            if phase.program is None:
                continue
            key = id(phase.program)
            if key not in known:
                known[key] = _largest(phase.program)
            room = rooms.get(phase.instance, rooms[-1])
            found += _check(schedule, phase.instance, *known[key], room)
    return tuple(found)


def _rooms(schedule: Schedule, cluster: int) -> dict[int, int]:
    """Bytes of a core for tiles of weights, by the instances that take more; ``-1`` for others."""
    target, timeline = schedule.problem.target, schedule.timelines[cluster]
    own = max(target.lb.weight_capacity, Zones.of(target).lb_staging)
    buffers = np.flatnonzero(timeline.kind == TILES).tolist()
    sizes = timeline.buffers.core_bytes
    return {-1: own} | {int(timeline.owner[b]): own + int(sizes[b]) for b in buffers}


def _largest(program: Program) -> tuple[int, int]:
    """Bytes of all slots if each held the largest tile of weights, and the layer that has it."""
    arrives = program.where[:, Column.ROLE] == Role.PASS_WEIGHTS
    if not arrives.any():
        arrives = program.where[:, Column.ROLE] == Role.FETCH_WEIGHTS
    if not arrives.any():
        return 0, -1
    own = np.flatnonzero(arrives)
    tiles = program.amounts[own, Amount.CORE]
    layer = int(program.where[own[tiles.argmax()], Column.LAYER])
    return int(tiles.max() * program.slots[Ring.WEIGHTS_IN_LB]), layer


def _check(
    schedule: Schedule, instance: int, need: int, position: int, room: int
) -> Iterator[Finding]:
    if need <= room:
        return
    graph = schedule.instances
    layer = layer_name(schedule, graph.subgraphs[int(graph.subgraph[instance])].layers[position])
    name = instance_name(schedule, instance)
    message = f"{name}, layer {layer}: slots for its weights take {need} bytes of {room} per core"
    yield Finding(Check.MEMORY, "capacity", message, name, layer)
