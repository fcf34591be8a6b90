"""Loads that run over kernels: tiles of weights and inputs that are in GB before a kernel begins.

A kernel fetches what it reads through a ring of a few slots, which is empty at every boundary, so
that the bus to DDR is idle while a kernel computes and the next one waits for it. A load is instead
a buffer in GB that is born at an earlier step: from then on it may be fetched, and it lives until
it is passed to the cores. Buffers of tensors come first; loads go round in what room they leave,
and one that takes the bytes of another waits until that is passed. Which step each is born at is
decided here, in steps and not in seconds, so that it is the same whatever the rates of the target
are; when a load is fetched, the bus decides (:mod:`autoturbo.simulator.whole_pass`).

Weights are fetched in the order in which they are needed, so none is born before the one ahead of
it; inputs are too, in a queue of their own, since they wait for the kernels that make them. A load
for which there is no room keeps to the ring of its kernel. Weights that several layers or instances
read are fetched once and kept until the last time, as far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from autoturbo.compiled import borrowing, compiled
from autoturbo.graph.arrays import Ints
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.instructions import Column, Instructions, Kernel
from autoturbo.schedule.codegen.tiling import Amount, Role, Tiling
from autoturbo.schedule.context import Zones
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.streams import IN_DDR
from autoturbo.schedule.work import Flags


class KernelLoads(NamedTuple):
    """Tiles that a kernel fetches, in the order in which it passes them to the cores.

    Attributes:
        instruction: The instruction that fetches the tile.
        passed: The instruction that passes it on.
        layer: Position of the layer that needs it.
        latest: Position of the layer in which it is passed: its fetch cannot wait for that layer to
            begin, since what the layer needs may stand behind it.
        size: Bytes of the tile.
        content: Hash of which tile of its layer's weights it is, and once these are known
            (:meth:`of`) of what it is: equal ones are the same bytes; 0 for a part of the weights
            and for inputs.
        inputs: 1 for a tile of what other kernels have made or the model is given, 0 for weights.
    """

    instruction: Ints
    passed: Ints
    layer: Ints
    latest: Ints
    size: Ints
    content: Ints
    inputs: Ints

    def of(self, weights: Ints) -> KernelLoads:
        """Return the loads of a kernel with these weights.

        Args:
            weights: Per layer, a hash of all its weights; 0 where it reads a part of them.
        """
        own = np.where(self.inputs > 0, 0, weights[self.layer])
        return self._replace(content=np.where(own != 0, own * 1_000_003 ^ self.content, 0))


NO_KERNEL_LOADS = KernelLoads(*np.zeros((7, 0), np.int64))
"""Of a kernel that fetches for itself."""


class Loads(NamedTuple):
    """Loads of a pass with room in GB, in the order in which they are passed to the cores.

    Weights are fetched in this order, and inputs are.

    Attributes:
        kernel: Place in the order of the kernel that needs it.
        instruction: The kernel's instruction that fetches it; :data:`COPY` for a copy before it.
        passed: The kernel's instruction that passes it to the cores; :data:`COPY` for the copy.
        step: Step of the layer that needs it; the last at which it lives.
        birth: Step from which on it may be fetched.
        after: The load whose bytes it takes: that is passed to the cores before; -1 for none.
        size: Bytes of the load.
        address: First byte in GB.
        until: Step until which its bytes are kept, for loads of the same content.
        kept: The load that has brought its bytes already; -1 for one that is fetched.
        inputs: As in :class:`KernelLoads`.
    """

    kernel: Ints
    instruction: Ints
    passed: Ints
    step: Ints
    birth: Ints
    after: Ints
    size: Ints
    address: Ints
    until: Ints
    kept: Ints
    inputs: Ints

    @property
    def fetched(self) -> Flags:
        """Return a mask of the loads that are fetched."""
        return np.asarray(self.kept < 0)


COPY: Final = -1
"""In place of an instruction: what is copied from DDR to LB before a kernel begins, all of it."""

NO_LOADS = Loads(*np.zeros((11, 0), np.int64))
"""Of a pass whose kernels all fetch for themselves."""


def loads_of(program: Instructions, kernel: Kernel, stored: float) -> KernelLoads:
    """Return the tiles of a kernel that may be fetched before it.

    Recurrences read their weights again and again through the ring.

    Args:
        program: Instructions of the kernel.
        kernel: The kernel that these were made from.
        stored: Bytes in memory for each that is counted.
    """
    stages = kernel.stages
    role, layer = program.where[:, Column.ROLE], program.where[:, Column.LAYER]
    fetched = np.flatnonzero(role == Role.FETCH_WEIGHTS)
    passed = np.flatnonzero(role == Role.PASS_WEIGHTS)
    if len(fetched) != len(passed):  # they stay where they are
        fetched = passed = fetched[:0]
    early, early_passed = _inputs_passed_once(program)
    if not len(fetched) + len(early) or stages[:, Stage.SEQUENCE].any():
        return NO_KERNEL_LOADS
    inputs = np.repeat([0, 1], [len(fetched), len(early)])
    fetched, passed = np.append(fetched, early), np.append(passed, early_passed)
    # In the order of passing, which is the order of need that loads are fetched in.
    order = np.argsort(passed, kind="stable")
    fetched, passed, inputs = fetched[order], passed[order], inputs[order]
    computes = np.flatnonzero((role == Role.MULTIPLY) | (role == Role.APPLY))
    # where layers take turns, the first that is not over by then
    running = np.minimum.accumulate(layer[computes][::-1])[::-1]
    meanwhile = running[np.searchsorted(computes, passed)]
    size = np.ceil(program.amounts[fetched, Amount.DDR] * stored).astype(np.int64)
    own = layer[fetched]
    return KernelLoads(
        fetched, passed, own, np.minimum(meanwhile, own), size,
        np.where(inputs > 0, 0, _contents(kernel, own, program.where[fetched, Column.TILE])),
        inputs,
    )  # fmt: skip


def _inputs_passed_once(program: Instructions) -> tuple[Ints, Ints]:
    """Return the instructions that fetch tiles of inputs, and those that pass them to the cores.

    Tiles that are passed several times stay in the ring of their kernel from one to the next.
    """
    role = program.where[:, Column.ROLE]
    passes = np.flatnonzero(role == Role.PASS_INPUT)
    after = program.where[passes, Column.AFTER :]
    one, column = np.nonzero((after >= 0) & (role[after] == Role.FETCH_INPUT))
    fetched = after[one, column]
    once = np.bincount(fetched, minlength=len(role))[fetched] == 1
    return fetched[once], passes[one[once]]


def _contents(kernel: Kernel, layer: Ints, tile: Ints) -> Ints:
    """Return hashes of which part of their layers' weights tiles are, and of how they are cut.

    Args:
        kernel: The kernel that has them.
        layer: Layer of each tile.
        tile: Its number in the layer, repetitions counted.
    """
    counts = kernel.tiles
    products, columns, depths, rows, outside = counts[:, : Tiling.KEPT].T
    around = np.where(outside > 0, rows, 1)  # times that a product's weights are read in turn
    once = columns * depths
    unit = tile // (once * around)[layer] * once[layer] + tile % once[layer]
    cut = ((products * 31 + columns) * 31 + depths)[layer]
    # Never 0, which says that nothing is known.
    found: Ints = (cut << 24) + unit + 1
    return found


class LoadRoom(NamedTuple):
    """Part of GB in which loads may lie.

    Attributes:
        size: Bytes of the room, from the bottom of GB on.
        ring: First byte of the zone in which kernels that fetch for themselves have their rings; it
            is free while none of them runs.
    """

    size: int
    ring: int

    @staticmethod
    def of(target: Target) -> LoadRoom:
        """Return the room on a target: all but what tiles of activations pass through."""
        zones = Zones.of(target)
        streams = min(target.cores * zones.lb_staging, zones.gb_staging)
        return LoadRoom(zones.gb + zones.gb_staging - streams, zones.gb)


def place_loads(
    kernels: Sequence[KernelLoads], timeline: Timeline, room: LoadRoom, made: Ints
) -> Loads:
    """Return the loads that have room in GB, each born as early as it can be.

    Args:
        kernels: Loads of the kernels in order.
        timeline: Timeline of the kernels, with its tensors placed.
        room: Room for loads in GB.
        made: Step from which on all is in DDR that each kernel reads there; inputs that are not
            there before the kernel begins are no loads.
    """
    rows, begins = timeline.rows, timeline.first_steps
    kernels = [_with_copy(one, timeline, k) for k, one in enumerate(kernels)]
    kernel = np.repeat(np.arange(len(kernels)), [len(one.instruction) for one in kernels])
    known = np.concatenate([np.stack(one) for one in kernels], axis=1)
    early = (known[-1] == 0) | (made < begins)[kernel]
    kernel = kernel[early]
    instruction, passed, layer, latest, size, content, inputs = known[:, early]
    if not len(kernel):
        return NO_LOADS
    step, latest = begins[kernel] + 1 + layer, begins[kernel] + 1 + latest
    first = np.maximum(step - timeline.ahead[kernel], np.where(inputs > 0, made[kernel], 0))
    wanted = np.stack((
        step, latest, -(-size // ALIGNMENT) * ALIGNMENT, first, _next_alike(content, size), inputs
    ))  # fmt: skip
    steps = np.arange(int(rows[-1]) + len(kernels) + 1)
    passed_before = np.searchsorted(np.maximum.accumulate(step), steps)
    # A kernel with a load that finds no room fetches through its ring, whose zone is missing to
    # other loads: all are placed again until no kernel joins. Rings only grow, so this ends.
    rings = rings_of(timeline, np.bincount(kernel, inputs == 0, len(kernels)) > 0)
    while True:
        beside = held_beside(timeline, room, rings)
        held = _Held.of(beside, len(steps), len(step))
        birth, after, address, until, kept = _place(wanted, held, room.size, passed_before)
        more = rings.copy()
        ringed = (address < 0) & (instruction != COPY)
        more[kernel[ringed]] = True  # these fetch through the ring, whose zone they need
        if (more == rings).all():
            break
        rings = more
    placed = np.flatnonzero(address >= 0)
    number = np.append(np.cumsum(address >= 0) - 1, -1)  # among those that have room
    columns = (
        kernel, instruction, passed, step, birth, number[after], size, address, until,
        number[kept], inputs,
    )  # fmt: skip
    return Loads(*(column[placed] for column in columns))


def _with_copy(loads: KernelLoads, timeline: Timeline, kernel: int) -> KernelLoads:
    """Return the loads of a kernel behind what is copied from DDR before it, if anything is."""
    size = int(timeline.copied[kernel, Scope.DDR])
    if not size or not timeline.ahead[kernel]:
        return loads
    copy = KernelLoads(*np.asarray([[COPY], [COPY], [-1], [-1], [size], [0], [1]]))
    return KernelLoads(*(np.append(*pair) for pair in zip(copy, loads, strict=True)))


def _next_alike(content: Ints, size: Ints) -> Ints:
    """Return the next load of the same content, -1 for none."""
    order = np.lexsort((np.arange(len(content)), size, content))
    one, two = order[:-1], order[1:]
    same = (content[one] == content[two]) & (size[one] == size[two]) & (content[one] != 0)
    following = np.full(len(content), -1)
    following[one[same]] = two[same]
    return following


def rings_of(timeline: Timeline, with_loads: Flags) -> Flags:
    """Return which kernels need the zone of the rings whatever loads they have, ``(kernels,)``.

    Args:
        timeline: Timeline of the kernels.
        with_loads: Whether all weights that a kernel fetches may be loads.
    """
    layers = np.diff(timeline.rows)
    owner = np.repeat(np.arange(len(layers)), layers)
    stages = np.concatenate([timeline.templates[k].stages for k in timeline.order.tolist()])
    inputs = timeline.streams[:, IN_DDR] > 0  # may stay there from one column of tiles to the next
    weights = (stages[:, Stage.WEIGHTS] > 0) & (timeline.resident == 0)[owner] & ~with_loads[owner]
    return np.bincount(owner, inputs | weights, len(layers)) > 0


def held_beside(timeline: Timeline, room: LoadRoom, rings: Flags) -> Ints:
    """Return birth, death, first byte and one past the last of what loads lie beside in GB.

    It is tensors, weights that stay, what recurrences have for their weights at the top of the zone
    for buffers, and the rings of kernels that have them.

    Args:
        timeline: Timeline of the kernels.
        room: Room for loads in GB.
        rings: Per kernel, whether it has rings.
    """
    buffers, rows = timeline.buffers, timeline.rows
    in_gb = (buffers.scope == Scope.GB) & (buffers.cluster_bytes > 0)
    low = buffers.address[in_gb]
    high = low + buffers.cluster_bytes[in_gb]
    found = [np.stack((buffers.birth[in_gb], buffers.death[in_gb], low, high))]
    spare = np.asarray([
        timeline.spare[k, 1]
        * np.count_nonzero(timeline.templates[index].stages[:, Stage.SEQUENCE])
        for k, index in enumerate(timeline.order.tolist())
    ], np.int64)  # fmt: skip
    for which, begin, end in (
        (spare > 0, room.ring - spare, room.ring), (rings, room.ring, room.size)
    ):  # fmt: skip
        kernel = np.flatnonzero(which)
        span = (np.broadcast_to(bound, len(which))[kernel] for bound in (begin, end))
        found.append(np.stack((kernel + rows[kernel], kernel + rows[kernel + 1], *span)))
    return np.concatenate(found, axis=1)


KEPT_SHARE = 4
"""Loads that are kept for others take at most a quarter of the room: the rest is for what is to
come. With half of it BERT-large waits for the bus more than it saves there."""


class _Held(NamedTuple):
    """Contents of GB besides loads on their way, by birth; then the loads that are kept.

    A pass may have hundreds of thousands of loads and thousands of tensors: what lies in a step is
    found from the step.

    Attributes:
        birth: First step.
        death: Last step.
        low: First byte.
        high: One past the last.
        filled: Number of entries; the arrays have room for more.
        alive: By step, the first entry that was there from the beginning and still is.
        born: By step, the number of such entries that were born until then.
        last: By step, the last entry that ends there; -1 for none.
        before: The one that ends in the same step as each and was added before it; -1 for none.
    """

    birth: Ints
    death: Ints
    low: Ints
    high: Ints
    filled: Ints
    alive: Ints
    born: Ints
    last: Ints
    before: Ints

    @staticmethod
    def of(beside: Ints, steps: int, loads: int) -> _Held:
        """Return the contents of GB before any load is kept.

        Args:
            beside: Birth, death, first byte and one past the last of each.
            steps: Number of steps of the pass.
            loads: Number of loads that may be kept.
        """
        beside = beside[:, np.argsort(beside[0], kind="stable")]
        every, count = np.arange(steps), np.asarray([beside.shape[1]])
        alive = np.searchsorted(np.maximum.accumulate(beside[1]), every)
        born = np.searchsorted(beside[0], every, side="right")
        last, before = np.full(steps + 1, -1), np.full(len(beside[1]) + loads, -1)
        for one, step in enumerate(beside[1].tolist()):
            before[one], last[step] = last[step], one
        birth, death, low, high = np.pad(beside, ((0, 0), (0, loads)))
        return _Held(birth, death, low, high, count, alive, born, last, before)


@compiled
def _place(
    wanted: Ints, held: _Held, room: int, passed: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return when and where loads live, the last five columns of :class:`Loads` but their bytes.

    Loads go round in what tensors leave: each takes the next bytes behind the load before it, which
    of all bytes are those whose load is passed first. It is born so early that it still waits for
    no more loads than it would later; being born earlier, it has more tensors in its way.

    One that is read again lies still until the last time, as far as :data:`KEPT_SHARE` allows.

    Args:
        wanted: Step, latest birth, bytes, first birth, next load of the same content and queue of
            each load, in order, ``(6, loads)``.
        held: Contents of GB; loads that are kept are added.
        room: Bytes of GB for all loads.
        passed: Loads of the steps before each step.
    """
    loads = wanted.shape[1]
    birth, after, address, kept = np.full((4, loads), -1)
    until = wanted[0].copy()
    behind, earliest, spare = 0, np.zeros(2, np.int64), room // KEPT_SHARE
    top = 0  # of what loads have had so far
    for load in range(loads):
        if kept[load] >= 0:
            continue
        step, begin, size, first, _, queue = wanted[:, load]
        # Kept from the first reader to the last, as far as the share for that lasts.
        last = _last_alike(wanted[4], load) if size <= spare else load
        death = wanted[0, last]
        # What is kept lies at the bottom, out of the way of what goes round.
        start = behind if last == load else 0
        at = _next_gap(held, start, begin, death, size, room)
        if at < 0 and last != load:  # there is no room for so long
            last, death, start = load, step, behind
            at = _next_gap(held, start, begin, death, size, room)
        if at < 0:
            continue
        # A queue is fetched in the order of need: none is born before the one ahead of it.
        limit = max(min(first, begin), earliest[queue])
        waits = _last_over(wanted, address, load, at, size) if at < top else -1
        while begin > limit:
            if _lies_there(held, begin - 1, death, at, size):
                other = _next_gap(held, start, begin - 1, death, size, room)
                later = _last_over(wanted, address, load, other, size) if other >= 0 else load
                # An earlier birth gains nothing where it waits for a load that is passed only then.
                if later > waits and later + 1 >= passed[begin]:
                    break
                at, waits = other, later
            begin -= 1
        birth[load], after[load], address[load], until[load] = begin, waits, at, death
        earliest[queue], top = begin, max(top, at + size)
        if last == load:
            behind = at + size
            continue
        spare -= size
        _keep(held, begin, death, at, at + size)
        other = wanted[4, load]
        while other >= 0:
            kept[other], address[other], birth[other] = load, at, begin
            other = wanted[4, other]
    return birth, after, address, until, kept


