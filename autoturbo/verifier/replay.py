"""The order replayed: which buffer holds which tensor of which instance while time passes.

Time counts steps as the timeline does: one for the copies before a kernel, then one per layer.
Clusters run side by side, each in its own time. Reads look for what they mean in the buffer that
has it; every use of a buffer is noted for the trace, in which :mod:`autoturbo.verifier.races` looks
for what nothing orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product, zip_longest
from typing import NamedTuple

import numpy as np

from autoturbo.graph.arrays import Ints, whole_bytes
from autoturbo.graph.domain import Region, meet, volume
from autoturbo.schedule.codegen.tiling import Role
from autoturbo.schedule.memory.movement import STAY
from autoturbo.schedule.memory.timeline import (
    MOVED,
    SHARED,
    STREAMED,
    TENSOR,
    TILES,
    WEIGHTS,
    Timeline,
)
from autoturbo.schedule.place.bind import Binding, Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.stitch.templates import last_readers
from autoturbo.schedule.streams import (
    IN_DDR,
    IN_GB,
    LATE_DDR,
    LATE_GB,
    OUT_DDR,
    OUT_GB,
    ROOM,
    STREAM_COLUMNS,
)
from autoturbo.verifier.findings import (
    Check,
    Finding,
    buffer_finding,
    buffer_name,
    instance_name,
    tensor_name,
)
from autoturbo.verifier.regions import equal_part, made_regions, needs_of, read_regions
from autoturbo.verifier.trace import (
    COMPUTE,
    Access,
    Phase,
    Program,
    Trace,
    Wait,
    kernel_positions,
    program_of,
    sizes_of,
)

Content = tuple[int, int]
"""Instance and tensor."""

_COLUMN_NAMES = ("in GB", "in DDR", "out to GB", "out to DDR", "late from GB", "late from DDR")


class _Use(Enum):
    """Kind of access to a buffer: the roles (bits) that do it, by its scope; and 1 for writing.

    ``READ`` is of data from before the kernel, ``LATE`` of data that the kernel itself made;
    ``HOLD`` reads weights that stay and ``KEEP`` is when they are brought in.
    """

    BRING_FROM = (1 << Role.PASS_INPUT, 1 << Role.PASS_INPUT, 1 << Role.FETCH_INPUT), 0
    BRING_TO = (1 << Role.PASS_INPUT,) * 3, 1
    READ = (COMPUTE, 1 << Role.PASS_INPUT, 1 << Role.FETCH_INPUT), 0
    LATE = (COMPUTE, 1 << Role.PASS_LATE, 1 << Role.FETCH_LATE), 0
    WRITE = (COMPUTE, 1 << Role.STORE, 1 << Role.SAVE), 1
    HOLD = (COMPUTE, 1 << Role.PASS_WEIGHTS, 0), 0
    KEEP = (1 << Role.PASS_WEIGHTS, 1 << Role.FETCH_WEIGHTS, 0), 1


class Replay(NamedTuple):
    """A schedule replayed.

    Attributes:
        trace: Trace of the replay.
        findings: Defects of its reads, writes and streams.
    """

    trace: Trace
    findings: tuple[Finding, ...]


def replay_of(schedule: Schedule) -> Replay:
    """Replay a schedule kernel by kernel in the common order, each cluster's in its own."""
    walk = _Walk(schedule, tuple(map(_Cluster, schedule.timelines)))
    for index in schedule.order:
        cluster = walk.clusters[schedule.cluster[index] if schedule.cluster else 0]
        # The cluster's own order, not the common one: where they differ, the region check says so.
        if len(cluster.uses) < len(cluster.timeline.order):
            kernel = _Kernel(walk, cluster, int(cluster.timeline.order[len(cluster.uses)]))
            cluster.uses.append((kernel.before, kernel.during))
            kernel.run()
    place, programs = kernel_positions(schedule), dict[bytes, Program]()
    phases = (tuple(_phases(schedule, c, own, programs)) for c, own in enumerate(walk.clusters))
    handed = tuple(
        (Wait(number, kernel, *place[maker]), tensor, maker)
        for number, cluster in enumerate(walk.clusters)
        for kernel, (maker, tensor) in cluster.absent
        if place.get(maker, (number, 0))[0] != number
    )
    return Replay(Trace(tuple(phases), _waits(schedule, place), handed), tuple(walk.findings))


