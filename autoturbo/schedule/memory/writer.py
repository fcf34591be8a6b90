"""Writes the timeline: walks the order once, notes buffers and uses, places, sums up streams.

Time counts steps: one for the movements before a kernel, then one per layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.templates import LayerOutline, Outline, Write
from autoturbo.schedule.memory.allocate import Buffers, place_all
from autoturbo.schedule.place.instances import Links
from autoturbo.schedule.place.movement import STAY, Movements

IN_GB, IN_DDR, OUT_GB, OUT_DDR, LATE_GB, LATE_DDR = range(6)
"""Columns of a kernel's stream table: bytes of the cluster per layer, read and written. What is
late is read from buffers that the same kernel wrote, so it cannot be fetched ahead."""

STREAM_COLUMNS = 6

TENSOR, MOVED, STREAMED, WEIGHTS, TILES = range(5)
"""Codes of what buffers hold."""

READ, LATE, WRITTEN = range(3)
"""Codes of uses: a read from elsewhere, a read of what the kernel itself made, a write."""

_COLUMN = np.asarray(((-1, 0, 1), (-1, 4, 5), (-1, 2, 3)), np.int64)
"""Stream column by use and scope (LB, GB, DDR)."""

_NOWHERE = -1
"""No buffer: what is read from or written to DDR without one."""


class Pins(NamedTuple):
    """What is fixed before tensors are placed.

    ``kept``: per sub-graph, residence of its weights (1 GB, 2 LB, -1 none), address, bytes per
    core, bytes of the cluster; ``tiles``: per sub-graph, bytes of LB for weight tiles and their
    address.
    """

    kept: Ints
    tiles: Ints


class Written(NamedTuple):
    """The timeline as arrays; see :class:`autoturbo.schedule.memory.timeline.Timeline`."""

    rows: Ints
    streams: Ints
    copied: Ints
    crossing: Ints
    resident: Ints
    kind: Ints
    tensor: Ints
    owner: Ints
    birth: Ints
    death: Ints
    core: Ints
    cluster: Ints
    scope: Ints
    address: Ints


@dataclass(slots=True)
class _Buffer:
    """A buffer while the timeline is written; ``links`` is the range that fills a moved one."""

    kind: int
    tensor: int
    owner: int
    birth: int
    death: int
    core: int
    cluster: int
    scope: int
    rule: int
    address: int = -1
    links: range = range(0)


class _Use(NamedTuple):
    """Who reads or writes: row of the streams, buffer, bytes, kind of use, source of a piece."""

    row: int
    buffer: int
    size: int
    kind: int
    source: int


class _LinkLists(NamedTuple):
    """Links as lists, which a walk reads faster than arrays."""

    start: list[int]
    slot: list[int]
    maker: list[int]
    output: list[int]
    size: list[int]
    moves: list[bool]
    core_bytes: list[int]


@dataclass
class _Walk:
    """What the walk over the order remembers.

    Attributes:
        links: what instances read from each other, and how it moves.
        clock: the step.
        buffers: so far.
        uses: so far.
        made: buffers of instances' outputs, by instance and output.
        moved: buffers of moved pieces, by link.
        weights: buffers of kept weights, by sub-graph.
        pieces: links of the instance that is looked at, by input.
    """

    links: _LinkLists
    clock: int = 0
    buffers: list[_Buffer] = field(default_factory=list)
    uses: list[_Use] = field(default_factory=list)
    made: dict[tuple[int, int], int] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)
    weights: dict[int, int] = field(default_factory=dict)
    pieces: dict[int, list[int]] = field(default_factory=dict)

    def source(self, link: int) -> int:
        """Return the buffer that a link reads, :data:`_NOWHERE` if another cluster makes it."""
        return self.made.get((self.links.maker[link], self.links.output[link]), _NOWHERE)

    def add(
        self, kind: int, tensor: int, owner: int, core: int, cluster: int, scope: int, rule: int
    ) -> int:
        """Return a new buffer, made now."""
        now = self.clock
        self.buffers.append(_Buffer(kind, tensor, owner, now, now, core, cluster, scope, rule))
        return len(self.buffers) - 1

    def use(self, row: int, buffer: int, size: int, kind: int, source: int = _NOWHERE) -> None:
        """Note a use, until which the buffer lives."""
        self.uses.append(_Use(row, buffer, size, kind, source))
        if buffer >= 0:
            self.buffers[buffer].death = max(self.buffers[buffer].death, self.clock)

    def enter(self, index: int) -> None:
        """Go on to an instance: note its links by input, those of each in order."""
        self.pieces.clear()
        for link in range(self.links.start[index], self.links.start[index + 1]):
            self.pieces.setdefault(self.links.slot[link], []).append(link)

    def bring(self, index: int, outline: Outline, rule: int) -> None:
        """Note a buffer for what moves into each input: pieces of different cores share it."""
        links = self.links
        for slot, group in self.pieces.items():
            moving = [x for x in group if links.moves[x] and self.source(x) >= 0]
            for link in moving:
                source = self.buffers[self.source(link)]
                source.death = max(source.death, self.clock)
            size = sum(links.size[link] for link in moving)
            if size:
                core, tensor = links.core_bytes[group[0]], outline.inputs[slot].tensor
                buffer = self.add(MOVED, tensor, index, core, size, 0, rule)
                self.buffers[buffer].links = range(group[0], group[-1] + 1)
                self.moved.update(dict.fromkeys(moving, buffer))
        self.clock += 1

    def pin(self, index: int, subgraph: int, layers: int, pins: Pins) -> int:
        """Note weights that stay and room for weight tiles; return where the weights are already.

        0 in DDR only, 1 in GB, 2 in LB.
        """
        end = self.clock + layers - 1
        size, at = pins.tiles[subgraph].tolist()
        if size > 0:
            tiles = self.buffers[self.add(TILES, -1, index, size, 0, 0, 0)]
            tiles.address, tiles.death = at, end
        residence, address, core, cluster = pins.kept[subgraph].tolist()
        if residence < 0:
            return 0
        known = self.weights.get(subgraph)
        if known is None:
            scope = 0 if residence == 2 else 1  # noqa: PLR2004  LB, GB
            self.weights[subgraph] = kept = self.add(WEIGHTS, -1, index, core, cluster, scope, 0)
            self.buffers[kept].address, self.buffers[kept].death = address, end
            return 0
        self.buffers[known].death = end
        return int(residence)

    def kernel(self, index: int, row: int, outline: Outline, scope: int, rule: int) -> None:
        """Note what the layers of a kernel read and write; ``row`` is its first of the streams."""
        inner: list[int] = []
        for position, layer in enumerate(outline.layers):
            self.read(row + position, layer, inner)
            last = position == len(outline.layers) - 1
            reused = inner[layer.reuse] if layer.reuse >= 0 else _NOWHERE
            for output, entry in enumerate(layer.writes):
                declared = 0 if not last else 2 if entry.unread else scope
                buffer = self.write(index, row + position, entry, declared, reused, rule)
                reused = _NOWHERE if buffer == reused else reused
                inner.append(buffer)
                if last:
                    self.made[index, output] = buffer
            self.clock += 1

    def read(self, row: int, layer: LayerOutline, inner: Sequence[int]) -> None:
        """Note the reads of a layer: pieces where they lie, what nobody makes from DDR."""
        links = self.links
        for inside, which, size in layer.reads:
            if inside:
                self.use(row, inner[which], size, LATE)
                continue
            for link in self.pieces.get(which, ()):
                source = self.source(link)
                self.use(row, self.moved.get(link, source), links.size[link], READ, source)
            if which not in self.pieces:
                self.use(row, _NOWHERE, size, READ)

    def write(
        self, index: int, row: int, entry: Write, declared: int, reused: int, rule: int
    ) -> int:
        """Return the buffer of one output of a layer: its own, or one that dies here."""
        buffer = reused
        if reused < 0 or declared or self.buffers[reused].core < entry.core_size:
            buffer = self.add(
                TENSOR, entry.tensor, index, entry.core_size, entry.size, declared, rule
            )
        self.use(row, buffer, entry.size, WRITTEN)
        if entry.also_out:
            self.use(row, _NOWHERE, entry.size, WRITTEN)
        return buffer


def write(
    order: Ints,
    subgraph: Ints,
    links: Links,
    scopes: Ints,
    outlines: Sequence[Outline],
    movements: Movements,
    victims: Ints,
    pins: Pins,
    lb: int,
    gb: int,
) -> Written:
    """Return the timeline of an order.

    Args:
        order: instances in order of execution.
        subgraph: per instance, its sub-graph.
        links: what instances read from each other.
        scopes: per instance, where its output is declared.
        outlines: of the kernels, in order.
        movements: what is done to the pieces that kernels read.
        victims: per sub-graph, the code of the rule by which tensors are spilled.
        pins: what is fixed before tensors are placed.
        lb: bytes of a core's local buffer for tensors.
        gb: bytes of the global buffer for them.
    """
    walk = _Walk(_LinkLists(
        links.start.tolist(), links.slot.tolist(), links.maker.tolist(), links.output.tolist(),
        links.size.tolist(), (movements.kind != STAY).tolist(), movements.core_bytes.tolist(),
    ))  # fmt: skip
    rows, resident = [0], []
    for index, outline in zip(order.tolist(), outlines, strict=True):
        own = int(subgraph[index])
        rule, count = int(victims[own]), len(outline.layers)
        walk.enter(index)
        walk.bring(index, outline, rule)
        resident.append(walk.pin(index, own, count, pins))
        walk.kernel(index, rows[-1], outline, int(scopes[index]), rule)
        rows.append(rows[-1] + count)
    _place(walk, lb, gb)
    copied, crossing = _movements(order, links, walk, movements)
    columns = [
        (b.kind, b.tensor, b.owner, b.birth, b.death, b.core, b.cluster, b.scope, b.address)
        for b in walk.buffers
    ]
    return Written(
        np.asarray(rows, np.int64), _streams(walk, rows[-1]), copied, crossing,
        np.asarray(resident, np.int64),
        *np.asarray(columns, np.int64).reshape(-1, 9).T.copy(),
    )  # fmt: skip


def _place(walk: _Walk, lb: int, gb: int) -> None:
    """Place buffers until every piece that is brought in has room in LB.

    A piece without room is not copied from one place outside LB to another: the kernel streams it
    from its source, which lives until then.
    """
    buffers = walk.buffers
    while True:
        *columns, rules = (
            np.asarray([getattr(b, name) for b in buffers], np.int64)
            for name in ("birth", "death", "core", "cluster", "scope", "address", "rule")
        )
        placed = Buffers(*columns)
        place_all(placed, rules, lb, gb)
        scopes = zip(buffers, placed.scope.tolist(), strict=True)
        homeless = [b for b, scope in scopes if b.kind == MOVED and scope]
        if not homeless:
            break
        for buffer in homeless:
            buffer.kind, buffer.core, buffer.cluster = STREAMED, 0, 0
            moving = (link for link in buffer.links if link in walk.moved)
            for source in (buffers[walk.source(link)] for link in moving):
                source.death = max(source.death, buffer.death)
    where = zip(placed.scope.tolist(), placed.address.tolist(), strict=True)
    for buffer, (scope, address) in zip(buffers, where, strict=True):
        buffer.scope, buffer.address = scope, address


def _streams(walk: _Walk, rows: int) -> Ints:
    """Return the bytes that layers move from and to GB and DDR, ``(rows, STREAM_COLUMNS)``."""
    table = np.zeros((rows, STREAM_COLUMNS), np.int64)
    row, buffer, size, kind, source = np.asarray(walk.uses, np.int64).reshape(-1, 5).T
    streamed = np.asarray([b.kind == STREAMED for b in walk.buffers], np.bool_)
    scopes = np.asarray([b.scope for b in walk.buffers], np.int64)
    held = np.where((buffer >= 0) & streamed[buffer], source, buffer)
    column = _COLUMN[kind, np.where(held >= 0, scopes[held], 2)]
    out = column >= 0
    np.add.at(table, (row[out], column[out]), size[out])
    return table


def _movements(order: Ints, links: Links, walk: _Walk, movements: Movements) -> tuple[Ints, Ints]:
    """Return, per kernel, bytes copied by the scope of their source, and bytes between cores."""
    copied, crossed = np.zeros((len(order), 3), np.int64), np.zeros(len(order), np.int64)
    starts, buffers = links.start.tolist(), walk.buffers
    for kernel, index in enumerate(order.tolist()):
        for link in range(starts[index], starts[index + 1]):
            if link not in walk.moved:
                continue
            scope = buffers[walk.source(link)].scope
            if scope == 0:
                crossed[kernel] += movements.crossing[link]
            if buffers[walk.moved[link]].kind != STREAMED:
                copied[kernel, scope] += links.size[link]
    return copied, crossed


def without_outputs(streams: Ints, last: Ints, outputs: Ints) -> Ints:
    """Streams of kernels whose outputs stay in the local buffers; what they spill goes to DDR.

    Args:
        streams: with outputs in DDR, layer by layer of every kernel.
        last: per kernel, the row of its last layer.
        outputs: per kernel, bytes that it hands over.
    """
    found = streams.copy()
    found[last, OUT_DDR] = np.maximum(found[last, OUT_DDR] - outputs, 0)
    return found
