"""Concatenations, copies and redistributions before a kernel: GraphTurbo, OSDI '23, section 3.5.

An input that several instances make is concatenated from their pieces; a piece whose scope differs
from the local buffer is copied there, one whose binding differs is redistributed over the
interconnect between cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.place.bind import Binding, Placement, core_spans
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.stitch.templates import Template

STAY, COPIED, REDISTRIBUTED = range(3)
"""Codes of how a piece comes: it stays where it is, from another scope, or from other cores."""


@dataclass(frozen=True, slots=True, eq=False)
class Movements:
    """Ways in which the pieces of links come: they stay, are copied, or come from other cores.

    Attributes:
        kind: Per link, :data:`STAY`, :data:`COPIED` or :data:`REDISTRIBUTED`.
        crossing: Per link, bytes that the busiest core gets from other cores.
        core_bytes: Per link, on the first of each input of a reader: bytes of all its moved pieces
            on the busiest core.
    """

    kind: Ints
    crossing: Ints
    core_bytes: Ints


def move(
    graph: InstanceGraph, order: Ints, placement: Placement, templates: Sequence[Template]
) -> Movements:
    """Return how every piece comes that the kernels of an order read from each other.

    Equal factors do not mean that a piece stays: four samples over four cores and the first two of
    them over four lie differently.

    Args:
        graph: Instances and the pieces that they read from each other.
        order: The instances that one cluster runs; outputs of others are read where they lie.
        placement: Placement of all instances.
        templates: Templates of the kernels, per instance.
    """
    links, arrays, regions = graph.links, graph.context.arrays, graph.book.regions.rows
    reader, maker = links.reader, links.maker
    pairs = zip(reader.tolist(), links.slot.tolist(), strict=True)
    wanted_by = [(templates[index], templates[index].inputs[slot]) for index, slot in pairs]
    tensor = np.asarray([tensor for _, tensor in wanted_by], np.int64)
    rank, element = np.diff(arrays.dim_start)[tensor], arrays.element[tensor]
    wanted, wanted_rank = _factors([t.wanted.get(x, ()) for t, x in wanted_by], graph.book.rank)
    held, held_rank = _factors(placement.bindings, graph.book.rank)
    ours = np.zeros(graph.count, np.bool_)
    ours[order] = True
    active = ours[reader] & ours[maker]
    copied = active & (np.asarray(placement.scopes, np.int64)[maker] != 0)
    fits = wanted_rank == rank
    pieces = Pieces(
        regions[graph.out_region[maker] + links.output],
        regions[graph.in_region[reader] + links.slot], wanted,
    )  # fmt: skip
    near = np.flatnonzero(active & ~copied & fits & (held_rank[maker] == rank))
    cores, renamed = graph.context.target.cores, None
    if placement.core_ids:
        named = [placement.cores_of(index, cores) for index in range(graph.count)]
        # The inverse: which core of a program each core of the cluster runs.
        programs = np.argsort(named, axis=1)[maker[near]]
        renamed = np.take_along_axis(programs, np.asarray(named)[reader[near]], axis=1)
    elements = np.zeros(len(reader), np.int64)
    elements[near] = most_crossing(pieces.some(near), held[maker[near]], renamed)
    kind = np.where(copied, COPIED, np.where(elements > 0, REDISTRIBUTED, STAY))
    moved = kind != STAY
    # the links of one input of a reader are consecutive
    opens = np.ones(len(reader), np.bool_)
    opens[1:] = (np.diff(reader) != 0) | (np.diff(links.slot) != 0)
    first, group = np.flatnonzero(opens), np.cumsum(opens) - 1
    core_bytes = np.zeros(len(reader), np.int64)
    if len(first):
        core_bytes[first] = np.add.reduceat(np.where(moved, links.size, 0), first)
    shared = np.flatnonzero(moved & fits)
    bound, most = _busiest(pieces.some(shared), group[shared])
    core_bytes[first[bound]] = most * element[first[bound]]
    return Movements(kind, elements * element, core_bytes)


def _factors(bindings: Sequence[Binding], rank: int) -> tuple[Ints, Ints]:
    """Return the factors of bindings, padded with 1, ``(n, rank)``, and their ranks."""
    numbers = {binding: number for number, binding in enumerate(dict.fromkeys(bindings))}
    which = np.asarray([numbers[binding] for binding in bindings], np.int64)
    padded = [(*binding, *(1,) * (rank - len(binding))) for binding in numbers]
    ranks = np.asarray([len(binding) for binding in numbers], np.int64)
    return np.asarray(padded, np.int64).reshape(-1, rank)[which], ranks[which]


class Pieces(NamedTuple):
    """Regions that producers contribute to inputs of consumers.

    Attributes:
        made: Regions of the pieces, ``(pieces, rank, 2)``.
        need: Regions of the inputs.
        wanted: Factors of the bindings wanted of the inputs, ``(pieces, rank)``.
    """

    made: Ints
    need: Ints
    wanted: Ints

    def some(self, which: Ints) -> Pieces:
        """Return the selected pieces."""
        return Pieces(self.made[which], self.need[which], self.wanted[which])

    def shares(self, which: Ints, core: Ints) -> Ints:
        """Return the elements of pieces that given cores want, ``(len(which),)``."""
        low, high, _ = core_spans(self.need[which], self.wanted[which], core)
        return _volume(low, high, *np.moveaxis(self.made[which], 2, 0))


def _volume(low: Ints, high: Ints, other_low: Ints, other_high: Ints) -> Ints:
    """Return the number of elements in the intersections of boxes, ``(n,)``.

    Args:
        low: First elements of the boxes, ``(n, rank)``.
        high: One past the last elements of these boxes.
        other_low: First elements of the boxes that they are intersected with.
        other_high: One past the last elements of those.
    """
    lengths = np.minimum(high, other_high) - np.maximum(low, other_low)
    return np.asarray(np.maximum(lengths, 0).prod(axis=1), np.int64)


_AT_ONCE = 1 << 18
"""Pairs of a piece and a core that are looked at together."""


def _each_core(wanted: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield all pairs of a piece and a core that wants its input, piece after piece."""
    cores = wanted.prod(axis=1)
    step = max(_AT_ONCE // int(cores.max(initial=1)), 1)
    for first in range(0, len(cores), step):
        chunk = cores[first : first + step]
        which = np.repeat(np.arange(first, first + len(chunk)), chunk)
        yield which, np.arange(len(which)) - np.repeat(np.cumsum(chunk) - chunk, chunk)


def most_crossing(pieces: Pieces, held: Ints, renamed: Ints | None) -> Ints:
    """Return the most elements of each piece that any core wants and does not hold.

    Args:
        pieces: The pieces that are read.
        held: Factors of the bindings that the pieces are held in, ``(pieces, rank)``.
        renamed: Per piece and core of the consumer's program, the core of the producer's; the same
            if None.
    """
    most = np.zeros(len(held), np.int64)
    for which, core in _each_core(pieces.wanted):
        low, high, _ = core_spans(pieces.need[which], pieces.wanted[which], core)
        holder = core if renamed is None else renamed[which, core]
        begin, end, has = core_spans(pieces.made[which], held[which], holder)
        kept = np.where(has, _volume(low, high, begin, end), 0)
        np.maximum.at(most, which, pieces.shares(which, core) - kept)
    return most


def _busiest(pieces: Pieces, group: Ints) -> tuple[Ints, Ints]:
    """Return the inputs of some pieces, and the elements of each on its busiest core."""
    inputs, input_index = np.unique(group, return_inverse=True)
    core_count = int(pieces.wanted.prod(axis=1).max(initial=0))
    total = np.zeros((len(inputs), core_count), np.int64)
    for which, core in _each_core(pieces.wanted):
        np.add.at(total, (input_index[which], core), pieces.shares(which, core))
    return inputs, total.max(axis=1, initial=0)
