"""What sub-graphs cost one by one, where their kernels depend on nothing but themselves.

Under these settings a kernel's time does not depend on how the rest of the model is cut, split,
bound or ordered, so that a schedule's time is the sum over its sub-graphs (tests hold it against
the whole pipeline):

- clusters share out samples: a pass is one cluster's kernels one after another;
- every output is declared in DDR: no tensor lives in LB or GB from one kernel to the next, and what
  a kernel reads is copied from DDR whoever made it, in however many pieces;
- bindings are chosen (``cores``) and not pushed from consumers to producers;
- weights are streamed: kept ones would share the local buffers with other sub-graphs' kernels.

Many sub-graphs are costed together: they are laid out one after another as if each were alone,
behind whole producers of what they read. Of parts with equal extents one is simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.bind import Placement, Scope, chosen_binding
from autoturbo.schedule.group import SubGraph
from autoturbo.schedule.instances import InstanceGraph, Links, Parts, part_book, parts_of
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import KernelRules, Workbench, rules_of
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.split import Split
from autoturbo.schedule.timeline import build_timeline
from autoturbo.schedule.work import Floats
from autoturbo.search.exact.groups import Layers
from autoturbo.simulate.sequence import KernelMemory, kernel_seconds

TOGETHER = 1024
"""Sub-graphs costed at once: enough to share what a timeline costs, few enough for memory."""

RULES = (
    "spill_victim", "weight_share", "prefetch_depth", "tile_divisor", "instruction_scheduling",
)  # fmt: skip
"""Knobs that a sub-graph may have otherwise than the model and that kernels' times depend on."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compute a set of layers.

    Attributes:
        layers: of the sub-graph.
        depth: output dimension that is cut, counted from the outermost loop.
        axis: the same as an axis of the last operator, -1 for none.
        parts: instances.
        own: its further knobs; the layer that it names means nothing.
    """

    layers: Layers
    depth: int
    axis: int
    parts: int
    own: SubGraphKnobs

    @property
    def subgraph(self) -> SubGraph:
        """As the scheduler has it."""
        return SubGraph(0, self.layers, Split(self.axis, self.parts, self.depth, 0, 0))


@dataclass(eq=False)
class Costs:
    """Seconds of sub-graphs of a model at some samples at once.

    Attributes:
        bench: model and target.
        knobs: the model's knobs.
        memory: kernels that are known.
    """

    bench: Workbench
    knobs: Knobs
    memory: KernelMemory = field(default_factory=KernelMemory)

    def __post_init__(self) -> None:
        self.share = self.bench.share(self.knobs.batches_per_cluster)
        self.problem: Problem = self.bench.problem(self.share.batches)

    def seconds(self, variants: Sequence[Variant]) -> Floats:
        """Of one pass of one cluster, per variant."""
        found = [
            self._together(variants[at : at + TOGETHER])
            for at in range(0, len(variants), TOGETHER)
        ]  # fmt: skip
        return np.concatenate(found) if found else np.zeros(0)

    def _together(self, variants: Sequence[Variant]) -> Floats:
        layout = _lay_out(self.problem, variants)
        graph, first = layout.graph, layout.first
        rules = [rules_of(self.problem, self.knobs)] * first
        rules += [self._rules(v.own) for v in variants]
        order = np.arange(graph.count)
        placement = Placement(self._bindings(layout, variants), (Scope.DDR,) * graph.count)
        timeline = build_timeline(
            self.problem, graph, order.tolist(), placement, [r.buffers for r in rules]
        )
        schedule = Schedule(
            self.bench.model, self.problem, "graphturbo", self.knobs, self.share, graph,
            tuple(order.tolist()), placement, timeline, rules[0].instructions,
            {i: r.instructions for i, r in enumerate(rules)},
        )  # fmt: skip
        seconds = kernel_seconds(schedule, self.memory) * layout.times
        sums = np.bincount(graph.subgraph, seconds, first + len(variants))
        return np.asarray(sums[first:], np.float64)

    def _rules(self, own: SubGraphKnobs) -> KernelRules:
        said = {name: value for name in RULES if (value := getattr(own, name)) != AUTO}
        return rules_of(self.problem, dataclasses.replace(self.knobs, **said))

    def _bindings(
        self, layout: _Layout, variants: Sequence[Variant]
    ) -> tuple[tuple[int, ...], ...]:
        """The binding that ``cores`` and ``core_dim`` ask for, per instance."""
        problem, graph = self.problem, layout.graph
        asked: list[tuple[int, int | None]] = [(problem.target.cores, None)] * layout.first
        asked += [cores_of(problem, v.own) for v in variants]
        pairs = zip(graph.shape.tolist(), graph.subgraph.tolist(), strict=True)
        return tuple(chosen_binding(problem, shape, *asked[owner]) for shape, owner in pairs)


def cores_of(problem: Problem, own: SubGraphKnobs) -> tuple[int, int | None]:
    """Cores that a sub-graph's instances run on, all unless asked, and the loop spread first."""
    cores = problem.target.cores if own.cores == AUTO else int(own.cores)
    return cores, None if own.core_dim == AUTO else int(own.core_dim)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Variants as instances of one graph.

    ``first`` sub-graphs are whole producers of what the variants read; ``times`` says how many
    parts an instance stands for.
    """

    graph: InstanceGraph
    first: int
    times: Floats


def _lay_out(problem: Problem, variants: Sequence[Variant]) -> _Layout:
    parts = [parts_of(problem, v.subgraph) for v in variants]
    layers = sorted({m for p in parts for t in p.inputs if (m := problem.producer[t]) >= 0})
    whole = [SubGraph(0, (layer,), Split(-1, 1, 0, 0, 0)) for layer in layers]
    subgraphs = (*whole, *(v.subgraph for v in variants))
    every = (*(parts_of(problem, s) for s in whole), *parts)
    chosen = [np.unique(p.shapes, return_index=True, return_counts=True) for p in every]
    owner = np.repeat(np.arange(len(every)), [len(c[1]) for c in chosen])
    part = np.concatenate([c[1] for c in chosen])
    first = np.searchsorted(owner, np.arange(len(every) + 1))
    makers = {layer: at for at, layer in enumerate(layers)}
    links = _links(problem, every, owner, part, makers)
    none = np.zeros(len(owner) + 1, np.int64)
    graph = InstanceGraph(
        problem, subgraphs, every, first, owner, np.concatenate([c[0] for c in chosen]),
        _rows(every, "out_base", "outputs", owner, part),
        _rows(every, "in_base", "inputs", owner, part),
        np.zeros(len(owner), np.int64), links, none, none[:0], none, none[:0],
    )  # fmt: skip
    return _Layout(graph, len(layers), np.concatenate([c[2] for c in chosen]).astype(np.float64))


def _rows(parts: Sequence[Parts], base: str, what: str, owner: Ints, part: Ints) -> Ints:
    """First row of each instance in the book of regions."""
    start = np.asarray([getattr(p, base) for p in parts], np.int64)
    step = np.asarray([len(getattr(p, what)) for p in parts], np.int64)
    found: Ints = start[owner] + part * step[owner]
    return found


def _links(
    problem: Problem, parts: Sequence[Parts], owner: Ints, part: Ints, makers: dict[int, int]
) -> Links:
    """What every instance reads of whole producers, which are the first instances."""
    rows, start = [], [0]
    for at, own in zip(part.tolist(), owner.tolist(), strict=True):
        if own >= len(makers):
            rows += _reads(problem, parts[own], at, makers)
        start.append(len(rows))
    table = np.asarray(rows, np.int64).reshape(-1, 4)
    columns = (np.ascontiguousarray(column) for column in table.T)
    return Links(np.asarray(start, np.int64), *columns)


def _reads(
    problem: Problem, parts: Parts, part: int, makers: dict[int, int]
) -> list[tuple[int, int, int, int]]:
    """Slot, maker, its output and bytes of every input that a part has of another layer."""
    base, regions = parts.in_base + part * len(parts.inputs), part_book(problem).regions.rows
    found = []
    for slot, tensor in enumerate(parts.inputs):
        layer = problem.producer[tensor]
        size = int((regions[base + slot, :, 1] - regions[base + slot, :, 0]).prod())
        if layer >= 0 and size:
            output = problem.layers[layer].outputs.index(tensor)
            found.append((slot, makers[layer], output, size * int(problem.arrays.element[tensor])))
    return found
