"""Writes the timeline: walks the order once, notes buffers and uses, places, sums up streams.

Time counts steps: one for the movements before a kernel, then one per layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.allocate import place_all
from autoturbo.schedule.instances import Links
from autoturbo.schedule.movement import STAY, Movements
from autoturbo.schedule.streams import STREAM_COLUMNS
from autoturbo.schedule.templates import Head, Read, Row, TemplateTables, Write

TENSOR, MOVED, STREAMED, WEIGHTS, TILES = range(5)
"""Codes of what buffers hold."""

READ, LATE, WRITTEN = range(3)
"""Codes of uses: a read from elsewhere, a read of what the kernel itself made, a write."""

_COLUMN = np.asarray(((-1, 0, 1), (-1, 4, 5), (-1, 2, 3)), np.int64)
"""Stream column by use and scope (LB, GB, DDR)."""


class Pins(NamedTuple):
    """What is fixed before tensors are placed.

    ``kept``: per sub-graph, residence of its weights (1 GB, 2 LB, -1 none), address, bytes per
    core, bytes of the cluster; ``tiles``: per sub-graph, bytes of LB for weight tiles and their
    address.
    """

    kept: Ints
    tiles: Ints


class Written(NamedTuple):
    """The timeline as arrays; see :class:`autoturbo.schedule.timeline.Timeline`."""

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


class _Buffers(NamedTuple):
    """Buffers while they are written; ``links`` is the range of links that fill a moved one."""

    size: Ints
    kind: Ints
    tensor: Ints
    owner: Ints
    birth: Ints
    death: Ints
    core: Ints
    cluster: Ints
    scope: Ints
    address: Ints
    rule: Ints
    links: Ints


class _Uses(NamedTuple):
    """Who reads and writes: row of the streams, buffer, bytes, kind of use, source of a piece."""

    size: Ints
    table: Ints


class _Walk(NamedTuple):
    """What the walk over the order remembers.

    The clock; the buffers of instances' outputs, of moved pieces by link, of kept weights by
    sub-graph, of the current kernel's tensors.
    """

    clock: Ints
    made: Ints
    moved: Ints
    weights: Ints
    inner: Ints
    b: _Buffers
    u: _Uses


def write(
    order: Ints,
    subgraph: Ints,
    links: Links,
    scopes: Ints,
    templates: Ints,
    tables: TemplateTables,
    movements: Movements,
    victims: Ints,
    pins: Pins,
    lb: int,
    gb: int,
) -> Written:
    """The timeline of an order.

    Its parts are compiled one by one: as one, each would be optimised again with the whole.
    """
    kind, crossing, core_bytes = movements.kind, movements.crossing, movements.core_bytes
    rows, resident, walk = _walk(
        order, subgraph, links.start, links.slot, links.maker, links.output, links.size, scopes,
        templates, tables, kind, core_bytes, victims, pins,
    )  # fmt: skip
    b, count = walk.b, int(walk.b.size[0])
    table = _Buffers(b.size, *(column[:count] for column in b[1:]))
    _settle(walk, table, links, kind, lb, gb)
    streams = _streams(walk.u.size, walk.u.table, table.kind, table.scope, int(rows[-1]))
    copied, crossed = _movements(
        order, links.start, links.maker, links.output, links.size, kind, crossing, walk.made,
        walk.moved, table.kind, table.scope,
    )  # fmt: skip
    return Written(
        rows, streams, copied, crossed, resident, table.kind, table.tensor, table.owner,
        table.birth, table.death, table.core, table.cluster, table.scope, table.address,
    )  # fmt: skip


@njit(cache=True)
def _walk(
    order: Ints,
    subgraph: Ints,
    link_start: Ints,
    link_slot: Ints,
    link_maker: Ints,
    link_output: Ints,
    link_size: Ints,
    scopes: Ints,
    templates: Ints,
    tables: TemplateTables,
    movement: Ints,
    core_bytes: Ints,
    victims: Ints,
    pins: Pins,
) -> tuple[Ints, Ints, _Walk]:
    """Write down buffers and uses; first rows of the kernels and where their weights are."""
    walk = _start(order, link_start, link_output, templates, tables, len(victims))
    kernels = len(order)
    rows, resident = np.zeros(kernels + 1, np.int64), np.zeros(kernels, np.int64)
    for kernel in range(kernels):
        index = order[kernel]
        head = tables.heads[templates[index]]
        rows[kernel + 1] = rows[kernel] + head[Head.LAYERS]
        rule = victims[subgraph[index]]
        _bring(
            walk, index, link_start, link_slot, link_maker, link_output, link_size, movement,
            core_bytes, head, tables, rule,
        )  # fmt: skip
        resident[kernel] = _pin(walk, index, subgraph[index], head[Head.LAYERS], pins)
        _layers(
            walk, index, rows[kernel], link_start, link_slot, link_maker, link_output, link_size,
            scopes[index], head, tables, rule,
        )  # fmt: skip
    return rows, resident, walk


@njit(cache=True)
def _start(
    order: Ints,
    link_start: Ints,
    link_output: Ints,
    templates: Ints,
    tables: TemplateTables,
    subgraphs: int,
) -> _Walk:
    """Arrays that are large enough."""
    buffers, uses, most, inner = subgraphs + len(order), 0, 1, 1
    for output in link_output:  # of makers that another cluster runs, too
        most = max(most, output + 1)
    for index in order:
        head = tables.heads[templates[index]]
        own = link_start[index + 1] - link_start[index]
        buffers += head[Head.WRITES] + min(own, head[Head.SLOTS])
        for row in range(head[Head.ROW], head[Head.ROW] + head[Head.LAYERS]):
            reads = tables.rows[row, Row.READS]
            uses += 2 * tables.rows[row, Row.WRITES] + reads + (own if reads else 0) * reads
        final = tables.rows[head[Head.ROW] + head[Head.LAYERS] - 1]
        most, inner = max(most, final[Row.WRITES]), max(inner, head[Head.WRITES])
    b = _Buffers(
        np.zeros(1, np.int64), np.zeros(buffers, np.int64), np.full(buffers, -1, np.int64),
        np.zeros(buffers, np.int64), np.zeros(buffers, np.int64), np.zeros(buffers, np.int64),
        np.zeros(buffers, np.int64), np.zeros(buffers, np.int64), np.zeros(buffers, np.int64),
        np.full(buffers, -1, np.int64), np.zeros(buffers, np.int64),
        np.zeros((buffers, 2), np.int64),
    )  # fmt: skip
    instances = len(link_start) - 1
    return _Walk(
        np.zeros(1, np.int64), np.full((instances, most), -1, np.int64),
        np.full(len(link_output), -1, np.int64), np.full(subgraphs, -1, np.int64),
        np.empty(inner, np.int64), b,
        _Uses(np.zeros(1, np.int64), np.empty((uses, 5), np.int64)),
    )  # fmt: skip


@borrowing
def _add(
    walk: _Walk, kind: int, tensor: int, owner: int, core: int, cluster: int, scope: int, rule: int
) -> int:
    """A new buffer, made now."""
    b, at = walk.b, int(walk.b.size[0])
    b.kind[at], b.tensor[at], b.owner[at] = kind, tensor, owner
    b.birth[at] = b.death[at] = walk.clock[0]
    b.core[at], b.cluster[at], b.scope[at], b.rule[at] = core, cluster, scope, rule
    b.size[0] += 1
    return at


@borrowing
def _use(walk: _Walk, row: int, buffer: int, size: int, kind: int, source: int) -> None:
    table, at = walk.u.table, walk.u.size[0]
    table[at, 0], table[at, 1], table[at, 2] = row, buffer, size
    table[at, 3], table[at, 4] = kind, source
    walk.u.size[0] += 1
    if buffer >= 0:
        walk.b.death[buffer] = max(walk.b.death[buffer], walk.clock[0])


@borrowing
def _bring(
    walk: _Walk,
    index: int,
    link_start: Ints,
    link_slot: Ints,
    link_maker: Ints,
    link_output: Ints,
    link_size: Ints,
    movement: Ints,
    core_bytes: Ints,
    head: Ints,
    tables: TemplateTables,
    rule: int,
) -> None:
    """One buffer for what movements bring into each input: pieces of different cores share it."""
    first = link_start[index]
    while first < link_start[index + 1]:
        end, size = first, 0
        while end < link_start[index + 1] and link_slot[end] == link_slot[first]:
            source = walk.made[link_maker[end], link_output[end]]
            if movement[end] != STAY and source >= 0:
                size += link_size[end]
                walk.b.death[source] = max(walk.b.death[source], walk.clock[0])
            end += 1
        if size:
            tensor = tables.slots[head[Head.SLOT] + link_slot[first], 0]
            buffer = _add(walk, MOVED, tensor, index, core_bytes[first], size, 0, rule)
            walk.b.links[buffer, 0], walk.b.links[buffer, 1] = first, end
            for link in range(first, end):
                if movement[link] != STAY and walk.made[link_maker[link], link_output[link]] >= 0:
                    walk.moved[link] = buffer
        first = end
    walk.clock[0] += 1


@borrowing
def _pin(walk: _Walk, index: int, subgraph: int, layers: int, pins: Pins) -> int:
    """Weights that stay, and room for weight tiles; says where the weights are already."""
    end = walk.clock[0] + layers - 1
    size, at = pins.tiles[subgraph]
    if size > 0:
        buffer = _add(walk, TILES, -1, index, size, 0, 0, 0)
        walk.b.address[buffer], walk.b.death[buffer] = at, end
    residence = int(pins.kept[subgraph, 0])
    if residence < 0:
        return 0
    known = walk.weights[subgraph]
    if known < 0:
        core, cluster = pins.kept[subgraph, 2], pins.kept[subgraph, 3]
        known = _add(walk, WEIGHTS, -1, index, core, cluster, 0 if residence == 2 else 1, 0)  # noqa: PLR2004
        walk.b.address[known], walk.b.death[known] = pins.kept[subgraph, 1], end
        walk.weights[subgraph] = known
        return 0
    walk.b.death[known] = end
    return residence


@borrowing
def _layers(
    walk: _Walk,
    index: int,
    row: int,
    link_start: Ints,
    link_slot: Ints,
    link_maker: Ints,
    link_output: Ints,
    link_size: Ints,
    scope: int,
    head: Ints,
    tables: TemplateTables,
    rule: int,
) -> None:
    """The layers of one kernel."""
    inner, written = walk.inner, 0
    for position in range(head[Head.LAYERS]):
        layer = tables.rows[head[Head.ROW] + position]
        for at in range(layer[Row.READ], layer[Row.READ] + layer[Row.READS]):
            read = tables.reads[at]
            if read[Read.INSIDE]:
                _use(walk, row + position, inner[read[Read.WHICH]], read[Read.BYTES], LATE, -1)
            else:
                _read_pieces(
                    walk, index, row + position, link_start, link_slot, link_maker, link_output,
                    link_size, read,
                )  # fmt: skip
        reused = inner[layer[Row.REUSE]] if layer[Row.REUSE] >= 0 else -1
        for at in range(layer[Row.WRITE], layer[Row.WRITE] + layer[Row.WRITES]):
            entry = tables.writes[at]
            inner[written] = _write_one(walk, index, row + position, entry, scope, reused, rule)
            if inner[written] == reused:
                reused = -1
            if entry[Write.LAST]:
                walk.made[index, at - layer[Row.WRITE]] = inner[written]
            written += 1
        walk.clock[0] += 1


@borrowing
def _read_pieces(
    walk: _Walk,
    index: int,
    row: int,
    link_start: Ints,
    link_slot: Ints,
    link_maker: Ints,
    link_output: Ints,
    link_size: Ints,
    read: Ints,
) -> None:
    """An input from outside: its pieces where they lie, or all of it from DDR."""
    found = False
    for link in range(link_start[index], link_start[index + 1]):
        if link_slot[link] != read[Read.WHICH]:
            continue
        found = True
        source = walk.made[link_maker[link], link_output[link]]
        buffer = walk.moved[link] if walk.moved[link] >= 0 else source
        _use(walk, row, buffer, link_size[link], READ, source)
    if not found:
        _use(walk, row, -1, read[Read.BYTES], READ, -1)


@borrowing
def _write_one(
    walk: _Walk, index: int, row: int, entry: Ints, scope: int, reused: int, rule: int
) -> int:
    """The buffer of one output of a layer: its own, or one that dies here."""
    declared = 0
    if entry[Write.LAST]:
        declared = 2 if entry[Write.UNREAD] else scope
    fits = reused >= 0 and declared == 0 and walk.b.core[reused] >= entry[Write.CORE_BYTES]
    buffer = reused
    if not fits:
        buffer = _add(
            walk, TENSOR, entry[Write.TENSOR], index, entry[Write.CORE_BYTES], entry[Write.BYTES],
            declared, rule,
        )  # fmt: skip
    _use(walk, row, buffer, entry[Write.BYTES], WRITTEN, -1)
    if entry[Write.ALSO_OUT]:
        _use(walk, row, -1, entry[Write.BYTES], WRITTEN, -1)
    return buffer


def _settle(walk: _Walk, b: _Buffers, links: Links, movement: Ints, lb: int, gb: int) -> None:
    """Place buffers until every piece that is brought in has room in LB.

    A piece without room is not copied from one place outside LB to another: the kernel streams it
    from its source, which lives until then.
    """
    declared, fixed = b.scope.copy(), b.address.copy()
    while True:
        place_all(b.birth, b.death, b.core, b.cluster, b.scope, b.address, b.rule, lb, gb)
        homeless = np.flatnonzero((b.kind == MOVED) & (b.scope != 0))
        if not len(homeless):
            return
        _stream(
            homeless, b.kind, b.core, b.cluster, b.death, b.links, links.maker, links.output,
            movement, walk.made, walk.moved,
        )  # fmt: skip
        b.scope[:], b.address[:] = declared, fixed


@njit(cache=True)
def _stream(
    homeless: Ints,
    kind: Ints,
    core: Ints,
    cluster: Ints,
    death: Ints,
    links: Ints,
    link_maker: Ints,
    link_output: Ints,
    movement: Ints,
    made: Ints,
    moved: Ints,
) -> None:
    """Give up buffers of moved pieces: whoever reads them reads their sources."""
    for buffer in homeless:
        kind[buffer], core[buffer], cluster[buffer] = STREAMED, 0, 0
        for link in range(links[buffer, 0], links[buffer, 1]):
            if movement[link] != STAY and moved[link] == buffer:
                source = made[link_maker[link], link_output[link]]
                death[source] = max(death[source], death[buffer])


@njit(cache=True)
def _streams(size: Ints, uses: Ints, kinds: Ints, scopes: Ints, rows: int) -> Ints:
    """Bytes that layers move from and to GB and DDR."""
    table = np.zeros((rows, STREAM_COLUMNS), np.int64)
    for index in range(size[0]):
        row, buffer, moved, kind, source = uses[index]
        if buffer >= 0 and kinds[buffer] == STREAMED:
            buffer = source
        column = _COLUMN[kind, scopes[buffer] if buffer >= 0 else 2]
        if column >= 0:
            table[row, column] += moved
    return table


@njit(cache=True)
def _movements(
    order: Ints,
    link_start: Ints,
    link_maker: Ints,
    link_output: Ints,
    link_size: Ints,
    movement: Ints,
    crossing: Ints,
    made: Ints,
    moved: Ints,
    kinds: Ints,
    scopes: Ints,
) -> tuple[Ints, Ints]:
    """Per kernel, bytes copied by the scope of their source, and bytes between cores."""
    copied, crossed = np.zeros((len(order), 3), np.int64), np.zeros(len(order), np.int64)
    for kernel in range(len(order)):
        index = order[kernel]
        for link in range(link_start[index], link_start[index + 1]):
            source = made[link_maker[link], link_output[link]]
            if movement[link] == STAY or source < 0:
                continue
            scope = scopes[source]
            crossed[kernel] += crossing[link] if scope == 0 else 0
            if kinds[moved[link]] != STREAMED:
                copied[kernel, scope] += link_size[link]
    return copied, crossed