def _phases(
    schedule: Schedule, number: int, cluster: _Cluster, programs: dict[bytes, Program]
) -> Iterator[Phase]:
    """Yield the phases of a cluster; kernels that are not in the order access nothing."""
    idle: tuple[_Uses, _Uses] = ({}, {})
    for kernel, signature in enumerate(schedule.signatures(number)):
        before, during = cluster.uses[kernel] if kernel < len(cluster.uses) else idle
        instance = int(cluster.timeline.order[kernel])
        if before:
            yield Phase(instance, None, _table(before))
        if signature not in programs:
            programs[signature] = program_of(schedule, kernel, number)
        yield Phase(instance, programs[signature], _table(during))


def _table(rows: Mapping[tuple[int, ...], None]) -> Ints:
    return np.asarray(list(rows), np.int64).reshape(-1, len(Access))


def _waits(schedule: Schedule, at: Mapping[int, tuple[int, int]]) -> frozenset[Wait]:
    """Return the waits of kernels for producers that other clusters run."""
    waits = (
        Wait(*at[reader], *at[maker])
        for reader, makers in enumerate(schedule.instances.producers)
        for maker in makers
        if reader in at and maker in at
    )
    return frozenset(wait for wait in waits if wait.cluster != wait.maker)


def moved_core_bytes(
    need: Region, pieces: Sequence[Region], wanted: Binding | None, element: int
) -> int:
    """Return the most bytes that a core has of moved pieces, bound as wanted.

    Args:
        need: The region of the tensor that the kernel reads.
        pieces: The moved regions, each within ``need``.
        wanted: The binding; a core may have to hold all of it if there is none.
        element: Bytes of one element.
    """
    if wanted is None or len(wanted) != len(need):
        return element * sum(map(volume, pieces))
    shares = (
        tuple(equal_part(interval, factor, place)
              for interval, factor, place in zip(need, wanted, places, strict=True))
        for places in product(*map(range, wanted))
    )  # fmt: skip
    return element * max(sum(volume(meet(share, p)) for p in pieces) for share in shares)


_Uses = dict[tuple[int, ...], None]
"""Accesses, as :class:`autoturbo.verifier.trace.Access` says: each once, in order."""


