"""Algorithm 2 compiled: :mod:`autoturbo.schedule.group` says what it does and why.

A node is a sub-graph while it grows; its number is its last layer, which makes its output. Layer
sets that any rules have met are numbered, and what one part of them needs (its footprint, its work)
is remembered for all rules: rules differ in what they compare it with.

Nodes and layers are bits of 64-bit words where their neighbours are meant. The bit after the last
layer is the outside, the consumer that the model's outputs have.

What merges is compiled without reference counts (:mod:`autoturbo.compiled`) and so cannot compute
what is not known of a set: it says which set it *wants* and stops before it changes anything;
:func:`_merged` finds it out and lets it go on from the same node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import GraphArrays, Ints
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import (
    RETRIES,
    AxisTable,
    Workspace,
    axis_table,
    before,
    candidate_factor,
    cost,
    operators_of,
    workspace,
)
from autoturbo.schedule.work import Floats

Bits = NDArray[np.uint64]
"""Sets of nodes, ``(nodes, words)``."""

Flags = NDArray[np.bool_]

FOUND: Final = ("layer", "set", "axis", "factor", "depth", "operators", "footprint")
"""Columns of what is found: a node, its layers' number, and its split (factor 0: none fits)."""

_AT_ONCE = 64
"""Groupings that one call of compiled code makes room for."""

_SPARE = 512
"""Entries that each table has free before a merge is tried: more than one merge can add."""


class Rules(NamedTuple):
    """Rules of one or several groupings for compiled code: one row each.

    Attributes:
        room: bytes that parts may need.
        limit: most work of all parts over that of the whole.
        policy: code of the factors that are tried.
        key: order of the keys that choose a split, ``(groupings, 3)``.
        dims: position in :data:`autoturbo.schedule.split.DIMS`.
        producer_ratio: rule (i).
        merged_ratio: rules (i) and (ii).
        max_layers: of a sub-graph.
        order: of the patterns: 0 straight, 1 diamond, 2 branch; ``(groupings, 3)``.
        cuts: per layer, whether it must not be merged with its consumers, ``(groupings, layers)``.
        merges: per layer, whether it must be.
    """

    room: Ints
    limit: Floats
    policy: Ints
    key: Ints
    dims: Ints
    producer_ratio: Floats
    merged_ratio: Floats
    max_layers: Ints
    order: Ints
    cuts: Flags
    merges: Flags

    def taken(self, which: Ints) -> Rules:
        """Some of the groupings."""
        return Rules._make(column[which] for column in self)


class _Rules(NamedTuple):
    """A row of :class:`Rules`."""

    room: int
    limit: float
    policy: int
    key: Ints
    dims: int
    producer_ratio: float
    merged_ratio: float
    max_layers: int
    order: Ints
    cuts: Flags
    merges: Flags


class _Model(NamedTuple):
    """What does not depend on rules.

    ``maker`` and ``reader`` are the only producer and consumer of each layer (:func:`_only`);
    ``enlarged`` are the up-sampling layers that read each layer's outputs, from
    ``enlarged_start`` on; ``axes`` all ways to cut layers' outputs; ``names`` a random word for
    each layer.
    """

    producers: Bits
    consumers: Bits
    maker: Ints
    reader: Ints
    opaque: Flags
    enlarged_start: Ints
    enlarged: Ints
    axes: AxisTable
    names: Ints


class _Known(NamedTuple):
    """Layer sets met so far, single layers first, and what parts of them need.

    ``set_keys`` and ``set_numbers`` are a hash table of sets, ``members`` their layers from
    ``start`` on, ``whole`` footprint and work uncut (-1: not known yet). ``part_keys`` and
    ``parts`` are a hash table of footprint, work and operators cut, by set, axis and factor.
    ``counts`` has sets, members and parts, 1 if a table is full, and the set that is wanted (-1 for
    none).
    """

    set_keys: Ints
    set_numbers: Ints
    start: Ints
    members: Ints
    whole: Ints
    part_keys: Ints
    parts: Ints
    counts: Ints


