"""Buffers in time and space: GraphTurbo, OSDI '23, section 4.3.

Time counts steps: a step per layer of every kernel in order, and one for the movements before a
kernel. A buffer is live from the step that makes it to the last that reads it, and its space is
reused right after. When the live set passes a capacity, the longest-lived tensor (in steps) is
moved out first, from LB to GB, then to DDR. The paper leaves placement open; ours is first fit.

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
        return Zones(
            target.lb.capacity - staging, target.gb.capacity - shared, staging, shared
        )


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
    order = np.lexsort((np.arange(len(scope)), buffers.birth)).astype(np.int64)
    rule = VICTIMS[victim]
    levels = ((Scope.LB, buffers.core_bytes, zones.lb), (Scope.GB, buffers.cluster_bytes, zones.gb))
    for level, sizes, room in levels:
        rounded = -(-sizes // ALIGNMENT) * ALIGNMENT
        _place(order, buffers.birth, buffers.death, rounded, scope, address, level, room, rule)
    return Buffers(
        buffers.birth, buffers.death, buffers.core_bytes, buffers.cluster_bytes, scope, address
    )


@njit(cache=True)
def _place(
    order: Ints, birth: Ints, death: Ints, size: Ints, scope: Ints, address: Ints, level: int,
    room: int, rule: int,
) -> None:
    """First fit in order of birth; a victim goes one level down when nothing fits."""  # fmt: skip
    active = np.empty(len(order), np.int64)
    count = 0
    for buffer in order:
        if scope[buffer] != level:
            continue
        kept = 0
        for position in range(count):
            if death[active[position]] >= birth[buffer]:
                active[kept] = active[position]
                kept += 1
        count = kept
        while scope[buffer] == level:
            slot, start = _first_gap(active, count, size, address, size[buffer], room)
            if slot >= 0:
                for position in range(count, slot, -1):
                    active[position] = active[position - 1]
                active[slot], address[buffer] = buffer, start
                count += 1
                break
            victim = _victim(active, count, buffer, birth, death, size, rule)
            scope[victim], address[victim] = level + 1, -1
            kept = 0
            for position in range(count):
                if active[position] != victim:
                    active[kept] = active[position]
                    kept += 1
            count = kept


@njit(cache=True)
def _first_gap(
    active: Ints, count: int, size: Ints, address: Ints, wanted: int, room: int
) -> tuple[int, int]:
    """Position among the active buffers (sorted by address) and offset of the first gap."""
    start = 0
    for position in range(count):
        if address[active[position]] - start >= wanted:
            return position, start
        start = address[active[position]] + size[active[position]]
    return (count, start) if start + wanted <= room else (-1, -1)


@njit(cache=True)
def _victim(
    active: Ints, count: int, newcomer: int, birth: Ints, death: Ints, size: Ints, rule: int
) -> int:
    """The live buffer, the newcomer included, that leaves: longest-lived, largest, or both."""
    best, best_score = newcomer, _score(newcomer, birth, death, size, rule)
    for position in range(count):
        score = _score(active[position], birth, death, size, rule)
        if score > best_score:
            best, best_score = active[position], score
    return best


@njit(cache=True)
def _score(buffer: int, birth: Ints, death: Ints, size: Ints, rule: int) -> int:
    life = death[buffer] - birth[buffer] + 1
    if rule == 0:
        return life
    return size[buffer] if rule == 1 else life * size[buffer]


def peak_use(buffers: Buffers, level: Scope) -> int:
    """Highest end of any buffer at a level, in bytes."""
    here = buffers.scope == level
    sizes = buffers.core_bytes if level is Scope.LB else buffers.cluster_bytes
    return int((buffers.address[here] + sizes[here]).max()) if here.any() else 0
