"""Tables of templates for many bound parts at once, without the objects.

:mod:`autoturbo.schedule.stitch` and :mod:`autoturbo.schedule.templates` say what is in them; here
the same is done by compiled code for a batch of parts, each bound by a plain binding of its own.
Nobody asks these for names, so that nothing is built but what the timeline and the estimate read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints, propagate_in, region_bytes
from autoturbo.graph.operators import MAX_AXES, MAX_RANK
from autoturbo.schedule.bind import bindable_dims, spreading_order, steps_back
from autoturbo.schedule.cut_batch import flat
from autoturbo.schedule.instances import part_book, seed_in
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import clear_seen, note_operators
from autoturbo.schedule.stitch import (
    STAGE_COLUMNS,
    CoreRoom,
    Stage,
    core_room,
    fill_stages,
    memory_layout,
)
from autoturbo.schedule.stores import Store
from autoturbo.schedule.templates import Head, Read, Row, Slot, TemplateTables, Write
from autoturbo.schedule.work import Floats, WorkArrays


class Bound(NamedTuple):
    """A part and how its output is spread over cores.

    Attributes:
        shape: number of its class of parts.
        inputs: external input tensors.
        cores: to spread over.
        depth: the loop that spreading begins with; -1 for the outermost.
    """

    shape: int
    inputs: tuple[int, ...]
    cores: int
    depth: int


class Known(IntEnum):
    """What else is known of a bound part: columns of :attr:`BoundParts.facts`.

    Cores that its binding keeps busy, bytes of what its last layer writes, and bytes of the weights
    of its whole sub-graph.
    """

    CORES = 0
    OUTPUTS = 1
    WEIGHTS = 2


class _Loops(NamedTuple):
    """What bindings follow from.

    ``order`` has the dimensions of all tensors, end to end, from the outermost loop; ``spread``,
    likewise, is 1 where a layer may spread its output. ``last`` is the operator that makes each
    layer's output, ``fixed`` 1 where that is opaque and ``held`` where its readers cannot spread
    what it may not. From ``start[layer]`` on, ``steps`` has
    ``(output, input, first match)`` of its operators from the last to the first; ``matches`` the
    output's dimension that each of the input's matches, -1 for none. ``read`` and ``out`` are 1 for
    tensors that layers read and that leave the model; ``weights`` bytes by layer.
    """

    order: Ints
    spread: Ints
    last: Ints
    fixed: Ints
    held: Ints
    start: Ints
    steps: Ints
    matches: Ints
    read: Ints
    out: Ints
    weights: Ints
    cores: int


class _Batch(NamedTuple):
    """Parts to bind: from their starts on, layers, external inputs, and axes and bounds of cuts."""

    layer_start: Ints
    layers: Ints
    input_start: Ints
    inputs: Ints
    cut_start: Ints
    axes: Ints
    bounds: Ints
    cores: Ints
    depth: Ints


class _Tables(NamedTuple):
    """What is found of a batch."""

    heads: Ints
    rows: Ints
    slots: Ints
    reads: Ints
    writes: Ints
    factors: Ints
    ranks: Ints
    stages: Floats
    facts: Ints


class _Room(NamedTuple):
    """Room for one part after another, all 0 between them but for ``made`` and ``slot`` (-1).

    ``table`` has the binding of every tensor that is ``bound``, ``inner`` those that one layer
    implies inside, for tensors whose ``mark`` is its. ``made`` is the number of the write that
    makes a tensor, ``slot`` that of an external input, ``reader`` its last reader.
    """

    low: Ints
    high: Ints
    seen: Ints
    box_low: Ints
    box_high: Ints
    table: Ints
    inner: Ints
    bound: Ints
    mark: Ints
    made: Ints
    slot: Ints
    reader: Ints
    foreign: Ints
    axes: Ints


@dataclass(eq=False)
class BoundParts:
    """The bound parts of a problem, by number.

    Attributes:
        stages: rows of :class:`autoturbo.schedule.stitch.Stage`, at the rows of the heads.
        facts: rows of :class:`Known`.
    """

    rank: int
    index: dict[tuple[int, int, int], int] = field(default_factory=dict)
    heads: Store = field(default_factory=lambda: Store((len(Head),)))
    rows: Store = field(default_factory=lambda: Store((len(Row),)))
    slots: Store = field(default_factory=lambda: Store((len(Slot),)))
    reads: Store = field(default_factory=lambda: Store((len(Read),)))
    writes: Store = field(default_factory=lambda: Store((len(Write),)))
    factors: Store = field(init=False)
    ranks: Store = field(default_factory=Store)
    stages: Store = field(default_factory=lambda: Store((STAGE_COLUMNS,), np.float64))
    facts: Store = field(default_factory=lambda: Store((len(Known),)))

    def __post_init__(self) -> None:
        self.factors = Store((self.rank,))

    def tables(self) -> TemplateTables:
        """Everything for compiled code; bindings have numbers of their own."""
        return TemplateTables(
            self.heads.rows, self.rows.rows, self.slots.rows, self.reads.rows, self.writes.rows,
            self.factors.rows, self.ranks.rows,
        )  # fmt: skip

    def add(self, found: _Tables) -> None:
        """Append a batch, whose rows count from 0 on entry."""
        heads, rows, slots = found.heads, found.rows, found.slots
        heads[:, Head.ROW] += self.rows.count
        heads[:, Head.SLOT] += self.slots.count
        rows[:, Row.READ] += self.reads.count
        rows[:, Row.WRITE] += self.writes.count
        slots[:, Slot.WANTED] += np.where(slots[:, Slot.WANTED] >= 0, self.factors.count, 0)
        for name, table in found._asdict().items():
            getattr(self, name).add(table)


def bound_parts(problem: Problem) -> BoundParts:
    """The bound parts of a problem."""
    found = problem.books.get("bound parts")
    if not isinstance(found, BoundParts):
        found = BoundParts(part_book(problem).rank)
        problem.books["bound parts"] = found
    return found


def bind_parts(problem: Problem, parts: Sequence[Bound]) -> Ints:
    """Numbers of bound parts in :func:`bound_parts`."""
    book = bound_parts(problem)
    keys = [(p.shape, p.cores, p.depth) for p in parts]
    new = {key: p for key, p in zip(keys, parts, strict=True) if key not in book.index}
    if new:
        found = _bind_all(
            problem.arrays, problem.layer_arrays, problem.work, _loops(problem),
            memory_layout(problem), _batch(problem, list(new.values())), book.rank,
        )  # fmt: skip
        numbers = range(len(book.index), len(book.index) + len(new))
        book.add(found)
        book.index.update(zip(new, numbers, strict=True))
    return np.asarray([book.index[key] for key in keys], np.int64)


def _batch(problem: Problem, parts: Sequence[Bound]) -> _Batch:
    shapes = [part_book(problem).shapes[p.shape] for p in parts]
    layer_start, layers = flat([s.layers for s in shapes])
    input_start, inputs = flat([p.inputs for p in parts])
    cut_start, axes = flat([s.cut.axes for s in shapes])
    bounds = np.asarray([b for s in shapes for b in s.cut.bounds], np.int64).reshape(-1, 2)
    cores = np.asarray([p.cores for p in parts], np.int64)
    depth = np.asarray([p.depth for p in parts], np.int64)
    return _Batch(layer_start, layers, input_start, inputs, cut_start, axes, bounds, cores, depth)


def _loops(problem: Problem) -> _Loops:
    """Tables of a problem, remembered."""
    found = problem.memory.get("loops of bindings")
    if not isinstance(found, _Loops):
        found = _make_loops(problem)
        problem.memory["loops of bindings"] = found
    return found


def _make_loops(problem: Problem) -> _Loops:
    graph, starts = problem.graph, problem.arrays.dim_start
    orders = list(problem.loop_order)
    spread = np.zeros(sum(map(len, orders)), np.int64)
    steps: list[tuple[int, int, int]] = []
    matches: list[int] = []
    step_start, last = [0], [layer.operators[-1] for layer in problem.layers]
    weights = []
    for layer in problem.layers:
        operator = graph.operators[layer.operators[-1]]
        if operator.outputs and not operator.opaque:
            first = int(starts[operator.outputs[0]])
            dims = bindable_dims(operator)
            orders[operator.outputs[0]] = spreading_order(problem, layer.index)
            spread[first : first + len(dims)] = dims
        for output, inputs in steps_back(problem, layer.index):
            for tensor, own in inputs:
                steps.append((output, tensor, len(matches)))
                matches += own
        step_start.append(len(steps))
        weights.append(sum(
            graph.tensors[t].elements * int(problem.arrays.element[t])
            for index in layer.operators for t in graph.operators[index].inputs
            if graph.tensors[t].constant
        ))  # fmt: skip
    outputs = set(graph.outputs)
    return _Loops(
        np.asarray([dim for dims in orders for dim in dims], np.int64), spread,
        np.asarray(last, np.int64),
        np.asarray([bool(graph.operators[op].opaque) for op in last], np.int64),
        np.asarray([graph.operators[op].recurrent for op in last], np.int64),
        np.asarray(step_start, np.int64), np.asarray(steps, np.int64).reshape(-1, 3),
        np.asarray(matches, np.int64),
        np.asarray([bool(readers) for readers in problem.consumers], np.int64),
        np.asarray([t in outputs for t in range(len(graph.tensors))], np.int64),
        np.asarray(weights, np.int64), problem.target.cores,
    )  # fmt: skip


_HEADS, _ROWS, _SLOTS = len(Head), len(Row), len(Slot)

_READS, _WRITES, _KNOWN = len(Read), len(Write), len(Known)


@njit(cache=True)
def _bind_all(
    g: GraphArrays, a: LayerArrays, w: WorkArrays, k: _Loops, layout: Ints, b: _Batch, rank: int
) -> _Tables:
    """Tables of a batch."""
    count, layers, reads, writes, longest = len(b.cores), len(b.layers), 0, 0, 0
    for layer in b.layers:
        reads += a.in_start[layer + 1] - a.in_start[layer]
        writes += a.out_start[layer + 1] - a.out_start[layer]
    for part in range(count):
        inputs = 0
        for layer in b.layers[b.layer_start[part] : b.layer_start[part + 1]]:
            inputs += a.in_start[layer + 1] - a.in_start[layer]
        longest = max(longest, inputs)
    found = _Tables(
        np.zeros((count, _HEADS), np.int64), np.zeros((layers, _ROWS), np.int64),
        np.zeros((len(b.inputs), _SLOTS), np.int64), np.zeros((reads, _READS), np.int64),
        np.zeros((writes, _WRITES), np.int64), np.ones((len(b.inputs), rank), np.int64),
        np.zeros(len(b.inputs), np.int64), np.zeros((layers, STAGE_COLUMNS)),
        np.zeros((count, _KNOWN), np.int64),
    )  # fmt: skip
    dims, tensors, axes = len(g.extent), len(g.element), len(g.axis_extent)
    room = _Room(
        np.zeros(dims, np.int64), np.zeros(dims, np.int64), np.zeros(tensors, np.int64),
        np.zeros(axes, np.int64), np.zeros(axes, np.int64),
        np.zeros((tensors, MAX_RANK), np.int64), np.zeros((tensors, MAX_RANK), np.int64),
        np.zeros(tensors, np.int64), np.full(tensors, -1, np.int64),
        np.full(tensors, -1, np.int64), np.full(tensors, -1, np.int64),
        np.full(tensors, -1, np.int64), np.zeros(longest, np.int64),
        np.zeros((6, MAX_AXES), np.int64),
    )  # fmt: skip
    ops, core, at = np.empty(len(a.op), np.int64), core_room(g), np.zeros(2, np.int64)
    for part in range(count):
        _bind_one(g, a, w, k, layout, b, part, room, core, ops, at, found)
    return found


@borrowing
def _bind_one(
    g: GraphArrays,
    a: LayerArrays,
    w: WorkArrays,
    k: _Loops,
    layout: Ints,
    b: _Batch,
    part: int,
    r: _Room,
    core: CoreRoom,
    room: Ints,
    at: Ints,
    t: _Tables,
) -> None:
    """Tables of one part; ``at`` counts reads and writes so far."""
    first, end = b.layer_start[part], b.layer_start[part + 1]
    layers, inputs = b.layers[first:end], b.inputs[b.input_start[part] : b.input_start[part + 1]]
    cut = slice(b.cut_start[part], b.cut_start[part + 1])
    ops = room[: note_operators(a, layers, room)]
    seed_in(g, ops[-1], b.axes[cut], b.bounds[cut], r.low, r.high, r.seen, r.axes)
    propagate_in(g, ops, r.low, r.high, r.seen, r.box_low, r.box_high, r.axes)
    _bind_layers(g, a, k, layers, b.cores[part], b.depth[part], r)
    stages = t.stages[first:end]
    r.foreign[:] = 0
    fill_stages(g, a, w, layout, layers, r.low, r.high, r.seen, r.table, core, stages, r.foreign)
    head = t.heads[part]
    head[Head.ROW], head[Head.LAYERS] = first, end - first
    head[Head.SLOT], head[Head.SLOTS] = b.input_start[part], len(inputs)
    _note_inputs(g, inputs, b.input_start[part], r, t)
    _note_layers(g, a, k, layers, first, r, at, head, t)
    output, weights = a.out_tensor[a.out_start[layers[-1]]], 0
    cores = 1
    for dim in range(g.dim_start[output + 1] - g.dim_start[output]):
        cores *= r.table[output, dim]
    for layer in layers:
        weights += k.weights[layer]
    for row in range(end - first):
        head[Head.WEIGHTS] += stages[row, Stage.WEIGHTS]
        head[Head.CORE_WEIGHTS] += stages[row, Stage.CORE_WEIGHTS]
    head[Head.WHOLE] = head[Head.WEIGHTS] == weights
    t.facts[part, Known.CORES], t.facts[part, Known.WEIGHTS] = cores, weights
    for write in range(at[1] - _outputs(a, layers[-1]), at[1]):
        t.facts[part, Known.OUTPUTS] += t.writes[write, Write.BYTES]
    _clear(g, ops, r)


@borrowing
def _copy(source: Ints, target: Ints) -> None:
    """Entry by entry: a slice assigned to a slice may be copied, which takes memory."""
    for at in range(len(source)):
        target[at] = source[at]


@borrowing
def _outputs(a: LayerArrays, layer: int) -> int:
    return int(a.out_start[layer + 1] - a.out_start[layer])


@borrowing
def _clear(g: GraphArrays, ops: Ints, r: _Room) -> None:
    """Forget what a part's operators touched."""
    clear_seen(g, ops, r.seen)
    for op in ops:
        for tensor in g.in_tensor[g.in_start[op] : g.in_start[op + 1]]:
            _clear_tensor(g, tensor, r)
        for tensor in g.out_tensor[g.out_start[op] : g.out_start[op + 1]]:
            _clear_tensor(g, tensor, r)


