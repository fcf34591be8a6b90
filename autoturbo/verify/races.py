"""Races: two accesses to one place, at least one of them writing, that nothing orders.

What happens before what is told by vector clocks: per instruction and engine, the last instruction
that has ended before it begins. Engines issue and finish in order, instructions wait for others,
barriers end phases, and kernels wait for those of other clusters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.instructions import ENGINES, Column, Role
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import (
    Check,
    Finding,
    buffer_name,
    instance_name,
    layer_name,
    tensor_name,
)
from autoturbo.verify.trace import (
    COMPUTE,
    Access,
    Event,
    Phase,
    Program,
    RingBuffer,
    Trace,
    Wait,
    kernel_positions,
)

_NEVER = np.iinfo(np.int64).max
"""What a clock of no instructions says: it asks for nothing."""


def check_races(schedule: Schedule, trace: Trace) -> tuple[Finding, ...]:
    """Return findings of kind ``"race"`` in a trace of a schedule."""
    orders: dict[int, _Order] = {}
    clashes: dict[int, list[tuple[int, int, RingBuffer]]] = {}
    found: list[Finding] = []
    for cluster, phases in enumerate(trace.clusters):
        for phase in phases:
            if phase.program is None:
                continue
            key = id(phase.program)
            if key not in orders:
                orders[key] = _order_of(phase.program)
                clashes[key] = list(_slot_clashes(phase.program, orders[key].clocks))
            labels = _KernelLabels(schedule, cluster, phase)
            found += (labels.slot_race(*clash) for clash in clashes[key])
            found += _buffer_races(labels, orders[key])
        found += _lost_barriers(schedule, cluster, phases)
    return (*found, *_lost_waits(schedule, trace))


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """What a program's vector clocks say.

    Attributes:
        clocks: per instruction and engine, the last instruction that has ended before it begins.
        last: per layer, role and engine, the last instruction; -1 for none.
        least: per layer, role and engine, the least of their clocks.
    """

    clocks: Ints
    last: Ints
    least: Ints


def _order_of(program: Program) -> _Order:
    where = program.where
    clocks = clocks_of(where)
    layers = int(where[:, Column.LAYER].max(initial=-1)) + 1
    last = np.full((layers, len(Role), len(ENGINES)), -1, np.int64)
    least = np.full((layers, len(Role), len(ENGINES)), _NEVER, np.int64)
    cell = where[:, Column.LAYER], where[:, Column.ROLE]
    np.maximum.at(last, (*cell, where[:, Column.ENGINE]), np.arange(len(where)))
    np.minimum.at(least, cell, clocks)
    return _Order(clocks, last, least)


@njit(cache=True)
def clocks_of(where: Ints) -> Ints:
    """Return, per instruction and engine, the last instruction that ended before it, or -1."""
    clocks = np.full((len(where), len(ENGINES)), -1, np.int64)
    previous = np.full(len(ENGINES), -1, np.int64)
    for index in range(len(where)):
        own = where[index, Column.ENGINE]
        _join(clocks, index, previous[own], own)
        for column in range(Column.AFTER, where.shape[1]):
            before = where[index, column]
            if before >= 0:
                _join(clocks, index, before, where[before, Column.ENGINE])
        previous[own] = index
    return clocks


@njit(cache=True)
def _join(clocks: Ints, index: int, before: int, engine: int) -> None:
    """Add to a clock all that ended before another instruction, and that instruction."""
    if before < 0:
        return
    for other in range(clocks.shape[1]):
        clocks[index, other] = max(clocks[index, other], clocks[before, other])
    clocks[index, engine] = max(clocks[index, engine], before)


def _slot_clashes(program: Program, clocks: Ints) -> Iterator[tuple[int, int, RingBuffer]]:
    """Yield pairs of instructions that nothing orders in a slot, one per ring buffer.

    Whoever reads a piece comes after those that write it; whoever fills a slot comes after all that
    had to do with what the slot held before.
    """
    events = program.events
    for ring in np.unique(events[:, Event.RING]).tolist():
        own = events[events[:, Event.RING] == ring]
        writes = own[:, Event.WRITES] == 1
        writers, readers = own[writes], own[~writes]
        pair = _unordered(readers, Event.PIECE, writers, Event.PIECE, 0, program, clocks)
        if pair is None:
            slots = int(program.slots[ring])
            pair = _unordered(writers, Event.UNIT, own, Event.UNIT, slots, program, clocks)
        if pair is not None:
            yield (*pair, RingBuffer(ring))


def _unordered(
    later: Ints, by: Event, earlier: Ints, key: Event, back: int, program: Program, clocks: Ints
) -> tuple[int, int] | None:
    """Return an earlier and a later event, ``back`` keys apart, that nothing orders."""
    count = int(max(later[:, by].max(initial=-1), earlier[:, key].max(initial=-1))) + 1
    engine = program.where[earlier[:, Event.INSTRUCTION], Column.ENGINE]
    last = np.full((count, len(ENGINES)), -1, np.int64)
    np.maximum.at(last, (earlier[:, key], engine), earlier[:, Event.INSTRUCTION])
    asked = later[later[:, by] >= back]
    wanted, given = last[asked[:, by] - back], clocks[asked[:, Event.INSTRUCTION]]
    own = wanted == asked[:, Event.INSTRUCTION][:, None]
    wrong = np.argwhere((given < wanted) & ~own)
    if not len(wrong):
        return None
    row = wrong[0, 0]
    missing = wanted[row][wrong[wrong[:, 0] == row, 1]]
    return int(missing.max()), int(asked[row, Event.INSTRUCTION])


@dataclass(frozen=True, slots=True, eq=False)
class _KernelLabels:
    """A kernel's phase with what its instructions and places are called."""

    schedule: Schedule
    cluster: int
    phase: Phase

    def race(self, first: str, second: str, place: str) -> Finding:
        """Return a finding about two accesses to a place."""
        name = instance_name(self.schedule, self.phase.instance)
        message = f"{name}: nothing orders {first} and {second}, which share {place}"
        return Finding(Check.MEMORY, "race", message, name)

    @property
    def where(self) -> Ints:
        """The kernel's instructions."""
        return self.phase.program.where if self.phase.program else np.zeros((0, 0), np.int64)

    def instruction(self, index: int) -> str:
        """Return an instruction by its role, layer and tile, in words."""
        row = self.where[index]
        role = Role(int(row[Column.ROLE])).name.lower().replace("_", " ")
        return f"{role} {index} of {self.layer(int(row[Column.LAYER]))} tile {row[Column.TILE]}"

    def layer(self, position: int) -> str:
        """Return the name of a layer of the kernel."""
        graph = self.schedule.instances
        subgraph = graph.subgraphs[int(graph.subgraph[self.phase.instance])]
        return layer_name(self.schedule, subgraph.layers[position])

    def slot_race(self, first: int, second: int, ring: RingBuffer) -> Finding:
        """Return a finding about two instructions that share a slot."""
        return self.race(self.instruction(first), self.instruction(second), _slot_name(ring))

    def place(self, first: Ints, second: Ints) -> str:
        """Return in words what two accesses share."""
        timeline = self.schedule.timelines[self.cluster]
        names = [
            buffer_name(self.schedule, timeline, int(row[Access.BUFFER])) for row in (first, second)
        ]
        low = max(int(first[Access.LOW]), int(second[Access.LOW]))
        scope = Scope(int(first[Access.SCOPE])).name
        where = f"byte {low} of {scope}" if scope != "DDR" else scope
        return f"{' and '.join(dict.fromkeys(names))} at {where}"


