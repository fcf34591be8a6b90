"""The order replayed: which buffer holds which tensor of which instance while time passes.

Time counts steps as the timeline does: one for the movements before a kernel, then one per layer.
Clusters run side by side, each in its own time. Reads look for what they mean in the buffer that
has it; every use of a buffer is noted, for :mod:`autoturbo.verify.trace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import product, zip_longest
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autoturbo.graph.arrays import Ints, whole_bytes
from autoturbo.graph.domain import Interval, Region, meet, volume
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.stitch import Template, last_readers
from autoturbo.schedule.memory.timeline import (
    IN_DDR,
    IN_GB,
    LATE_DDR,
    LATE_GB,
    MOVED,
    OUT_DDR,
    OUT_GB,
    ROOM,
    STREAM_COLUMNS,
    STREAMED,
    TENSOR,
    TILES,
    WEIGHTS,
    Timeline,
)
from autoturbo.schedule.place.bind import Binding, Scope
from autoturbo.schedule.place.movement import STAY
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import (
    Check,
    Finding,
    buffer_finding,
    buffer_name,
    instance_name,
    layer_name,
    tensor_name,
)
from autoturbo.verify.regions import Regions, made_regions, needs_of, read_regions


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """What an instance's regions take.

    Attributes:
        problem: where the tensors come from.
        regions: of all tensors that the instance touches.
        held: bindings of the tensors that it makes; all outputs of a layer have the same binding.
    """

    problem: Problem
    regions: Mapping[int, Region]
    held: Mapping[int, Binding]

    @staticmethod
    def of(problem: Problem, template: Template, regions: Mapping[int, Region]) -> Sizes:
        """Return the sizes of an instance with a template."""
        bound = zip(template.layers, template.bindings, strict=True)
        held = {tensor: b for layer, b in bound for tensor in problem.layers[layer].outputs}
        return Sizes(problem, regions, held)

    def cluster(self, tensor: int) -> int:
        """Return the bytes of the region of a tensor; 0 if it is not touched."""
        region = self.regions.get(tensor)
        if region is None:
            return 0
        return int(whole_bytes(self.problem.arrays, [volume(region)], [tensor])[0])

    def core(self, tensor: int) -> int:
        """Return the bytes that the core with most of a tensor has."""
        region = self.regions.get(tensor)
        if region is None:
            return 0
        part = self.element(tensor)
        for (low, high), factor in zip_longest(region, self.held[tensor][: len(region)]):
            part *= -(-max(high - low, 0) // (factor or 1))
        return part

    def element(self, tensor: int) -> int:
        """Return the bytes of one element."""
        return int(self.problem.arrays.element[tensor])


def moved_core_bytes(
    need: Region, pieces: Sequence[Region], wanted: Binding | None, element: int
) -> int:
    """Return the most bytes that a core has of some moved pieces, bound as wanted.

    Args:
        need: what the kernel reads of the tensor.
        pieces: what is brought in of it, each within ``need``.
        wanted: the binding; a core may have to hold all of it where there is none.
        element: bytes of one element.
    """
    if wanted is None or len(wanted) != len(need):
        return element * sum(map(volume, pieces))
    shares = (
        tuple(_cut(interval, factor, place)
              for interval, factor, place in zip(need, wanted, places, strict=True))
        for places in product(*map(range, wanted))
    )  # fmt: skip
    return element * max(sum(volume(meet(share, p)) for p in pieces) for share in shares)


def _cut(interval: Interval, factor: int, place: int) -> Interval:
    """Return one of the equal parts of an interval; the last may be short or empty."""
    low, high = interval
    size = -(-(high - low) // factor)
    begin = min(low + place * size, high)
    return begin, min(begin + size, high)


_COLUMN_NAMES = ("in GB", "in DDR", "out to GB", "out to DDR", "late from GB", "late from DDR")


class Use(IntEnum):
    """What is done to a buffer: by movements before a kernel, or by a layer of it.

    ``READ`` is of what was there before the kernel, ``LATE`` of what the kernel itself made;
    ``COPY_OUT`` stores an output of the model that stays where it is; ``HOLD`` reads weights that
    stay and ``KEEP`` is when they are brought in.
    """

    BRING_FROM = 0
    BRING_TO = 1
    READ = 2
    LATE = 3
    WRITE = 4
    COPY_OUT = 5
    HOLD = 6
    KEEP = 7


class Used(NamedTuple):
    """One use: by which kernel of a cluster and which of its layers (-1: before them).

    ``buffer`` is -1 for an input of the model in DDR or a tensor of another cluster; ``tensor`` and
    ``instance`` say what was meant.
    """

    kernel: int
    layer: int
    use: Use
    buffer: int
    tensor: int
    instance: int


Content = tuple[int, int]
"""Instance and tensor."""


@dataclass(eq=False)
class _Cluster:
    """What is known of a cluster while time passes."""

    timeline: Timeline
    clock: int = 0
    kernel: int = 0
    buffers: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    holds: dict[int, Content] = field(default_factory=dict)
    where: dict[Content, int] = field(default_factory=dict)
    kept: dict[int, tuple[int, int]] = field(default_factory=dict)
    used: list[Used] = field(default_factory=list)
    last: int = 0

    def __post_init__(self) -> None:
        timeline = self.timeline
        columns = (timeline.kind.tolist(), timeline.tensor.tolist(), timeline.owner.tolist())
        for buffer, key in enumerate(zip(*columns, strict=True)):
            self.buffers.setdefault(key, []).append(buffer)
        self.last = len(timeline.order) + int(timeline.rows[-1]) - 1

    def scope(self, buffer: int) -> Scope:
        return Scope(int(self.timeline.buffers.scope[buffer]))


@dataclass(eq=False)
class Replay:
    """A schedule replayed.

    Attributes:
        schedule: what was replayed.
        clusters: per cluster, what is known at the end.
        found: what is wrong.
    """

    schedule: Schedule
    clusters: tuple[_Cluster, ...]
    findings: list[Finding] = field(default_factory=list)

    @property
    def used(self) -> tuple[list[Used], ...]:
        """Per cluster, all uses in order."""
        return tuple(cluster.used for cluster in self.clusters)


_KNOWN: WeakKeyDictionary[Schedule, Replay] = WeakKeyDictionary()


def replay_of(schedule: Schedule) -> Replay:
    """Return a schedule replayed; remembered while the schedule lives."""
    findings = _KNOWN.get(schedule)
    if findings is None:
        findings = Replay(schedule, tuple(_Cluster(t) for t in schedule.timelines))
        _KNOWN[schedule] = findings
        _run(findings)
    return findings


def check_replay(schedule: Schedule) -> tuple[Finding, ...]:
    """Return the findings about a schedule's reads, writes and streams."""
    return tuple(replay_of(schedule).findings)