@borrowing
def _clear_tensor(g: GraphArrays, tensor: int, r: _Room) -> None:
    r.bound[tensor], r.table[tensor] = 0, 0
    r.mark[tensor] = r.made[tensor] = r.slot[tensor] = r.reader[tensor] = -1
    for dim in range(g.dim_start[tensor], g.dim_start[tensor + 1]):
        r.low[dim] = r.high[dim] = 0


@borrowing
def _greatest_factor(extent: int, left: int, powers: bool) -> int:
    """The most parts of an extent on so many cores."""
    if powers:
        while left:
            extent, left = left, extent % left
        return extent
    for factor in range(min(extent, left), 0, -1):
        if extent % factor == 0:
            return factor
    return 1


@borrowing
def _plain(
    g: GraphArrays, k: _Loops, layer: int, output: int, cores: int, depth: int, r: _Room, out: Ints
) -> int:
    """The plain binding of a layer's output, from ``depth`` inwards; how many cores it keeps busy.

    Like :func:`autoturbo.schedule.bind.chosen_binding`.
    """
    first, rank = g.dim_start[output], g.dim_start[output + 1] - g.dim_start[output]
    out[:] = 0
    out[:rank] = 1
    if k.fixed[layer]:
        return 1
    left, used, last = cores, 1, k.last[layer]
    made = g.dim_start[g.out_tensor[g.out_start[last]]]
    for place in range(rank):
        at = place
        if 0 <= depth < rank:
            at = (depth + place) % rank
        dim = k.order[made + at]
        extent = r.high[first + dim] - r.low[first + dim]
        if k.spread[made + dim] and extent > 0:
            out[dim] = _greatest_factor(extent, left, cores & (cores - 1) == 0)
            left //= out[dim]
            used *= out[dim]
    return used