@njit(cache=True)
def unordered_pairs(table: Ints, last: Ints, least: Ints) -> Ints:
    """Return pairs of accesses to a common byte, one of which writes, that nothing orders.

    Accesses are swept by scope and first byte, so that only those which meet are compared and no
    more than what is found takes memory. Rows are two indices, the lower first, ascending.

    Args:
        table: accesses, by :class:`Access`.
        last: per access and engine, its last instruction.
        least: per access and engine, the least of what has ended before its instructions.
    """
    count = len(table)
    by_low = np.argsort(table[:, Access.LOW], kind="mergesort")
    sweep = by_low[np.argsort(table[by_low, Access.SCOPE], kind="mergesort")]
    found, used = np.empty((16, 2), np.int64), 0
    for place in range(count):
        one = sweep[place]
        for after in range(place + 1, count):
            two = sweep[after]
            if (
                table[two, Access.SCOPE] != table[one, Access.SCOPE]
                or table[two, Access.LOW] >= table[one, Access.HIGH]
            ):
                break
            if _share_a_byte(table, one, two) and not (
                _is_after(last, least, one, two) or _is_after(last, least, two, one)
            ):
                if used == len(found):
                    found = np.concatenate((found, np.empty_like(found)))
                found[used, 0], found[used, 1] = min(one, two), max(one, two)
                used += 1
    rows = found[:used]
    return rows[np.argsort(rows[:, 0] * count + rows[:, 1])]


