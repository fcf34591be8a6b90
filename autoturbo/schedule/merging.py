"""Algorithm 2 compiled: :mod:`autoturbo.schedule.group` says what it does and why.

A node is a sub-graph while it grows; its number is its last layer, which makes its output. What
parts of layer sets need is looked up in :mod:`autoturbo.schedule.layer_sets`.

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
from autoturbo.schedule.known_groupings import (
    KnownGroupings,
    groupings_kept,
    keep,
    known_groupings,
    same_as,
)
from autoturbo.schedule.layer_sets import (
    Asked,
    Bound,
    Count,
    Flags,
    LayerSets,
    Rule,
    Rules,
    ask,
    ask_anew,
    asked_of,
    best_split_of,
    find_out,
    grown,
    is_full,
    layer_sets,
    slot_of,
)
from autoturbo.schedule.problem import LayerArrays, Problem
from autoturbo.schedule.split import AxisTable, Workspace, axis_table, workspace
from autoturbo.schedule.work import Floats

Bits = NDArray[np.uint64]
"""Sets of nodes, ``(nodes, words)``."""

FOUND: Final = ("layer", "set", "axis", "factor", "depth", "operators", "footprint")
"""Columns of what is found: a node, its layers' number, and its split (factor 0: none fits)."""

_ROOM = 1 << 14
"""Sub-graphs that one call of compiled code has room for."""


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


class _Nodes(NamedTuple):
    """Sub-graphs while they grow, by their last layer.

    ``owner`` is the node of each layer, ``named`` the word of each node's layers, ``maker`` and
    ``reader`` the only producer and consumer (:func:`_only`), ``ceiling`` the
    smallest factor that a producer inside had before its output was up-sampled, ``factor`` that of
    its ``split`` and ``numbered`` the number of its layers (-1: not asked for yet); ``refused`` the
    grouping in which a set must not be tried again. ``at`` is where merging is: position in the
    order of patterns, node, merges of this round, and grouping, from 1 over all that these nodes
    were used for. The others are for passing notes.
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
    path: Ints
    entry: Ints
    asked: Asked


_NEVER = 1e-300
"""Below every ratio but 0."""

_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)

_PATTERN, _NODE, _COUNTED, _GROUPING = range(4)

_STRAIGHT, _DIAMOND, _BRANCH = range(3)


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
    _known: LayerSets = field(init=False)
    _nodes: _Nodes = field(init=False)
    _groupings: KnownGroupings = field(init=False)
    _space: Workspace = field(init=False)
    _layers: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.problem.layers)
        self._model = _model(self.problem, self.upsampling, self.opaque)
        self._known = layer_sets(self._model.names)
        self._nodes = _nodes(self._model, len(self._known.set_keys))
        self._groupings = known_groupings(count, len(FOUND), 1)
        every = np.arange(count, dtype=np.int64)
        self._space = workspace(self.problem.arrays, self.problem.layer_arrays, every)

    def rows(self, rules: Rules) -> tuple[Ints, Ints]:
        """Sub-graphs of several groupings.

        Returns:
            One row of :data:`FOUND` per sub-graph, in topological order, grouping after grouping;
            and the sub-graphs of each grouping, ``(groupings,)``.
        """
        total, layers = len(rules.room), len(self.problem.layers)
        most = groupings_kept(layers)
        if total > len(self._groupings.after) < most:  # single ones are remembered elsewhere
            self._groupings = known_groupings(layers, len(FOUND), most)
        found, counts = [np.zeros((0, len(FOUND)), np.int64)], np.zeros(total, np.int64)
        done = 0
        while done < total:
            room = np.empty((max(layers, min(_ROOM, total * layers)), len(FOUND)), np.int64)
            done, used = _merged(
                self.problem.arrays, self.problem.layer_arrays, self._model, self._known,
                self._groupings, self._nodes, self._space, rules, done, room, counts,
            )  # fmt: skip
            found.append(room[:used])
            if self._known.counts[Count.FULL]:
                self._known = grown(self._known, layers)
                refused = np.zeros(len(self._known.set_keys), np.int64)
                self._nodes = self._nodes._replace(refused=refused)
        return np.concatenate(found), counts

    @property
    def sets(self) -> tuple[Ints, Ints]:
        """Where the layers of each set start, and rows of all of them, for compiled code."""
        return self._known.start, self._known.members

    def layers(self, number: int) -> tuple[int, ...]:
        """The layers of a set, in order."""
        found = self._layers.get(number)
        if found is None:
            start, members = self.sets
            rows = members[start[number] : start[number + 1]].tolist()
            found = tuple(layer for first, end in rows for layer in range(first, end))
            self._layers[number] = found
        return found


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
def _number(n: _Nodes, k: LayerSets, named: int) -> int:
    """The number of the layers that belong to marked nodes, whose word is given."""
    slot = slot_of(named, k.set_keys, k.set_numbers)
    if k.set_numbers[slot] < 0:
        number, at = k.counts[Count.SETS], k.counts[Count.MEMBERS]
        for layer in range(len(n.owner)):
            if n.mark[n.owner[layer]]:
                if at == k.start[number] or k.members[at - 1, 1] < layer:
                    k.members[at, 0] = layer
                    at += 1
                k.members[at - 1, 1] = layer + 1
        k.set_keys[slot], k.set_numbers[slot] = named, number
        k.start[number + 1], k.counts[Count.MEMBERS], k.counts[Count.SETS] = at, at, number + 1
    return int(k.set_numbers[slot])


@borrowing
def _split_layers(m: _Model, k: LayerSets, r: Rule, n: _Nodes) -> bool:
    """Split every layer by itself; False where it stops because something is wanted."""
    for node in range(len(n.alive)):
        if n.numbered[node] < 0:
            if not best_split_of(m.axes, k, r, n.asked, n.ranks, node, n.split[node]):
                return False
            n.numbered[node] = node
            n.factor[node] = np.inf if n.split[node, 1] == 0 else float(n.split[node, 1])
    return True


@borrowing
def _is_upsampled(m: _Model, n: _Nodes, node: int) -> bool:
    """Whether a marked node up-samples a node's output."""
    for at in range(m.enlarged_start[node], m.enlarged_start[node + 1]):
        if n.mark[n.owner[m.enlarged[at]]]:
            return True
    return False


