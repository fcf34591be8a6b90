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

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.problem import STAGING_SHARE

ALIGNMENT = 64
"""Bytes: a burst of every memory in the presets."""

_LONGEST, _LARGEST = range(2)

VICTIMS = {"longest": _LONGEST, "largest": _LARGEST, "size_x_life": 2}
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
        address: offset in LB of every core or in GB; -1 in DDR. On entry, what is fixed already.
    """

    birth: Ints
    death: Ints
    core_bytes: Ints
    cluster_bytes: Ints
    scope: Ints
    address: Ints


def allocate(buffers: Buffers, zones: Zones, victim: str | Ints) -> Buffers:
    """Place buffers in LB, what does not fit in GB, what does not fit there in DDR.

    Buffers with an address on entry stay there.

    Args:
        buffers: with the scopes that binding declared.
        zones: capacities.
        victim: which tensor leaves first, a key of :data:`VICTIMS`, or the codes of the rules that
            hold when each buffer is made.
    """
    codes = np.full(len(buffers.scope), VICTIMS[victim]) if isinstance(victim, str) else victim
    placed = dataclasses.replace(
        buffers, scope=buffers.scope.copy(), address=buffers.address.copy()
    )
    place_all(placed, codes, zones.lb, zones.gb)
    return placed


class Lives(NamedTuple):
    """Buffers at one level, for compiled code: as in :class:`Buffers`, with whole lines of bytes.

    Attributes:
        birth: step that makes it.
        death: last step that reads it.
        size: bytes.
        scope: changed in place.
        address: likewise.
    """

    birth: Ints
    death: Ints
    size: Ints
    scope: Ints
    address: Ints


def place_all(buffers: Buffers, rules: Ints, lb: int, gb: int) -> None:
    """Do as :func:`allocate` does, changing scopes and addresses in place."""
    birth, death, scope = buffers.birth, buffers.death, buffers.scope
    order = np.argsort(birth, kind="stable")
    fixed = buffers.address >= 0
    for level, sizes, room in (
        (0, buffers.core_bytes, lb), (1, buffers.cluster_bytes, gb)
    ):  # fmt: skip
        rounded = (sizes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        life = Lives(birth, death, rounded, scope, buffers.address)
        _spill(order, life, fixed, level, room, rules)
        own = order[scope[order] == level]
        if len(own):
            _place(own, life, fixed[own], level, room)


@njit(cache=True)
def _spill(
    order: Ints,
    life: Lives,
    fixed: NDArray[np.bool_],
    level: int,
    room: int,
    rules: Ints,
) -> None:
    """Send victims one level down while the live set passes the capacity."""
    active = np.empty(len(order), np.int64)
    count, live = 0, 0
    for buffer in order:
        if life.scope[buffer] != level:
            continue
        kept = 0
        for position in range(count):
            if life.death[active[position]] >= life.birth[buffer]:
                active[kept] = active[position]
                kept += 1
            else:
                live -= life.size[active[position]]
        active[kept], count = buffer, kept + 1
        live += life.size[buffer]
        while live > room:
            victim = _victim(active, count, life, fixed, rules[buffer])
            if victim < 0:
                break
            live -= life.size[active[victim]]
            life.scope[active[victim]] = level + 1
            count -= 1
            for position in range(victim, count):
                active[position] = active[position + 1]


STRIDE = 8
"""Steps per bucket of the index of placed buffers; most buffers live in one or two buckets."""


def _place(
    own: Ints,
    life: Lives,
    fixed: NDArray[np.bool_],
    level: int,
    room: int,
) -> None:
    """Place some buffers largest first, at the lowest address that is free for life.

    One that finds no room goes one level down. Those that are fixed are where they are.
    """
    start = _buckets(life.birth[own] // STRIDE, life.death[own] // STRIDE)
    crowd = np.diff(start).astype(np.float64)
    free = own[~fixed]
    if (crowd * crowd).sum() > CROWDED:
        _place_in_time(own[fixed], free, life, level, room)
        return
    largest = free[np.argsort(-life.size[free], kind="stable")]
    _place_largest(own[fixed], largest, life, start, level, room)


def _buckets(first: Ints, last: Ints) -> Ints:
    """Return the first entry of every bucket of time, with room for all buffers that live in it.

    Args:
        first: per buffer, the bucket in which it is made.
        last: per buffer, the last in which it lives.
    """
    change = np.zeros(int(last.max()) + 2, np.int64)
    np.add.at(change, first, 1)
    np.subtract.at(change, last + 1, 1)
    return np.append(0, np.cumsum(np.cumsum(change)[:-1]))


@njit(cache=True)
def _place_largest(
    fixed: Ints,
    largest: Ints,
    life: Lives,
    start: Ints,
    level: int,
    room: int,
) -> None:
    filled, entries = start[:-1].copy(), np.empty(start[-1], np.int64)
    for buffer in fixed:
        _note(buffer, life, filled, start, entries)
    for buffer in largest:
        at = _lowest_free(buffer, life, filled, start, entries)
        if at + life.size[buffer] > room:
            life.scope[buffer] = level + 1
        else:
            life.address[buffer] = at
            _note(buffer, life, filled, start, entries)


CROWDED = 1e8
"""Pairs of buffers that live at about the same time, beyond which placing the largest first would
take longer than all else; then buffers are placed in the order of their birth."""


@njit(cache=True)
def _place_in_time(
    fixed: Ints,
    free: Ints,
    life: Lives,
    level: int,
    room: int,
) -> None:
    """In order of birth, at the lowest address that is free then; else one level down.

    Time per buffer is that of looking through those that are alive.
    """
    alive, count = np.empty(len(fixed) + len(free) + 1, np.int64), 0
    for buffer in fixed:
        count = _enter(buffer, count, alive, life)
    for buffer in free:
        kept, at, found = 0, 0, -1
        for position in range(count):
            other = alive[position]
            if life.death[other] < life.birth[buffer]:
                continue
            if found < 0 and life.address[other] - at >= life.size[buffer]:
                found = at
            at = max(at, life.address[other] + life.size[other])
            alive[kept] = other
            kept += 1
        count = kept
        found = at if found < 0 else found
        if found + life.size[buffer] > room:
            life.scope[buffer] = level + 1
        else:
            life.address[buffer] = found
            count = _enter(buffer, count, alive, life)


@njit(cache=True)
def _enter(buffer: int, count: int, alive: Ints, life: Lives) -> int:
    """Add a placed buffer to those alive, sorted by address."""
    position = count
    while position > 0 and life.address[alive[position - 1]] > life.address[buffer]:
        alive[position] = alive[position - 1]
        position -= 1
    alive[position] = buffer
    return count + 1


@njit(cache=True)
def _note(buffer: int, life: Lives, filled: Ints, start: Ints, entries: Ints) -> None:
    """Enter a placed buffer into its buckets, each sorted by address."""
    for bucket in range(life.birth[buffer] // STRIDE, life.death[buffer] // STRIDE + 1):
        position = filled[bucket]
        while (
            position > start[bucket] and life.address[entries[position - 1]] > life.address[buffer]
        ):
            entries[position] = entries[position - 1]
            position -= 1
        entries[position] = buffer
        filled[bucket] += 1


@njit(cache=True)
def _lowest_free(
    buffer: int,
    life: Lives,
    filled: Ints,
    start: Ints,
    entries: Ints,
) -> int:
    """The lowest address at which no placed buffer is in the way at any time.

    Going up past whatever is in the way, bucket by bucket, until a round meets nothing.
    """
    at, wanted = 0, life.size[buffer]
    first, last = life.birth[buffer] // STRIDE, life.death[buffer] // STRIDE
    moved = True
    while moved:
        moved = False
        for bucket in range(first, last + 1):
            for position in range(start[bucket], filled[bucket]):
                other = entries[position]
                if life.address[other] >= at + wanted:
                    break
                end = life.address[other] + life.size[other]
                apart = (
                    life.death[other] < life.birth[buffer] or life.birth[other] > life.death[buffer]
                )
                if end > at and not apart:
                    at = end
                    moved = first != last
    return at


@njit(cache=True)
def _victim(
    active: Ints,
    count: int,
    life: Lives,
    fixed: NDArray[np.bool_],
    rule: int,
) -> int:
    """Position of the live buffer that leaves: by the rule, the first of equals; -1 for none."""
    best, most = -1, -1
    for position in range(count):
        buffer = active[position]
        score = life.death[buffer] - life.birth[buffer] + 1 if rule != _LARGEST else 1
        score *= life.size[buffer] if rule != _LONGEST else 1
        if score > most and not fixed[buffer]:
            best, most = position, score
    return best


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