@borrowing
def _bind_layers(
    g: GraphArrays, a: LayerArrays, k: _Loops, layers: Ints, cores: int, depth: int, r: _Room
) -> None:
    """Bindings from the output back, like :func:`autoturbo.schedule.bind.layer_bindings`."""
    plain = r.axes[0, :MAX_RANK]
    for back in range(len(layers)):
        layer = layers[len(layers) - 1 - back]
        output = a.out_tensor[a.out_start[layer]]
        own = r.table[output]
        if back == 0:
            _plain(g, k, layer, output, min(cores, k.cores), depth, r, own)
        else:
            used, taken = _plain(g, k, layer, output, k.cores, -1, r, plain), 1
            first = g.dim_start[output]
            for dim in range(g.dim_start[output + 1] - first):
                most = max(r.high[first + dim] - r.low[first + dim], 1)
                if k.held[layer] and not k.spread[first + dim]:
                    most = 1
                own[dim] = min(own[dim], most)
                taken *= own[dim]
            if not r.bound[output] or used > taken:
                _copy(plain, own)
        r.bound[output] = 1
        _infer(g, a, k, layer, output, r)
    for layer in layers:  # further outputs are bound like the first, whatever their readers want
        for at in range(a.out_start[layer] + 1, a.out_start[layer + 1]):
            r.table[a.out_tensor[at]] = 0


