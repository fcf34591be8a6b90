"""Races: two accesses to one place, at least one of them writing, that nothing orders.

What happens before what is told by vector clocks: per instruction and engine, the last instruction
that has ended before it begins. Engines issue and finish in order, instructions wait for others,
barriers end phases, and kernels wait for those of other clusters.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.codegen.loads import COPY
from autoturbo.schedule.codegen.tiling import Role
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.verifier.findings import (
    Check,
    Finding,
    buffer_name,
    instance_name,
    layer_name,
    tensor_name,
)
from autoturbo.verifier.tile_order import TileWaits
from autoturbo.verifier.trace import (
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
    findings: list[Finding] = []
    for cluster, phases in enumerate(trace.clusters):
        passed = _passed_loads(schedule, cluster)
        for phase in phases:
            if phase.program is None:
                continue
            key = id(phase.program)
            if key not in orders:
                orders[key] = _order_of(phase.program)
            labels = _KernelLabels(schedule, cluster, phase)
            for one, two, ring in orders[key].clashes:
                names = labels.instruction(one), labels.instruction(two)
                findings.append(labels.race(*names, _slot_name(ring)))
            table = np.concatenate((phase.accesses, passed.get(phase.instance, phase.accesses[:0])))
            findings += _buffer_races(labels, orders[key], table)
        findings += _lost_barriers(schedule, cluster, phases)
    return (*findings, *_lost_waits(schedule, trace))


_LOAD = -1
"""Buffer of an access to a load, which has none."""


def _passed_loads(schedule: Schedule, cluster: int) -> dict[int, Ints]:
    """Return the reads of loads that run over kernels, by instance, as :class:`Access`."""
    loads, timeline = schedule.loads(cluster), schedule.timelines[cluster]
    layer = loads.step - 1 - timeline.first_steps[loads.kernel]
    role = np.where(loads.inputs > 0, 1 << Role.PASS_INPUT, 1 << Role.PASS_WEIGHTS)
    columns = (
        layer, role, Scope.GB, loads.address, loads.address + loads.size, 0, _LOAD
    )  # fmt: skip
    table = np.column_stack(np.broadcast_arrays(*columns))
    passed = loads.passed != COPY  # which is over when the kernel begins
    return {
        int(timeline.order[kernel]): table[passed & (loads.kernel == kernel)]
        for kernel in np.unique(loads.kernel)
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """Happens-before order of a program's instructions, by vector clocks.

    Attributes:
        clocks: Per instruction and engine, the last instruction that has ended before it begins.
        last: Per layer, role and engine, the last instruction; -1 for none.
        least: Per layer, role and engine, the least of their clocks.
        clashes: Pairs of instructions that nothing orders in a slot, one per ring buffer.
    """

    clocks: Ints
    last: Ints
    least: Ints
    clashes: tuple[tuple[int, int, RingBuffer], ...]


def _order_of(program: Program) -> _Order:
    where = program.where
    clocks = clocks_of(where)
    layers = int(where[:, Column.LAYER].max(initial=-1)) + 1
    last = np.full((layers, len(Role), len(ENGINES)), -1, np.int64)
    least = np.full((layers, len(Role), len(ENGINES)), _NEVER, np.int64)
    cell = where[:, Column.LAYER], where[:, Column.ROLE]
    np.maximum.at(last, (*cell, where[:, Column.ENGINE]), np.arange(len(where)))
    np.minimum.at(least, cell, clocks)
    return _Order(clocks, last, least, tuple(_slot_clashes(program, clocks)))


def clocks_of(where: Ints) -> Ints:
    """Return, per instruction and engine, the last instruction that ended before it, or -1."""
    never = (-1,) * len(ENGINES)
    clocks, ended = [never for _ in where], [never for _ in where]
    # An engine's instructions are in order: the clock of its last one holds for the next too.
    latest = [never for _ in ENGINES]
    for index, row in enumerate(where.tolist()):
        engine, awaited = row[Column.ENGINE], [ended[b] for b in row[Column.AFTER :] if b >= 0]
        clock = tuple(map(max, never, latest[engine], *awaited))
        clocks[index] = clock
        # What has ended when this one has: nothing on its engine is later than itself.
        ended[index] = latest[engine] = (*clock[:engine], index, *clock[engine + 1 :])
    return np.asarray(clocks, np.int64).reshape(-1, len(ENGINES))


def _slot_clashes(program: Program, clocks: Ints) -> Iterator[tuple[int, int, RingBuffer]]:
    """Yield pairs of unordered accesses to a slot, one pair per ring buffer.

    A reader of a piece must follow those that write it. A writer of a slot must follow all accesses
    to its previous content.
    """
    events = program.events
    for ring in np.unique(events[:, Event.RING]).tolist():
        ring_events = events[events[:, Event.RING] == ring]
        writes = ring_events[:, Event.WRITES] == 1
        writers, readers = ring_events[writes], ring_events[~writes]
        # One clash a ring: a reader before its writer says more than a slot taken too early.
        pair = _unordered(readers, Event.PIECE, writers, Event.PIECE, 0, program, clocks)
        if pair is None:
            slots = int(program.slots[ring])
            pair = _unordered(writers, Event.UNIT, ring_events, Event.UNIT, slots, program, clocks)
        if pair is not None:
            yield (*pair, RingBuffer(ring))


def _unordered(
    later: Ints, by: Event, earlier: Ints, key: Event, back: int, program: Program, clocks: Ints
) -> tuple[int, int] | None:
    """Return an earlier and a later event, ``back`` keys apart, that are unordered.

    Args:
        later: Events that have to come later, columns of :class:`Event`.
        by: The column with their keys.
        earlier: Events that have to be over by then.
        key: The column with their keys.
        back: Keys between the two.
        program: Program of the kernel.
        clocks: Per instruction and engine, the last instruction that has ended before it begins.
    """
    count = int(max(later[:, by].max(initial=-1), earlier[:, key].max(initial=-1))) + 1
    engine = program.where[earlier[:, Event.INSTRUCTION], Column.ENGINE]
    last = np.full((count, len(ENGINES)), -1, np.int64)
    np.maximum.at(last, (earlier[:, key], engine), earlier[:, Event.INSTRUCTION])
    asked = later[later[:, by] >= back]
    wanted, given = last[asked[:, by] - back], clocks[asked[:, Event.INSTRUCTION]]
    # An instruction may read and write one slot: it follows itself.
    same_instruction = wanted == asked[:, Event.INSTRUCTION][:, None]
    wrong = np.argwhere((given < wanted) & ~same_instruction)
    if not len(wrong):
        return None
    row = wrong[0, 0]
    missing = wanted[row][wrong[wrong[:, 0] == row, 1]]
    return int(missing.max()), int(asked[row, Event.INSTRUCTION])


@dataclass(frozen=True, slots=True, eq=False)
class _KernelLabels:
    """Names of a kernel's instructions and places for messages."""

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
        """Return the kernel's instructions."""
        return self.phase.program.where if self.phase.program else np.zeros((0, 0), np.int64)

    def instruction(self, index: int) -> str:
        """Return a text on an instruction: its role, layer and tile."""
        row = self.where[index]
        role = Role(int(row[Column.ROLE])).name.lower().replace("_", " ")
        return f"{role} {index} of {self.layer(int(row[Column.LAYER]))} tile {row[Column.TILE]}"

    def layer(self, position: int) -> str:
        """Return the name of a layer of the kernel."""
        graph = self.schedule.instances
        subgraph = graph.subgraphs[int(graph.subgraph[self.phase.instance])]
        return layer_name(self.schedule, subgraph.layers[position])

    def place(self, first: Ints, second: Ints) -> str:
        """Return a text on the place that two accesses share."""
        timeline = self.schedule.timelines[self.cluster]
        names = [
            "a load" if (at := int(row[Access.BUFFER])) == _LOAD
            else buffer_name(self.schedule, timeline, at)
            for row in (first, second)
        ]  # fmt: skip
        low = max(int(first[Access.LOW]), int(second[Access.LOW]))
        scope = Scope(int(first[Access.SCOPE])).name
        where = f"byte {low} of {scope}" if scope != "DDR" else scope
        return f"{' and '.join(dict.fromkeys(names))} at {where}"


