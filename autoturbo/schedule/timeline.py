"""From ordered instances to buffers in time, and back to what every kernel streams.

The timeline is built once per schedule: it lists who makes and who reads each buffer, the allocator
decides where each is kept, and the streams follow: whoever writes or reads a buffer that is not in
LB moves its bytes from or to GB or DDR.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.allocate import Buffers, Zones, allocate
from autoturbo.schedule.bind import Placement, Scope
from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.movement import Concat, Piece, concatenations, moved_pieces
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import Stage, Template

IN_GB, IN_DDR, OUT_GB, OUT_DDR, LATE_GB, LATE_DDR = range(6)
"""Columns of a kernel's stream table, bytes of the cluster per layer: read and written; ``LATE`` is
read from buffers that the same kernel wrote, so it cannot be fetched ahead."""

STREAM_COLUMNS = 6


@dataclass(frozen=True, slots=True)
class BufferName:
    """What a buffer holds.

    Attributes:
        kind: ``"tensor"`` (made by a kernel), ``"moved"`` (brought in by a movement),
            ``"weights"`` (kept in GB between the instances of a sub-graph).
        tensor: index of the tensor, -1 for weights.
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
        concats: its inputs from other instances.
        streams: array (layers, :data:`STREAM_COLUMNS`) of bytes.
        copied: bytes that movements before the kernel read from GB and DDR, as a pair; also what
            they write there where the copy found no room in LB.
        crossing: bytes that movements bring to the busiest core from other cores.
        weights_resident: the weights are in GB already.
    """

    instance: int
    template: Template
    concats: tuple[Concat, ...]
    streams: Ints
    copied: tuple[int, int]
    crossing: int
    weights_resident: bool


@dataclass
class _Draft:
    """Buffers and their users while the timeline is written."""

    names: list[BufferName] = field(default_factory=list)
    birth: list[int] = field(default_factory=list)
    death: list[int] = field(default_factory=list)
    core: list[int] = field(default_factory=list)
    cluster: list[int] = field(default_factory=list)
    scope: list[int] = field(default_factory=list)
    uses: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(kernel, layer position, buffer, bytes, kind): kind 0 read, 1 late read, 2 write."""

    def add(
        self, name: BufferName, step: int, core: int, cluster: int, scope: Scope = Scope.LB
    ) -> int:
        """A new buffer, made at ``step``."""
        self.names.append(name)
        self.birth.append(step)
        self.death.append(step)
        self.core.append(core)
        self.cluster.append(cluster)
        self.scope.append(int(scope))
        return len(self.names) - 1

    def touch(self, buffer: int, step: int) -> None:
        """Note that a buffer is read at ``step``."""
        self.death[buffer] = max(self.death[buffer], step)

    def arrays(self) -> Buffers:
        """As the allocator wants them."""
        return Buffers(
            birth=np.asarray(self.birth, np.int64),
            death=np.asarray(self.death, np.int64),
            core_bytes=np.asarray(self.core, np.int64),
            cluster_bytes=np.asarray(self.cluster, np.int64),
            scope=np.asarray(self.scope, np.int64),
            address=np.full(len(self.names), -1, np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Steps in order with their buffers placed.

    Attributes:
        steps: one per kernel.
        names: what each buffer holds.
        buffers: placed.
    """

    steps: tuple[Step, ...]
    names: tuple[BufferName, ...]
    buffers: Buffers


@dataclass(frozen=True, slots=True, eq=False)
class TimelineRules:
    """The knobs that buffers depend on."""

    victim: str = "longest"
    weights_in_gb: bool = False


def build_timeline(
    problem: Problem,
    graph: InstanceGraph,
    order: Sequence[int],
    placement: Placement,
    templates: Sequence[Template],
    rules: TimelineRules,
) -> Timeline:
    """Write the timeline, place its buffers and derive the streams."""
    writer = _Writer(problem, graph, placement, templates)
    for kernel, instance in enumerate(order):
        writer.kernel(kernel, instance)
    resident = writer.keep_weights(order) if rules.weights_in_gb else {}
    placed = allocate(writer.draft.arrays(), Zones.of(problem.target), rules.victim)
    streams = _streams(writer.draft, placed, [templates[i].stages.shape[0] for i in order])
    steps = tuple(
        writer.step(kernel, instance, streams[kernel], placed, resident)
        for kernel, instance in enumerate(order)
    )
    return Timeline(steps, tuple(writer.draft.names), placed)


class _Writer:
    """Walks the order once and notes buffers and uses."""

    def __init__(
        self,
        problem: Problem,
        graph: InstanceGraph,
        placement: Placement,
        templates: Sequence[Template],
    ) -> None:
        self.problem, self.graph = problem, graph
        self.placement, self.templates = placement, templates
        self.draft = _Draft()
        self.clock = 0
        self.made: dict[tuple[int, int], int] = {}
        self.moved: list[list[tuple[Piece, int]]] = []
        self.concats: list[tuple[Concat, ...]] = []
        self.starts: list[int] = []
        self.outputs = frozenset(problem.graph.outputs)

    def kernel(self, kernel: int, instance: int) -> None:
        """Movements, then layers, of one instance."""
        template = self.templates[instance]
        concats = concatenations(self.problem, self.graph, self.placement, instance, template)
        self.concats.append(concats)
        self.moved.append([self._move(piece, instance) for piece in moved_pieces(concats)])
        self.clock += 1
        self.starts.append(self.clock)
        sources = self._sources(kernel, concats)
        inner: dict[int, int] = {}
        last = _last_readers(self.problem, template)
        for position in range(len(template.layers)):
            self._reads(kernel, template, position, sources, inner)
            self._writes(kernel, instance, template, position, inner, last)
            self.clock += 1

    def _move(self, piece: Piece, instance: int) -> tuple[Piece, int]:
        name = BufferName("moved", piece.tensor, instance)
        self.draft.touch(self.made[piece.producer, piece.tensor], self.clock)
        buffer = self.draft.add(name, self.clock, piece.core_bytes, piece.cluster_bytes)
        return piece, buffer

    def _sources(self, kernel: int, concats: Sequence[Concat]) -> dict[int, list[tuple[int, int]]]:
        """Per input tensor, the buffers it is read from and the bytes of each."""
        brought = {(p.producer, p.tensor): buffer for p, buffer in self.moved[kernel]}
        return {
            concat.tensor: [
                (
                    brought.get((p.producer, p.tensor), self.made[p.producer, p.tensor]),
                    p.cluster_bytes,
                )
                for p in concat.pieces
            ]
            for concat in concats
        }

    def _reads(
        self,
        kernel: int,
        template: Template,
        position: int,
        sources: dict[int, list[tuple[int, int]]],
        inner: dict[int, int],
    ) -> None:
        for tensor, size in template.reads[position]:
            if tensor in inner:
                self.draft.touch(inner[tensor], self.clock)
                self.draft.uses.append((kernel, position, inner[tensor], size, 1))
            elif tensor in sources:
                for buffer, part in sources[tensor]:
                    self.draft.touch(buffer, self.clock)
                    self.draft.uses.append((kernel, position, buffer, part, 0))
            else:
                self.draft.uses.append((kernel, position, -1, size, 0))

    def _writes(
        self,
        kernel: int,
        instance: int,
        template: Template,
        position: int,
        inner: dict[int, int],
        last: dict[int, int],
    ) -> None:
        reused = self._reusable(template, position, inner, last)
        for tensor, size, core in template.writes[position]:
            scope = self._declared(instance, tensor, position, template)
            if reused is not None and scope is Scope.LB and self.draft.core[reused] >= core:
                buffer, reused = reused, None
                self.draft.touch(buffer, self.clock)
            else:
                name = BufferName("tensor", tensor, instance)
                buffer = self.draft.add(name, self.clock, core, size, scope)
            inner[tensor] = buffer
            self.made[instance, tensor] = buffer
            self.draft.uses.append((kernel, position, buffer, size, 2))
            if tensor in self.outputs and self.problem.consumers[tensor]:
                self.draft.uses.append((kernel, position, -1, size, 2))

    def _reusable(
        self, template: Template, position: int, inner: dict[int, int], last: dict[int, int]
    ) -> int | None:
        """The buffer that an elementwise layer may write over: of an inner input that dies here."""
        layer = self.problem.layers[template.layers[position]]
        if not layer.in_place:
            return None
        dying = [t for t in layer.inputs if t in inner and last[t] == position]
        return inner[dying[0]] if dying else None

    def _declared(self, instance: int, tensor: int, position: int, template: Template) -> Scope:
        if position < len(template.layers) - 1:
            return Scope.LB
        if not self.problem.consumers[tensor]:
            return Scope.DDR
        return self.placement.scopes[instance]

    def keep_weights(self, order: Sequence[int]) -> dict[int, int]:
        """Buffers in GB for the weights of sub-graphs with several instances, by sub-graph."""
        first: dict[int, int] = {}
        for kernel, instance in enumerate(order):
            subgraph = self.graph.instances[instance].subgraph
            if self.graph.subgraphs[subgraph].split.instances < 2:  # noqa: PLR2004
                continue
            if not self._shares_weights(instance):
                continue
            if subgraph not in first:
                size = int(self.templates[instance].stages[:, Stage.WEIGHTS].sum())
                name = BufferName("weights", -1, instance)
                first[subgraph] = self.draft.add(name, self.starts[kernel], 0, size, Scope.GB)
            steps = len(self.templates[instance].layers)
            self.draft.touch(first[subgraph], self.starts[kernel] + steps - 1)
        return first

    def _shares_weights(self, instance: int) -> bool:
        """Whether a part reads all weights of its sub-graph, so that the other parts read the same.

        Parts along output channels each have weights of their own, lookups different rows.
        """
        template, problem = self.templates[instance], self.problem
        whole = sum(
            problem.graph.tensors[t].elements * int(problem.arrays.element[t])
            for layer in template.layers
            for index in problem.layers[layer].operators
            for t in problem.graph.operators[index].inputs
            if problem.graph.tensors[t].constant
        )
        return int(template.stages[:, Stage.WEIGHTS].sum()) == whole

    def step(
        self,
        kernel: int,
        instance: int,
        streams: Ints,
        placed: Buffers,
        resident: dict[int, int],
    ) -> Step:
        """What remains to be done for one kernel, now that buffers have their places."""
        copied = [0, 0, 0]
        crossing = 0
        for piece, buffer in self.moved[kernel]:
            source = int(placed.scope[self.made[piece.producer, piece.tensor]])
            copied[source] += piece.cluster_bytes
            copied[int(placed.scope[buffer])] += piece.cluster_bytes
            crossing += piece.crossing_bytes if placed.scope[buffer] == Scope.LB else 0
        weights = resident.get(self.graph.instances[instance].subgraph)
        keeps = weights is not None and bool(placed.scope[weights] == Scope.GB)
        earlier = weights is not None and self.draft.names[weights].instance != instance
        return Step(
            instance, self.templates[instance], self.concats[kernel], streams,
            (copied[Scope.GB], copied[Scope.DDR]), crossing, keeps and earlier,
        )  # fmt: skip


def _last_readers(problem: Problem, template: Template) -> dict[int, int]:
    """Per tensor, the position of the last layer of the kernel that reads it."""
    return {
        tensor: position
        for position, layer in enumerate(template.layers)
        for tensor in problem.layers[layer].inputs
    }


def _streams(draft: _Draft, placed: Buffers, lengths: Sequence[int]) -> list[Ints]:
    """Per kernel, the bytes that its layers move from and to GB and DDR."""
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    table = np.zeros((int(starts[-1]), STREAM_COLUMNS), np.int64)
    uses = np.asarray(draft.uses, np.int64).reshape(-1, 5)
    scopes = np.where(uses[:, 2] < 0, int(Scope.DDR), placed.scope[uses[:, 2]])
    column = np.asarray(_COLUMN, np.int64)[uses[:, 4], scopes]
    streamed = column >= 0
    rows = starts[uses[:, 0]] + uses[:, 1]
    np.add.at(table, (rows[streamed], column[streamed]), uses[streamed, 3])
    return [table[a:b] for a, b in itertools.pairwise(starts)]


_COLUMN = ((-1, IN_GB, IN_DDR), (-1, LATE_GB, LATE_DDR), (-1, OUT_GB, OUT_DDR))
"""Stream column by use (read, late read, write) and scope (LB, GB, DDR)."""