@borrowing
def _infer(g: GraphArrays, a: LayerArrays, k: _Loops, layer: int, output: int, r: _Room) -> None:
    """What a layer's binding implies for its inputs, where no later layer wants anything."""
    last = k.last[layer]
    if g.out_start[last] < g.out_start[last + 1] and not k.fixed[layer]:
        made = g.out_tensor[g.out_start[last]]
        _copy(r.table[output], r.inner[made])
        r.mark[made] = layer
    for step in range(k.start[layer], k.start[layer + 1]):
        known, tensor, match = k.steps[step]
        if r.mark[known] != layer or r.mark[tensor] == layer:
            continue
        r.inner[tensor], r.mark[tensor] = 0, layer
        for dim in range(g.dim_start[tensor + 1] - g.dim_start[tensor]):
            source = k.matches[match + dim]
            r.inner[tensor, dim] = r.inner[known, source] if source >= 0 else 1
    for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
        if r.mark[tensor] == layer and not r.bound[tensor]:
            _copy(r.inner[tensor], r.table[tensor])
            r.bound[tensor] = 1


@borrowing
def _note_inputs(g: GraphArrays, inputs: Ints, first: int, r: _Room, t: _Tables) -> None:
    """Rows of external inputs, each with a binding of its own where one is wanted."""
    for place in range(len(inputs)):
        tensor, row = inputs[place], t.slots[first + place]
        rank = g.dim_start[tensor + 1] - g.dim_start[tensor]
        row[Slot.TENSOR], row[Slot.RANK], row[Slot.ELEMENT] = tensor, rank, g.element[tensor]
        row[Slot.WANTED] = first + place if r.bound[tensor] else -1
        r.slot[tensor] = place
        t.ranks[first + place] = rank
        if r.bound[tensor]:
            _copy(r.table[tensor, :rank], t.factors[first + place])


