"""Sets of layers that any rules have met, and what parts of them need, for compiled code.

Layer sets are numbered, and what one part of them needs (its footprint, its work) is remembered for
all rules: rules differ in what they compare it with. Algorithm 1 is asked of these tables; what
they do not know is *wanted*, and found out between two calls of compiled code that allocates
nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from autoturbo.compiled import borrowing
from autoturbo.errors import ModelError
from autoturbo.graph.arrays import GraphArrays, Ints
from autoturbo.schedule.problem import LayerArrays
from autoturbo.schedule.split import (
    RETRIES,
    AxisTable,
    Workspace,
    before,
    candidate_factor,
    cost,
    operators_of,
    ways_of,
)
from autoturbo.schedule.work import Floats

Flags = NDArray[np.bool_]

_MARGIN: Final = 1e-9

_SPARE: Final = 512
"""Entries that each table has free before a merge is tried: more than one merge can add.

A merge adds one set, with no more rows of members than there are layers, and finding out about a
set as many parts as there are dimensions and factors that are tried.
"""

MOST_SETS: Final = 1 << 25
"""Sets that :func:`_key` tells apart; beside them it has 6 bits for an axis, 32 for a factor."""


class Count(IntEnum):
    """What :attr:`LayerSets.counts` has.

    Sets, members and parts so far; 1 if a table is full; the set that is wanted, -1 for none.
    """

    SETS = 0
    MEMBERS = 1
    PARTS = 2
    FULL = 3
    WANTED = 4


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


class Rule(NamedTuple):
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


class Bound(IntEnum):
    """Numbers of rules that others may differ in and group alike: columns of :class:`Asked`."""

    LIMIT = 0
    PRODUCER = 1
    MERGED = 2
    LAYERS = 3


class Asked(NamedTuple):
    """What a grouping asked of its rules.

    Attributes:
        lows: per :class:`Bound`, from where on the answers would have been the same.
        highs: until where, inclusive.
        keyed: whether keys chose between splits, ``(1,)``.
        layers: whether cuts, and merges, of each layer were asked for, ``(2, layers)``.
    """

    lows: Floats
    highs: Floats
    keyed: Flags
    layers: Flags


def asked_of(layers: int) -> Asked:
    """Room for what is asked of rules about a model of so many layers."""
    bounds = np.zeros((2, len(Bound)))
    return Asked(bounds[0], bounds[1], np.zeros(1, np.bool_), np.zeros((2, layers), np.bool_))


@borrowing
def ask_anew(asked: Asked) -> None:
    """Nothing was asked yet."""
    asked.keyed[0] = False
    for bound in range(len(asked.lows)):
        asked.lows[bound], asked.highs[bound] = -np.inf, np.inf
    for layer in range(asked.layers.shape[1]):
        asked.layers[0, layer] = asked.layers[1, layer] = False


@borrowing
def ask(asked: Asked, bound: int, value: float, threshold: float) -> None:
    """Note that it mattered on which side of a threshold a number of the rules is.

    What is nearer to it than rounding may move either is only known to be what it is.
    """
    margin = _MARGIN * abs(threshold)
    low, high = -np.inf, np.inf
    if value < threshold - margin:
        high = threshold - margin
    elif value > threshold + margin:
        low = threshold + margin
    else:
        low = high = value
    asked.lows[bound] = max(asked.lows[bound], low)
    asked.highs[bound] = min(asked.highs[bound], high)


class LayerSets(NamedTuple):
    """Layer sets met so far, single layers first, and what parts of them need.

    ``set_keys`` and ``set_numbers`` are a hash table of sets, ``members`` their layers from
    ``start`` on, in rows of first and one past the last of consecutive ones (a set of a long chain
    has nearly all layers, and there are as many such sets), ``whole`` footprint and work uncut (-1:
    not known yet). ``part_keys`` and ``parts`` are a hash table of footprint, work and operators
    cut, by set, axis and factor. ``counts`` has :class:`Count`.
    """

    set_keys: Ints
    set_numbers: Ints
    start: Ints
    members: Ints
    whole: Ints
    part_keys: Ints
    parts: Ints
    counts: Ints


def layer_sets(names: Ints) -> LayerSets:
    """Tables that have every layer alone, numbered as it is.

    Args:
        names: a random word of each layer; a set's is that of all of its members.
    """
    found = _tables(_room(8 * len(names)), 1 << 14, 1 << 14, len(names))
    _note_layers(names, found)
    return found


def _room(least: int) -> int:
    """A power of two for a hash table."""
    return int(max(1 << (least - 1).bit_length(), 1 << 12))


def _tables(sets: int, members: int, parts: int, layers: int) -> LayerSets:
    return LayerSets(
        np.zeros(sets, np.int64), np.full(sets, -1, np.int64), np.zeros(sets + 1, np.int64),
        np.zeros((members + layers, 2), np.int64), np.full((sets, 2), -1, np.int64),
        np.full(parts, -1, np.int64), np.zeros((parts, 3), np.int64), np.zeros(5, np.int64),
    )  # fmt: skip


def grown(known: LayerSets, layers: int) -> LayerSets:
    """Return the tables with twice the room where there is too little, and what they hold.

    Args:
        known: what is known.
        layers: of the model.

    Raises:
        ModelError: more sets of layers than numbers for them.
    """
    if known.counts[Count.SETS] >= MOST_SETS // 2:
        message = f"grouping its layers meets more than {MOST_SETS // 2} different sub-graphs"
        raise ModelError(message, hint="cut the model in two, or lower the knob max_layers")
    short = _short(known, layers)
    sets, members, parts = len(known.set_keys), len(known.members), len(known.part_keys)
    found = _tables(sets << short[0], members << short[1], parts << short[2], 0)
    count, used = int(known.counts[Count.SETS]), int(known.counts[Count.MEMBERS])
    found.start[: count + 1], found.members[:used] = known.start[: count + 1], known.members[:used]
    found.whole[:count] = known.whole[:count]
    found.counts[: Count.FULL] = known.counts[: Count.FULL]
    _rehash(known, found)
    return found


@njit(cache=True)
def _note_layers(names: Ints, k: LayerSets) -> None:
    for layer in range(len(names)):
        slot = slot_of(names[layer], k.set_keys, k.set_numbers)
        k.set_keys[slot], k.set_numbers[slot] = names[layer], layer
        k.members[layer, 0], k.members[layer, 1] = layer, layer + 1
        k.start[layer + 1] = layer + 1
    k.counts[Count.SETS] = k.counts[Count.MEMBERS] = len(names)


@njit(cache=True)
def _rehash(old: LayerSets, new: LayerSets) -> None:
    for at in range(len(old.set_keys)):
        if old.set_numbers[at] >= 0:
            slot = slot_of(old.set_keys[at], new.set_keys, new.set_numbers)
            new.set_keys[slot], new.set_numbers[slot] = old.set_keys[at], old.set_numbers[at]
    for at in range(len(old.part_keys)):
        if old.part_keys[at] >= 0:
            slot = slot_of(old.part_keys[at], new.part_keys, new.part_keys)
            new.part_keys[slot], new.parts[slot] = old.part_keys[at], old.parts[at]


@borrowing
def size_of(k: LayerSets, number: int) -> int:
    """Layers of a set."""
    size = 0
    for row in range(k.start[number], k.start[number + 1]):
        size += k.members[row, 1] - k.members[row, 0]
    return int(size)


@borrowing
def note_set(start: Ints, members: Ints, number: int, layers: Ints) -> int:
    """Note the layers of a set, ascending, where there is room; how many they are."""
    count = 0
    for row in range(start[number], start[number + 1]):
        for layer in range(members[row, 0], members[row, 1]):
            layers[count] = layer
            count += 1
    return count


@njit(cache=True)
def layers_at(start: Ints, members: Ints, sets: Ints, places: Ints) -> Ints:
    """The layers at places of sets, the last one beyond a set's end."""
    found = np.empty(len(sets), np.int64)
    for at in range(len(sets)):
        left = max(places[at], 0)
        for row in range(start[sets[at]], start[sets[at] + 1]):
            first, end = members[row]
            found[at] = min(first + left, end - 1)
            if first + left < end:
                break
            left -= end - first
    return found


