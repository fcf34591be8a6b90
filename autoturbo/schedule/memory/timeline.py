"""From ordered instances to buffers in time, and back to what every kernel streams.

The timeline is written once per schedule: it lists who makes and who reads each buffer, the
allocator decides where each is kept, and the streams follow: whoever writes or reads a buffer that
is not in LB moves its bytes from or to GB or DDR (:mod:`.writer`). A timeline is
flat arrays; :class:`Step` and :class:`BufferName` are views of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.codegen.stitch import Template
from autoturbo.schedule.codegen.templates import template_book, templates_of
from autoturbo.schedule.memory.allocate import ALIGNMENT, VICTIMS, Buffers, Zones
from autoturbo.schedule.memory.writer import (
    IN_DDR,
    IN_GB,
    LATE_DDR,
    LATE_GB,
    OUT_DDR,
    OUT_GB,
    STREAM_COLUMNS,
    Pins,
    Written,
    write,
)
from autoturbo.schedule.place.bind import Placement, binding_book
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.place.movement import Movements, core_names, move
from autoturbo.schedule.problem import Problem

RESIDENCES = {"stream": 0, "GB": 1, "LB": 2}
"""Codes of where weights stay between the instances of a sub-graph."""

KINDS = ("tensor", "moved", "streamed", "weights", "tiles")
"""What buffers hold, by code."""

WEIGHTS_SHARE = 2
"""Kept weights take at most half of a buffer, from its top: the rest holds tensors."""


@dataclass(frozen=True, slots=True)
class BufferName:
    """What a buffer holds.

    Attributes:
        kind: ``"tensor"`` (made by a kernel), ``"moved"`` (brought in by a movement),
            ``"streamed"`` (was to be brought in, found no room in LB, is read where it lies),
            ``"weights"`` (kept between the instances of a sub-graph), ``"tiles"`` (room for weight
            tiles beyond the target's weight buffer while a kernel runs).
        tensor: index of the tensor, -1 for weights and tiles.
        instance: the instance that makes it or that it is brought in for.
    """

    kind: str
    tensor: int
    instance: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One kernel of the order with what comes before it.

    Attributes:
        instance: which instance.
        template: its kernel's template.
        streams: array (layers, :data:`STREAM_COLUMNS`) of bytes.
        copied: bytes that movements bring into LB from GB and DDR before the kernel, as a pair.
        crossing: bytes that movements bring to the busiest core from other cores.
        weights_resident: where the weights are already: 0 in DDR only, 1 in GB, 2 in LB.
    """

    instance: int
    template: Template
    streams: Ints
    copied: tuple[int, int]
    crossing: int
    weights_resident: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """Kernels in order with their buffers placed.

    Attributes:
        graph: the instances.
        order: instances in order of execution.
        templates: per instance, the number of its template.
        movements: what is done to the pieces that kernels read.
        rows: first row of each kernel in :attr:`streams`; one entry more than kernels.
        streams: array (layers of all kernels, :data:`STREAM_COLUMNS`) of bytes of the cluster.
        copied: per kernel, bytes that movements bring from LB of other cores (0), GB and DDR.
        crossing: per kernel, bytes that movements bring to the busiest core from other cores.
        resident: per kernel, where its weights are already: 0 in DDR only, 1 in GB, 2 in LB.
        kind: per buffer, index into :data:`KINDS`.
        tensor: per buffer, the tensor or -1.
        owner: per buffer, the instance.
        buffers: placed.
    """

    graph: InstanceGraph
    order: Ints
    templates: Ints
    movements: Movements
    rows: Ints
    streams: Ints
    copied: Ints
    crossing: Ints
    resident: Ints
    kind: Ints
    tensor: Ints
    owner: Ints
    buffers: Buffers

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """One per kernel."""
        return tuple(self.step(kernel) for kernel in range(len(self.order)))

    def step(self, kernel: int) -> Step:
        """One kernel of the order."""
        instance = int(self.order[kernel])
        copied = self.copied[kernel].tolist()
        return Step(
            instance,
            template_book(self.graph.book).templates[int(self.templates[instance])],
            self.streams[self.rows[kernel] : self.rows[kernel + 1]],
            (copied[1], copied[2]), int(self.crossing[kernel]), int(self.resident[kernel]),
        )  # fmt: skip

    @functools.cached_property
    def names(self) -> tuple[BufferName, ...]:
        """What each buffer holds."""
        columns = zip(self.kind.tolist(), self.tensor.tolist(), self.owner.tolist(), strict=True)
        return tuple(BufferName(KINDS[kind], tensor, owner) for kind, tensor, owner in columns)


@dataclass(frozen=True, slots=True)
class BufferRules:
    """The knobs that the buffers of one sub-graph depend on.

    Attributes:
        victim: which tensor leaves LB first when its tensors find no room, a key of ``VICTIMS``.
        residence: where its weights stay between its instances, a key of :data:`RESIDENCES`.
        tiles: bytes of every core's LB that its kernels take for weight tiles.
    """

    victim: str = "longest"
    residence: str = "stream"
    tiles: int = 0


def build_timeline(
    problem: Problem,
    graph: InstanceGraph,
    order: Sequence[int],
    placement: Placement,
    rules: Sequence[BufferRules],
) -> Timeline:
    """Write the timeline, place its buffers and derive the streams.

    Args:
        problem: where the instances come from.
        graph: instances and what they read from each other.
        order: order of execution; instances that are not in it run on other clusters, and what they
            make is read from DDR.
        placement: bindings and declared scopes; what instances that are not in the order read is
            declared in DDR.
        rules: per sub-graph.
    """
    book = binding_book(graph.book)
    bindings = np.asarray([book.number(b) for b in placement.bindings], np.int64)
    scopes = np.asarray(placement.scopes, np.int64)
    templates = templates_of(graph.book, graph.shape, bindings)
    names = core_names(placement, problem.target.cores)
    steps = np.asarray(order, np.int64)
    movements = move(graph, steps, bindings, scopes, templates, names)
    zones = Zones.of(problem.target)
    pins = _pins(graph, steps, templates, rules, zones)
    victims = np.asarray([VICTIMS[r.victim] for r in rules], np.int64)
    outlines = [template_book(graph.book).outlines[number] for number in templates[steps].tolist()]
    written = write(
        steps, graph.subgraph, graph.links, scopes, outlines, movements, victims, pins, zones.lb,
        zones.gb,
    )  # fmt: skip
    found = _timeline(graph, steps, templates, movements, written)
    if len(steps) < graph.count:
        away = handed_over(found)
        found.buffers.death[away] = len(steps) + int(found.rows[-1]) - 1
    return found


def handed_over(timeline: Timeline) -> Ints:
    """Buffers in DDR that instances on other clusters read: they live until the pass ends."""
    graph = timeline.graph
    here = np.zeros(graph.count, np.bool_)
    here[timeline.order] = True
    links = graph.links
    reader = np.repeat(np.arange(graph.count), np.diff(links.start))
    away = here[links.maker] & ~here[reader]
    most = max(len(parts.outputs) for parts in graph.parts)
    outputs = np.asarray([(p.outputs * most)[:most] for p in graph.parts], np.int64)
    tensors = outputs[graph.subgraph[links.maker[away]], links.output[away]]
    read = len(graph.problem.graph.tensors) * links.maker[away] + tensors
    held = len(graph.problem.graph.tensors) * timeline.owner + timeline.tensor
    made = timeline.kind == KINDS.index("tensor")
    return np.flatnonzero(made & np.isin(held, read))


def _timeline(
    graph: InstanceGraph, order: Ints, templates: Ints, movements: Movements, written: Written
) -> Timeline:
    buffers = Buffers(
        written.birth, written.death, written.core, written.cluster, written.scope, written.address
    )
    return Timeline(
        graph, order, templates, movements, written.rows, written.streams, written.copied,
        written.crossing, written.resident, written.kind, written.tensor, written.owner, buffers,
    )  # fmt: skip


def build_timelines(
    problem: Problem,
    graph: InstanceGraph,
    order: Sequence[int],
    placement: Placement,
    rules: Sequence[BufferRules],
    cluster: Ints,
) -> tuple[Timeline, ...]:
    """One timeline per cluster, or a single one where ``cluster`` (per instance) is empty."""
    if not len(cluster):
        return (build_timeline(problem, graph, order, placement, rules),)
    steps = np.asarray(order, np.int64)
    own = [steps[cluster[steps] == one].tolist() for one in range(int(cluster.max()) + 1)]
    return tuple(build_timeline(problem, graph, one, placement, rules) for one in own)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Weights that stay: whose, in which residence, at which address."""

    subgraph: int
    residence: int
    address: int
    core: int
    cluster: int


def _pins(
    graph: InstanceGraph, order: Ints, templates: Ints, rules: Sequence[BufferRules], zones: Zones
) -> Pins:
    """What is fixed before tensors are placed: weights that stay and room for weight tiles."""
    kept = _kept(graph, order, templates, rules, zones)
    lb_room = min((k.address for k in kept if k.residence != 1), default=zones.lb)
    subgraphs = len(graph.subgraphs)
    table = np.full((subgraphs, 4), -1, np.int64)
    for one in kept:
        table[one.subgraph] = one.residence, one.address, one.core, one.cluster
    tiles = np.zeros((subgraphs, 2), np.int64)
    for index, rule in enumerate(rules):
        size = min(-(-rule.tiles // ALIGNMENT) * ALIGNMENT, lb_room)
        tiles[index] = size, (lb_room - size) // ALIGNMENT * ALIGNMENT
    return Pins(table, tiles)


def _kept(
    graph: InstanceGraph, order: Ints, templates: Ints, rules: Sequence[BufferRules], zones: Zones
) -> list[_Kept]:
    """Weights of sub-graphs with several instances that stay, most instances first."""
    if all(rule.residence == "stream" for rule in rules):
        return []
    outlines = template_book(graph.book).outlines
    counts = np.bincount(graph.subgraph[order], minlength=len(graph.subgraphs))
    whole = [True] * len(graph.subgraphs)
    # Parts that are not alike may be spread over the cores in other ways: the largest has room.
    sizes = [(0, 0)] * len(graph.subgraphs)
    own = zip(graph.subgraph[order].tolist(), templates[order].tolist(), strict=True)
    for subgraph, outline in ((s, outlines[number]) for s, number in dict.fromkeys(own)):
        cluster, core = sizes[subgraph]
        sizes[subgraph] = max(cluster, outline.weights), max(core, outline.core_weights)
        whole[subgraph] = whole[subgraph] and outline.whole
    tops = {1: zones.gb, 2: zones.lb}
    floors = {1: zones.gb - zones.gb // WEIGHTS_SHARE, 2: zones.lb - zones.lb // WEIGHTS_SHARE}
    kept: list[_Kept] = []
    for subgraph in np.argsort(-counts, kind="stable").tolist():
        residence = RESIDENCES[rules[subgraph].residence]
        cluster, core = sizes[subgraph]
        size = cluster if residence == 1 else core
        if not residence or counts[subgraph] < 2 or size <= 0 or not whole[subgraph]:  # noqa: PLR2004
            continue
        at = (tops[residence] - size) // ALIGNMENT * ALIGNMENT
        if at >= floors[residence]:
            tops[residence] = at
            in_lb = residence == RESIDENCES["LB"]
            kept.append(_Kept(subgraph, residence, at, core * in_lb, 0 if in_lb else cluster))
    return kept


__all__ = [
    "IN_DDR", "IN_GB", "LATE_DDR", "LATE_GB", "OUT_DDR", "OUT_GB", "STREAM_COLUMNS",
    "BufferName", "BufferRules", "Step", "Timeline", "build_timeline", "build_timelines",
    "handed_over",
]  # fmt: skip