class _Nodes(NamedTuple):
    """Sub-graphs while they grow, by their last layer.

    ``owner`` is the node of each layer, ``named`` the word of each node's layers, ``maker`` and
    ``reader`` the only producer and consumer (:func:`_only`), ``ceiling`` the
    smallest factor that a producer inside had before its output was up-sampled, ``factor`` that of
    its ``split`` and ``numbered`` the number of its layers (-1: not asked for yet); ``refused`` the
    grouping in which a set must not be tried again. ``at`` is where merging is: position in the
    order of patterns, node, merges of this round, and grouping. The others are for passing notes.
    """

    alive: Flags
    owner: Ints
    named: Ints
    size: Ints
    opaque: Flags
    producers: Bits
    consumers: Bits
    maker: Ints
    reader: Ints
    ceiling: Floats
    factor: Floats
    numbered: Ints
    refused: Ints
    at: Ints
    mark: Flags
    split: Ints
    tried: Ints
    ranks: Ints
    pair: Ints
    path: Ints
    entry: Ints


_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)

_SETS, _MEMBERS, _PARTS, _FULL, _WANTED = range(5)

_PATTERN, _NODE, _COUNTED, _GROUPING = range(4)


@dataclass(eq=False)
class Merger:
    """Groups the layers of a problem, as often as asked.

    Attributes:
        problem: whose layers.
        upsampling: the layers that up-sample.
        opaque: the layers with an opaque operator.
    """

    problem: Problem
    upsampling: frozenset[int]
    opaque: frozenset[int]
    _model: _Model = field(init=False)
    _known: _Known = field(init=False)
    _space: Workspace = field(init=False)
    _layers: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.problem.layers)
        self._model = _model(self.problem, self.upsampling, self.opaque)
        self._known = _tables(_room(8 * count), 1 << 14, 1 << 14, count)
        _note_layers(self._model, self._known)
        every = np.arange(count, dtype=np.int64)
        self._space = workspace(self.problem.arrays, self.problem.layer_arrays, every)

    def rows(self, rules: Rules) -> tuple[Ints, Ints]:
        """Sub-graphs of several groupings.

        Returns:
            One row of :data:`FOUND` per sub-graph, in topological order, grouping after grouping;
            and the sub-graphs of each grouping, ``(groupings,)``.
        """
        total, layers = len(rules.room), len(self.problem.layers)
        found, counts = [np.zeros((0, len(FOUND)), np.int64)], np.zeros(total, np.int64)
        done = 0
        while done < total:
            room = np.zeros((min(total - done, _AT_ONCE), layers, len(FOUND)), np.int64)
            end = _merged(
                self.problem.arrays, self.problem.layer_arrays, self._model, self._known,
                self._space, rules, done, room, counts,
            )  # fmt: skip
            used = np.arange(layers) < counts[done:end, None]
            found.append(room[: end - done][used])
            done = end
            if self._known.counts[_FULL]:
                self._known = _grown(self._known)
        return np.concatenate(found), counts

    @property
    def sets(self) -> tuple[Ints, Ints]:
        """Where the layers of each set start, and all of them, for compiled code."""
        return self._known.start, self._known.members

    def layers(self, number: int) -> tuple[int, ...]:
        """The layers of a set, in order."""
        known = self._known
        for at in range(len(self._layers), number + 1):
            own = known.members[known.start[at] : known.start[at + 1]]
            self._layers.append(tuple(own.tolist()))
        return self._layers[number]


def _room(least: int) -> int:
    """A power of two for a hash table."""
    return int(max(1 << (least - 1).bit_length(), 1 << 12))


def _tables(sets: int, members: int, parts: int, layers: int) -> _Known:
    return _Known(
        np.zeros(sets, np.int64), np.full(sets, -1, np.int64), np.zeros(sets + 1, np.int64),
        np.zeros(members + layers, np.int64), np.full((sets, 2), -1, np.int64),
        np.full(parts, -1, np.int64), np.zeros((parts, 3), np.int64), np.zeros(5, np.int64),
    )  # fmt: skip


def _grown(known: _Known) -> _Known:
    """All tables with twice the room, and what they hold."""
    sets, members, parts = len(known.set_keys), len(known.members), len(known.part_keys)
    found = _tables(2 * sets, 2 * members, 2 * parts, 0)
    found.start[: sets + 1], found.members[:members] = known.start, known.members
    found.whole[:sets] = known.whole
    found.counts[:_FULL] = known.counts[:_FULL]
    _rehash(known, found)
    return found