@njit(cache=True)
def _share_a_byte(table: Ints, one: int, two: int) -> bool:
    """Return whether two accesses of one scope share a byte, and one of them writes."""
    writes = table[one, Access.WRITES] | table[two, Access.WRITES]
    low = max(table[one, Access.LOW], table[two, Access.LOW])
    return bool(writes == 1 and low < min(table[one, Access.HIGH], table[two, Access.HIGH]))


@njit(cache=True)
def _is_after(last: Ints, least: Ints, one: int, two: int) -> bool:
    """Return whether all instructions of the second access come after all of the first."""
    for engine in range(last.shape[1]):  # noqa: SIM110  compiled
        if least[two, engine] < last[one, engine]:
            return False
    return True


@njit(cache=True)
def _first_meeting(first: Ints, second: Ints) -> tuple[int, int]:
    """Return the first pair of accesses to a common byte, one of which writes; -1 for none."""
    for one in range(len(first)):
        for two in range(len(second)):
            a, b = first[one], second[two]
            low, high = max(a[Access.LOW], b[Access.LOW]), min(a[Access.HIGH], b[Access.HIGH])
            writes = a[Access.WRITES] | b[Access.WRITES]
            if a[Access.SCOPE] == b[Access.SCOPE] and low < high and writes == 1:
                return one, two
    return -1, -1


def _ends(order: _Order, accesses: Ints) -> tuple[Ints, Ints]:
    """Return, per access, the last instruction on each engine, and the least clocks."""
    layers = accesses[:, Access.LAYER]
    roles = (accesses[:, Access.ROLES][:, None] >> np.arange(len(Role)) & 1).astype(bool)
    everywhere = layers < 0
    last = np.where(everywhere[:, None, None], order.last.max(axis=0), order.last[layers])
    least = np.where(everywhere[:, None, None], order.least.min(axis=0), order.least[layers])
    last = np.where(roles[..., None], last, -1).max(axis=1)
    return last, np.where(roles[..., None], least, _NEVER).min(axis=1)


def _buffer_races(labels: _KernelLabels, order: _Order) -> Iterator[Finding]:
    """Yield races between accesses of a kernel to its cluster's buffers.

    Tiles of one layer may write over what they read: each reads its own elements before. What other
    cores read of it must be over by then.
    """
    table = labels.phase.accesses
    if len(table) < 2:  # noqa: PLR2004  a pair
        return
    last, least = _ends(order, table)
    first, second = unordered_pairs(table, last, least).T
    same = table[first, Access.LAYER] == table[second, Access.LAYER]
    alone = ((table[first, Access.ROLES] | table[second, Access.ROLES]) & ~COMPUTE) == 0
    alone |= table[first, Access.SCOPE] != Scope.LB
    for at in np.flatnonzero(~(same & alone)).tolist():
        one, two = int(first[at]), int(second[at])
        if table[one, Access.LAYER] > table[two, Access.LAYER]:
            one, two = two, one
        names = _unordered_instructions(labels, order, table[one], table[two])
        yield labels.race(*names, labels.place(table[one], table[two]))


def _unordered_instructions(
    labels: _KernelLabels, order: _Order, one: Ints, two: Ints
) -> tuple[str, str]:
    """Return the last instruction of one access and the first of another that does not wait."""
    first, second = (_instructions(labels.where, row) for row in (one, two))
    engine = labels.where[:, Column.ENGINE]
    for before in first[::-1].tolist():
        late = second[order.clocks[second, engine[before]] < before]
        late = late[late != before]
        if len(late):
            return labels.instruction(before), labels.instruction(int(late[0]))
    return labels.instruction(int(first[-1])), labels.instruction(int(second[0]))