@borrowing
def _note_layers(
    g: GraphArrays,
    a: LayerArrays,
    k: _Loops,
    layers: Ints,
    first: int,
    r: _Room,
    at: Ints,
    head: Ints,
    t: _Tables,
) -> None:
    """Rows of a part's layers, and of what they read and write."""
    for position in range(len(layers)):
        layer = layers[position]
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            r.reader[tensor] = position
    crossing = 0
    for position in range(len(layers)):
        layer, row = layers[position], t.rows[first + position]
        row[Row.READ], row[Row.WRITE], row[Row.REUSE] = at[0], at[1], -1
        for tensor in a.in_tensor[a.in_start[layer] : a.in_start[layer + 1]]:
            made, read = r.made[tensor], t.reads[at[0]]
            read[Read.INSIDE], read[Read.WHICH] = made >= 0, made if made >= 0 else r.slot[tensor]
            read[Read.BYTES] = region_bytes(g, tensor, r.low, r.high) if r.seen[tensor] else 0
            dies = made >= 0 and r.reader[tensor] == position and r.foreign[crossing] == 0
            if a.in_place[layer] and dies and row[Row.REUSE] < 0:
                row[Row.REUSE] = made
            at[0] += 1
            crossing += 1
        _note_writes(g, a, k, layer, position == len(layers) - 1, r, at, head, t)
        row[Row.READS], row[Row.WRITES] = at[0] - row[Row.READ], at[1] - row[Row.WRITE]


