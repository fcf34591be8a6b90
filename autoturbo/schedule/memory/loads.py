"""Loads that run over kernels: weight tiles that are in GB before their kernel begins.

A kernel fetches its weights through a ring of a few slots, which is empty at every boundary, so
that the bus to DDR is idle while a kernel computes and the next one waits for it. A load is instead
a buffer in GB that is born at an earlier step: from then on it may be fetched, and it lives until
the last of it is passed to the cores. Buffers of tensors come first; loads have what room they
leave. Which step each is born at is decided here, in steps and not in seconds, so that it is the
same whatever the rates of the target are; when a load is fetched, the bus decides
(:mod:`autoturbo.simulate.whole_pass`).

Loads are fetched in the order in which they are needed, so none is born before the one ahead of it.
A load for which there is no room keeps to the ring of its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import Column, Instructions
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Scope


class KernelLoads(NamedTuple):
    """Weight tiles that a kernel fetches, in the order in which it passes them to the cores.

    Attributes:
        instruction: That fetches the tile.
        layer: Position of the layer that needs it.
        latest: Position of the layer in which it is passed: its fetch cannot wait for that layer to
            begin, since what the layer needs may stand behind it.
        size: Bytes.
    """

    instruction: Ints
    layer: Ints
    latest: Ints
    size: Ints


NO_KERNEL_LOADS = KernelLoads(*np.zeros((4, 0), np.int64))
"""Of a kernel that fetches for itself."""


class Loads(NamedTuple):
    """Loads of a pass with room in GB, in the order in which they are fetched.

    Attributes:
        kernel: Place in the order of the kernel that needs it.
        instruction: Of that kernel, which fetches it.
        step: Of the layer that needs it; the last at which it lives.
        birth: Step from which on it may be fetched.
        size: Bytes.
        address: In GB.
    """

    kernel: Ints
    instruction: Ints
    step: Ints
    birth: Ints
    size: Ints
    address: Ints


NO_LOADS = Loads(*np.zeros((6, 0), np.int64))
"""Of a pass whose kernels all fetch for themselves."""


def loads_of(program: Instructions, stages: Floats, stored: float) -> KernelLoads:
    """Return the weight tiles of a kernel that may be fetched before it.

    Args:
        program: Its instructions.
        stages: Of its template. Recurrences read their weights again and again through the ring.
        stored: Bytes in memory for each that is counted.
    """
    role, layer = program.where[:, Column.ROLE], program.where[:, Column.LAYER]
    fetched = np.flatnonzero(role == Role.FETCH_WEIGHTS)
    passed = np.flatnonzero(role == Role.PASS_WEIGHTS)
    if not len(fetched) or len(fetched) != len(passed) or stages[:, Stage.SEQUENCE].any():
        return NO_KERNEL_LOADS
    computes = np.flatnonzero((role == Role.MULTIPLY) | (role == Role.APPLY))
    meanwhile = layer[computes[np.searchsorted(computes, passed)]]
    size = np.ceil(program.amounts[fetched, Amount.DDR] * stored).astype(np.int64)
    return KernelLoads(fetched, layer[fetched], np.minimum(meanwhile, layer[fetched]), size)


def place_loads(kernels: Sequence[KernelLoads], timeline: Timeline, room: int) -> Loads:
    """Return the loads that have room in GB, each born as early as it can be.

    Args:
        kernels: Loads of the kernels in order.
        timeline: Of the kernels, with its tensors placed.
        room: Bytes of GB for buffers.
    """
    ahead, rows = timeline.ahead.tolist(), timeline.rows
    counts = [len(one.instruction) if far else 0 for one, far in zip(kernels, ahead, strict=True)]
    if not sum(counts):
        return NO_LOADS
    kernel = np.repeat(np.arange(len(kernels)), counts)
    instruction, layer, latest, size = (
        np.concatenate([c for c, n in zip(column, counts, strict=True) if n])
        for column in zip(*kernels, strict=True)
    )
    begins = rows[:-1] + np.arange(len(kernels))  # step of the movements of each
    step, latest = begins[kernel] + 1 + layer, begins[kernel] + 1 + latest
    held = _held(timeline, room)
    wanted = np.stack((step, latest, -(-size // ALIGNMENT) * ALIGNMENT, np.asarray(ahead)[kernel]))
    birth, address = _place(wanted, held, room, int(rows[-1]) + len(kernels))
    placed = np.flatnonzero(address >= 0)
    columns = kernel, instruction, step, birth, size, address
    return Loads(*(column[placed] for column in columns))


def _held(timeline: Timeline, room: int) -> Ints:
    """Return birth, death, address and bytes of what lies in GB already, ``(4, buffers)``.

    It is tensors, weights that stay, and at the top what recurrences have for their weights.
    """
    buffers, rows = timeline.buffers, timeline.rows
    in_gb = (buffers.scope == Scope.GB) & (buffers.cluster_bytes > 0)
    tensors = np.stack((
        buffers.birth[in_gb], buffers.death[in_gb], buffers.address[in_gb],
        buffers.cluster_bytes[in_gb],
    ))  # fmt: skip
    kernel = np.flatnonzero(timeline.spare[:, 1])
    top = [
        int(timeline.spare[k, 1])
        * np.count_nonzero(timeline.templates[timeline.order[k]].stages[:, Stage.SEQUENCE])
        for k in kernel
    ]
    size = np.asarray(top, np.int64)
    spare = np.stack((kernel + rows[kernel], kernel + rows[kernel + 1], room - size, size))
    return np.concatenate((tensors, spare), axis=1)


class _Room(NamedTuple):
    """GB over the steps of a pass.

    Attributes:
        born: First step of what lies in it, tensors first.
        dies: Last step.
        low: First byte.
        high: One past the last.
        first: Per step, one of those that die then, -1 for none.
        following: Another that dies at the same step.
        size: Bytes of all of it.
    """

    born: Ints
    dies: Ints
    low: Ints
    high: Ints
    first: Ints
    following: Ints
    size: int


@njit(cache=True)
def _place(wanted: Ints, held: Ints, size: int, steps: int) -> tuple[Ints, Ints]:
    """Return the birth and the address of loads, -1 for those without room.

    Each is born at the earliest step from which on there is one gap for it until it dies; it is put
    into the lowest such gap.

    Args:
        wanted: Step, latest birth, bytes and steps ahead of each load, in order, ``(4, loads)``.
        held: Birth, death, address and bytes of what lies in GB, ``(4, buffers)``.
        size: Bytes for all of it.
        steps: Of the pass.
    """
    loads, buffers = wanted.shape[1], held.shape[1]
    birth, address = np.full(loads, -1), np.full(loads, -1)
    total = loads + buffers
    born, dies, low, high = np.empty((4, total), np.int64)
    room = _Room(born, dies, low, high, np.full(steps + 1, -1), np.full(total, -1), size)
    for buffer in range(buffers):
        _add(room, buffer, held[0, buffer], held[1, buffer], held[2, buffer], held[3, buffer])
    count, last = buffers, max(dies[:buffers].max(), 0) if buffers else 0
    busy = np.empty(total, np.int64)  # what is alive meanwhile, by address
    earliest = 0  # no load is fetched before the one ahead of it
    for load in range(loads):
        step, begin, size, ahead = wanted[:, load]
        alive = 0
        for death in range(begin, max(last, step) + 1):
            alive = _gather(room, busy, alive, death, step)
        if _gap(room, busy, alive, size) < 0:
            continue
        limit = max(min(step - ahead, begin), earliest)
        while begin > limit:
            more = _gather(room, busy, alive, begin - 1, step)
            if more > alive and _gap(room, busy, more, size) < 0:
                alive = _without(room, busy, more, begin)
                break
            alive, begin = more, begin - 1
        birth[load] = earliest = begin
        address[load] = _gap(room, busy, alive, size)
        _add(room, count, begin, step, address[load], size)
        last, count = max(last, step), count + 1
    return birth, address


@borrowing
def _add(room: _Room, at: int, born: int, dies: int, low: int, size: int) -> None:
    """Put something into GB."""
    room.born[at], room.dies[at], room.low[at], room.high[at] = born, dies, low, low + size
    room.following[at], room.first[dies] = room.first[dies], at


@borrowing
def _gather(room: _Room, busy: Ints, alive: int, death: int, step: int) -> int:
    """Add to a list by address what dies at a step and is born by another; return its length."""
    other = room.first[death]
    while other >= 0:
        if room.born[other] <= step:
            place = alive
            while place > 0 and room.low[busy[place - 1]] > room.low[other]:
                busy[place] = busy[place - 1]
                place -= 1
            busy[place] = other
            alive += 1
        other = room.following[other]
    return alive


@borrowing
def _without(room: _Room, busy: Ints, alive: int, begin: int) -> int:
    """Take from a list what dies before a step; return its length."""
    kept = 0
    for place in range(alive):
        if room.dies[busy[place]] >= begin:
            busy[kept] = busy[place]
            kept += 1
    return kept


@borrowing
def _gap(room: _Room, busy: Ints, alive: int, size: int) -> int:
    """Return the lowest address of so many free bytes, -1 if there is none."""
    end = 0
    for place in range(alive):
        if room.low[busy[place]] - end >= size:
            return end
        # a load begins where a burst does
        end = max(end, -(-room.high[busy[place]] // ALIGNMENT) * ALIGNMENT)
    return end if end + size <= room.size else -1
