"""Buffers in time and space: GraphTurbo, OSDI '23, section 4.3.

Time counts steps: a step per layer of every kernel in order, and one for the movements before a
kernel. A buffer is live from the step that makes it to the last that reads it, and its space is
reused right after. When the live set passes a capacity, the longest-lived tensor (in steps) is
moved out first, from LB to GB, then to DDR. The paper leaves placement open; all lifetimes are
known beforehand, so ours places the largest buffers first, each at the lowest address that is free
for its whole life (first fit in order of birth left a third of ResNet-50's skip tensors homeless).

A tensor that is not in LB is streamed through a staging zone at the top of LB by whoever writes or
reads it, tile by tile; likewise weights and streams pass a staging zone at the top of GB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.bind import Scope

STAGING_SHARE = 16
"""One sixteenth of LB is the staging zone: 64 KiB of 1 MiB holds two tiles of 32 KiB, enough to
hide one transfer behind another, and leaves the 8/4/2/1 splits of ResNet-50 as they are."""

ALIGNMENT = 64
"""Bytes: a burst of every memory in the presets."""

VICTIMS = {"longest": 0, "largest": 1, "size_x_life": 2}
"""Codes of the spill rules for compiled code."""


@dataclass(frozen=True, slots=True)
class Zones:
    """What of each buffer the allocator hands out, bytes.

    Attributes:
        lb: per core.
        gb: per cluster.
        lb_staging: per core, at the top of LB.
        gb_staging: per cluster, at the top of GB.
    """

    lb: int
    gb: int
    lb_staging: int
    gb_staging: int

    @staticmethod
    def of(target: Target) -> Zones:
        """Divide a target's buffers."""
        staging = target.lb.capacity // STAGING_SHARE
        wanted = target.cores * (target.lb.weight_capacity + staging)
        shared = min(wanted, target.gb.capacity // 2)
        return Zones(target.lb.capacity - staging, target.gb.capacity - shared, staging, shared)


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """Tensors in time. Arrays of one entry per buffer.

    Attributes:
        birth: step that makes it.
        death: last step that reads it.
        core_bytes: in the local buffer of the busiest core.
        cluster_bytes: all of it.
        scope: where it is declared on entry of :func:`allocate`; where it is kept in its result.
        address: offset in LB of every core or in GB; -1 in DDR.
    """

    birth: Ints
    death: Ints
    core_bytes: Ints
    cluster_bytes: Ints
    scope: Ints
    address: Ints


def allocate(buffers: Buffers, zones: Zones, victim: str) -> Buffers:
    """Place buffers in LB, what does not fit in GB, what does not fit there in DDR.

    Args:
        buffers: with the scopes that binding declared.
        zones: capacities.
        victim: which tensor leaves first, a key of :data:`VICTIMS`.
    """
    scope = buffers.scope.copy()
    address = np.full(len(scope), -1, np.int64)
    order = np.argsort(buffers.birth, kind="stable").astype(np.int64)
    levels = ((Scope.LB, buffers.core_bytes, zones.lb), (Scope.GB, buffers.cluster_bytes, zones.gb))
    for level, sizes, room in levels:
        rounded = -(-sizes // ALIGNMENT) * ALIGNMENT
        life = buffers.birth, buffers.death
        _spill(order, *life, rounded, scope, int(level), room, VICTIMS[victim])
        largest = np.lexsort((buffers.birth, -rounded)).astype(np.int64)
        _place(order, largest, *life, rounded, scope, address, int(level), room)
    return Buffers(
        buffers.birth, buffers.death, buffers.core_bytes, buffers.cluster_bytes, scope, address
    )


@njit(cache=True)
def _spill(
    order: Ints, birth: Ints, death: Ints, size: Ints, scope: Ints, level: int, room: int, rule: int
) -> None:
    """Send victims one level down while the live set passes the capacity."""
    active = np.empty(len(order), np.int64)
    count, live = 0, 0
    for buffer in order:
        if scope[buffer] != level:
            continue
        kept = 0
        for position in range(count):
            if death[active[position]] >= birth[buffer]:
                active[kept] = active[position]
                kept += 1
            else:
                live -= size[active[position]]
        active[kept], count = buffer, kept + 1
        live += size[buffer]
        while live > room:
            victim = _victim(active, count, birth, death, size, rule)
            live -= size[active[victim]]
            scope[active[victim]] = level + 1
            count -= 1
            for position in range(victim, count):
                active[position] = active[position + 1]


LONG_LIFE = 64
"""Steps; buffers that live longer are looked through one by one, the rest by time of birth."""


@njit(cache=True)
def _place(
    order: Ints,
    largest: Ints,
    birth: Ints,
    death: Ints,
    size: Ints,
    scope: Ints,
    address: Ints,
    level: int,
    room: int,
) -> None:
    """Largest first, at the lowest address that is free for life; else one level down."""
    births = birth[order]
    long_lived = order[(death - birth)[order] > LONG_LIFE]
    start, end = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    for buffer in largest:
        if scope[buffer] != level:
            continue
        count = 0
        first = np.searchsorted(births, birth[buffer] - LONG_LIFE)
        last = np.searchsorted(births, death[buffer] + 1)
        for position in range(first, last):
            other = order[position]
            if death[other] - birth[other] <= LONG_LIFE:
                count = _collect(
                    other, buffer, birth, death, size, scope, address, level, start, end, count
                )
        for other in long_lived:
            count = _collect(
                other, buffer, birth, death, size, scope, address, level, start, end, count
            )
        at = _lowest_gap(start, end, count, size[buffer], room)
        if at < 0:
            scope[buffer] = level + 1
        else:
            address[buffer] = at


@njit(cache=True)
def _collect(
    other: int,
    buffer: int,
    birth: Ints,
    death: Ints,
    size: Ints,
    scope: Ints,
    address: Ints,
    level: int,
    start: Ints,
    end: Ints,
    count: int,
) -> int:
    """Note the space of a buffer that is placed and alive at the same time, by start."""
    placed = scope[other] == level and address[other] >= 0 and other != buffer
    if not placed or death[other] < birth[buffer] or birth[other] > death[buffer]:
        return count
    position = count
    while position > 0 and start[position - 1] > address[other]:
        start[position], end[position] = start[position - 1], end[position - 1]
        position -= 1
    start[position], end[position] = address[other], address[other] + size[other]
    return count + 1


@njit(cache=True)
def _lowest_gap(start: Ints, end: Ints, count: int, wanted: int, room: int) -> int:
    """Lowest address between sorted occupied spaces that has room; -1 if none."""
    at = 0
    for position in range(count):
        if start[position] - at >= wanted:
            return at
        at = max(at, end[position])
    return at if at + wanted <= room else -1


@njit(cache=True)
def _victim(active: Ints, count: int, birth: Ints, death: Ints, size: Ints, rule: int) -> int:
    """Position of the live buffer that leaves: by the rule, the first of equals."""
    best, best_score = 0, _score(active[0], birth, death, size, rule)
    for position in range(1, count):
        score = _score(active[position], birth, death, size, rule)
        if score > best_score:
            best, best_score = position, score
    return best


@njit(cache=True)
def _score(buffer: int, birth: Ints, death: Ints, size: Ints, rule: int) -> int:
    life: int = death[buffer] - birth[buffer] + 1
    if rule == 0:
        return life
    bytes_held: int = size[buffer]
    return bytes_held if rule == 1 else life * bytes_held


def peak_use(buffers: Buffers, level: Scope) -> int:
    """Highest end of any buffer at a level, in bytes."""
    here = buffers.scope == level
    sizes = buffers.core_bytes if level is Scope.LB else buffers.cluster_bytes
    return int((buffers.address[here] + sizes[here]).max()) if here.any() else 0


def live_peak_bytes(buffers: Buffers, level: Scope) -> int:
    """Most bytes alive at once at a level, whole tensors of a cluster."""
    here = buffers.scope == level
    if not here.any():
        return 0
    change = np.zeros(int(buffers.death.max()) + 2, np.int64)
    np.add.at(change, buffers.birth[here], buffers.cluster_bytes[here])
    np.subtract.at(change, buffers.death[here] + 1, buffers.cluster_bytes[here])
    return int(change.cumsum().max())