def _instructions(where: Ints, access: Ints) -> Ints:
    mine = (access[Access.ROLES] >> where[:, Column.ROLE] & 1) == 1
    if access[Access.LAYER] >= 0:
        mine &= where[:, Column.LAYER] == access[Access.LAYER]
    return np.flatnonzero(mine)


def _lost_barriers(schedule: Schedule, cluster: int, phases: Sequence[Phase]) -> Iterator[Finding]:
    """Yield races between phases that no barrier separates, one for each phase."""
    for at, phase in enumerate(phases):
        later = [] if phase.barrier else _until_barrier(phases, at + 1)
        found = (_race_across_phases(schedule, cluster, phase, other) for other in later)
        yield from itertools.islice((one for one in found if one is not None), 1)


def _until_barrier(phases: Sequence[Phase], start: int) -> Iterator[Phase]:
    for phase in itertools.islice(phases, start, None):
        yield phase
        if phase.barrier:
            return


def _race_across_phases(schedule: Schedule, cluster: int, one: Phase, two: Phase) -> Finding | None:
    """Return a race over a buffer or over slots between two phases, or None."""
    labels = _KernelLabels(schedule, cluster, two)
    names = _phase_name(schedule, one), _phase_name(schedule, two)
    first, second = _first_meeting(one.accesses, two.accesses)
    if first >= 0:
        return labels.race(*names, labels.place(one.accesses[first], two.accesses[second]))
    if one.program is None or two.program is None:
        return None
    rings = (set(p.events[:, Event.RING].tolist()) for p in (one.program, two.program))
    common = sorted(set.intersection(*rings))
    return labels.race(*names, _slot_name(RingBuffer(common[0]))) if common else None


def _phase_name(schedule: Schedule, phase: Phase) -> str:
    kind = "the movements before" if phase.program is None else "the kernel of"
    return f"{kind} {instance_name(schedule, phase.instance)}"


def _slot_name(ring: RingBuffer) -> str:
    words = ring.name.lower().replace("_", " ")
    return f"a slot of {words[:-2]}{words[-2:].upper()}"


def _lost_waits(schedule: Schedule, trace: Trace) -> Iterator[Finding]:
    """Yield races with other clusters: reads of what a kernel there has not yet made.

    Clocks of kernels: per kernel and other cluster, the last kernel there that has ended before.
    """
    clocks = _kernel_clocks(schedule, trace)
    for need, tensor, instance in dict.fromkeys(trace.handed):
        if clocks.get((need.cluster, need.kernel), {}).get(need.maker, -1) < need.made:
            reader = instance_name(
                schedule, int(schedule.timelines[need.cluster].order[need.kernel])
            )
            maker = instance_name(schedule, instance)
            message = (
                f"nothing orders {maker} on cluster {need.maker} and {reader} on cluster "
                f"{need.cluster}, which reads {tensor_name(schedule, tensor)} of it in DDR"
            )
            yield Finding(Check.MEMORY, "race", message, reader)


def _kernel_clocks(schedule: Schedule, trace: Trace) -> dict[tuple[int, int], dict[int, int]]:
    """Return, per cluster and kernel, the last kernel of each cluster that ended before it."""
    waits: dict[tuple[int, int], list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault((wait.cluster, wait.kernel), []).append(wait)
    at = kernel_positions(schedule)
    clocks: dict[tuple[int, int], dict[int, int]] = {}
    for index in schedule.order:
        if index not in at or not trace.handed:
            continue
        cluster, kernel = at[index]
        own = dict(clocks.get((cluster, kernel - 1), {}))
        for wait in waits.get((cluster, kernel), []):
            _advance(own, clocks.get((wait.maker, wait.made), {}))
            _advance(own, {wait.maker: wait.made})
        clocks[cluster, kernel] = own
    return clocks


def _advance(clock: dict[int, int], other: dict[int, int]) -> None:
    for cluster, kernel in other.items():
        clock[cluster] = max(clock.get(cluster, -1), kernel)