def _run(replay: Replay) -> None:
    """Replay kernel by kernel in the common order, each cluster's in its own."""
    schedule = replay.schedule
    at = [0] * len(replay.clusters)
    for index in schedule.order:
        number = schedule.cluster[index] if schedule.cluster else 0
        cluster = replay.clusters[number]
        if at[number] < len(cluster.timeline.order):
            cluster.kernel = at[number]
            _kernel(replay, cluster, int(cluster.timeline.order[at[number]]))
            at[number] += 1


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """One kernel being replayed.

    ``made`` and ``last`` are the positions of the layers that make a tensor and read it last.
    """

    replay: Replay
    cluster: _Cluster
    index: int
    template: Template
    sizes: Sizes
    inputs: Regions
    links: Sequence[int]
    made: Mapping[int, int]
    last: Mapping[int, int]

    @property
    def schedule(self) -> Schedule:
        return self.replay.schedule

    def report(self, kind: str, message: str, layer: int = -1) -> None:
        """Note a finding about this kernel; its instance's name comes before the message."""
        name = instance_name(self.schedule, self.index)
        where = layer_name(self.schedule, layer) if layer >= 0 else None
        at = f"{name}, layer {where}," if where and where != name else name
        findings = Finding(Check.MEMORY, kind, f"{at} {message}", name, where)
        self.replay.findings.append(findings)

    def report_buffer(self, kind: str, buffer: int, message: str) -> None:
        """Note a finding about a buffer."""
        findings = buffer_finding(self.schedule, self.cluster.timeline, kind, buffer, message)
        self.replay.findings.append(findings)

    def record_use(self, layer: int, use: Use, buffer: int, content: Content) -> None:
        """Note a use."""
        cluster = self.cluster
        used = Used(cluster.kernel, layer, use, buffer, content[1], content[0])
        cluster.used.append(used)

    def describe(self, content: Content) -> str:
        """Return a tensor of an instance, in words."""
        name = instance_name(self.schedule, content[0])
        return f"{tensor_name(self.schedule, content[1])} of {name}"


