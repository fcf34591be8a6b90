"""What a workbench remembers of its settings: each artefact of a pass, in bounded memory.

Settings of a search have most of their plans, orders and placements in common. Each kind of result
has a :class:`~autoturbo.stores.Recent` of its own, for all batch sizes together, that
forgets what was not asked for longest when its results would take more than their share of memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stitch import known_templates
from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.partition.clusters import Home, clusters_at_work, homes_of
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.place.instances import InstanceGraph, PartBook
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import BATCH, Share
from autoturbo.stores import Recent

MIB = 1 << 20

_RESULTS, _PLANS, _TIMELINES = 1024, 4096, 64
"""Results of most kinds that are kept at most, whatever they take."""

_SUBGRAPH, _ORDERED, _PLACED = 400, 40, 16
"""Bytes, about, of a sub-graph with its split, of an instance in an order (an integer and where it
is), and of one in a placement, where binding and scope are shared."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What sharing out, grouping and splitting make of a setting.

    Attributes:
        number: equal for equal sub-graphs that are shared out alike; never used twice.
        problem: the model for the samples that are processed at once.
        share: how clusters share out the work: those that have something to do.
        subgraphs: in topological order.
        homes: the clusters of each; none where clusters work alike.
        overrides: knobs of their own that sub-graphs have, by index.
    """

    number: int
    problem: Problem
    share: Share
    subgraphs: tuple[SubGraph, ...]
    homes: tuple[Home, ...]
    overrides: Mapping[int, SubGraphKnobs] = field(default_factory=dict)

    @property
    def instances(self) -> Ints:
        """Instances of each sub-graph per pass, of the cluster that has most of them."""
        found = np.asarray([s.split.instances for s in self.subgraphs], np.int64)
        if not self.homes:
            return found
        return np.asarray(-(-found // np.asarray(self.homes, np.int64)[:, 1]), np.int64)


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


_SHARED = ("problem", "graph", "parts", "subgraphs", "templates")
"""Fields that are shared among results, or are no arrays."""


BOOKS = 64 * MIB
"""Bytes, about, that all books of parts may take before they begin anew."""

_PART, _TEMPLATE, _ROW = 1 << 10, 1 << 10, 3 << 10
"""Bytes of a cut sub-graph or class of its parts, of a template, and of a layer of one, about."""


def book_bytes(parts: PartBook) -> int:
    """Return how much memory what is known of parts and their templates takes, about."""
    templates = known_templates(parts).values()
    regions = 16 * parts.rank * parts.regions.count
    known = _PART * (len(parts.parts) + len(parts.shapes))
    return regions + known + sum(_TEMPLATE + _ROW * len(own.layers) for own in templates)


def _subgraph_bytes(subgraphs: tuple[SubGraph, ...]) -> int:
    return _SUBGRAPH * len(subgraphs)


def _plan_bytes(plan: Plan) -> int:
    return _subgraph_bytes(plan.subgraphs)


def _order_bytes(order: tuple[int, ...]) -> int:
    return _ORDERED * len(order)


def _placement_bytes(placement: Placement) -> int:
    return _PLACED * len(placement.bindings)


def _timeline_bytes(found: tuple[Timeline, ...]) -> int:
    return array_bytes(found) + array_bytes(found[0].graph)


class SchedulerCache:
    """Results of the passes that many settings share, each kind in bounded memory.

    Attributes:
        books: what is known of parts, by samples that are processed at once. Parts and templates
            are numbered; whoever holds numbers holds their book, so that one can begin anew.
        groups: sub-graphs before they are split, by what sharing, splitting and grouping read.
        plans: by the same.
        same: plans by what is in them: equal ones are one.
        graphs: instance graphs by the number of their plan.
        orders: by plan and what ordering reads.
        placements: by plan, order and what binding and placing read.
        timelines: of all clusters, by plan, order, placement and what buffers read.
    """

    def __init__(self, books: dict[int, PartBook] | None = None) -> None:
        self.books = {} if books is None else books
        self.groups: Recent[Any, tuple[SubGraph, ...]] = Recent(_PLANS, 16 * MIB, _subgraph_bytes)
        self.plans: Recent[Any, Plan] = Recent(_PLANS, 32 * MIB, _plan_bytes)
        self.same: Recent[Any, Plan] = Recent(_PLANS, 16 * MIB, _plan_bytes)
        self.graphs: Recent[int, InstanceGraph] = Recent(_RESULTS, 32 * MIB, array_bytes)
        self.orders: Recent[Any, tuple[int, ...]] = Recent(_RESULTS, 16 * MIB, _order_bytes)
        self.placements: Recent[Any, Placement] = Recent(_RESULTS, 16 * MIB, _placement_bytes)
        self.timelines: Recent[Any, tuple[Timeline, ...]] = Recent(
            _TIMELINES, 48 * MIB, _timeline_bytes
        )
        self._numbers = itertools.count(1)

    def same_plan(self, problem: Problem, share: Share, subgraphs: tuple[SubGraph, ...]) -> Plan:
        """Return the one plan of some sub-graphs that clusters share out in some way."""

        def make() -> Plan:
            homes = homes_of(problem, subgraphs, share.split)
            clusters = share.clusters if share.split == BATCH else clusters_at_work(homes)
            at_work = dataclasses.replace(share, clusters=clusters)
            return Plan(next(self._numbers), problem, at_work, subgraphs, homes)

        return self.same.get((share, subgraphs), make)

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
        return {n: (s.hits, s.misses) for n, s in vars(self).items() if isinstance(s, Recent)}
