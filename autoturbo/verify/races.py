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
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Scope
from autoturbo.schedule.instructions import ENGINES, Column, Role
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import Check, Finding
from autoturbo.verify.names import buffer_name, instance_name, layer_name, tensor_name
from autoturbo.verify.rings import Event, Ring
from autoturbo.verify.trace import COMPUTE, ENGINE_OF, Access, Phase, Program, Trace, Wait

Bools = NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).max
"""What a clock of no instructions says: it asks for nothing."""


def check_races(schedule: Schedule, trace: Trace) -> tuple[Finding, ...]:
    """Findings of kind ``"race"`` in a trace of a schedule."""
    orders: dict[int, _Order] = {}
    clashes: dict[int, list[tuple[int, int, Ring]]] = {}
    found: list[Finding] = []
    for cluster, phases in enumerate(trace.clusters):
        for phase in phases:
            if phase.program is None:
                continue
            key = id(phase.program)
            if key not in orders:
                orders[key] = _order_of(phase.program)
                clashes[key] = list(_slot_clashes(phase.program, orders[key].clocks))
            named = _Named(schedule, cluster, phase)
            found += (named.slot_race(*clash) for clash in clashes[key])
            found += _buffer_races(named, orders[key])
        found += _lost_barriers(schedule, cluster, phases, orders)
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
    """Per instruction and engine, the last instruction that has ended before it begins; or -1."""
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
    """What was over before another instruction began is over, and so is that instruction."""
    if before < 0:
        return
    for other in range(clocks.shape[1]):
        clocks[index, other] = max(clocks[index, other], clocks[before, other])
    clocks[index, engine] = max(clocks[index, engine], before)


def _slot_clashes(program: Program, clocks: Ints) -> Iterator[tuple[int, int, Ring]]:
    """Pairs of instructions of a program that nothing orders in a slot, one per ring.

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
            yield (*pair, Ring(ring))


def _unordered(
    later: Ints, by: Event, earlier: Ints, key: Event, back: int, program: Program, clocks: Ints
) -> tuple[int, int] | None:
    """An earlier and a later event, so many keys apart, whose instructions nothing orders."""
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
    row, column = wrong[0]
    return int(wanted[row, column]), int(asked[row, Event.INSTRUCTION])


@dataclass(frozen=True, slots=True, eq=False)
class _Named:
    """A kernel's phase with what its instructions and places are called."""

    schedule: Schedule
    cluster: int
    phase: Phase

    def race(self, first: str, second: str, place: str) -> Finding:
        """A finding about two accesses to a place."""
        name = instance_name(self.schedule, self.phase.instance)
        message = f"{name}: nothing orders {first} and {second}, which share {place}"
        return Finding(Check.MEMORY, "race", message, name)

    def instruction(self, index: int) -> str:
        """An instruction by its role, layer and tile."""
        program = self.phase.program
        assert program is not None
        row = program.where[index]
        role = Role(int(row[Column.ROLE])).name.lower().replace("_", " ")
        return f"{role} {index} of {self.layer(int(row[Column.LAYER]))} tile {row[Column.TILE]}"

    def layer(self, position: int) -> str:
        """A layer of the kernel."""
        graph = self.schedule.instances
        subgraph = graph.subgraphs[int(graph.subgraph[self.phase.instance])]
        return layer_name(self.schedule, subgraph.layers[position])

    def slot_race(self, first: int, second: int, ring: Ring) -> Finding:
        """Two instructions that share a slot."""
        place = f"a slot of {ring.name.lower().replace('_', ' ').replace(' lb', ' LB')}"
        names = self.instruction(first), self.instruction(second)
        return self.race(*names, place.replace(" gb", " GB"))

    def place(self, first: Ints, second: Ints) -> str:
        """What two accesses share."""
        timeline = self.schedule.timelines[self.cluster]
        names = [
            buffer_name(self.schedule, timeline, int(row[Access.BUFFER])) for row in (first, second)
        ]
        low = max(int(first[Access.LOW]), int(second[Access.LOW]))
        scope = Scope(int(first[Access.SCOPE])).name
        where = f"byte {low} of {scope}" if scope != "DDR" else scope
        return f"{' and '.join(dict.fromkeys(names))} at {where}"


def _meeting(first: Ints, second: Ints) -> Bools:
    """Pairs of accesses to a common byte, at least one of which writes."""
    a, b = first[:, None, :], second[None, :, :]
    found: Bools = a[..., Access.SCOPE] == b[..., Access.SCOPE]
    found &= (a[..., Access.LOW] < b[..., Access.HIGH]) & (b[..., Access.LOW] < a[..., Access.HIGH])
    found &= (a[..., Access.WRITES] | b[..., Access.WRITES]) == 1
    return found