def _kernel(replay: Replay, cluster: _Cluster, index: int) -> None:
    schedule, timeline = replay.schedule, cluster.timeline
    graph, problem = schedule.instances, schedule.problem
    template = timeline.templates[index]
    kernel = _Kernel(
        replay, cluster, index, template,
        Sizes.of(problem, template, needs_of(schedule)[index]),
        read_regions(schedule, index),
        range(int(graph.links.start[index]), int(graph.links.start[index + 1])),
        {t: at for at, x in enumerate(template.layers) for t in problem.layers[x].outputs},
        last_readers(problem, template.layers),
    )  # fmt: skip
    moved = _bring_inputs(kernel)
    cluster.clock += 1
    _weights(kernel)
    rows = slice(int(timeline.rows[cluster.kernel]), int(timeline.rows[cluster.kernel + 1]))
    streams = timeline.streams[rows]
    if len(streams) != len(template.layers):
        kernel.report(
            "stream", f"has {len(streams)} rows of streams, {len(template.layers)} layers"
        )
    for position, layer in enumerate(template.layers):
        expected = np.zeros(STREAM_COLUMNS, np.int64)
        _layer(kernel, position, moved, expected)
        if position < len(streams):
            _compare(kernel, layer, streams[position], expected)
        cluster.clock += 1


def _compare(kernel: _Kernel, layer: int, declared: Ints, expected: Ints) -> None:
    for column in np.flatnonzero(declared[:ROOM] != expected[:ROOM]).tolist():
        message = f"streams {declared[column]} bytes {_COLUMN_NAMES[column]}, its buffers imply "
        kernel.report("stream", f"{message}{expected[column]}", layer)


def _read(kernel: _Kernel, buffer: int, content: Content, layer: int) -> Scope:
    """Check that a buffer that is read is alive and holds what is meant."""
    cluster, clock = kernel.cluster, kernel.cluster.clock
    buffers, meant = cluster.timeline.buffers, kernel.describe(content)
    if cluster.holds.get(buffer) != content:
        held = cluster.holds.get(buffer)
        has = kernel.describe(held) if held else "nothing"
        message = f"holds {has} when {instance_name(kernel.schedule, kernel.index)} reads {meant}"
        kernel.report_buffer("foreign buffer", buffer, message)
    if not buffers.birth[buffer] <= clock <= buffers.death[buffer]:
        name = buffer_name(kernel.schedule, cluster.timeline, buffer)
        message = (
            f"reads {meant} in step {clock} from {name}, which lives from step "
            f"{buffers.birth[buffer]} to {buffers.death[buffer]}"
        )
        kernel.report("freed buffer", message, layer)
    return cluster.scope(buffer)


def _handed_over(kernel: _Kernel, producer: int, tensor: int) -> None:
    """Check that another cluster's tensor is in DDR, written, and stays until the pass ends."""
    content = (producer, tensor)
    makers = [c for c in kernel.replay.clusters if content in c.where]
    if not makers:
        kernel.report("handed over", f"reads {kernel.describe(content)} before it is made")
        return
    maker = makers[0]
    buffer = maker.where[content]
    name = buffer_name(kernel.schedule, maker.timeline, buffer)
    if maker.holds.get(buffer) != content:
        kernel.report(
            "handed over", f"reads {kernel.describe(content)}, which {name} no longer holds"
        )
    if maker.scope(buffer) is not Scope.DDR:
        where = maker.scope(buffer).name
        kernel.report("handed over", f"reads {name} of another cluster, which is in {where}")
    if maker.timeline.buffers.death[buffer] != maker.last:
        kernel.report("handed over", f"reads {name} of another cluster, which does not stay")