@borrowing
def _ceiling(m: _Model, n: _Nodes, nodes: Ints) -> float:
    """The smallest factor that a producer had which the merged nodes up-sample."""
    least = np.inf
    if len(m.enlarged) == 0:
        return least
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
def _try(
    m: _Model, k: LayerSets, r: Rule, n: _Nodes, nodes: Ints, before: float, ceiling: float
) -> bool:
    """Merge nodes, the last of which is kept, if size, cuts and the rule allow it.

    The rule: a factor of at most the ratio times that ``before``; any where that is infinite.
    """
    named, size, allowed = 0, 0, True
    for node in nodes:
        named ^= n.named[node]
        size += n.size[node]
        allowed &= not n.opaque[node]
        n.mark[node] = True
    number = _number(n, k, named)
    for node in nodes:
        n.mark[node] = False
    if n.refused[number] == n.at[_GROUPING]:
        return False
    ask(n.asked, Bound.LAYERS, r.max_layers, size - 0.5)
    allowed &= size <= r.max_layers
    if allowed and not best_split_of(m.axes, k, r, n.asked, n.ranks, number, n.tried):
        return False
    allowed = allowed and n.tried[1] != 0 and not _is_above(n, r, float(n.tried[1]), before)
    if not allowed or _is_cut(n, r, nodes):
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
def _join(k: LayerSets, n: _Nodes, nodes: Ints, number: int) -> None:
    """Let the last of some nodes have all their layers, a set by its number, and neighbours."""
    kept = nodes[-1]
    for node in nodes[:-1]:
        n.alive[node] = False
        for word in range(n.producers.shape[1]):
            n.producers[kept, word] |= n.producers[node, word]
    for at in range(k.start[number], k.start[number + 1]):
        for layer in range(k.members[at, 0], k.members[at, 1]):
            n.owner[layer] = kept
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
def _is_cut(n: _Nodes, r: Rule, nodes: Ints) -> bool:
    """Whether one of some nodes but the last must not be merged with its consumers."""
    cut = False
    for node in nodes[:-1]:
        n.asked.layers[0, node] = True
        cut |= r.cuts[node]
    return cut


