"""Concatenations, copies and redistributions before a kernel: GraphTurbo, OSDI '23, section 3.5.

An input that several instances make is concatenated from their pieces; a piece whose scope differs
from the local buffer is copied there, one whose binding differs is redistributed over the
interconnect between cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stitch import Template
from autoturbo.schedule.place.bind import Placement, binding_book
from autoturbo.schedule.place.instances import InstanceGraph

STAY, COPIED, REDISTRIBUTED = range(3)
"""Codes of movements."""

Renamed = Callable[[Ints, Ints], Ints]
"""From pieces and cores of the consumers' programs to cores of the producers' programs."""


@dataclass(frozen=True, slots=True, eq=False)
class Movements:
    """What is done to every link of an instance graph.

    Attributes:
        kind: per link, :data:`STAY`, :data:`COPIED` or :data:`REDISTRIBUTED`.
        crossing: per link, bytes that the busiest core gets from other cores.
        core_bytes: per link, on the first of each input of a reader: bytes of all its moved pieces
            on the busiest core.
    """

    kind: Ints
    crossing: Ints
    core_bytes: Ints


def core_names(placement: Placement, cores: int) -> Ints:
    """Per instance and core of its program, the core of the cluster; no rows if none is named."""
    count = len(placement.bindings) if placement.core_ids else 0
    names = [placement.cores_of(instance, cores) for instance in range(count)]
    return np.asarray(names, np.int64).reshape(count, cores)


def move(
    graph: InstanceGraph,
    order: Ints,
    bindings: Ints,
    scopes: Ints,
    templates: Sequence[Template],
    names: Ints,
) -> Movements:
    """Decide the movement of every piece that an order's kernels read from each other.

    Equal factors are no sign that a piece stays: four samples over four cores and the first two of
    them over four lie differently.

    Args:
        graph: instances and what they read from each other.
        order: the instances that one cluster runs; what others make is read where it lies.
        bindings: per instance, the number of its output's binding.
        scopes: per instance, where its output is declared.
        templates: per instance.
        names: what :func:`core_names` gives.
    """
    links, book = graph.links, binding_book(graph.book)
    regions = graph.book.regions.rows
    reader = np.repeat(np.arange(graph.count), np.diff(links.start))
    wanted, rank, element = _inputs(graph, reader, templates)
    factors, ranks = book.factors.rows, book.ranks.rows
    here = np.zeros(graph.count, np.bool_)
    here[order] = True
    active = here[reader] & here[links.maker]
    copied = active & (scopes[links.maker] != 0)
    fits = (wanted >= 0) & (ranks[wanted] == rank)
    held = bindings[links.maker]
    near = np.flatnonzero(active & ~copied & fits & (ranks[held] == rank))
    made, need = graph.out_region[links.maker] + links.output, graph.in_region[reader] + links.slot
    elements = np.zeros(len(reader), np.int64)
    elements[near] = most_crossing(
        Pieces(regions[made[near]], regions[need[near]], factors[wanted[near]]),
        factors[held[near]],
        _renamed(names, reader[near], links.maker[near]),
    )
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
    pieces = Pieces(regions[made[shared]], regions[need[shared]], factors[wanted[shared]])
    bound, most = _busiest(pieces, group[shared])
    core_bytes[first[bound]] = most * element[first[bound]]
    return Movements(kind, elements * element, core_bytes)


def _inputs(
    graph: InstanceGraph, reader: Ints, templates: Sequence[Template]
) -> tuple[Ints, Ints, Ints]:
    """Return, per link, the binding wanted of its input, and that one's rank and element."""
    book, arrays = binding_book(graph.book), graph.problem.arrays
    pairs = zip(reader.tolist(), graph.links.slot.tolist(), strict=True)
    own = [(templates[index], templates[index].inputs[slot]) for index, slot in pairs]
    bindings = (template.wanted.get(tensor) for template, tensor in own)
    wanted = [-1 if binding is None else book.number(binding) for binding in bindings]
    tensors = np.asarray([tensor for _, tensor in own], np.int64)
    rank = np.diff(arrays.dim_start)[tensors]
    return np.asarray(wanted, np.int64), rank, arrays.element[tensors]