def unordered_pairs(table: Ints, last: Ints, least: Ints) -> Ints:
    """Return unordered pairs of accesses to a common byte, one of which writes.

    Accesses are swept by scope and first byte, so that only overlapping ones are compared, some
    thousand pairs at a time. Rows are two indices, the lower first, ascending.

    Args:
        table: Accesses, by :class:`Access`.
        last: Per access and engine, its last instruction.
        least: Per access and engine, the least clock of its instructions.
    """
    pairs = [np.empty((0, 2), np.int64)]
    for met in _pairs_of_one_place(table, last, least):
        one, two = met[_share_a_byte(table[met[:, 0]], table[met[:, 1]])].T
        ordered = (least[two] >= last[one]).all(axis=1) | (least[one] >= last[two]).all(axis=1)
        pairs.append(np.sort(np.stack((one, two), axis=1)[~ordered], axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


def _pairs_of_one_place(table: Ints, last: Ints, least: Ints) -> Iterator[Ints]:
    """Yield pairs of accesses that may share a byte, without many that are in order."""
    # Accesses of no layer last as long as the kernel, and are compared with all.
    apart = np.flatnonzero(table[:, Access.LAYER] < 0)
    for access in apart.tolist():
        others = np.flatnonzero(table[:, Access.SCOPE] == table[access, Access.SCOPE])
        others = others[others != access]
        yield np.stack((np.full_like(others, access), others), axis=1)
    for window in _windows(table[:, Access.LAYER], last, least):
        for scope in np.unique(table[window, Access.SCOPE]):
            here = window[table[window, Access.SCOPE] == scope]
            for pairs in meeting_pairs(table[here, Access.LOW], table[here, Access.HIGH]):
                yield here[pairs]


WINDOW = 256
"""Accesses that are compared with each other at least: fewer take no less time."""


def _windows(layer: Ints, last: Ints, least: Ints) -> Iterator[Ints]:
    """Yield accesses in windows of layers; accesses that share no window are in order.

    Layers of a long kernel use the same bytes in turn. All up to one place are over when those from
    some later place on begin; so an access may only clash with one before that.
    """
    rest = np.flatnonzero(layer >= 0)
    rest = rest[np.argsort(layer[rest], kind="stable")]
    over = np.maximum.accumulate(last[rest], axis=0)
    begun = np.minimum.accumulate(least[rest][::-1], axis=0)[::-1]
    cuts = [0]
    while cuts[-1] < len(rest):
        own = zip(begun.T, over[cuts[-1]], strict=True)
        after = max(int(np.searchsorted(*engine)) for engine in own)
        # At least a window on, or layers in strict order would each be a window of their own.
        cuts.append(min(max(after, cuts[-1] + WINDOW), len(rest)))
    for place in range(max(len(cuts) - 2, 1)):
        yield rest[cuts[place] : cuts[min(place + 2, len(cuts) - 1)]]


_PAIRS = 1 << 12
"""Pairs that are compared at a time: it bounds the memory that comparing takes."""


def meeting_pairs(begin: Ints, end: Ints) -> Iterator[Ints]:
    """Yield the pairs of intervals in which the second begins within the first, in chunks.

    Rows are two indices, ascending in where the first begins, then in where the second does; of two
    that begin together, the one listed first comes first.

    Args:
        begin: Begin of every interval.
        end: One past the last.
    """
    sweep = np.argsort(begin, kind="stable")
    count = np.searchsorted(begin[sweep], end[sweep]) - np.arange(1, len(sweep) + 1)
    stops = np.maximum(count, 0).cumsum()
    for start in range(0, int(stops[-1]) if len(stops) else 0, _PAIRS):
        number = np.arange(start, min(start + _PAIRS, int(stops[-1])))
        place = np.searchsorted(stops, number, side="right")
        after = place + count[place] - (stops[place] - number) + 1
        yield sweep[np.stack((place, after), axis=1)]


def _share_a_byte(one: Ints, two: Ints) -> NDArray[np.bool_]:
    """Return, per pair of accesses of one scope, whether one writes a byte that both access."""
    low = np.maximum(one[..., Access.LOW], two[..., Access.LOW])
    high = np.minimum(one[..., Access.HIGH], two[..., Access.HIGH])
    writes = one[..., Access.WRITES] | two[..., Access.WRITES]
    return np.asarray((low < high) & (writes == 1))


def _ends(order: _Order, accesses: Ints) -> tuple[Ints, Ints]:
    """Return, per access, the last instruction on each engine, and the least clocks."""
    layers = accesses[:, Access.LAYER]
    roles = (accesses[:, Access.ROLES][:, None] >> np.arange(len(Role)) & 1).astype(bool)
    everywhere = layers < 0
    last = np.where(everywhere[:, None, None], order.last.max(axis=0), order.last[layers])
    least = np.where(everywhere[:, None, None], order.least.min(axis=0), order.least[layers])
    last = np.where(roles[..., None], last, -1).max(axis=1)
    return last, np.where(roles[..., None], least, _NEVER).min(axis=1)


def _buffer_races(labels: _KernelLabels, order: _Order, table: Ints) -> Iterator[Finding]:
    """Yield races between accesses of a kernel to its cluster's buffers and loads.

    Tiles of one layer may overwrite what they read: each reads its own elements before. Reads by
    other cores must be over by then. Tiles of a layer that another reads may go on meanwhile, if
    that one's tiles wait for those that they read (:mod:`autoturbo.verifier.tile_order`).
    """
    if len(table) < 2:  # noqa: PLR2004  a pair
        return
    last, least = _ends(order, table)
    first, second = unordered_pairs(table, last, least).T
    kernel = labels.phase.instance, labels.cluster
    waits = functools.cache(lambda: TileWaits(labels.schedule, *kernel, labels.where, order.clocks))
    same = table[first, Access.LAYER] == table[second, Access.LAYER]
    alone = ((table[first, Access.ROLES] | table[second, Access.ROLES]) & ~COMPUTE) == 0
    # Outside LB tiles move through slots, which the order of slots covers.
    alone |= table[first, Access.SCOPE] != Scope.LB
    for pair in np.flatnonzero(~(same & alone)).tolist():
        one, two = int(first[pair]), int(second[pair])
        if table[one, Access.LAYER] > table[two, Access.LAYER]:
            one, two = two, one
        if _tile_by_tile(table[one], table[two]) and waits().hold(
            int(table[one, Access.LAYER]), int(table[two, Access.LAYER])
        ):
            continue
        names = _unordered_instructions(labels, order, table[one], table[two])
        yield labels.race(*names, labels.place(table[one], table[two]))


def _tile_by_tile(one: Ints, two: Ints) -> bool:
    """Return whether a layer makes in LB what another one, later, reads or writes over."""
    common = one[Access.BUFFER] == two[Access.BUFFER] >= 0
    computed = (int(one[Access.ROLES]) | int(two[Access.ROLES])) & ~COMPUTE == 0
    made = one[Access.WRITES] == 1 and one[Access.LAYER] < two[Access.LAYER]
    return bool(common and computed and made and one[Access.SCOPE] == Scope.LB)


def _unordered_instructions(
    labels: _KernelLabels, order: _Order, one: Ints, two: Ints
) -> tuple[str, str]:
    """Return one access's last instruction and another's first that does not wait for it.

    Args:
        labels: Names of the kernel's instructions.
        order: Order of the instructions.
        one: The access that has to be over, a row.
        two: The access that has to wait, a row.
    """
    first, second = (_instructions(labels.where, row) for row in (one, two))
    engine = labels.where[:, Column.ENGINE]
    # Back from the last: the latest instruction that is not waited for says most.
    for before in first[::-1].tolist():
        late = second[order.clocks[second, engine[before]] < before]
        late = late[late != before]
        if len(late):
            return labels.instruction(before), labels.instruction(int(late[0]))
    return labels.instruction(int(first[-1])), labels.instruction(int(second[0]))


def _instructions(where: Ints, access: Ints) -> Ints:
    by_access = (access[Access.ROLES] >> where[:, Column.ROLE] & 1) == 1
    if access[Access.LAYER] >= 0:
        by_access &= where[:, Column.LAYER] == access[Access.LAYER]
    return np.flatnonzero(by_access)


def _lost_barriers(schedule: Schedule, cluster: int, phases: Sequence[Phase]) -> Iterator[Finding]:
    """Yield races between phases that no barrier separates, one for each phase."""
    for index, phase in enumerate(phases):
        later = [] if phase.barrier else _until_barrier(phases, index + 1)
        races = (
            _race_across_phases(schedule, cluster, phase, later_phase) for later_phase in later
        )
        # One for a phase: without its barrier all that follows races with it.
        yield from itertools.islice((race for race in races if race is not None), 1)


def _until_barrier(phases: Sequence[Phase], start: int) -> Iterator[Phase]:
    for phase in itertools.islice(phases, start, None):
        yield phase
        if phase.barrier:
            return


def _race_across_phases(schedule: Schedule, cluster: int, one: Phase, two: Phase) -> Finding | None:
    """Return a race over a buffer or slots between two phases, or None.

    Args:
        schedule: The schedule.
        cluster: The cluster that runs them.
        one: The earlier phase.
        two: The later phase.
    """
    labels = _KernelLabels(schedule, cluster, two)
    names = _phase_name(schedule, one), _phase_name(schedule, two)
    first, second = one.accesses[:, None], two.accesses
    same = first[..., Access.SCOPE] == second[:, Access.SCOPE]
    met = np.argwhere(same & _share_a_byte(first, second))
    if len(met):
        return labels.race(*names, labels.place(one.accesses[met[0, 0]], second[met[0, 1]]))
    if one.program is None or two.program is None:
        return None
    rings = (set(p.events[:, Event.RING].tolist()) for p in (one.program, two.program))
    common = sorted(set.intersection(*rings))
    return labels.race(*names, _slot_name(RingBuffer(common[0]))) if common else None


def _phase_name(schedule: Schedule, phase: Phase) -> str:
    kind = "the copies before" if phase.program is None else "the kernel of"
    return f"{kind} {instance_name(schedule, phase.instance)}"


def _slot_name(ring: RingBuffer) -> str:
    words = ring.name.lower().replace("_", " ")
    return f"a slot of {words[:-2]}{words[-2:].upper()}"


def _lost_waits(schedule: Schedule, trace: Trace) -> Iterator[Finding]:
    """Yield races with other clusters: reads of a tensor that another cluster has not yet made.

    Clocks of kernels: per kernel and other cluster, the last kernel there that has ended before.
    """
    clocks = _kernel_clocks(schedule, trace)
    for need, tensor, instance in dict.fromkeys(trace.handed):
        clock = clocks.get((need.cluster, need.kernel))
        if clock is None or clock[need.maker] < need.made:
            index = int(schedule.timelines[need.cluster].order[need.kernel])
            reader = instance_name(schedule, index)
            maker = instance_name(schedule, instance)
            message = (
                f"nothing orders {maker} on cluster {need.maker} and {reader} on cluster "
                f"{need.cluster}, which reads {tensor_name(schedule, tensor)} of it in DDR"
            )
            yield Finding(Check.MEMORY, "race", message, reader)


def _kernel_clocks(schedule: Schedule, trace: Trace) -> dict[tuple[int, int], Ints]:
    """Return, per cluster and kernel, the last kernel of each cluster that ended before it."""
    waits: dict[tuple[int, int], list[Wait]] = {}
    for wait in trace.waits:
        waits.setdefault((wait.cluster, wait.kernel), []).append(wait)
    place, never = kernel_positions(schedule), np.full(len(schedule.timelines), -1)
    clocks: dict[tuple[int, int], Ints] = {}
    for index in schedule.order if trace.handed else ():
        if index not in place:
            continue
        cluster, kernel = place[index]
        clock = clocks.get((cluster, kernel - 1), never).copy()
        for wait in waits.get((cluster, kernel), []):
            np.maximum(clock, clocks.get((wait.maker, wait.made), never), out=clock)
            clock[wait.maker] = max(clock[wait.maker], wait.made)
        clocks[cluster, kernel] = clock
    return clocks