@borrowing
def _note_writes(
    g: GraphArrays,
    a: LayerArrays,
    k: _Loops,
    layer: int,
    final: bool,
    r: _Room,
    at: Ints,
    head: Ints,
    t: _Tables,
) -> None:
    """Rows of what a layer writes."""
    outputs = a.out_tensor[a.out_start[layer] : a.out_start[layer + 1]]
    for tensor in outputs:
        write = t.writes[at[1]]
        write[Write.TENSOR], write[Write.LAST] = tensor, final
        if r.seen[tensor]:
            write[Write.BYTES] = region_bytes(g, tensor, r.low, r.high)
            write[Write.CORE_BYTES] = _core_bytes(g, tensor, outputs[0], r)
        write[Write.UNREAD] = 1 - k.read[tensor]
        write[Write.ALSO_OUT] = k.read[tensor] and k.out[tensor]
        r.made[tensor] = head[Head.WRITES]
        head[Head.WRITES] += 1
        at[1] += 1


@borrowing
def _core_bytes(g: GraphArrays, tensor: int, like: int, r: _Room) -> int:
    """Bytes of a tensor, bound like another, that the busiest core keeps."""
    first, size = g.dim_start[tensor], g.element[tensor]
    rank = g.dim_start[like + 1] - g.dim_start[like]
    for dim in range(g.dim_start[tensor + 1] - first):
        extent = max(r.high[first + dim] - r.low[first + dim], 0)
        size *= -(-extent // r.table[like, dim]) if dim < rank else extent
    return int(size)
