"""From ordered instances to buffers in time, and back to what every kernel streams.

The timeline is built once per schedule: it lists who makes and who reads each buffer, the allocator
decides where each is kept, and the streams follow: whoever writes or reads a buffer that is not in
LB moves its bytes from or to GB or DDR.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.schedule.allocate import ALIGNMENT, Buffers, Zones, allocate
from autoturbo.schedule.bind import Placement, Scope
from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.movement import Concat, concatenations
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
            ``"streamed"`` (was to be brought in, found no room in LB, is read where it lies),
            ``"weights"`` (kept in GB between the instances of a sub-graph).
        tensor: index of the tensor, -1 for weights.
        instance: the instance that makes it or that it is brought in for.
    """

    kind: str
    tensor: int
    instance: int


WEIGHTS_SHARE = 2
"""Kept weights take at most half of GB, from its top: the rest holds what spills from LB."""


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Weights that stay in GB from the first instance of a sub-graph to its last.

    Attributes:
        subgraph: whose they are.
        instance: the instance that loads them.
        birth: first step of that instance.
        death: last step of the last one.
        size: bytes, rounded up to the alignment.
    """

    subgraph: int
    instance: int
    birth: int
    death: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One kernel of the order with what comes before it.

    Attributes:
        instance: which instance.
        template: its kernel's template.
        concats: its inputs from other instances.
        streams: array (layers, :data:`STREAM_COLUMNS`) of bytes.
        copied: bytes that movements bring into LB from GB and DDR before the kernel, as a pair.
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
    uses: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    """(kernel, layer position, buffer, bytes, kind, source): kind 0 read, 1 late read, 2 write; the
    source of a piece is what its moved buffer was filled from."""

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
    zones = Zones.of(problem.target)
    kept = writer.keep_weights(order, zones.gb // WEIGHTS_SHARE) if rules.weights_in_gb else ()
    base = (zones.gb - sum(w.size for w in kept)) // ALIGNMENT * ALIGNMENT if kept else zones.gb
    rest = replace(zones, gb=base)
    placed = _settled(writer, rest, rules.victim)
    lengths = [templates[i].stages.shape[0] for i in order]
    streams = _streams(writer, placed, lengths)
    steps = tuple(
        writer.step(kernel, instance, streams[kernel], placed, kept)
        for kernel, instance in enumerate(order)
    )
    names = (*writer.draft.names, *(BufferName("weights", -1, w.instance) for w in kept))
    return Timeline(steps, names, _with_weights(placed, kept, base))


def _with_weights(placed: Buffers, kept: Sequence[KeptWeights], base: int) -> Buffers:
    """The buffers of tensors, then those of kept weights, one after another from ``base``."""
    sizes = [w.size for w in kept]
    columns = (
        (placed.birth, [w.birth for w in kept]),
        (placed.death, [w.death for w in kept]),
        (placed.core_bytes, [0] * len(kept)),
        (placed.cluster_bytes, sizes),
        (placed.scope, [int(Scope.GB)] * len(kept)),
        (placed.address, [base + sum(sizes[:i]) for i in range(len(kept))]),
    )
    return Buffers(*(np.concatenate((a, np.asarray(b, np.int64))) for a, b in columns))


def _settled(writer: _Writer, zones: Zones, victim: str) -> Buffers:
    """Place buffers until every piece that is brought in has room in LB.

    A piece without room is not copied from one place outside LB to another: the kernel streams it
    from its source, which lives until then.
    """
    while True:
        placed = allocate(writer.draft.arrays(), zones, victim)
        homeless = [b for b in writer.sources if placed.scope[b] != Scope.LB]
        if not homeless:
            return placed
        for buffer in homeless:
            writer.stream(buffer)


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
        self.moved: list[list[tuple[Concat, int]]] = []
        self.sources: dict[int, tuple[int, ...]] = {}
        self.streamed: set[int] = set()
        self.concats: list[tuple[Concat, ...]] = []
        self.starts: list[int] = []
        self.outputs = frozenset(problem.graph.outputs)

    def kernel(self, kernel: int, instance: int) -> None:
        """Movements, then layers, of one instance."""
        template = self.templates[instance]
        concats = concatenations(self.problem, self.graph, self.placement, instance, template)
        self.concats.append(concats)
        self.moved.append([(c, self._move(c, instance)) for c in concats if c.moved])
        self.clock += 1
        self.starts.append(self.clock)
        sources = self._sources(kernel, concats)
        inner: dict[int, int] = {}
        last = _last_readers(self.problem, template)
        for position in range(len(template.layers)):
            self._reads(kernel, template, position, sources, inner)
            self._writes(kernel, instance, template, position, inner, last)
            self.clock += 1

    def _move(self, concat: Concat, instance: int) -> int:
        """One buffer for what a movement brings in: pieces of different cores share an address."""
        sources = tuple(self.made[p.producer, p.tensor] for p in concat.moved)
        for source in sources:
            self.draft.touch(source, self.clock)
        name = BufferName("moved", concat.tensor, instance)
        size = sum(piece.cluster_bytes for piece in concat.moved)
        buffer = self.draft.add(name, self.clock, concat.core_bytes, size)
        self.sources[buffer] = sources
        return buffer

    def stream(self, buffer: int) -> None:
        """Give up a buffer for moved pieces: whoever reads them reads their sources."""
        for source in self.sources.pop(buffer):
            self.draft.touch(source, self.draft.death[buffer])
        self.streamed.add(buffer)
        self.draft.core[buffer] = self.draft.cluster[buffer] = 0
        self.draft.names[buffer] = replace(self.draft.names[buffer], kind="streamed")

    def _sources(
        self, kernel: int, concats: Sequence[Concat]
    ) -> dict[int, list[tuple[int, int, int]]]:
        """Per input tensor: the buffer, the bytes and the source of each piece."""
        brought = {concat.tensor: buffer for concat, buffer in self.moved[kernel]}
        found: dict[int, list[tuple[int, int, int]]] = {}
        for concat in concats:
            for piece in concat.pieces:
                source = self.made[piece.producer, piece.tensor]
                moved = piece.movement is not None
                buffer = brought[concat.tensor] if moved else source
                found.setdefault(concat.tensor, []).append((buffer, piece.cluster_bytes, source))
        return found

    def _reads(
        self,
        kernel: int,
        template: Template,
        position: int,
        sources: dict[int, list[tuple[int, int, int]]],
        inner: dict[int, int],
    ) -> None:
        for tensor, size in template.reads[position]:
            if tensor in inner:
                self.draft.touch(inner[tensor], self.clock)
                self.draft.uses.append((kernel, position, inner[tensor], size, 1, -1))
            elif tensor in sources:
                for buffer, part, source in sources[tensor]:
                    self.draft.touch(buffer, self.clock)
                    self.draft.uses.append((kernel, position, buffer, part, 0, source))
            else:
                self.draft.uses.append((kernel, position, -1, size, 0, -1))

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
            self.draft.uses.append((kernel, position, buffer, size, 2, -1))
            if tensor in self.outputs and self.problem.consumers[tensor]:
                self.draft.uses.append((kernel, position, -1, size, 2, -1))

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

    def keep_weights(self, order: Sequence[int], room: int) -> tuple[KeptWeights, ...]:
        """Weights of sub-graphs with several instances that stay in GB, most instances first.

        Args:
            order: order of execution.
            room: bytes of GB for them.
        """
        kernels: dict[int, list[int]] = {}
        for kernel, instance in enumerate(order):
            kernels.setdefault(self.graph.instances[instance].subgraph, []).append(kernel)
        kept: list[KeptWeights] = []
        for subgraph, own in sorted(kernels.items(), key=lambda item: -len(item[1])):
            first, template = order[own[0]], self.templates[order[own[0]]]
            size = int(template.stages[:, Stage.WEIGHTS].sum())
            size = -(-size // ALIGNMENT) * ALIGNMENT
            if len(own) > 1 and 0 < size <= room and self._shares_weights(first):
                end = self.starts[own[-1]] + len(template.layers) - 1
                kept.append(KeptWeights(subgraph, first, self.starts[own[0]], end, size))
                room -= size
        return tuple(kept)

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
        kept: Sequence[KeptWeights],
    ) -> Step:
        """What remains to be done for one kernel, now that buffers have their places."""
        copied = [0, 0, 0]
        crossing = 0
        for concat, buffer in self.moved[kernel]:
            for piece in concat.moved:
                source = Scope(placed.scope[self.made[piece.producer, piece.tensor]])
                crossing += piece.crossing_bytes if source is Scope.LB else 0
                copied[source] += 0 if buffer in self.streamed else piece.cluster_bytes
        subgraph = self.graph.instances[instance].subgraph
        resident = any(w.subgraph == subgraph and w.instance != instance for w in kept)
        return Step(
            instance, self.templates[instance], self.concats[kernel], streams,
            (copied[Scope.GB], copied[Scope.DDR]), crossing, resident,
        )  # fmt: skip


def _last_readers(problem: Problem, template: Template) -> dict[int, int]:
    """Per tensor, the position of the last layer of the kernel that reads it."""
    return {
        tensor: position
        for position, layer in enumerate(template.layers)
        for tensor in problem.layers[layer].inputs
    }


def _streams(writer: _Writer, placed: Buffers, lengths: Sequence[int]) -> list[Ints]:
    """Per kernel, the bytes that its layers move from and to GB and DDR."""
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    table = np.zeros((int(starts[-1]), STREAM_COLUMNS), np.int64)
    uses = np.asarray(writer.draft.uses, np.int64).reshape(-1, 6)
    streamed = np.isin(uses[:, 2], list(writer.streamed))
    buffer = np.where(streamed, uses[:, 5], uses[:, 2])
    scopes = np.where(buffer < 0, int(Scope.DDR), placed.scope[buffer])
    column = np.asarray(_COLUMN, np.int64)[uses[:, 4], scopes]
    outside = column >= 0
    rows = starts[uses[:, 0]] + uses[:, 1]
    np.add.at(table, (rows[outside], column[outside]), uses[outside, 3])
    return [table[a:b] for a, b in itertools.pairwise(starts)]


_COLUMN = ((-1, IN_GB, IN_DDR), (-1, LATE_GB, LATE_DDR), (-1, OUT_GB, OUT_DDR))
"""Stream column by use (read, late read, write) and scope (LB, GB, DDR)."""