@borrowing
def slot_of(key: int, keys: Ints, taken: Ints) -> int:
    """Where a key is in a hash table, or the free slot (``taken`` negative) where it belongs."""
    mixed = (key ^ (key >> 31)) * 6364136223846793005
    slot = (mixed ^ (mixed >> 29)) & (len(keys) - 1)
    while taken[slot] >= 0 and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return slot


@borrowing
def _short(k: LayerSets, layers: int) -> tuple[bool, bool, bool]:
    """Return which tables have too little room to try a merge: of sets, members and parts."""
    sets, members, parts = k.counts[Count.SETS], k.counts[Count.MEMBERS], k.counts[Count.PARTS]
    return (
        bool(2 * sets + _SPARE > len(k.set_keys)),
        bool(members + 4 * layers > len(k.members)),
        bool(2 * parts + _SPARE > len(k.part_keys)),
    )


@borrowing
def is_full(k: LayerSets, layers: int) -> bool:
    """Whether a table has too little room to try a merge in a model of so many layers."""
    short = _short(k, layers)
    return short[0] or short[1] or short[2]


@njit(cache=True)
def find_out(
    g: GraphArrays,
    a: LayerArrays,
    axes: AxisTable,
    k: LayerSets,
    space: Workspace,
    r: Rule,
    number: int,
) -> None:
    """What parts of a set need, as far as rules ask for it."""
    layers = np.empty(size_of(k, number), np.int64)
    note_set(k.start, k.members, number, layers)
    ops = operators_of(a, layers)
    if k.whole[number, 0] < 0:
        found = cost(g, a, layers, ops, space, -1, 0, 0)
        k.whole[number, 0], k.whole[number, 1] = found[0], found[1]
    whole, work = k.whole[number, 0], k.whole[number, 1]
    for way in ways_of(axes, r.dims, layers[-1]):
        axis, extent = axes.ways[way, 1], axes.ways[way, 2]
        factor = _least(whole, r) if whole > r.room else 0
        for _ in range(RETRIES + 1):
            factor = candidate_factor(factor, extent, r.policy) if factor else 0
            if factor == 0:
                break
            slot = slot_of(_key(number, axis, factor), k.part_keys, k.part_keys)
            if k.part_keys[slot] < 0:
                size = -(-extent // factor)
                first = min((factor // 2) * size, extent - size)
                found = cost(g, a, layers, ops, space, axis, first, first + size)
                k.part_keys[slot] = _key(number, axis, factor)
                k.parts[slot, 0], k.parts[slot, 1], k.parts[slot, 2] = found
                k.counts[Count.PARTS] += 1
            if k.parts[slot, 1] * factor > r.limit * work + factor or k.parts[slot, 0] <= r.room:
                break
            factor += 1


@borrowing
def _least(whole: int, r: Rule) -> int:
    """The smallest factor by the printed estimate."""
    return int(max(-(-whole // max(r.room, 1)), 2))


@borrowing
def _key(number: int, axis: int, factor: int) -> int:
    return (number << 38) | (axis << 32) | factor


@borrowing
def _exceeds(r: Rule, asked: Asked, every: int, factor: int, work: int) -> bool:
    """Whether so many parts together are more work than rules allow, given that of the whole."""
    if work > 0:
        ask(asked, Bound.LIMIT, r.limit, (every - factor) / work)
    return every > r.limit * work + factor


@borrowing
def _differ(first: Ints, second: Ints) -> bool:
    """Whether the order of keys decides which of two ranks is lower."""
    lower, higher = False, False
    for key in range(len(first)):
        lower |= first[key] < second[key]
        higher |= first[key] > second[key]
    return lower and higher


@borrowing
def best_split_of(
    axes: AxisTable, k: LayerSets, r: Rule, asked: Asked, ranks: Ints, number: int, out: Ints
) -> bool:
    """The best way to cut a set: axis, factor (0 if none fits), depth, operators, bytes.

    False if something about the set is wanted first; ``asked`` is noted. ``ranks`` is room for six
    numbers.
    """
    whole, work = k.whole[number, 0], k.whole[number, 1]
    last = k.members[k.start[number + 1] - 1, 1] - 1
    out[0], out[1], out[2], out[3], out[4] = -1, 0, 0, 0, whole
    if 0 <= whole <= r.room:
        out[1], out[3] = 1, size_of(k, number)
        return True
    rank, best = ranks[:3], ranks[3:]
    for way in ways_of(axes, r.dims, last):
        depth, axis, extent = axes.ways[way, 0], axes.ways[way, 1], axes.ways[way, 2]
        factor = _least(whole, r)
        for _ in range(RETRIES + 1):
            factor = candidate_factor(factor, extent, r.policy)
            if factor == 0:
                break
            slot = slot_of(_key(number, axis, factor), k.part_keys, k.part_keys)
            if whole < 0 or k.part_keys[slot] < 0:
                k.counts[Count.WANTED] = number
                return False
            if _exceeds(r, asked, k.parts[slot, 1] * factor, factor, work):
                break
            if k.parts[slot, 0] <= r.room:
                rank[0], rank[1], rank[2] = k.parts[slot, 2], -factor, -depth
                asked.keyed[0] |= out[1] != 0 and _differ(rank, best)
                if out[1] == 0 or before(best, rank, r.key):
                    out[0], out[1], out[2] = axis, factor, depth
                    out[3], out[4] = k.parts[slot, 2], k.parts[slot, 0]
                    best[0], best[1], best[2] = rank[0], rank[1], rank[2]
                break
            factor += 1
    if whole < 0:
        k.counts[Count.WANTED] = number
    return bool(whole >= 0)
