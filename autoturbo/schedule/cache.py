"""What a workbench remembers of its settings: each artefact of a pass, in bounded memory.

Settings of a search have most of their plans, orders and placements in common. Each kind of result
has a :class:`~autoturbo.stores.Recent` of its own, for all batch sizes together, that
forgets what was not asked for longest when its results would take more than their share of memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.templates import template_book
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.partition.clusters import Home, clusters_at_work
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.place.instances import InstanceGraph, PartBook
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from autoturbo.stores import Recent

MIB = 1 << 20

_RESULTS, _PLANS, _TIMELINES = 1024, 4096, 64
"""Results of most kinds that are kept at most, whatever they take."""

SUBGRAPH = 400
"""Bytes of a sub-graph of a plan with its split, about."""

ORDERED = 40
"""Bytes of an instance in an order, about: an integer and where it is."""

PLACED = 16
"""Bytes of an instance in a placement: binding and scope are shared."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What splitting and grouping make of a setting.

    Attributes:
        number: equal for equal sub-graphs.
        subgraphs: in topological order.
        homes: the clusters of each; none where clusters work alike.
    """

    number: int
    subgraphs: tuple[SubGraph, ...]
    homes: tuple[Home, ...]

    @property
    def instances(self) -> Ints:
        """Instances of each sub-graph per pass, of the cluster that has most of them."""
        found = np.asarray([s.split.instances for s in self.subgraphs], np.int64)
        if not self.homes:
            return found
        return np.asarray(-(-found // np.asarray(self.homes, np.int64)[:, 1]), np.int64)

    def share(self, share: Share) -> Share:
        """Return the share with the clusters that have something to do."""
        if share.split == BATCH:
            return share
        return dataclasses.replace(share, clusters=clusters_at_work(self.homes))


def array_bytes(value: object) -> int:
    """Return the bytes of the arrays in a value's fields, those of values inside it included.

    An instance graph or a problem inside is not counted: others hold it too.
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(array_bytes, value))
    if not dataclasses.is_dataclass(value):
        return 0
    held = (getattr(value, f.name) for f in dataclasses.fields(value) if f.name not in _SHARED)
    return sum(map(array_bytes, held))


_SHARED = ("problem", "graph", "parts", "subgraphs")
"""Fields that are shared among results, or are no arrays."""


BOOKS = 64 * MIB
"""Bytes, about, that all books of parts may take before they begin anew."""

_PART, _TEMPLATE, _ROW = 1 << 10, 1 << 10, 3 << 10
"""Bytes of a cut sub-graph or class of its parts, of a template, and of a layer of one, about."""


def book_bytes(parts: PartBook) -> int:
    """Return how much memory what is known of parts and their templates takes, about."""
    templates = template_book(parts)
    regions = 16 * parts.rank * parts.regions.count
    known = _PART * (len(parts.parts) + len(parts.shapes))
    return regions + known + _TEMPLATE * len(templates.templates) + _ROW * templates.layers


def _plan_bytes(plan: Plan) -> int:
    return SUBGRAPH * len(plan.subgraphs)


def _order_bytes(found: tuple[int, tuple[int, ...]]) -> int:
    return ORDERED * len(found[1])


def _placement_bytes(found: tuple[int, Placement]) -> int:
    return PLACED * len(found[1].bindings)


def _timeline_bytes(found: tuple[Timeline, ...]) -> int:
    return array_bytes(found) + array_bytes(found[0].graph)


@dataclass(eq=False)
class SchedulerCache:
    """Results of the passes that many settings share, each kind in bounded memory.

    Equal results have equal numbers, so that what follows from them is found without comparing
    them again; a number is never used twice.

    Attributes:
        books: what is known of parts, by samples that are processed at once. Parts and templates
            are numbered; whoever holds numbers holds their book, so that one can begin anew.
        plans: by what sharing, splitting and grouping read of a setting.
        graphs: instance graphs by the number of their plan.
        orders: by plan and what ordering reads.
        placements: by order and what binding and placing read.
        timelines: of all clusters, by placement and what buffers read.
        numbers: of results, with their bytes.
        counter: the next numbers.
    """

    books: dict[int, PartBook] = field(default_factory=dict)
    plans: Recent[Any, Plan] = field(default_factory=lambda: Recent(_PLANS, 32 * MIB, _plan_bytes))
    graphs: Recent[int, InstanceGraph] = field(
        default_factory=lambda: Recent(_RESULTS, 32 * MIB, array_bytes)
    )
    orders: Recent[Any, tuple[int, tuple[int, ...]]] = field(
        default_factory=lambda: Recent(_RESULTS, 16 * MIB, _order_bytes)
    )
    placements: Recent[Any, tuple[int, Placement]] = field(
        default_factory=lambda: Recent(_RESULTS, 16 * MIB, _placement_bytes)
    )
    timelines: Recent[Any, tuple[Timeline, ...]] = field(
        default_factory=lambda: Recent(_TIMELINES, 48 * MIB, _timeline_bytes)
    )
    numbers: Recent[object, tuple[int, int]] = field(
        default_factory=lambda: Recent(_PLANS, 16 * MIB, operator.itemgetter(1))
    )
    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def number(self, result: object, size: int) -> int:
        """Return the number of a result, of which so many bytes are remembered to know it again."""
        return self.numbers.get(result, lambda: (next(self.counter), size))[0]

    def parts(self, samples: int, problem: Problem) -> PartBook:
        """Return what is known of the parts of a model at some samples at once."""
        if samples not in self.books:
            self.books[samples] = PartBook(problem)
        return self.books[samples]

    def forget_when_full(self) -> None:
        """Begin anew with parts, and with all that has numbers of them, at :data:`BOOKS` bytes."""
        if sum(map(book_bytes, self.books.values())) > BOOKS:
            self.books.clear()
            for store in (self.graphs, self.timelines):
                store.forget()

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return hits and misses of each kind of result, by the name of its field."""
        stores = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {n: (s.hits, s.misses) for n, s in stores.items() if isinstance(s, Recent)}