@borrowing
def _last_alike(following: Ints, load: int) -> int:
    """Return the last load of the same content."""
    while following[load] >= 0:
        load = following[load]
    return load


@borrowing
def _keep(held: _Held, birth: int, death: int, low: int, high: int) -> None:
    """Add a load that is kept to what lies in GB."""
    at = held.filled[0]
    held.birth[at], held.death[at], held.low[at], held.high[at] = birth, death, low, high
    held.before[at], held.last[death] = held.last[death], at
    held.filled[0] = at + 1


@borrowing
def _lies_there(held: _Held, step: int, death: int, at: int, size: int) -> bool:
    """Return whether something has some bytes in a step, and in none after it until another.

    As long as nothing has, the first free bytes from that step on are those from the next on.
    """
    other = held.last[step]
    while other >= 0:
        if held.birth[other] <= death and held.low[other] < at + size and held.high[other] > at:
            return True
        other = held.before[other]
    return False


@borrowing
def _next_gap(held: _Held, behind: int, begin: int, step: int, size: int, room: int) -> int:
    """Return the next address with so many bytes that are free from a step to another, or -1."""
    born, there = held.born[step], held.born[-1]
    for start in (behind, 0):  # from here on, then from the bottom
        at, before = start, -1
        while at != before and at + size <= room:
            before = at
            at = _past(held, held.alive[begin], born, begin, step, at, size)
            # These are not sorted by birth with the rest, so all of them are looked at.
            at = _past(held, there, held.filled[0], begin, step, at, size)  # loads that are kept
        if at + size <= room:
            return int(at)
    return -1


@borrowing
def _past(
    held: _Held, first: int, end: int, begin: int, step: int, at: int, size: int
) -> int:  # fmt: skip
    """Return an address, or that behind those from a first to an end which have its bytes."""
    for other in range(first, end):
        alive = held.birth[other] <= step and held.death[other] >= begin
        if alive and held.low[other] < at + size and held.high[other] > at:
            at = -(-held.high[other] // ALIGNMENT) * ALIGNMENT  # a load begins where a burst does
    return at


@borrowing
def _last_over(wanted: Ints, address: Ints, load: int, at: int, size: int) -> int:
    """Return the last load before another whose bytes are some of these; -1 for none."""
    for other in range(load - 1, -1, -1):
        low = address[other]
        if low >= 0 and low < at + size and low + wanted[2, other] > at:
            return other
    return -1