class Pieces(NamedTuple):
    """What producers contribute to inputs of consumers.

    Attributes:
        made: regions of the pieces, ``(pieces, rank, 2)``.
        need: regions of the inputs.
        wanted: factors of the bindings wanted of the inputs, ``(pieces, rank)``.
    """

    made: Ints
    need: Ints
    wanted: Ints

    def shares(self, which: Ints, core: Ints) -> Ints:
        """Return the elements of some pieces that some cores want, ``(len(which),)``."""
        low, high, _ = _spans(self.need[which], self.wanted[which], core)
        return _volume(low, high, *np.moveaxis(self.made[which], 2, 0))


def _spans(region: Ints, factors: Ints, core: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return what cores have of bound regions.

    Cores count row-major over the factors.

    Args:
        region: ``(n, rank, 2)``.
        factors: of the bindings, ``(n, rank)``.
        core: ``(n,)``.

    Returns:
        First elements and ones past the last, ``(n, rank)``, and whether there is such a core.
    """
    low, high = np.empty_like(factors), np.empty_like(factors)
    for dim in reversed(range(factors.shape[1])):
        core, place = np.divmod(core, factors[:, dim])
        begin, end = region[:, dim, 0], region[:, dim, 1]
        size = -(-(end - begin) // factors[:, dim])
        low[:, dim] = np.minimum(begin + place * size, end)
        high[:, dim] = np.minimum(low[:, dim] + size, end)
    return low, high, core == 0


def _volume(low: Ints, high: Ints, other_low: Ints, other_high: Ints) -> Ints:
    """Return the elements that boxes have in common, ``(n,)``."""
    lengths = np.minimum(high, other_high) - np.maximum(low, other_low)
    return np.asarray(np.maximum(lengths, 0).prod(axis=1), np.int64)


_AT_ONCE = 1 << 18
"""Pairs of a piece and a core that are looked at together."""


def _each_core(wanted: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield all pairs of a piece and a core that its input is wanted on, piece after piece."""
    cores = wanted.prod(axis=1)
    ends = np.cumsum(cores)
    first = 0
    while first < len(cores):
        done = int(ends[first] - cores[first])
        last = max(int(np.searchsorted(ends, done + _AT_ONCE, side="right")), first + 1)
        which = np.repeat(np.arange(first, last), cores[first:last])
        yield which, np.arange(len(which)) - (ends - cores)[which] + done
        first = last


def most_crossing(pieces: Pieces, held: Ints, renamed: Renamed) -> Ints:
    """Return the most elements of each piece that any core wants and does not hold.

    Args:
        pieces: what is read.
        held: factors of the bindings that the pieces are held in, ``(pieces, rank)``.
        renamed: from pieces and cores of the consumer's program to the core of the producer's.
    """
    most = np.zeros(len(held), np.int64)
    for which, core in _each_core(pieces.wanted):
        low, high, _ = _spans(pieces.need[which], pieces.wanted[which], core)
        begin, end, has = _spans(pieces.made[which], held[which], renamed(which, core))
        kept = np.where(has, _volume(low, high, begin, end), 0)
        np.maximum.at(most, which, pieces.shares(which, core) - kept)
    return most


def _renamed(names: Ints, reader: Ints, maker: Ints) -> Renamed:
    """Return how cores of consumers' programs are told as cores of producers' programs."""
    if not len(names):
        return lambda _, core: core
    programs = np.argsort(names, axis=1)
    return lambda which, core: programs[maker[which], names[reader[which], core]]


def _busiest(pieces: Pieces, group: Ints) -> tuple[Ints, Ints]:
    """Return the inputs that some pieces are of, and elements of all these on the busiest core."""
    inputs, own = np.unique(group, return_inverse=True)
    most = int(pieces.wanted.prod(axis=1).max(initial=0))
    total = np.zeros((len(inputs), most), np.int64)
    for which, core in _each_core(pieces.wanted):
        np.add.at(total, (own[which], core), pieces.shares(which, core))
    return inputs, total.max(axis=1, initial=0)