class _Cluster:
    """State of a cluster at a time of the replay.

    Attributes:
        timeline: The cluster's kernels and buffers.
        clock: The step that it is in.
        last: The last step.
        buffers: Buffers by kind, tensor and owner.
        spans: Per buffer, scope, first byte and one past the last; its number in DDR.
        holds: The content of a buffer.
        where: The buffer that has some content.
        shared: The buffer of its copy for other clusters, where it has one.
        kept: Per sub-graph whose weights stay, who brought them and the buffer.
        uses: Per kernel that ran, accesses of the copies before it, and its own.
        absent: Per read of what no buffer here has: the kernel, and what it reads.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.clock = timeline, 0
        self.last = len(timeline.order) + int(timeline.rows[-1]) - 1
        self.buffers: dict[tuple[int, int, int], list[int]] = {}
        columns = (timeline.kind.tolist(), timeline.tensor.tolist(), timeline.owner.tolist())
        for buffer, key in enumerate(zip(*columns, strict=True)):
            self.buffers.setdefault(key, []).append(buffer)
        own, number = timeline.buffers, np.arange(len(timeline.buffers.scope))
        scope, low = own.scope, np.where(own.scope == Scope.DDR, number, own.address)
        size = np.where(scope == Scope.LB, own.core_bytes, own.cluster_bytes)
        # Nothing shares bytes in DDR: each buffer is a byte of its own, at its number.
        high = low + np.where(scope == Scope.DDR, 1, size)
        self.spans = list(zip(scope.tolist(), low.tolist(), high.tolist(), strict=True))
        self.holds: dict[int, Content] = {}
        self.where: dict[Content, int] = {}
        self.shared: dict[Content, int] = {}
        self.kept: dict[int, tuple[int, int]] = {}
        self.uses: list[tuple[_Uses, _Uses]] = []
        self.absent: list[tuple[int, Content]] = []

    def scope(self, buffer: int) -> Scope:
        return Scope(int(self.timeline.buffers.scope[buffer]))


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """State that all clusters and kernels share."""

    schedule: Schedule
    clusters: tuple[_Cluster, ...]
    findings: list[Finding] = field(default_factory=list)


class _Kernel:
    """One kernel being replayed.

    Attributes:
        made: Per tensor, the position of the layer that makes it.
        last: Per tensor, the position of the layer that reads it last.
        held: Bindings of the tensors that it makes; all outputs of a layer have the same one.
        position: Position of the layer at hand; -1 before the first.
        moved: The buffer of each piece that is brought in before it runs.
        streams: Bytes that the current layer moves, as its buffers imply.
        crossing: Per tensor that the layer at hand reads, bytes that a core gets from others.
        before: Accesses of the copies before the kernel.
        during: Accesses of the kernel itself.
    """

    def __init__(self, walk: _Walk, cluster: _Cluster, index: int) -> None:
        schedule = walk.schedule
        self.walk, self.schedule, self.cluster, self.index = walk, schedule, cluster, index
        self.number = len(cluster.uses)
        self.template = template = cluster.timeline.templates[index]
        self.regions, self.inputs = needs_of(schedule)[index], read_regions(schedule, index)
        starts = schedule.instances.links.start
        self.links = range(int(starts[index]), int(starts[index + 1]))
        self.layers = [schedule.context.layers[layer] for layer in template.layers]
        self.made = {t: at for at, layer in enumerate(self.layers) for t in layer.outputs}
        self.held = {t: template.bindings[at] for t, at in self.made.items()}
        self.last = last_readers(schedule.context, template.layers)
        self.position = -1
        self.moved: dict[Content, int] = {}
        self.streams = np.zeros(STREAM_COLUMNS, np.int64)
        self.crossing: dict[int, int] = {}
        self.before: _Uses = {}
        self.during: _Uses = {}

    # --------------------------------------------------------------------------- notes and sizes

    def report(self, kind: str, message: str) -> None:
        """Record a finding about the current layer, after the instance's name."""
        name = instance_name(self.schedule, self.index)
        where = self.layers[self.position].name if self.position >= 0 else None
        place = f"{name}, layer {where}," if where and where != name else name
        self.walk.findings.append(Finding(Check.MEMORY, kind, f"{place} {message}", name, where))

    def report_buffer(self, kind: str, buffer: int, message: str) -> None:
        """Record a finding about a buffer."""
        finding = buffer_finding(self.schedule, self.cluster.timeline, kind, buffer, message)
        self.walk.findings.append(finding)

    def use(self, use: _Use, buffer: int, tensor: int = -1) -> None:
        """Record a use of a buffer by the current layer, if any instruction performs it."""
        scope, low, high = self.cluster.spans[buffer]
        by_scope, writes = use.value
        roles, without_gb = by_scope[scope], not self.schedule.rules.has_gb
        if use is _Use.BRING_TO and without_gb:
            roles |= 1 << Role.FETCH_INPUT
        elif use is _Use.KEEP and without_gb:
            roles = 1 << Role.FETCH_WEIGHTS
        elif use in (_Use.READ, _Use.LATE) and scope == Scope.LB and self.crossing[tensor]:
            roles |= 1 << Role.PASS_LATE
        if roles:
            movement = use in (_Use.BRING_FROM, _Use.BRING_TO)
            rows = self.before if movement else self.during
            rows[self.position, roles, scope, low, high, writes, buffer] = None

    def describe(self, content: Content) -> str:
        """Return a text on a tensor of an instance."""
        name = instance_name(self.schedule, content[0])
        return f"{tensor_name(self.schedule, content[1])} of {name}"

    def buffer_name(self, buffer: int) -> str:
        return buffer_name(self.schedule, self.cluster.timeline, buffer)

    def element(self, tensor: int) -> int:
        """Return the bytes of one element of a tensor."""
        return int(self.schedule.context.arrays.element[tensor])

    def bytes_of(self, tensor: int) -> int:
        """Return the bytes of a tensor that the kernel accesses."""
        region = self.regions.get(tensor)
        if region is None:
            return 0
        return int(whole_bytes(self.schedule.context.arrays, [volume(region)], [tensor])[0])

    def core_bytes(self, tensor: int) -> int:
        """Return the bytes of a tensor made here on the core that has most of it."""
        region = self.regions.get(tensor)
        if region is None:
            return 0
        part = self.element(tensor)
        for (low, high), factor in zip_longest(region, self.held[tensor][: len(region)]):
            part *= -(-max(high - low, 0) // (factor or 1))
        return part

    # ----------------------------------------------------------------------------------- the walk

    def run(self) -> None:
        """Replay the copies before the kernel, then its layers."""
        timeline = self.cluster.timeline
        self._bring_inputs()
        # A step for the copies, whether or not there are any, as in the timeline.
        self.cluster.clock += 1
        self._weights()
        declared = timeline.streams[timeline.rows[self.number] : timeline.rows[self.number + 1]]
        if len(declared) != len(self.layers):
            message = f"has {len(declared)} rows of streams, {len(self.layers)} layers"
            self.report("stream", message)
        for position in range(len(self.layers)):
            self.position = position
            self._layer()
            if position < len(declared):
                self._compare(declared[position])
            self.cluster.clock += 1

    def _compare(self, declared: Ints) -> None:
        """Check the streams that the schedule declares for the current layer."""
        for column in np.flatnonzero(declared[:ROOM] != self.streams[:ROOM]).tolist():
            message = f"streams {declared[column]} bytes {_COLUMN_NAMES[column]}, its buffers imply"
            self.report("stream", f"{message} {self.streams[column]}")

    def _read(self, buffer: int, content: Content) -> Scope:
        """Check that a buffer that is read is alive and holds the expected content."""
        cluster, clock = self.cluster, self.cluster.clock
        buffers, meant = cluster.timeline.buffers, self.describe(content)
        held = cluster.holds.get(buffer)
        if held != content:
            has = self.describe(held) if held else "nothing"
            reader = instance_name(self.schedule, self.index)
            self.report_buffer("foreign buffer", buffer, f"holds {has} when {reader} reads {meant}")
        if not buffers.birth[buffer] <= clock <= buffers.death[buffer]:
            message = (
                f"reads {meant} in step {clock} from {self.buffer_name(buffer)}, which lives from "
                f"step {buffers.birth[buffer]} to {buffers.death[buffer]}"
            )
            self.report("freed buffer", message)
        return cluster.scope(buffer)

    def _check_birth(self, buffer: int) -> None:
        birth, clock = int(self.cluster.timeline.buffers.birth[buffer]), self.cluster.clock
        if birth != clock:
            message = f"is filled in step {clock} and lives from step {birth}"
            self.report_buffer("lifetime", buffer, message)

    def _check_fit(self, buffer: int, core: int, cluster: int, what: str) -> None:
        """Check that a buffer has space for its content in its scope."""
        scope = self.cluster.scope(buffer)
        room = int(sizes_of(self.cluster.timeline, scope)[buffer])
        need, whose = (core, " of every core") if scope is Scope.LB else (cluster, "")
        if need > room:
            message = f"has {room} bytes{whose}, {what} takes {need}"
            self.report_buffer("too small", buffer, message)

    # --------------------------------------------------------------------------------------- copies

    def _bring_inputs(self) -> None:
        """Replay the copies before the kernel.

        All moved pieces of an input share one buffer in LB; if it found no room, layers read the
        pieces where they lie.
        """
        copied = [0, 0, 0]
        for slot, tensor in enumerate(self.inputs):
            slot_links = [x for x in self.links if self.schedule.instances.links.slot[x] == slot]
            if slot_links:
                self._bring_input(tensor, slot_links, copied)
        declared = self.cluster.timeline.copied[self.number].tolist()
        if declared[1:] != copied[1:]:
            message = (
                f"copies {declared[1]} bytes from GB and {declared[2]} from DDR before it runs, its"
                f" buffers imply {copied[1]} and {copied[2]}"
            )
            self.report("stream", message)

    def _bring_input(self, tensor: int, links: Sequence[int], copied: list[int]) -> None:
        cluster = self.cluster
        brought = cluster.buffers.get((MOVED, tensor, self.index), [])
        pieces: list[Region] = []
        moving = False
        for link in links:
            content = int(self.schedule.instances.links.maker[link]), tensor
            stays = cluster.timeline.movements.kind[link] == STAY
            source = cluster.where.get(content)
            if source is None:
                self._handed_over(content)
                continue
            moving = moving or not stays
            if stays:
                continue
            scope = self._read(source, content)
            made_region = made_regions(self.schedule, content[0]).get(tensor, ())
            piece = meet(made_region, self.inputs[tensor])
            if brought:
                self.use(_Use.BRING_FROM, source)
                self.moved[content] = brought[0]
                copied[scope] += volume(piece) * self.element(tensor)
                pieces.append(piece)
        count = len(brought) + len(cluster.buffers.get((STREAMED, tensor, self.index), []))
        if count != moving:
            name = tensor_name(self.schedule, tensor)
            self.report("foreign buffer", f"has {count} buffers for what is brought of {name}")
        for buffer in brought:
            self._fill_buffer(buffer, tensor, pieces)

    def _handed_over(self, content: Content) -> None:
        """Check that another cluster's tensor is in DDR, written, and stays until the pass ends."""
        maker = next((c for c in self.walk.clusters if content in c.where), None)
        if maker is None:
            self.report("handed over", f"reads {self.describe(content)} before it is made")
            return
        # Its copy for other clusters, where the maker keeps it on the chip as well.
        buffer = maker.shared.get(content, maker.where[content])
        name = buffer_name(self.schedule, maker.timeline, buffer)
        if maker.holds.get(buffer) != content:
            message = f"reads {self.describe(content)}, which {name} no longer holds"
            self.report("handed over", message)
        if maker.scope(buffer) is not Scope.DDR:
            where = maker.scope(buffer).name
            self.report("handed over", f"reads {name} of another cluster, which is in {where}")
        if maker.timeline.buffers.death[buffer] != maker.last:
            self.report("handed over", f"reads {name} of another cluster, which does not stay")

    def _fill_buffer(self, buffer: int, tensor: int, pieces: Sequence[Region]) -> None:
        """Check that the destination of moved pieces is new, in LB, and large enough."""
        self._check_birth(buffer)
        scope, element = self.cluster.scope(buffer), self.element(tensor)
        if scope is not Scope.LB:
            self.report_buffer("stream", buffer, f"is in {scope.name}, not in LB")
        wanted = self.template.wanted.get(tensor)
        core = moved_core_bytes(self.inputs[tensor], pieces, wanted, element)
        total = element * sum(map(volume, pieces))
        self._check_fit(buffer, core, total, "what is brought into it")
        self.cluster.holds[buffer] = (self.index, tensor)
        self.use(_Use.BRING_TO, buffer)

    # ------------------------------------------------------------------------------------ weights

    def _weights(self) -> None:
        """Check that kept weights are present, alive, large enough, and unchanged."""
        cluster, buffers = self.cluster, self.cluster.timeline.buffers
        subgraph = int(self.schedule.instances.subgraph[self.index])
        end = cluster.clock + len(self.layers) - 1
        for tiles in cluster.buffers.get((TILES, -1, self.index), []):
            if buffers.birth[tiles] > cluster.clock or buffers.death[tiles] < end:
                self.report_buffer("lifetime", tiles, "does not live while its kernel runs")
        expected = 0
        if subgraph in cluster.kept:
            first, buffer = cluster.kept[subgraph]
            expected = 2 if cluster.scope(buffer) is Scope.LB else 1
            self.use(_Use.HOLD, buffer)
            self._same_weights(buffer, first)
        else:
            # The buffer of kept weights is owned by the instance that brings them.
            for buffer in cluster.buffers.get((WEIGHTS, -1, self.index), [])[:1]:
                cluster.kept[subgraph] = (self.index, buffer)
                self._keep(buffer)
        held = cluster.kept.get(subgraph, (-1, -1))[1]
        if held >= 0 and buffers.death[held] < end:
            message = f"reads {self.buffer_name(held)} until step {end}, after it is given back"
            self.report("freed buffer", message)
        declared = int(cluster.timeline.resident[self.number])
        if declared != expected:
            places = ("in DDR only", "in GB", "in LB")
            message = f"takes its weights to be {places[declared]}, they are {places[expected]}"
            self.report("residence", message)

    def _keep(self, buffer: int) -> None:
        self._check_birth(buffer)
        weights = self.template.stages[:, [Stage.WEIGHTS, Stage.CORE_WEIGHTS]].sum(axis=0)
        self._check_fit(buffer, int(weights[1]), int(weights[0]), "the weights of its layers")
        self.use(_Use.KEEP, buffer)

    def _same_weights(self, buffer: int, first: int) -> None:
        """Check that the kept weights are all that this part reads."""
        kept, tensors = needs_of(self.schedule)[first], self.schedule.context.graph.tensors
        for tensor, region in self.regions.items():
            given = kept.get(tensor, ())
            if tensors[tensor].constant and (not given or meet(given, region) != region) and region:
                name, what = instance_name(self.schedule, self.index), tensors[tensor].name
                message = f"has not all of {what} that {name} reads"
                self.report_buffer("foreign buffer", buffer, message)

    # ------------------------------------------------------------------------------------- layers

    def _layer(self) -> None:
        """Replay the current layer: its reads, then its writes; add up its streams."""
        context, position = self.schedule.context, self.position
        layer = self.layers[position]
        self.streams = np.zeros(STREAM_COLUMNS, np.int64)
        self.crossing = dict(zip(layer.inputs, self.template.exchanged[position], strict=True))
        inner = [t for t in layer.inputs if self.made.get(t, position) < position]
        for tensor in layer.inputs:
            if tensor in inner:
                self._read_late(tensor)
            elif tensor in context.graph.inputs:
                self.streams[IN_DDR] += self.bytes_of(tensor)
            else:
                self._read_pieces(tensor)
        # What another core still reads of a tensor must not be written over.
        dying = [t for t in inner if self.last[t] == position and not self.crossing[t]]
        for tensor in layer.outputs:
            self._write(tensor, dying if layer.in_place else [])

    def _read_late(self, tensor: int) -> None:
        content = (self.index, tensor)
        buffer = self.cluster.where.get(content)
        if buffer is None:
            self.report("foreign buffer", f"reads {self.describe(content)}, which no buffer has")
            return
        scope = self._read(buffer, content)
        self.use(_Use.LATE, buffer, tensor)
        if scope is not Scope.LB:
            self.streams[LATE_GB if scope is Scope.GB else LATE_DDR] += self.bytes_of(tensor)

    def _read_pieces(self, tensor: int) -> None:
        """Replay the reads of an input from other instances, each piece where it lies."""
        links, need = self.schedule.instances.links, self.inputs[tensor]
        slot = list(self.inputs).index(tensor)
        for link in self.links:
            if links.slot[link] != slot:
                continue
            content = (int(links.maker[link]), tensor)
            made_region = made_regions(self.schedule, content[0]).get(tensor, need)
            size = volume(meet(made_region, need)) * self.element(tensor)
            source = self.cluster.where.get(content)
            if content in self.moved:
                source, content = self.moved[content], (self.index, tensor)
            if source is None:
                scope = Scope.DDR
                self.cluster.absent.append((self.number, content))
            else:
                scope = self._read(source, content)
                self.use(_Use.READ, source, tensor)
            if scope is not Scope.LB:
                self.streams[IN_GB if scope is Scope.GB else IN_DDR] += size

    def _write(self, tensor: int, dying: list[int]) -> None:
        """Replay the write of a tensor to its own buffer, or over one that dies here."""
        cluster, context = self.cluster, self.schedule.context
        buffer = self._target(tensor, dying)
        if buffer < 0:
            return
        content, size = (self.index, tensor), self.bytes_of(tensor)
        name = tensor_name(self.schedule, tensor)
        self._check_fit(buffer, self.core_bytes(tensor), size, name)
        cluster.holds[buffer] = content
        cluster.where[content] = buffer
        self.use(_Use.WRITE, buffer)
        scope = cluster.scope(buffer)
        if scope is not Scope.LB:
            self.streams[OUT_GB if scope is Scope.GB else OUT_DDR] += size
        for copy in cluster.buffers.get((SHARED, tensor, self.index), []):
            self._check_birth(copy)
            self._check_fit(copy, size, size, f"{name} for other clusters")
            cluster.holds[copy], cluster.shared[content] = content, copy
            self.use(_Use.WRITE, copy)
            self.streams[OUT_DDR] += size
        if tensor not in context.graph.returned:
            return
        if context.consumers[tensor]:  # it stays where it is; its copy has a place of its own
            self.streams[OUT_DDR] += size
        elif scope is not Scope.DDR:
            message = f"holds an output of the model and is in {scope.name}"
            self.report_buffer("output", buffer, message)

    def _target(self, tensor: int, dying: list[int]) -> int:
        """Return the buffer that the layer writes a tensor to; -1 if it has none."""
        buffers = self.cluster.buffers.get((TENSOR, tensor, self.index), [])
        if len(buffers) > 1:
            name = self.describe((self.index, tensor))
            self.report("foreign buffer", f"writes {name}, which has {len(buffers)} buffers")
        if buffers:
            self._check_birth(buffers[0])
            return buffers[0]
        # Without a buffer of its own it has that of an input that dies, the first such.
        source = (self.index, dying.pop(0)) if dying else (-1, -1)
        buffer = self.cluster.where.get(source, -1)
        if buffer < 0:
            name = tensor_name(self.schedule, tensor)
            self.report("foreign buffer", f"writes {name}, which has no buffer")
            return -1
        self._read(buffer, source)
        return buffer
