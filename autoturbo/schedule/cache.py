"""What a workbench remembers of its settings: each artefact of a pass, in bounded memory.

Settings of a search have most of their plans, orders and placements in common. Each kind of result
has a :class:`~autoturbo.stores.Recent` of its own, for all batch sizes together, that
forgets what was not asked for longest when its results would take more than their share of memory.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stitch import known_templates
from autoturbo.schedule.knobs import AUTO, Knobs, Stage, SubGraphKnobs, knob_names
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.partition.clusters import Home
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.place.instances import InstanceGraph, PartBook
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Share
from autoturbo.stores import Recent

MIB = 1 << 20

_RESULTS, _PLANS, _TIMELINES = 1024, 4096, 64
"""Results of most kinds that are kept at most, whatever they take."""


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


def key(knobs: Knobs, upto: Stage, after: Stage | None = None) -> tuple[object, ...]:
    """Return what passes read of a setting, to remember their results by.

    An override counts with its layer where it says anything to these passes. Who runs what on a
    machine of several units is no part of it.

    Args:
        knobs: the setting.
        upto: the last of the passes.
        after: the pass before the first; from the first one if None.
    """
    model, own, unsaid = _read(upto, after)
    said = [values for o in knobs.overrides if (values := own(o))[1:] != unsaid]
    return model(knobs), *said


@functools.cache
def _read(
    upto: Stage, after: Stage | None
) -> tuple[Callable[[Knobs], Any], Callable[[SubGraphKnobs], tuple[Any, ...]], tuple[str, ...]]:
    """Readers of the knobs of some passes, and what an override that says nothing to them has."""
    model = operator.attrgetter(*knob_names("model", upto=upto, after=after))
    own = knob_names("layer", "subgraph", upto=upto, after=after)
    read = operator.attrgetter("layer", *own) if own else lambda override: (override.layer,)
    return model, read, (AUTO,) * len(own)


BOOKS = 64 * MIB
"""Bytes, about, that all books of parts may take before they begin anew."""

_PART, _ROW = 1 << 10, 3 << 10
"""Bytes of a cut sub-graph, class of its parts or template, and of a layer of one, about."""


def book_bytes(parts: PartBook) -> int:
    """Return how much memory what is known of parts and their templates takes, about."""
    templates = known_templates(parts).values()
    regions = 16 * parts.rank * parts.regions.count
    known = _PART * (len(parts.parts) + len(parts.shapes) + len(templates))
    return regions + known + _ROW * sum(len(own.layers) for own in templates)


class SchedulerCache:
    """Results of the passes that many settings share, each kind in bounded memory.

    What results take is known about, from a few models: 400 bytes for a sub-graph with its split,
    40 for an instance in an order (an integer and where it is), 16 for one in a placement, where
    binding and scope are shared.

    Attributes:
        books: what is known of parts, by samples that are processed at once. Parts and templates
            are numbered; whoever holds numbers holds their book, so that one can begin anew.
        groups: sub-graphs before they are split, by what sharing, splitting and grouping read.
        plans: by the same.
        same: plans by what is in them: equal ones are one.
        numbers: of the plans to come.
        graphs: instance graphs by the number of their plan.
        orders: by plan and what ordering reads.
        placements: by plan, order and what binding and placing read.
        timelines: of all clusters, by instance graph, order, placement and what buffers read.
    """

    def __init__(self, books: dict[int, PartBook] | None = None) -> None:
        self.books = {} if books is None else books
        self.groups: Recent[Any, tuple[SubGraph, ...]] = Recent(
            _PLANS, 16 * MIB, lambda subgraphs: 400 * len(subgraphs)
        )
        self.plans: Recent[Any, Plan] = Recent(_PLANS, 32 * MIB, lambda p: 400 * len(p.subgraphs))
        self.same: Recent[Any, Plan] = Recent(_PLANS, 16 * MIB, lambda p: 400 * len(p.subgraphs))
        self.numbers = itertools.count(1)
        self.graphs: Recent[int, InstanceGraph] = Recent(_RESULTS, 32 * MIB, graph_bytes)
        self.orders: Recent[Any, tuple[int, ...]] = Recent(
            _RESULTS, 16 * MIB, lambda order: 40 * len(order)
        )
        self.placements: Recent[Any, Placement] = Recent(
            _RESULTS, 16 * MIB, lambda placement: 16 * len(placement.bindings)
        )
        self.timelines: Recent[Any, tuple[Timeline, ...]] = Recent(
            _TIMELINES, 48 * MIB, timeline_bytes
        )

    def forget_when_full(self) -> None:
        """Begin anew with parts, and with all that has numbers of them, at :data:`BOOKS` bytes."""
        if sum(map(book_bytes, self.books.values())) > BOOKS:
            self.books.clear()
            for store in (self.graphs, self.timelines):
                store.forget()


def graph_bytes(graph: InstanceGraph) -> int:
    """Return the bytes of an instance graph, about: of its instances and of what they read."""
    return 80 * graph.count + 48 * len(graph.links.maker)


def timeline_bytes(timelines: tuple[Timeline, ...]) -> int:
    """Return the bytes of timelines with their instance graph, about: of layers and kernels."""
    graph = timelines[0].graph
    rows = sum(len(timeline.streams) for timeline in timelines)
    return 104 * rows + 150 * graph.count + 80 * len(graph.links.maker) + graph_bytes(graph)
