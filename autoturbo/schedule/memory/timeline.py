"""From ordered instances to buffers in time, and back to the streams of every kernel.

The timeline is written once per schedule: a walk over the order notes who makes and who reads each
buffer, the allocator decides where each is kept, and the streams follow: whoever writes or reads a
buffer that is not in LB moves its bytes from or to GB or DDR. Time counts steps: one for the
copies before a kernel, then one per layer. A timeline is flat arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.context import Zones
from autoturbo.schedule.memory.allocate import ALIGNMENT, Buffers, allocate
from autoturbo.schedule.memory.movement import STAY, Movements, move
from autoturbo.schedule.place.bind import Placement, Scope
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import Template, shares_weights, templates_of
from autoturbo.schedule.streams import (
    IN_GB,
    LATE_GB,
    OUT_DDR,
    OUT_GB,
    READ,
    RESIDENCES,
    ROOM,
    STREAM_COLUMNS,
)
from autoturbo.schedule.work import Flags

KINDS = ("tensor", "moved", "streamed", "weights", "tiles", "shared")
TENSOR, MOVED, STREAMED, WEIGHTS, TILES, SHARED = range(6)
"""What buffers hold, by name and code: what a kernel makes; what a copy brings in, or was to
bring in and is read where it lies, for want of room in LB; weights kept between the instances of a
sub-graph; room for weight tiles beyond the target's weight buffer while a kernel runs; the copy in
DDR that other clusters read of a tensor that is kept on the chip."""

LEVELS = Scope.LB, Scope.GB
"""What has buffers on the chip."""

WEIGHTS_SHARE = 2
"""Kept weights take at most half of a buffer, from its top: the rest holds tensors."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Kernels in order with their buffers placed.

    Attributes:
        graph: The instances.
        order: Instances in order of execution.
        templates: Per instance, the template of its kernel.
        movements: Copies of the pieces that kernels read.
        rows: First row of each kernel in :attr:`streams`; one entry more than kernels.
        streams: Array (layers of all kernels, :data:`STREAM_COLUMNS`) of bytes of the cluster.
        copied: Per kernel, bytes that copies bring from LB of other cores (0), GB and DDR.
        crossing: Per kernel, bytes that copies bring to the busiest core from other cores.
        resident: Per kernel, where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        ahead: Per kernel, the most steps before a layer at which its weights may be fetched; 0 for
            one that fetches for itself.
        kind: Per buffer, index into :data:`KINDS`.
        tensor: Per buffer, the tensor, -1 for weights and tiles.
        owner: Per buffer, the instance that makes it or that it is brought in for.
        buffers: Placed.
        accesses: Of kernels whose layers take turns, to buffers in LB: row of the layer in
            :attr:`streams`, buffer, and 1 for writing, ``(accesses, 3)``.
    """

    graph: InstanceGraph
    order: Ints
    templates: tuple[Template, ...]
    movements: Movements
    rows: Ints
    streams: Ints
    copied: Ints
    crossing: Ints
    resident: Ints
    ahead: Ints
    kind: Ints
    tensor: Ints
    owner: Ints
    buffers: Buffers
    accesses: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    def overwritten(self, kernel: int, solid: Flags) -> list[tuple[int, ...]]:
        """Find the layers whose space in LB each layer of a kernel writes over.

        They are those that access bytes which it writes, but for the makers of a tensor that it
        writes over element by element: for these it waits as for whatever it reads. And those whose
        streams stay in LB beside what lives while they run.

        Args:
            kernel: Place of the kernel in the order.
            solid: The layers whose streams stay, as :func:`.sequence.solid_layers`.

        Returns:
            Per layer, their positions, the latest first.
        """
        begin, end = int(self.rows[kernel]), int(self.rows[kernel + 1])
        found: list[set[int]] = [set() for _ in range(end - begin)]
        row = self.accesses[:, 0]
        own = self.accesses[np.searchsorted(row, begin) : np.searchsorted(row, end)]
        low = self.buffers.address[own[:, 1]]
        high = low + self.buffers.core_bytes[own[:, 1]]
        for at in np.flatnonzero(own[:, 2]).tolist():
            layer = int(own[at, 0]) - begin
            meets = (low < high[at]) & (low[at] < high) & (own[:, 0] < own[at, 0])
            meets &= (own[:, 1] != own[at, 1]) | (own[:, 2] == 0)
            found[layer] |= set((own[meets, 0] - begin).tolist())
            found[layer] |= set(np.flatnonzero(solid[:layer]).tolist())
        return [tuple(sorted(one, reverse=True)) for one in found]

    @property
    def first_steps(self) -> Ints:
        """Return the step of the copies before each kernel; that of its first layer is next."""
        begins: Ints = self.rows[:-1] + np.arange(len(self.order))
        return begins

    @functools.cached_property
    def spare(self) -> Ints:
        """Return each recurrent kernel's spare bytes for weights in a core's LB and in GB.

        They are at the top of the zones for buffers, where no buffer is while the kernel runs:
        weights of the state, read at every step, stay there if they fit. Other kernels have 0,
        ``(kernels, 2)``.
        """
        spare_bytes = np.zeros((len(self.order), len(LEVELS)), np.int64)
        context, placed = self.graph.context, self.buffers
        zones = Zones.of(context.target)
        recurrent = context.work.recurrent.any()
        for kernel, index in enumerate(self.order.tolist() if recurrent else ()):
            recurrences = np.count_nonzero(self.templates[index].stages[:, Stage.SEQUENCE])
            if not recurrences:
                continue
            first, last = kernel + self.rows[kernel], kernel + self.rows[kernel + 1]
            alive = (placed.birth <= last) & (placed.death >= first)
            for level, sizes in zip(LEVELS, (placed.core_bytes, placed.cluster_bytes), strict=True):
                here = alive & (placed.scope == level)
                top = (placed.address[here] + sizes[here]).max(initial=0)
                room = (zones.lb, zones.gb)[level] - -(-top // ALIGNMENT) * ALIGNMENT
                spare_bytes[kernel, level] = max(room, 0) // recurrences
        return spare_bytes


@dataclass(frozen=True, slots=True)
class BufferRules:
    """The knobs that the buffers of one sub-graph depend on.

    Attributes:
        victim: Rule by which tensors leave LB when there is no room, a key of ``VICTIMS``.
        residence: Place of its weights between its instances, a key of :data:`RESIDENCES`.
        tiles: Bytes of every core's LB that its kernels take for weight tiles.
        ahead: Steps before a layer at which its weights may be fetched at most.
        turns: Tiles of layers take turns, so that outputs are there while the layer before runs.
    """

    victim: str = "longest"
    residence: str = "stream"
    tiles: int = 0
    ahead: int = 0
    turns: bool = False


def build_timeline(
    graph: InstanceGraph,
    order: Sequence[int],
    placement: Placement,
    rules: Sequence[BufferRules],
) -> Timeline:
    """Return the buffers of a cluster's kernels in time, placed, with their streams.

    Args:
        graph: Instances and the links between them.
        order: Order of execution; instances that are not in it run on other clusters, and what they
            make is read from DDR.
        placement: Bindings and declared scopes. What instances that are not in the order read has
            a copy in DDR.
        rules: Rules of the buffers per sub-graph.
    """
    zones = Zones.of(graph.context.target)
    templates, steps = templates_of(graph, placement), np.asarray(order, np.int64)
    movements = move(graph, steps, placement, templates)
    kept = _kept(graph, steps, templates, rules, zones)
    walk = _Walk(graph, movements, kept, zones, _reads(graph, steps))
    resident = [
        walk.kernel(index, templates[index], placement.scopes[index], rules[subgraph])
        for index, subgraph in zip(steps.tolist(), graph.subgraph[steps].tolist(), strict=True)
    ]
    buffers = walk.place()
    copied, crossing = walk.copies()
    held = np.asarray([(b.kind, b.tensor, b.owner) for b in walk.buffers], np.int64)
    kind, tensor, owner = held.reshape(-1, 3).T.copy()
    rows = np.cumsum([0, *(len(templates[index].layers) for index in order)])
    streams = walk.streams()
    ahead = [rules[subgraph].ahead for subgraph in graph.subgraph[steps].tolist()]
    free = _free_bytes(buffers, kind, len(steps) + int(rows[-1]), zones)
    kernels = [templates[index] for index in order]
    streams[:, ROOM] = _rooms(kernels, streams, free, rows, zones)
    timeline = Timeline(
        graph, steps, templates, movements, rows, streams, copied, crossing,
        np.asarray(resident, np.int64), np.asarray(ahead, np.int64), kind, tensor, owner, buffers,
        walk.accesses(),
    )  # fmt: skip
    if len(steps) < graph.count:
        buffers.death[handed_over(timeline)] = len(steps) + int(rows[-1]) - 1
    return timeline


def _rooms(
    kernels: Sequence[Template], streams: Ints, free: Ints, rows: Ints, zones: Zones
) -> Ints:
    """Compute the bytes of LB in which each layer's streams may stay.

    Args:
        kernels: Templates of the kernels, in order.
        streams: Streams of the kernels' layers.
        free: Free bytes of LB in each step.
        rows: First layer of each kernel, and one entry more.
        zones: Zones of the buffers.

    Returns:
        Bytes per layer of all kernels, 0 where a layer has no product or its kernel a recurrence,
        whose weights stay there. A layer that reads streams has room from the one before it on,
        which fetches ahead: the two divide the free bytes.
    """
    columns = [Stage.MACS, Stage.SEQUENCE, Stage.EXCHANGED]
    macs, sequence, exchanged = np.concatenate([part.stages[:, columns] for part in kernels]).T
    kernel = np.repeat(np.arange(len(kernels)), np.diff(rows))
    recurrent = np.bincount(kernel, sequence, len(kernels)) > 0
    product = (macs > 0) & ~recurrent[kernel]
    reads = streams[:, READ].any(axis=1) | (exchanged > 0)
    follows = product & reads & (np.diff(kernel, prepend=-1) == 0)
    step = np.arange(len(kernel)) + kernel + 1
    now = free[step] // np.where(np.append(follows[1:], False), 2, 1)
    before = free[step - 1] // np.where(np.append(False, product[:-1]), 2, 1)
    room = np.where(follows, np.minimum(now, before), now)
    return np.where(product, room_to_stay(room, zones), 0)


def _free_bytes(buffers: Buffers, kind: Ints, steps: int, zones: Zones) -> Ints:
    """Return the free bytes of a core's LB per step, between tensors and kept weights.

    Args:
        buffers: Placed; tensors lie from the bottom of LB up, kept weights at its top.
        kind: Kind of each buffer.
        steps: Number of steps.
        zones: Capacities.
    """
    top, bottom = np.zeros(steps, np.int64), np.full(steps, zones.lb)
    pinned = np.isin(kind, (WEIGHTS, TILES)).tolist()
    ends = -(-(buffers.address + buffers.core_bytes) // ALIGNMENT) * ALIGNMENT
    columns = (buffers.birth, buffers.death + 1, buffers.address, ends)
    local = np.flatnonzero((buffers.scope == Scope.LB) & (buffers.core_bytes > 0))
    for buffer in local.tolist():
        birth, death, low, high = (int(column[buffer]) for column in columns)
        if pinned[buffer]:
            np.minimum(bottom[birth:death], low, out=bottom[birth:death])
        else:
            np.maximum(top[birth:death], high, out=top[birth:death])
    return np.maximum(bottom - top, 0)


def room_to_stay(free: Ints, zones: Zones) -> Ints:
    """Return how many of a core's free bytes of LB may hold streams.

    Once, twice, three, four, six, eight, twelve times the zone for streams: few sizes make few
    programs.
    """
    times = free // max(zones.lb_staging, 1)
    step = np.maximum(np.frexp(times)[1].astype(np.int64) - 2, 0)
    room_bytes: Ints = (times >> step << step) * zones.lb_staging
    return room_bytes


def handed_over(timeline: Timeline) -> Ints:
    """Return the buffers in DDR that other clusters read: they live until the pass ends."""
    read = _reads(timeline.graph, timeline.order).elsewhere
    held = zip(timeline.owner.tolist(), timeline.tensor.tolist(), strict=True)
    kept = np.asarray([one in read for one in held], np.bool_)
    in_ddr = timeline.buffers.scope == Scope.DDR
    return np.flatnonzero(((timeline.kind == TENSOR) & kept & in_ddr) | (timeline.kind == SHARED))


class _Reads(NamedTuple):
    """Tensors of a cluster that other clusters read, by instance and tensor.

    ``alone`` is what no instance of its own reads.
    """

    elsewhere: set[tuple[int, int]]
    alone: set[tuple[int, int]]


def _reads(graph: InstanceGraph, order: Ints) -> _Reads:
    """Return the tensors that instances out of an order read of those in it."""
    if len(order) == graph.count:
        return _Reads(set(), set())
    links, ours, subgraph = graph.links, np.zeros(graph.count, np.bool_), graph.subgraph.tolist()
    ours[order] = True

    def read(which: Flags) -> set[tuple[int, int]]:
        pairs = set(zip(links.maker[which].tolist(), links.output[which].tolist(), strict=True))
        return {(maker, graph.parts[subgraph[maker]].outputs[output]) for maker, output in pairs}

    here = ours[links.maker]
    elsewhere = read(here & ~ours[links.reader])
    return _Reads(elsewhere, elsewhere - read(here & ours[links.reader]))


def build_timelines(
    graph: InstanceGraph,
    order: Sequence[int],
    placement: Placement,
    rules: Sequence[BufferRules],
    cluster: Ints,
) -> tuple[Timeline, ...]:
    """Return one timeline per cluster, or one in all if all clusters work alike.

    Args:
        graph: Instances and the links between them.
        order: Order of execution, over all clusters.
        placement: Bindings and declared scopes.
        rules: Rules of the buffers per sub-graph.
        cluster: Per instance; empty if all clusters work alike.
    """
    if not len(cluster):
        return (build_timeline(graph, order, placement, rules),)
    steps = np.asarray(order, np.int64)
    orders = [steps[cluster[steps] == number].tolist() for number in range(int(cluster.max()) + 1)]
    return tuple(build_timeline(graph, one, placement, rules) for one in orders)


def _kept(
    graph: InstanceGraph,
    order: Ints,
    templates: Sequence[Template],
    rules: Sequence[BufferRules],
    zones: Zones,
) -> dict[int, _Buffer]:
    """Return the weight buffers that stay, of sub-graphs with several instances, by sub-graph.

    Args:
        graph: Instances and the links between them.
        order: Order of execution.
        templates: Templates of the kernels, in that order.
        rules: Rules of the buffers per sub-graph.
        zones: Capacities.
    """
    kernels = defaultdict[int, list[Template]](list)
    for index, subgraph in zip(order.tolist(), graph.subgraph[order].tolist(), strict=True):
        kernels[subgraph].append(templates[index])
    zone, kept = {Scope.GB: zones.gb, Scope.LB: zones.lb}, dict[int, _Buffer]()
    tops, columns = dict(zone), [Stage.WEIGHTS, Stage.CORE_WEIGHTS]
    # Those with most instances first: each one more reads kept weights without a fetch.
    for subgraph in sorted(kernels, key=lambda one: (-len(kernels[one]), one)):
        weights, residence = dict.fromkeys(kernels[subgraph]), rules[subgraph].residence
        if residence == "stream" or len(kernels[subgraph]) == 1:
            continue
        if not all(shares_weights(graph.context, template) for template in weights):
            continue
        # parts that are not alike may be spread over the cores in other ways: the largest has room
        sums = [template.stages[:, columns].sum(axis=0) for template in weights]
        cluster, core = np.max(sums, axis=0).astype(np.int64).tolist()
        scope = Scope[residence]
        core, cluster = (core, 0) if scope is Scope.LB else (0, cluster)
        address = (tops[scope] - core - cluster) // ALIGNMENT * ALIGNMENT
        if core + cluster and address >= zone[scope] - zone[scope] // WEIGHTS_SHARE:
            tops[scope] = address
            kept[subgraph] = _Buffer(WEIGHTS, -1, -1, -1, -1, core, cluster, scope, address=address)
    return kept


@dataclass(slots=True, eq=False)
class _Buffer:
    """A buffer while the timeline is written; ``sources`` are read to fill a moved one.

    The source of a shared one is the tensor that it is a copy of.
    """

    kind: int
    tensor: int
    owner: int
    birth: int
    death: int
    core: int
    cluster: int
    scope: int
    victim: str = "longest"
    address: int = -1
    sources: Sequence[_Buffer] = ()

    @property
    def needless(self) -> bool:
        """Return whether it is a copy in DDR of what has found no room elsewhere."""
        return self.kind == SHARED and self.sources[0].scope == Scope.DDR


class _Link(NamedTuple):
    """One link of an instance, and its copy; see ``Links`` and ``Movements``."""

    slot: int
    maker: int
    output: int
    size: int
    moves: bool
    crossing: int
    core_bytes: int


_Use = tuple[int, int, _Buffer, int, _Buffer | None]


class _Walk:
    """Writes the timeline while it walks over the order.

    Attributes:
        clock: The step.
        buffers: So far.
        made: Buffers of instances' outputs, by instance and output.
        rows: Streams of the layers so far; those of buffers are added once these have a place.
        ddr: Tensors that are not made here, and those that leave for good.
        uses: Of buffers by layers: number of the row of streams, its column where bytes count if
            the buffer is in GB (in DDR they count in the next), buffer, bytes, and what is read
            instead if the buffer found no room.
        moved: Per kernel, pieces that are brought in before: from where and into which buffer.
        turns: Per row, whether layers of its kernel take turns.
    """

    def __init__(
        self,
        graph: InstanceGraph,
        movements: Movements,
        kept: Mapping[int, _Buffer],
        zones: Zones,
        reads: _Reads,
    ) -> None:
        self._graph, self._kept, self._zones = graph, kept, zones
        self._reads = reads
        links, self._start = graph.links, graph.links.start.tolist()
        columns = (
            links.slot, links.maker, links.output, links.size, movements.kind != STAY,
            movements.crossing, movements.core_bytes,
        )  # fmt: skip
        self._links = list(map(_Link, *(column.tolist() for column in columns)))
        self.ddr = _Buffer(TENSOR, -1, -1, -1, -1, 0, 0, Scope.DDR)
        self.clock, self.buffers, self.made = 0, list[_Buffer](), dict[tuple[int, int], _Buffer]()
        self.rows, self.uses = list[list[int]](), list[_Use]()
        self.turns = list[bool]()
        self.moved = list[list[tuple[_Link, _Buffer, _Buffer]]]()

    def kernel(self, index: int, template: Template, scope: Scope, rules: BufferRules) -> int:
        """Add the buffers that a kernel reads and writes.

        Args:
            index: The number of the instance.
            template: The instance's template.
            scope: The scope that its output is declared in.
            rules: The rules of its sub-graph.

        Returns:
            Where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        """
        pieces = self._bring(index, template, rules)
        self.clock += 1
        resident = self._pin(index, len(template.layers), rules)
        inner: dict[int, _Buffer] = {}
        context = self._graph.context
        consumers, outputs = context.consumers, context.graph.outputs
        for position, reused in enumerate(template.reuse):
            free = inner.get(reused)
            self.rows.append([0] * STREAM_COLUMNS)
            self.turns.append(rules.turns)
            for tensor, size in template.reads[position]:
                if tensor in inner:
                    self._use(LATE_GB, inner[tensor], size)
                else:
                    for buffer, part, source in pieces.get(tensor, [(self.ddr, size, None)]):
                        self._use(IN_GB, buffer, part, source)
            for output, (tensor, size, core) in enumerate(template.writes[position]):
                declared = Scope.LB
                if position == len(template.layers) - 1:
                    leaves = not consumers[tensor] or (index, tensor) in self._reads.alone
                    declared = Scope.DDR if leaves else scope
                shares = (index, tensor) in self._reads.elsewhere
                # Written over is an input only by what stays in LB, fits, and is read here alone.
                if free is None or declared or shares or free.core < core:
                    written = self._add(TENSOR, tensor, index, core, size, declared)
                    written.victim = rules.victim
                else:
                    written, free = free, None
                self._use(OUT_GB, written, size)
                # An output of the model that layers read too leaves the chip besides.
                if consumers[tensor] and tensor in outputs:
                    self._use(OUT_GB, self.ddr, size)
                if shares and declared != Scope.DDR:
                    shared = self._add(SHARED, tensor, index, 0, size, Scope.DDR)
                    shared.sources = (written,)
                    self._use(OUT_GB, shared, size)
                inner[tensor] = self.made[index, output] = written
            self.clock += 1
        return resident

    def _add(
        self, kind: int, tensor: int, owner: int, core: int, cluster: int, scope: Scope
    ) -> _Buffer:
        """Return a new buffer, born now.

        Args:
            kind: The kind of its content, a tensor for example.
            tensor: The number of the tensor, -1 for none.
            owner: The number of the instance that has it.
            core: Bytes in the LB of the busiest core.
            cluster: Bytes of the whole buffer.
            scope: The scope that it is declared in.
        """
        now = self.clock
        self.buffers.append(_Buffer(kind, tensor, owner, now, now, core, cluster, scope))
        return self.buffers[-1]

    def _use(self, column: int, buffer: _Buffer, size: int, instead: _Buffer | None = None) -> None:
        """Record that the last layer so far uses a buffer, which lives until then.

        Args:
            column: Column of the streams in which the bytes count if the buffer is in GB.
            buffer: The buffer.
            size: Bytes that are moved.
            instead: Buffer that is read if this one found no room.
        """
        buffer.death = self.clock
        self.uses.append((len(self.rows) - 1, column, buffer, size, instead))

    def _bring(
        self, index: int, template: Template, rules: BufferRules
    ) -> dict[int, list[tuple[_Buffer, int, _Buffer | None]]]:
        """Add a buffer for each input's moved pieces: pieces of different cores share it.

        Returns:
            Per input and piece, its buffer, its bytes and its source buffer; no source if another
            cluster makes it.
        """
        pieces = {}
        self.moved.append([])
        links = self._links[self._start[index] : self._start[index + 1]]
        for slot, group in itertools.groupby(links, operator.attrgetter("slot")):
            made_pieces = [(link, self.made.get((link.maker, link.output))) for link in group]
            moving = [(link, source) for link, source in made_pieces if link.moves and source]
            moved = None
            if moving:
                core, size = made_pieces[0][0].core_bytes, sum(link.size for link, _ in moving)
                moved = self._add(MOVED, template.inputs[slot], index, core, size, Scope.LB)
                moved.victim, moved.sources = rules.victim, [source for _, source in moving]
                for link, source in moving:
                    source.death = self.clock
                    self.moved[-1].append((link, source, moved))
            pieces[template.inputs[slot]] = [
                ((moved if link.moves else source) or self.ddr, link.size, source)
                for link, source in made_pieces
            ]
        return pieces

    def _pin(self, index: int, layers: int, rules: BufferRules) -> int:
        """Add buffers of weights that stay and of weight tiles; return where the weights are."""
        end, kept = self.clock + layers - 1, self._kept.get(int(self._graph.subgraph[index]))
        if rules.tiles:
            in_lb = [
                weights.address for weights in self._kept.values() if weights.scope is Scope.LB
            ]
            top = min(in_lb, default=self._zones.lb)
            size = min(-(-rules.tiles // ALIGNMENT) * ALIGNMENT, top)
            if size > 0:
                tiles = self._add(TILES, -1, index, size, 0, Scope.LB)
                tiles.address, tiles.death = (top - size) // ALIGNMENT * ALIGNMENT, end
        if kept is None:
            return 0
        known = kept.birth >= 0
        if not known:
            kept.owner, kept.birth = index, self.clock
            self.buffers.append(kept)
        kept.death = end
        return RESIDENCES[rules.residence] if known else 0

    def place(self) -> Buffers:
        """Place buffers until every piece that is moved in has room in LB.

        A piece without room is not copied from one place outside LB to another: the kernel streams
        it from its source, which lives until then.

        Returns:
            The buffers, placed, in the order in which they were added.
        """
        while True:
            columns = np.asarray([
                (b.birth, b.death, b.core, b.cluster, b.scope, b.address) for b in self.buffers
            ], np.int64)  # fmt: skip
            buffers = Buffers(*columns.reshape(-1, 6).T.copy())
            placed = allocate(buffers, self._zones, [b.victim for b in self.buffers])
            scopes = placed.scope.tolist()
            buffer_scopes = zip(self.buffers, scopes, strict=True)
            homeless = [buffer for buffer, scope in buffer_scopes if buffer.kind == MOVED and scope]
            if not homeless:
                break
            for buffer in homeless:
                buffer.kind, buffer.core, buffer.cluster = STREAMED, 0, 0
                for source in buffer.sources:
                    source.death = max(source.death, buffer.death)
        for buffer, scope in zip(self.buffers, scopes, strict=True):
            buffer.scope = scope
        needed = np.asarray([not b.needless for b in self.buffers], np.bool_)
        self.buffers = [buffer for buffer in self.buffers if not buffer.needless]
        return Buffers(*(getattr(placed, c.name)[needed] for c in dataclasses.fields(placed)))

    def accesses(self) -> Ints:
        """Return the accesses to buffers in LB of layers that take turns, once these are placed."""
        if not any(self.turns):
            return np.zeros((0, 3), np.int64)
        number = {id(buffer): place for place, buffer in enumerate(self.buffers)}
        found = [
            (row, number[id(buffer)], int(column == OUT_GB))
            for row, column, buffer, _, _ in self.uses
            if self.turns[row] and buffer.scope == Scope.LB and buffer.core
        ]
        return np.asarray(found, np.int64).reshape(-1, 3)

    def streams(self) -> Ints:
        """Return the bytes that layers move from and to GB and DDR, once buffers are placed."""
        for row, column, buffer, size, source in self.uses:
            held = source if buffer.kind == STREAMED and source else buffer
            if held.scope and not buffer.needless:
                self.rows[row][column + held.scope - 1] += size
        return np.asarray(self.rows, np.int64).reshape(-1, STREAM_COLUMNS)

    def copies(self) -> tuple[Ints, Ints]:
        """Return, per kernel, the bytes copied, by the scope of their source, and between cores."""
        copied, crossing = [[0] * len(Scope) for _ in self.moved], [0] * len(self.moved)
        for kernel, moved in enumerate(self.moved):
            for link, source, buffer in moved:
                if source.scope == Scope.LB:
                    crossing[kernel] += link.crossing
                if buffer.kind != STREAMED:
                    copied[kernel][source.scope] += link.size
        return np.asarray(copied, np.int64).reshape(-1, 3), np.asarray(crossing, np.int64)


def without_outputs(streams: Ints, last: Ints, outputs: Ints) -> Ints:
    """Return the streams of kernels whose outputs stay in LB; what they spill goes to DDR.

    Args:
        streams: Streams with outputs in DDR, layer by layer of every kernel.
        last: Per kernel, the row of its last layer.
        outputs: Per kernel, bytes that it hands over.
    """
    kept_streams = streams.copy()
    kept_streams[last, OUT_DDR] = np.maximum(kept_streams[last, OUT_DDR] - outputs, 0)
    return kept_streams