def _bring_inputs(kernel: _Kernel) -> dict[Content, int]:
    """Replay movements before a kernel; return the buffers of the pieces that are brought.

    All moved pieces of an input share one buffer in LB; where it found no room they are read from
    where they lie, by the layers that read them.
    """
    moved: dict[Content, int] = {}
    copied = [0, 0, 0]
    for slot, tensor in enumerate(kernel.inputs):
        own = [x for x in kernel.links if kernel.schedule.instances.links.slot[x] == slot]
        if own:
            _bring_input(kernel, tensor, own, moved, copied)
    declared = kernel.cluster.timeline.copied[kernel.cluster.kernel].tolist()
    if declared[1:] != copied[1:]:
        message = (
            f"copies {declared[1]} bytes from GB and {declared[2]} from DDR before it runs, its"
        )
        kernel.report("stream", f"{message} buffers imply {copied[1]} and {copied[2]}")
    return moved


def _bring_input(
    kernel: _Kernel, tensor: int, links: Sequence[int], moved: dict[Content, int],
    copied: list[int],
) -> None:  # fmt: skip
    cluster, timeline = kernel.cluster, kernel.cluster.timeline
    brought = cluster.buffers.get((MOVED, tensor, kernel.index), [])
    pieces: list[Region] = []
    moving = False
    for link in links:
        producer = int(kernel.schedule.instances.links.maker[link])
        content, stays = (producer, tensor), timeline.movements.kind[link] == STAY
        source = cluster.where.get(content)
        if source is None:
            _handed_over(kernel, producer, tensor)
            continue
        moving = moving or not stays
        if stays:
            continue
        scope = _read(kernel, source, content, -1)
        made = made_regions(kernel.schedule, producer).get(tensor, ())
        piece = meet(made, kernel.inputs[tensor])
        if brought:
            kernel.record_use(-1, Use.BRING_FROM, source, content)
            moved[content] = brought[0]
            copied[scope] += volume(piece) * kernel.sizes.element(tensor)
            pieces.append(piece)
    streamed = cluster.buffers.get((STREAMED, tensor, kernel.index), [])
    if len(brought) + len(streamed) != moving:
        count = len(brought) + len(streamed)
        name = tensor_name(kernel.schedule, tensor)
        kernel.report("foreign buffer", f"has {count} buffers for what is brought of {name}")
    for buffer in brought:
        _fill_buffer(kernel, buffer, tensor, pieces)


def _fill_buffer(kernel: _Kernel, buffer: int, tensor: int, pieces: Sequence[Region]) -> None:
    """Check that a buffer into which pieces are moved is new, in LB, and large enough."""
    cluster = kernel.cluster
    _check_birth(kernel, buffer)
    if cluster.scope(buffer) is not Scope.LB:
        kernel.report_buffer("stream", buffer, f"is in {cluster.scope(buffer).name}, not in LB")
    wanted = kernel.template.wanted.get(tensor)
    element, need = kernel.sizes.element(tensor), kernel.inputs[tensor]
    core = moved_core_bytes(need, pieces, wanted, element)
    _fits(kernel, buffer, core, element * sum(map(volume, pieces)), "what is brought into it")
    cluster.holds[buffer] = (kernel.index, tensor)
    kernel.record_use(-1, Use.BRING_TO, buffer, (kernel.index, tensor))


def _check_birth(kernel: _Kernel, buffer: int) -> None:
    birth, clock = int(kernel.cluster.timeline.buffers.birth[buffer]), kernel.cluster.clock
    if birth != clock:
        kernel.report_buffer(
            "lifetime", buffer, f"is filled in step {clock} and lives from step {birth}"
        )


def _fits(kernel: _Kernel, buffer: int, core: int, cluster: int, what: str) -> None:
    """Check that a buffer has space for what is written to it, where it is."""
    buffers = kernel.cluster.timeline.buffers
    in_lb = kernel.cluster.scope(buffer) is Scope.LB
    need, room = core, int(buffers.core_bytes[buffer])
    if not in_lb:
        need, room = cluster, int(buffers.cluster_bytes[buffer])
    if need > room:
        whose = " of every core" if in_lb else ""
        kernel.report_buffer("too small", buffer, f"has {room} bytes{whose}, {what} takes {need}")