def _ends(order: _Order, accesses: Ints) -> tuple[Ints, Ints]:
    """Per access, the last instruction on each engine, and the least clocks."""
    layers = accesses[:, Access.LAYER]
    roles = (accesses[:, Access.ROLES][:, None] >> np.arange(len(Role)) & 1).astype(bool)
    everywhere = layers < 0
    last = np.where(everywhere[:, None, None], order.last.max(axis=0), order.last[layers])
    least = np.where(everywhere[:, None, None], order.least.min(axis=0), order.least[layers])
    last = np.where(roles[..., None], last, -1).max(axis=1)
    return last, np.where(roles[..., None], least, _NEVER).min(axis=1)


def _buffer_races(named: _Named, order: _Order) -> Iterator[Finding]:
    """Accesses of a kernel to its cluster's buffers, layer by layer.

    Tiles of one layer may write over what they read: each reads its own elements before. What other
    cores read of it must be over by then.
    """
    table = named.phase.accesses
    if len(table) < 2:  # noqa: PLR2004  a pair
        return
    met = np.triu(_meeting(table, table), 1)
    first, second = np.nonzero(met)
    if not len(first):
        return
    last, least = _ends(order, table)
    same = table[first, Access.LAYER] == table[second, Access.LAYER]
    alone = ((table[first, Access.ROLES] | table[second, Access.ROLES]) & ~COMPUTE) == 0
    alone |= table[first, Access.SCOPE] != Scope.LB
    ordered = (least[second] >= last[first]).all(axis=1)
    ordered |= (least[first] >= last[second]).all(axis=1)
    for at in np.flatnonzero(~ordered & ~(same & alone)).tolist():
        one, two = int(first[at]), int(second[at])
        if table[one, Access.LAYER] > table[two, Access.LAYER]:
            one, two = two, one
        names = _pair(named, order, table[one], table[two])
        yield named.race(*names, named.place(table[one], table[two]))


def _pair(named: _Named, order: _Order, one: Ints, two: Ints) -> tuple[str, str]:
    """The last instruction of one access and the first of another that does not wait for it."""
    program = named.phase.program
    assert program is not None
    first, second = (_instructions(program, row) for row in (one, two))
    engine = program.where[:, Column.ENGINE]
    for before in first[::-1].tolist():
        late = second[order.clocks[second, engine[before]] < before]
        late = late[late != before]
        if len(late):
            return named.instruction(before), named.instruction(int(late[0]))
    return named.instruction(int(first[-1])), named.instruction(int(second[0]))


def _instructions(program: Program, access: Ints) -> Ints:
    where = program.where
    mine = (access[Access.ROLES] >> where[:, Column.ROLE] & 1) == 1
    if access[Access.LAYER] >= 0:
        mine &= where[:, Column.LAYER] == access[Access.LAYER]
    return np.flatnonzero(mine)


def _lost_barriers(
    schedule: Schedule, cluster: int, phases: Sequence[Phase], orders: dict[int, _Order]
) -> Iterator[Finding]:
    """What follows a phase that no barrier ends is ordered by engines alone."""
    for at, phase in enumerate(phases):
        if phase.barrier:
            continue
        for later in _until_barrier(phases, at + 1):
            finding = _across(schedule, cluster, phase, later, orders)
            if finding is not None:
                yield finding
                break


def _until_barrier(phases: Sequence[Phase], start: int) -> Iterator[Phase]:
    for phase in itertools.islice(phases, start, None):
        yield phase
        if phase.barrier:
            return


def _across(
    schedule: Schedule, cluster: int, one: Phase, two: Phase, orders: dict[int, _Order]
) -> Finding | None:
    """A race between two phases that no barrier parts."""
    met = _meeting(one.accesses, two.accesses)
    for first, second in np.argwhere(met).tolist():
        a, b = one.accesses[first], two.accesses[second]
        if not _engines(a) or _follows(_engines(a), b, two, orders):
            continue
        kind = "the movements before" if one.program is None else "the kernel"
        names = f"{kind} of {instance_name(schedule, one.instance)}", "what follows"
        return _Named(schedule, cluster, two).race(
            *names, _Named(schedule, cluster, two).place(a, b)
        )
    return None


def _engines(access: Ints) -> set[int]:
    return {ENGINE_OF[role] for role in Role if access[Access.ROLES] >> role & 1}


def _follows(engines: set[int], access: Ints, phase: Phase, orders: dict[int, _Order]) -> bool:
    """Whether an access of a phase comes after all that some engines did in the phase before."""
    if phase.program is None:
        return _engines(access) == engines and len(engines) == 1
    clocks, where = orders[id(phase.program)].clocks, phase.program.where
    for index in _instructions(phase.program, access).tolist():
        own = int(where[index, Column.ENGINE])
        if any(engine != own and clocks[index, engine] < 0 for engine in engines):
            return False
    return True


def _lost_waits(schedule: Schedule, trace: Trace) -> Iterator[Finding]:
    """What another cluster makes is read after the kernel that makes it, directly or through others.

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
    """Per cluster and kernel, the last kernel of each cluster that has ended before it begins."""
    waits: dict[tuple[int, int], list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault((wait.cluster, wait.kernel), []).append(wait)
    at = {
        int(index): (cluster, kernel)
        for cluster, timeline in enumerate(schedule.timelines)
        for kernel, index in enumerate(timeline.order)
    }
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