@njit(cache=True)
def _note_layers(m: _Model, k: _Known) -> None:
    """Number every layer alone by its own number."""
    for layer in range(len(m.names)):
        slot = _slot_of(m.names[layer], k.set_keys, k.set_numbers)
        k.set_keys[slot], k.set_numbers[slot], k.members[layer] = m.names[layer], layer, layer
        k.start[layer + 1] = layer + 1
    k.counts[_SETS] = k.counts[_MEMBERS] = len(m.names)


@njit(cache=True)
def _rehash(old: _Known, new: _Known) -> None:
    for at in range(len(old.set_keys)):
        if old.set_numbers[at] >= 0:
            slot = _slot_of(old.set_keys[at], new.set_keys, new.set_numbers)
            new.set_keys[slot], new.set_numbers[slot] = old.set_keys[at], old.set_numbers[at]
    for at in range(len(old.part_keys)):
        if old.part_keys[at] >= 0:
            slot = _slot_of(old.part_keys[at], new.part_keys, new.part_keys)
            new.part_keys[slot], new.parts[slot] = old.part_keys[at], old.parts[at]


@borrowing
def _slot_of(key: int, keys: Ints, taken: Ints) -> int:
    """Where a key is in a hash table, or the free slot (``taken`` negative) where it belongs."""
    mixed = (key ^ (key >> 31)) * 6364136223846793005
    slot = (mixed ^ (mixed >> 29)) & (len(keys) - 1)
    while taken[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return slot


def _model(problem: Problem, upsampling: frozenset[int], opaque: frozenset[int]) -> _Model:
    layers, outputs = problem.layers, set(problem.graph.outputs)
    count = len(layers)
    shape = (count, count // 64 + 1)
    producers, consumers = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
    enlarged: list[list[int]] = []
    for layer in layers:
        readers = {r for t in layer.outputs for r in problem.consumers[t]}
        enlarged.append(sorted(readers & upsampling))
        if outputs & set(layer.outputs):
            readers.add(count)
        _set_bits(producers[layer.index], {problem.producer[t] for t in layer.inputs} - {-1})
        _set_bits(consumers[layer.index], readers)
    names = np.random.default_rng(0).integers(1, 1 << 62, count)
    return _Model(
        producers, consumers, _each_only(producers), _each_only(consumers),
        np.asarray([x.index in opaque for x in layers], np.bool_),
        np.concatenate(([0], np.cumsum([len(own) for own in enlarged]))).astype(np.int64),
        np.asarray([x for own in enlarged for x in own], np.int64), axis_table(problem), names,
    )  # fmt: skip


def _set_bits(words: Bits, bits: set[int]) -> None:
    for bit in bits:
        words[bit // 64] |= np.uint64(1 << (bit % 64))


@borrowing
def _put(words: Bits, bit: int) -> None:
    words[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@borrowing
def _drop(words: Bits, bit: int) -> None:
    words[bit >> 6] &= ~(np.uint64(1) << np.uint64(bit & 63))


@borrowing
def _only(words: Bits) -> int:
    """The only member of a set; -1 if it has none, -2 if it has several."""
    found = -1
    for at in range(len(words)):
        word = words[at]
        if word == 0:
            continue
        if found >= 0 or word & (word - np.uint64(1)):
            return -2
        found = at * 64 + _place_of(word)
    return found


@njit(cache=True)
def _each_only(sets: Bits) -> Ints:
    """:func:`_only` of every set."""
    found = np.empty(len(sets), np.int64)
    for at in range(len(sets)):
        found[at] = _only(sets[at])
    return found


@borrowing
def _place_of(word: np.uint64) -> int:
    """The highest bit that is set in a word, where one is."""
    found, step = 0, 32
    while step:
        upper = word >> np.uint64(step)
        if upper:
            word, found = upper, found + step
        step >>= 1
    return found


@borrowing
def _from(words: Bits, start: int) -> int:
    """The first member of a set from ``start`` on, -1 for none."""
    at = start >> 6
    if at >= len(words):
        return -1
    word = words[at] & (_EVERY << np.uint64(start & 63))
    while word == 0:
        at += 1
        if at == len(words):
            return -1
        word = words[at]
    return at * 64 + _place_of(word & (~word + np.uint64(1)))


@borrowing
def _below(words: Bits, end: int) -> int:
    """The last member of a set below ``end``, -1 for none."""
    at = end >> 6
    word = words[at] & ~(_EVERY << np.uint64(end & 63))
    while word == 0:
        at -= 1
        if at < 0:
            return -1
        word = words[at]
    return at * 64 + _place_of(word)


@borrowing
def _number(n: _Nodes, k: _Known, named: int) -> int:
    """The number of the layers that belong to marked nodes, whose word is given."""
    slot = _slot_of(named, k.set_keys, k.set_numbers)
    if k.set_numbers[slot] < 0:
        number, at = k.counts[_SETS], k.counts[_MEMBERS]
        for layer in range(len(n.owner)):
            if n.mark[n.owner[layer]]:
                k.members[at] = layer
                at += 1
        k.set_keys[slot], k.set_numbers[slot] = named, number
        k.start[number + 1], k.counts[_MEMBERS], k.counts[_SETS] = at, at, number + 1
    return int(k.set_numbers[slot])


@borrowing
def _is_full(k: _Known, layers: int) -> bool:
    sets, members, parts = k.counts[_SETS], k.counts[_MEMBERS], k.counts[_PARTS]
    return bool(
        2 * sets + _SPARE > len(k.set_keys)
        or members + 4 * layers > len(k.members)
        or 2 * parts + _SPARE > len(k.part_keys)
    )


@njit(cache=True)
def _find_out(
    g: GraphArrays, a: LayerArrays, m: _Model, k: _Known, space: Workspace, r: _Rules, number: int
) -> None:
    """What parts of a set need, as far as rules ask for it."""
    layers = k.members[k.start[number] : k.start[number + 1]].copy()
    ops = operators_of(a, layers)
    if k.whole[number, 0] < 0:
        found = cost(g, a, layers, ops, space, -1, 0, 0)
        k.whole[number, 0], k.whole[number, 1] = found[0], found[1]
    whole, work = k.whole[number, 0], k.whole[number, 1]
    place = r.dims * len(m.opaque) + layers[-1]
    for way in range(m.axes.start[place], m.axes.start[place + 1]):
        axis, extent = m.axes.ways[way, 1], m.axes.ways[way, 2]
        factor = _least(whole, r) if whole > r.room else 0
        for _ in range(RETRIES + 1):
            factor = candidate_factor(factor, extent, r.policy) if factor else 0
            if factor == 0:
                break
            slot = _slot_of(_key(number, axis, factor), k.part_keys, k.part_keys)
            if k.part_keys[slot] < 0:
                size = -(-extent // factor)
                first = min((factor // 2) * size, extent - size)
                found = cost(g, a, layers, ops, space, axis, first, first + size)
                k.part_keys[slot] = _key(number, axis, factor)
                k.parts[slot, 0], k.parts[slot, 1], k.parts[slot, 2] = found
                k.counts[_PARTS] += 1
            if k.parts[slot, 1] * factor > r.limit * work + factor or k.parts[slot, 0] <= r.room:
                break
            factor += 1


@borrowing
def _least(whole: int, r: _Rules) -> int:
    """The smallest factor by the printed estimate."""
    return int(max(-(-whole // max(r.room, 1)), 2))


@borrowing
def _key(number: int, axis: int, factor: int) -> int:
    return (number << 38) | (axis << 32) | factor


@borrowing
def _best(m: _Model, k: _Known, r: _Rules, n: _Nodes, number: int, out: Ints) -> bool:
    """The best way to cut a set: axis, factor (0 if none fits), depth, operators, bytes.

    False if something about the set is wanted first.
    """
    whole, work = k.whole[number, 0], k.whole[number, 1]
    last = k.members[k.start[number + 1] - 1]
    out[0], out[1], out[2], out[3], out[4] = -1, 0, 0, 0, whole
    if 0 <= whole <= r.room:
        out[1], out[3] = 1, k.start[number + 1] - k.start[number]
        return True
    rank, best = n.ranks[:3], n.ranks[3:]
    place = r.dims * len(m.opaque) + last
    for way in range(m.axes.start[place], m.axes.start[place + 1]):
        depth, axis, extent = m.axes.ways[way, 0], m.axes.ways[way, 1], m.axes.ways[way, 2]
        factor = _least(whole, r)
        for _ in range(RETRIES + 1):
            factor = candidate_factor(factor, extent, r.policy)
            if factor == 0:
                break
            slot = _slot_of(_key(number, axis, factor), k.part_keys, k.part_keys)
            if whole < 0 or k.part_keys[slot] < 0:
                k.counts[_WANTED] = number
                return False
            if k.parts[slot, 1] * factor > r.limit * work + factor:
                break
            if k.parts[slot, 0] <= r.room:
                rank[0], rank[1], rank[2] = k.parts[slot, 2], -factor, -depth
                if out[1] == 0 or before(best, rank, r.key):
                    out[0], out[1], out[2] = axis, factor, depth
                    out[3], out[4] = k.parts[slot, 2], k.parts[slot, 0]
                    best[0], best[1], best[2] = rank[0], rank[1], rank[2]
                break
            factor += 1
    if whole < 0:
        k.counts[_WANTED] = number
    return bool(whole >= 0)


@borrowing
def _factor(m: _Model, k: _Known, r: _Rules, n: _Nodes, node: int) -> float:
    """The factor of a node's best split; infinite where none fits, negative if wanted first."""
    if n.numbered[node] < 0:  # a single layer: merged nodes are numbered when they are merged
        if not _best(m, k, r, n, node, n.split[node]):
            return -1.0
        n.numbered[node] = node
        n.factor[node] = np.inf if n.split[node, 1] == 0 else float(n.split[node, 1])
    return float(n.factor[node])


@borrowing
def _is_upsampled(m: _Model, n: _Nodes, node: int) -> bool:
    """Whether a marked node up-samples a node's output."""
    for at in range(m.enlarged_start[node], m.enlarged_start[node + 1]):
        if n.mark[n.owner[m.enlarged[at]]]:
            return True
    return False


@borrowing
def _ceiling(m: _Model, k: _Known, r: _Rules, n: _Nodes, nodes: Ints) -> float:
    """The smallest factor that a producer had which the merged nodes up-sample, -1 if wanted."""
    least = np.inf
    if len(m.enlarged) == 0:
        return least
    for node in nodes:
        if _factor(m, k, r, n, node) < 0:
            return -1.0
    for node in nodes:
        n.mark[node] = True
    for node in nodes:
        least = min(least, n.ceiling[node])
        if _is_upsampled(m, n, node):
            least = min(least, n.factor[node])
    for node in nodes:
        n.mark[node] = False
    return least


@borrowing
def _try(m: _Model, k: _Known, r: _Rules, n: _Nodes, nodes: Ints, bound: float) -> bool:
    """Merge nodes, the last of which is kept, if size, cuts and the rule allow it."""
    named, size, allowed = 0, 0, True
    for at in range(len(nodes)):
        node = nodes[at]
        named ^= n.named[node]
        size += n.size[node]
        allowed &= not n.opaque[node] and not (r.cuts[node] and at < len(nodes) - 1)
        n.mark[node] = True
    number = _number(n, k, named)
    for node in nodes:
        n.mark[node] = False
    if n.refused[number] == n.at[_GROUPING]:
        return False
    allowed &= size <= r.max_layers
    ceiling = _ceiling(m, k, r, n, nodes)
    if ceiling < 0 or (allowed and not _best(m, k, r, n, number, n.tried)):
        return False
    if not allowed or n.tried[1] == 0 or n.tried[1] > bound:
        n.refused[number] = n.at[_GROUPING]
        return False
    _join(k, n, nodes, number)
    kept = nodes[-1]
    n.named[kept], n.size[kept], n.ceiling[kept] = named, size, ceiling
    n.factor[kept], n.numbered[kept] = float(n.tried[1]), number
    for column in range(len(n.tried)):
        n.split[kept, column] = n.tried[column]
    return True


@borrowing
def _join(k: _Known, n: _Nodes, nodes: Ints, number: int) -> None:
    """Let the last of some nodes have all their layers, a set by its number, and neighbours."""
    kept = nodes[-1]
    for node in nodes[:-1]:
        n.alive[node] = False
        for word in range(n.producers.shape[1]):
            n.producers[kept, word] |= n.producers[node, word]
    for at in range(k.start[number], k.start[number + 1]):
        n.owner[k.members[at]] = kept
    for node in nodes:
        _drop(n.producers[kept], node)
    n.maker[kept], n.reader[kept] = _only(n.producers[kept]), _only(n.consumers[kept])
    node = _from(n.producers[kept], 0)
    while node >= 0:
        if n.alive[node]:
            for gone in nodes:
                _drop(n.consumers[node], gone)
            _put(n.consumers[node], kept)
            n.reader[node] = _only(n.consumers[node])
        node = _from(n.producers[kept], node + 1)


@borrowing
def _pair(m: _Model, k: _Known, r: _Rules, n: _Nodes, producer: int, consumer: int) -> bool:
    """Rule (i)."""
    nodes = n.pair
    nodes[0], nodes[1] = producer, consumer
    if r.merges[producer]:
        return _try(m, k, r, n, nodes, np.inf)
    after, own = _factor(m, k, r, n, consumer), _factor(m, k, r, n, producer)
    if after < 0 or own < 0 or after < r.producer_ratio * own:
        return False
    ceiling = _ceiling(m, k, r, n, nodes)
    return ceiling >= 0 and _try(m, k, r, n, nodes, r.merged_ratio * min(after, ceiling))


@borrowing
def _straight(m: _Model, k: _Known, r: _Rules, n: _Nodes, node: int) -> bool:
    """P is the unique producer of Q and Q the unique consumer of P: merge {P, Q}."""
    consumer = n.reader[node]
    if consumer < 0 or consumer == len(n.alive) or n.maker[consumer] != node:
        return False
    return _pair(m, k, r, n, node, consumer)


@borrowing
def _branch(m: _Model, k: _Known, r: _Rules, n: _Nodes, consumer: int) -> bool:
    """Q has several producers and is the unique consumer of one, P, the latest: merge {P, Q}."""
    if n.maker[consumer] != -2:  # noqa: PLR2004  several
        return False
    producer = _below(n.producers[consumer], consumer)
    while producer >= 0:
        if n.reader[producer] == consumer:
            if _pair(m, k, r, n, producer, consumer):
                return True
            if k.counts[_WANTED] >= 0:
                return False
        producer = _below(n.producers[consumer], producer)
    return False


@borrowing
def _diamond(m: _Model, k: _Known, r: _Rules, n: _Nodes, exit_node: int) -> bool:
    """Two or more paths from an entry to an exit: merge what lies on them and the exit."""
    if n.maker[exit_node] != -2:  # noqa: PLR2004  several
        return False
    nodes = n.path[: _paths(n, exit_node)]
    if len(nodes) == 0:
        return False
    widest = 0.0
    for one in nodes:
        factor = _factor(m, k, r, n, one)
        if factor < 0:
            return False
        widest = max(widest, factor)
    ceiling = _ceiling(m, k, r, n, nodes)
    return ceiling >= 0 and _try(m, k, r, n, nodes, r.merged_ratio * min(widest, ceiling))


@borrowing
def _paths(n: _Nodes, exit_node: int) -> int:
    """Note the nodes on two or more paths from one entry to an exit, which comes last.

    How many they are, 0 for none; of several entries the one that the first producer leads to.
    """
    count = len(n.alive)
    read, first = n.producers[exit_node], _from(n.producers[exit_node], 0)
    producer = first
    while 0 <= producer < exit_node:
        n.entry[producer] = -1
        node, reader = producer, exit_node
        while n.reader[node] == reader and n.maker[node] >= 0:
            reader, node = node, n.maker[node]
            n.entry[producer] = node
        producer = _from(read, producer + 1)
    while 0 <= first < exit_node:
        paths, length = 0, 0
        producer = first if n.entry[first] >= 0 else -1
        while 0 <= producer < exit_node:
            if n.entry[producer] == n.entry[first]:
                paths += 1
                node, reader = producer, exit_node
                while node != n.entry[first] and length < count - 1:
                    n.path[length] = node
                    length += 1
                    reader, node = node, n.maker[node]
            producer = _from(read, producer + 1)
        if paths > 1:
            n.path[length] = exit_node
            return length + 1
        first = _from(read, first + 1)
    return 0


@borrowing
def _advance(m: _Model, k: _Known, r: _Rules, n: _Nodes) -> bool:
    """Merge until a round merges nothing; False where it stops because something is wanted."""
    count, patterns = len(n.alive), len(r.order)
    while n.at[_PATTERN] < patterns:
        pattern = r.order[n.at[_PATTERN]]
        while n.at[_NODE] < count:
            node = n.at[_NODE]
            if _is_full(k, count):
                return False
            if n.alive[node]:
                if pattern == 0:
                    merged = _straight(m, k, r, n, node)
                elif pattern == 1:
                    merged = _diamond(m, k, r, n, node)
                else:
                    merged = _branch(m, k, r, n, node)
                if k.counts[_WANTED] >= 0:
                    return False
                n.at[_COUNTED] += merged
            n.at[_NODE] += 1
        n.at[_NODE] = 0
        n.at[_PATTERN] += 1
        if n.at[_PATTERN] == patterns and n.at[_COUNTED]:
            n.at[_PATTERN], n.at[_COUNTED] = 0, 0
    return True


@borrowing
def _noted(m: _Model, k: _Known, r: _Rules, n: _Nodes, found: Ints) -> bool:
    """Note all nodes and their splits; False where something is wanted."""
    at = 0
    for node in range(len(n.alive)):
        if n.alive[node]:
            if _factor(m, k, r, n, node) < 0:
                return False
            found[at, 0], found[at, 1] = node, n.numbered[node]
            for column in range(n.split.shape[1]):
                found[at, 2 + column] = n.split[node, column]
            at += 1
    return True


@njit(cache=True)
def _merged(
    g: GraphArrays,
    a: LayerArrays,
    m: _Model,
    k: _Known,
    space: Workspace,
    rules: Rules,
    start: int,
    found: Ints,
    counts: Ints,
) -> int:
    """Group by all rules from ``start`` on for which there is room, and say where it ended.

    ``found`` takes rows of :data:`FOUND`, grouping by grouping, ``counts`` how many there are of
    each. It ends early where a table is full.
    """
    n = _nodes(m, k)
    for at in range(len(found)):
        own = start + at
        r = _Rules(
            rules.room[own], rules.limit[own], rules.policy[own], rules.key[own], rules.dims[own],
            rules.producer_ratio[own], rules.merged_ratio[own], rules.max_layers[own],
            rules.order[own], rules.cuts[own], rules.merges[own],
        )  # fmt: skip
        _begin(m, k, n, own)
        while not (_advance(m, k, r, n) and _noted(m, k, r, n, found[at])):
            if _is_full(k, len(m.opaque)):
                k.counts[_FULL] = 1
                return own
            _find_out(g, a, m, k, space, r, k.counts[_WANTED])
            k.counts[_WANTED] = -1
        counts[own] = n.alive.sum()
    return start + len(found)


@njit(cache=True)
def _nodes(m: _Model, k: _Known) -> _Nodes:
    """Room for nodes."""
    count = len(m.opaque)
    return _Nodes(
        np.ones(count, np.bool_), np.arange(count), m.names.copy(), np.ones(count, np.int64),
        m.opaque.copy(), m.producers.copy(), m.consumers.copy(), m.maker.copy(), m.reader.copy(),
        np.full(count, np.inf),
        np.zeros(count), np.full(count, -1, np.int64), np.full(len(k.set_keys), -1, np.int64),
        np.zeros(4, np.int64), np.zeros(count, np.bool_), np.zeros((count, 5), np.int64),
        np.zeros(5, np.int64), np.zeros(6, np.int64), np.zeros(2, np.int64),
        np.zeros(count, np.int64), np.zeros(count, np.int64),
    )  # fmt: skip


@borrowing
def _begin(m: _Model, k: _Known, n: _Nodes, grouping: int) -> None:
    """Let every layer be a node of its own."""
    for layer in range(len(m.opaque)):
        n.alive[layer], n.owner[layer], n.size[layer] = True, layer, 1
        n.named[layer] = m.names[layer]
        n.maker[layer], n.reader[layer] = m.maker[layer], m.reader[layer]
        n.opaque[layer], n.ceiling[layer], n.numbered[layer] = m.opaque[layer], np.inf, -1
        for word in range(m.producers.shape[1]):
            n.producers[layer, word] = m.producers[layer, word]
            n.consumers[layer, word] = m.consumers[layer, word]
    n.at[_PATTERN], n.at[_NODE], n.at[_COUNTED], n.at[_GROUPING] = 0, 0, 0, grouping
    k.counts[_FULL], k.counts[_WANTED] = 0, -1