def _weights(kernel: _Kernel) -> None:
    """Check that weights that stay are there, alive, large enough, and the same."""
    cluster, schedule = kernel.cluster, kernel.schedule
    subgraph = int(schedule.instances.subgraph[kernel.index])
    end = cluster.clock + len(kernel.template.layers) - 1
    _tiles(kernel, end)
    first, buffer = cluster.kept.get(subgraph, (-1, -1))
    expected = 0
    if buffer < 0:
        own = cluster.buffers.get((WEIGHTS, -1, kernel.index), [])
        if own:
            cluster.kept[subgraph] = (kernel.index, own[0])
            _keep(kernel, own[0])
    else:
        expected = 2 if cluster.scope(buffer) is Scope.LB else 1
        kernel.record_use(-1, Use.HOLD, buffer, (first, -1))
        _same_weights(kernel, buffer, first)
    held = cluster.kept.get(subgraph, (-1, -1))[1]
    if held >= 0 and cluster.timeline.buffers.death[held] < end:
        name = buffer_name(schedule, cluster.timeline, held)
        kernel.report("freed buffer", f"reads {name} until step {end}, after it is given back")
    declared = int(cluster.timeline.resident[cluster.kernel])
    if declared != expected:
        places = ("in DDR only", "in GB", "in LB")
        kernel.report("residence", f"takes its weights to be {places[declared]}, they are "
                      f"{places[expected]}")  # fmt: skip


def _keep(kernel: _Kernel, buffer: int) -> None:
    _check_birth(kernel, buffer)
    weights = kernel.template.stages[:, [Stage.WEIGHTS, Stage.CORE_WEIGHTS]].sum(axis=0)
    _fits(kernel, buffer, int(weights[1]), int(weights[0]), "the weights of its layers")
    kernel.record_use(-1, Use.KEEP, buffer, (kernel.index, -1))


def _same_weights(kernel: _Kernel, buffer: int, first: int) -> None:
    """Check that the weights that stay are all that this part reads."""
    needs, tensors = needs_of(kernel.schedule), kernel.schedule.problem.graph.tensors
    for tensor, region in needs[kernel.index].items():
        given = needs[first].get(tensor, ())
        if tensors[tensor].constant and (not given or meet(given, region) != region) and region:
            name, what = instance_name(kernel.schedule, kernel.index), tensors[tensor].name
            kernel.report_buffer(
                "foreign buffer", buffer, f"has not all of {what} that {name} reads"
            )


def _tiles(kernel: _Kernel, end: int) -> None:
    """Check that the buffers for weight tiles live while a kernel runs."""
    buffers, clock = kernel.cluster.timeline.buffers, kernel.cluster.clock
    for buffer in kernel.cluster.buffers.get((TILES, -1, kernel.index), []):
        if buffers.birth[buffer] > clock or buffers.death[buffer] < end:
            kernel.report_buffer("lifetime", buffer, "does not live while its kernel runs")


def _layer(kernel: _Kernel, position: int, moved: dict[Content, int], row: Ints) -> None:
    """Replay one layer: its reads, then its writes; add streamed bytes to a row."""
    problem, template = kernel.schedule.problem, kernel.template
    layer = problem.layers[template.layers[position]]
    inner = {t for t in layer.inputs if kernel.made.get(t, position) < position}
    for tensor in layer.inputs:
        if tensor in inner:
            _read_late(kernel, position, tensor, row)
        elif tensor in problem.graph.inputs:
            row[IN_DDR] += kernel.sizes.cluster(tensor)
            kernel.record_use(position, Use.READ, -1, (-1, tensor))
        else:
            _read_pieces(kernel, position, tensor, moved, row)
    crossing = dict(zip(layer.inputs, template.exchanged[position], strict=True))
    ends = {t for t in inner if kernel.last[t] == position}
    dying = [t for t in layer.inputs if t in ends and not crossing[t]]
    dying = dying if layer.in_place else []
    for tensor in layer.outputs:
        _write(kernel, position, tensor, dying, row)