@borrowing
def _is_above(n: _Nodes, r: Rule, factor: float, before: float) -> bool:
    """Whether a merged factor is too large for the rule, given the one before."""
    if np.isinf(before):
        return False
    ask(n.asked, Bound.MERGED, r.merged_ratio, factor / before)
    return factor > r.merged_ratio * before


@borrowing
def _is_below(n: _Nodes, r: Rule, after: float, own: float) -> bool:
    """Whether a consumer's factor is too small for its producer's."""
    ask(n.asked, Bound.PRODUCER, r.producer_ratio, _NEVER if np.isinf(own + after) else after / own)
    return after < r.producer_ratio * own


@borrowing
def _found(n: _Nodes, pattern: int, node: int, last: int) -> int:
    """Note the nodes that a pattern wants merged at a node, and say how many; 0 for none.

    Straight: P is the unique producer of Q and Q the unique consumer of P, {P, Q} at P. Branch: Q
    has several producers and is the unique consumer of one, P: {P, Q} at Q, the latest P before
    ``last``. Diamond: two or more paths from an entry to an exit, what lies on them and the exit.
    """
    producer, consumer = node, node
    if pattern == _STRAIGHT:
        consumer = n.reader[node]
        if consumer < 0 or consumer == len(n.alive) or n.maker[consumer] != node:
            return 0
    elif n.maker[node] != -2:  # noqa: PLR2004  several
        return 0
    elif pattern == _DIAMOND:
        return _paths(n, node)
    else:
        producer = _below(n.producers[node], last)
        while producer >= 0 and n.reader[producer] != node:
            producer = _below(n.producers[node], producer)
        if producer < 0:
            return 0
    n.path[0], n.path[1] = producer, consumer
    return 2


@borrowing
def _before(r: Rule, n: _Nodes, pattern: int, nodes: Ints, ceiling: float) -> float:
    """The factor that a merged one is held against, by rules (i) and (ii).

    Infinite where nodes must be merged, negative where they must not.
    """
    if pattern == _DIAMOND:
        widest = 0.0
        for node in nodes:
            widest = max(widest, n.factor[node])
        return min(widest, ceiling)
    if r.merges[nodes[0]]:
        return np.inf
    after = n.factor[nodes[1]]
    return -1.0 if _is_below(n, r, after, n.factor[nodes[0]]) else min(after, ceiling)


@borrowing
def _visit(m: _Model, k: LayerSets, r: Rule, n: _Nodes, pattern: int, node: int) -> bool:
    """Merge what a pattern finds at a node, the first that rules allow.

    There is one place where nodes are tried, for all patterns: what borrows is inlined, and a place
    for each was twice the machine code. It stops where a table is full: each that is tried may add
    a set of all layers, and a node may have as many producers as there are layers.
    """
    last = node
    while True:
        length = _found(n, pattern, node, last)
        if length == 0 or is_full(k, len(n.alive)):
            return False
        nodes = n.path[:length]
        ceiling = _ceiling(m, n, nodes)
        before = _before(r, n, pattern, nodes, ceiling)
        merged = before >= 0 and _try(m, k, r, n, nodes, before, ceiling)
        if pattern != _DIAMOND:
            n.asked.layers[1, nodes[0]] |= r.merges[nodes[0]] or not merged
        if merged or pattern != _BRANCH or k.counts[Count.WANTED] >= 0:
            return merged
        last = nodes[0]


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
def _advance(m: _Model, k: LayerSets, r: Rule, n: _Nodes) -> bool:
    """Merge until a round merges nothing; False where it stops because something is wanted."""
    count, patterns = len(n.alive), len(r.order)
    if not _split_layers(m, k, r, n):
        return False
    while n.at[_PATTERN] < patterns:
        pattern = r.order[n.at[_PATTERN]]
        while n.at[_NODE] < count:
            node = n.at[_NODE]
            if n.alive[node]:
                merged = _visit(m, k, r, n, pattern, node)
                if k.counts[Count.WANTED] >= 0 or (not merged and is_full(k, count)):
                    return False
                n.at[_COUNTED] += merged
            n.at[_NODE] += 1
        n.at[_NODE] = 0
        n.at[_PATTERN] += 1
        if n.at[_PATTERN] == patterns and n.at[_COUNTED]:
            n.at[_PATTERN], n.at[_COUNTED] = 0, 0
    return True


