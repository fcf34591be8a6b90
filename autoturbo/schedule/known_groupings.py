"""Groupings that are known, and for which other rules they hold.

While layers are merged, rules are asked: does work exceed the limit, is a factor above the ratio,
must this layer be cut. Rules that give the same answers group alike, whatever else they say. So
with each grouping is kept what was asked of its rules (:class:`Asked`): bounds between which a
number gives the same answers, and the layers of which something was asked. Most rules of a search
fall into the bounds of others.

What parts may need, the factors that are tried, the dimensions and the order of patterns are asked
for all the time: they must be the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from autoturbo.compiled import borrowing
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.layer_sets import Asked, Bound, Flags, Rule
from autoturbo.schedule.stores import mix
from autoturbo.schedule.work import Floats

GROUPINGS: Final = 1 << 14
"""Groupings that are kept of a model, a power of two; room that is not used takes no memory."""

_FLAGS: Final = 1 << 26
"""Bytes that the flags of layers may take, four of each grouping: fewer groupings are kept of a
model of many layers."""

_SUBGRAPHS: Final = 32
"""Sub-graphs of a grouping that there is room for on average."""

_PLAIN: Final = 6
"""Numbers that must be the same: room, policy, dimensions and the order of three patterns."""


class KnownGroupings(NamedTuple):
    """Groupings by number, and what was asked of their rules.

    ``first`` is a hash table over ``plain``, the numbers that must be the same: of the groupings
    that have them one by its number from 1, 0 for none; ``after`` is the next of them. ``lows``,
    ``highs``, ``keyed`` and ``layers`` are rows of :class:`Asked`, ``key`` and ``said`` what the
    rules said of the last two. A grouping's sub-graphs are ``rows`` from its ``start`` on.
    ``known`` is how many groupings there are.
    """

    first: Ints
    after: Ints
    plain: Ints
    key: Ints
    lows: Floats
    highs: Floats
    keyed: Flags
    layers: Flags
    said: Flags
    start: Ints
    rows: Ints
    known: Ints


def known_groupings(layers: int, columns: int, room: int) -> KnownGroupings:
    """Room for what is known of a model.

    Args:
        layers: of the model.
        columns: of a sub-graph's row.
        room: groupings, a power of two.
    """
    return KnownGroupings(
        first=np.zeros(room, np.int64), after=np.zeros(room, np.int64),
        plain=np.zeros((room, _PLAIN), np.int64), key=np.zeros((room, 3), np.int64),
        lows=np.zeros((room, len(Bound))), highs=np.zeros((room, len(Bound))),
        keyed=np.zeros(room, np.bool_), layers=np.zeros((room, 2, layers), np.bool_),
        said=np.zeros((room, 2, layers), np.bool_), start=np.zeros(room + 1, np.int64),
        rows=np.zeros((max(layers, room * min(layers, _SUBGRAPHS)), columns), np.int64),
        known=np.zeros(1, np.int64),
    )  # fmt: skip


def groupings_kept(layers: int) -> int:
    """Return how many groupings are kept of a model of so many layers, a power of two."""
    room = max(_FLAGS // (4 * max(layers, 1)), 1)
    return min(GROUPINGS, 1 << (room.bit_length() - 1))


@borrowing
def same_as(k: KnownGroupings, r: Rule) -> int:
    """The number of a grouping whose rules were asked nothing that these answer otherwise.

    -1 where none is known.
    """
    at = k.first[_slot(k, r)]
    while at:
        if _answers(k, r, at - 1):
            return int(at - 1)
        at = k.after[at - 1]
    return -1


@borrowing
def keep(k: KnownGroupings, r: Rule, asked: Asked, rows: Ints) -> None:
    """Add a grouping; all are forgotten where it has no room."""
    number = k.known[0]
    if number == len(k.after) or k.start[number] + len(rows) > len(k.rows):
        k.first[:] = 0
        number = 0
    slot = _slot(k, r)
    k.after[number], k.first[slot] = k.first[slot], number + 1
    plain = k.plain[number]
    plain[0], plain[1], plain[2] = r.room, r.policy, r.dims
    plain[3], plain[4], plain[5] = r.order[0], r.order[1], r.order[2]
    k.keyed[number] = asked.keyed[0]
    k.key[number, 0], k.key[number, 1], k.key[number, 2] = r.key[0], r.key[1], r.key[2]
    for bound in range(len(asked.lows)):
        k.lows[number, bound], k.highs[number, bound] = asked.lows[bound], asked.highs[bound]
    for layer in range(len(r.cuts)):
        k.layers[number, 0, layer] = asked.layers[0, layer]
        k.layers[number, 1, layer] = asked.layers[1, layer]
        k.said[number, 0, layer], k.said[number, 1, layer] = r.cuts[layer], r.merges[layer]
    first = k.start[number]
    for at in range(len(rows)):
        for column in range(rows.shape[1]):
            k.rows[first + at, column] = rows[at, column]
    k.start[number + 1], k.known[0] = first + len(rows), number + 1


@borrowing
def _slot(k: KnownGroupings, r: Rule) -> int:
    """Where rules with these plain numbers begin."""
    state = mix(mix(mix(1, r.room), r.policy), r.dims)
    state = mix(mix(mix(state, r.order[0]), r.order[1]), r.order[2])
    return int(state & (len(k.first) - 1))


@borrowing
def _answers(k: KnownGroupings, r: Rule, at: int) -> bool:
    """Whether rules answer all that was asked for a grouping as its own did."""
    plain = k.plain[at]
    same = plain[0] == r.room and plain[1] == r.policy and plain[2] == r.dims
    for place in range(len(r.order)):
        same = same and plain[3 + place] == r.order[place]
        same = same and (not k.keyed[at] or k.key[at, place] == r.key[place])
    low, high = k.lows[at], k.highs[at]
    same = same and low[Bound.LIMIT] <= r.limit <= high[Bound.LIMIT]
    same = same and low[Bound.PRODUCER] <= r.producer_ratio <= high[Bound.PRODUCER]
    same = same and low[Bound.MERGED] <= r.merged_ratio <= high[Bound.MERGED]
    same = same and low[Bound.LAYERS] <= r.max_layers <= high[Bound.LAYERS]
    if not same:
        return False
    for layer in range(len(r.cuts)):
        if k.layers[at, 0, layer] and k.said[at, 0, layer] != r.cuts[layer]:
            return False
        if k.layers[at, 1, layer] and k.said[at, 1, layer] != r.merges[layer]:
            return False
    return True