def _read_late(kernel: _Kernel, position: int, tensor: int, row: Ints) -> None:
    content, layer = (kernel.index, tensor), kernel.template.layers[position]
    buffer = kernel.cluster.where.get(content)
    if buffer is None:
        kernel.report(
            "foreign buffer", f"reads {kernel.describe(content)}, which no buffer has", layer
        )
        return
    scope = _read(kernel, buffer, content, layer)
    kernel.record_use(position, Use.LATE, buffer, content)
    if scope is not Scope.LB:
        row[LATE_GB if scope is Scope.GB else LATE_DDR] += kernel.sizes.cluster(tensor)


def _read_pieces(
    kernel: _Kernel, position: int, tensor: int, moved: dict[Content, int], row: Ints
) -> None:
    """Replay the reads of an input from other instances, each piece where it lies."""
    links, layer = kernel.schedule.instances.links, kernel.template.layers[position]
    need = kernel.inputs[tensor]
    slot = list(kernel.inputs).index(tensor)
    for link in kernel.links:
        if links.slot[link] != slot:
            continue
        content = (int(links.maker[link]), tensor)
        made = made_regions(kernel.schedule, content[0]).get(tensor, need)
        size = volume(meet(made, need)) * kernel.sizes.element(tensor)
        brought, source = moved.get(content), kernel.cluster.where.get(content)
        if brought is not None:
            scope = _read(kernel, brought, (kernel.index, tensor), layer)
            kernel.record_use(position, Use.READ, brought, (kernel.index, tensor))
        elif source is not None:
            scope = _read(kernel, source, content, layer)
            kernel.record_use(position, Use.READ, source, content)
        else:
            scope = Scope.DDR
            kernel.record_use(position, Use.READ, -1, content)
        if scope is not Scope.LB:
            row[IN_GB if scope is Scope.GB else IN_DDR] += size


def _write(kernel: _Kernel, position: int, tensor: int, dying: list[int], row: Ints) -> None:
    """Replay the write of a tensor to a buffer of its own, or over one that dies here."""
    cluster, problem = kernel.cluster, kernel.schedule.problem
    buffer = _target(kernel, position, tensor, dying)
    if buffer < 0:
        return
    content, size = (kernel.index, tensor), kernel.sizes.cluster(tensor)
    name = tensor_name(kernel.schedule, tensor)
    _fits(kernel, buffer, kernel.sizes.core(tensor), size, name)
    cluster.holds[buffer] = content
    cluster.where[content] = buffer
    kernel.record_use(position, Use.WRITE, buffer, content)
    scope = cluster.scope(buffer)
    if scope is not Scope.LB:
        row[OUT_GB if scope is Scope.GB else OUT_DDR] += size
    if tensor in problem.graph.outputs and problem.consumers[tensor]:
        row[OUT_DDR] += size
        kernel.record_use(position, Use.COPY_OUT, buffer, content)
    elif tensor in problem.graph.outputs and scope is not Scope.DDR:
        kernel.report_buffer(
            "output", buffer, f"holds an output of the model and is in {scope.name}"
        )


def _target(kernel: _Kernel, position: int, tensor: int, dying: list[int]) -> int:
    """Return the buffer that a layer writes a tensor to; -1 if it has none."""
    cluster, layer = kernel.cluster, kernel.template.layers[position]
    own = cluster.buffers.get((TENSOR, tensor, kernel.index), [])
    if len(own) > 1:
        name = kernel.describe((kernel.index, tensor))
        kernel.report("foreign buffer", f"writes {name}, which has {len(own)} buffers", layer)
    if own:
        _check_birth(kernel, own[0])
        return own[0]
    source = (kernel.index, dying.pop(0)) if dying else (-1, -1)
    buffer = cluster.where.get(source, -1)
    if buffer < 0:
        name = tensor_name(kernel.schedule, tensor)
        kernel.report("foreign buffer", f"writes {name}, which has no buffer", layer)
        return -1
    _read(kernel, buffer, source, layer)
    return buffer