@borrowing
def _noted(n: _Nodes, found: Ints) -> int:
    """Note all nodes and their splits, and say how many."""
    at = 0
    for node in range(len(n.alive)):
        if n.alive[node]:
            found[at, 0], found[at, 1] = node, n.numbered[node]
            for column in range(n.split.shape[1]):
                found[at, 2 + column] = n.split[node, column]
            at += 1
    return at


@njit(cache=True)
def _merged(
    g: GraphArrays,
    a: LayerArrays,
    m: _Model,
    k: LayerSets,
    known: KnownGroupings,
    n: _Nodes,
    space: Workspace,
    rules: Rules,
    start: int,
    found: Ints,
    counts: Ints,
) -> tuple[int, int]:
    """Group by all rules from ``start`` on for which there is room: where it ended, and rows.

    ``found`` takes rows of :data:`FOUND`, grouping after grouping, ``counts`` how many there are of
    each. It ends early where a table is full.
    """
    used = 0
    for own in range(start, len(rules.room)):
        if used + len(m.opaque) > len(found):
            return own, used
        r = Rule(
            rules.room[own], rules.limit[own], rules.policy[own], rules.key[own], rules.dims[own],
            rules.producer_ratio[own], rules.merged_ratio[own], rules.max_layers[own],
            rules.order[own], rules.cuts[own], rules.merges[own],
        )  # fmt: skip
        same = same_as(known, r)
        if same >= 0:
            rows = known.rows[known.start[same] : known.start[same + 1]]
            for at in range(len(rows)):
                for column in range(rows.shape[1]):
                    found[used + at, column] = rows[at, column]
            counts[own] = len(rows)
            used += len(rows)
            continue
        _begin(m, k, n)
        while not _advance(m, k, r, n):
            if is_full(k, len(m.opaque)):
                k.counts[Count.FULL] = 1
                return own, used
            find_out(g, a, m.axes, k, space, r, k.counts[Count.WANTED])
            k.counts[Count.WANTED] = -1
        count = _noted(n, found[used:])
        keep(known, r, n.asked, found[used : used + count])
        counts[own] = count
        used += count
    return len(rules.room), used


def _nodes(m: _Model, sets: int) -> _Nodes:
    """Room for nodes, and for so many sets of layers."""
    count = len(m.opaque)
    flags, numbers = np.zeros((2, count), np.bool_), np.zeros((8, count), np.int64)
    return _Nodes(
        alive=flags[0], owner=numbers[0], named=numbers[1], size=numbers[2],
        opaque=m.opaque.copy(), producers=m.producers.copy(), consumers=m.consumers.copy(),
        maker=numbers[3], reader=numbers[4], ceiling=np.zeros(count), factor=np.zeros(count),
        numbered=numbers[5], refused=np.zeros(sets, np.int64), at=np.zeros(4, np.int64),
        mark=flags[1], split=np.zeros((count, 5), np.int64), tried=np.zeros(5, np.int64),
        ranks=np.zeros(6, np.int64), path=numbers[6], entry=numbers[7],
        asked=asked_of(count),
    )  # fmt: skip


@borrowing
def _begin(m: _Model, k: LayerSets, n: _Nodes) -> None:
    """Let every layer be a node of its own."""
    for layer in range(len(m.opaque)):
        n.alive[layer], n.owner[layer], n.size[layer] = True, layer, 1
        n.named[layer] = m.names[layer]
        n.maker[layer], n.reader[layer] = m.maker[layer], m.reader[layer]
        n.opaque[layer], n.ceiling[layer], n.numbered[layer] = m.opaque[layer], np.inf, -1
        for word in range(m.producers.shape[1]):
            n.producers[layer, word] = m.producers[layer, word]
            n.consumers[layer, word] = m.consumers[layer, word]
    n.at[_PATTERN], n.at[_NODE], n.at[_COUNTED] = 0, 0, 0
    n.at[_GROUPING] += 1
    ask_anew(n.asked)
    k.counts[Count.FULL], k.counts[Count.WANTED] = 0, -1
