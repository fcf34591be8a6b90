"""A schedule: everything that was decided, in order."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from autoturbo.caches import BoundedCache
from autoturbo.errors import ScheduleFileError
from autoturbo.files import Kind, Outputs
from autoturbo.graph.arrays import Ints
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.registry import Shown
from autoturbo.schedule.codegen.durations import rates_of
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.loads import (
    NO_KERNEL_LOADS,
    NO_LOADS,
    KernelLoads,
    LoadRoom,
    Loads,
    loads_of,
    place_loads,
)
from autoturbo.schedule.codegen.sequence import solid_layers
from autoturbo.schedule.codegen.tiling import BY_TILES, InstructionRules, TilingRules
from autoturbo.schedule.context import BATCH, SchedulingContext
from autoturbo.schedule.knobs import AUTO, SCHEDULER_VERSION, Knobs
from autoturbo.schedule.memory.timeline import KINDS, Timeline
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.place.bind import Placement, Scope
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.stitch.templates import clearances, local_edges, reads_of, weight_hashes
from autoturbo.schedule.streams import LATE_DDR, LATE_GB
from autoturbo.schedule.work import Flags, Floats


@dataclass(frozen=True, slots=True)
class Share:
    """Division of the work among the clusters.

    If they divide samples (:data:`BATCH`), they work alike, each on samples of its own, and
    the figures are one cluster's. Otherwise all of them work on the same samples, and the figures
    are the chip's.

    Attributes:
        clusters: Clusters that work.
        samples: Samples of the busiest cluster; otherwise of the whole batch.
        batches: Samples that it processes at once (the paper's batches per cluster); otherwise that
            all clusters together process at once.
        split: The dimension that they divide, one of :data:`SPLITS`.
    """

    clusters: int
    samples: int
    batches: int
    split: str = BATCH

    @property
    def loops(self) -> int:
        """Return the passes: of a cluster over its share, or of all clusters over the batch."""
        return -(-self.samples // self.batches)

    @property
    def copies(self) -> int:
        """Return the number of clusters that each execute the whole schedule."""
        return self.clusters if self.split == BATCH else 1


@dataclass(frozen=True, slots=True, eq=False)
class UnitSchedules:
    """Schedules of a model's parts on the units of a machine, and the origin of each instance.

    Attributes:
        schedules: Of the parts, each on its unit.
        units: Names of the parts' units.
        origin: Per instance, its part and its index in the part's schedule.
        facts: Header of the machine's own schedule, for readers of the whole.
    """

    schedules: tuple[Schedule, ...]
    units: tuple[str, ...]
    origin: tuple[tuple[int, int], ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Schedule(Shown):
    """A model scheduled on a target.

    Attributes:
        model: The whole model, all samples.
        context: The model for the samples that a cluster processes at once, and the target.
        scheduler: ``"graphturbo"`` or the name of a baseline.
        knobs: The candidate.
        share: Division of the work among the clusters.
        instances: Sub-graphs, their parts and the edges between them.
        order: Instances in order of execution, of all clusters.
        placement: Bindings and declared scopes.
        timelines: Kernels in order, their inputs and streams, buffers and their addresses; of
            every cluster where clusters do not work alike, otherwise one.
        rules: How kernels become instructions.
        own_rules: Of sub-graphs that have others.
        expected: Its measurement (the object M of ``--json``), or None.
        cluster: Per instance, its cluster; empty where clusters work alike.
        on_units: The unit of each instance, of a schedule on a machine of several units.
    """

    model: Graph
    context: SchedulingContext
    scheduler: str
    knobs: Knobs
    share: Share
    instances: InstanceGraph
    order: tuple[int, ...]
    placement: Placement
    timelines: tuple[Timeline, ...]
    rules: InstructionRules
    own_rules: Mapping[int, InstructionRules] = field(default_factory=dict)
    expected: Mapping[str, Any] | None = None
    cluster: tuple[int, ...] = ()
    on_units: UnitSchedules | None = None

    @property
    def timeline(self) -> Timeline:
        """Return the timeline of the first cluster."""
        return self.timelines[0]

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Return itself: on one target there are no schedules of parts."""
        return (self,)

    @property
    def whole(self) -> Schedule:
        """Return itself: it is of the whole model."""
        return self

    @functools.cached_property
    def text(self) -> str:
        """Return the canonical text of this schedule: its file's content."""
        return schedule_text(self)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the schedule file, atomically.

        Args:
            path: The file; one that is no schedule file is not replaced, nor is the model's.
            force: Replace a file of another kind.

        Raises:
            ScheduleFileError: The path cannot be written, or a file of another kind is there.
        """
        save_schedule(self, path, force=force)

    def __repr__(self) -> str:
        of = f"{self.model.name!r} on {self.context.target.name!r}"
        return f"<Schedule of {of} by {self.scheduler!r}: {len(self.order)} instances>"

    def rules_of(self, subgraph: int) -> InstructionRules:
        """Return the instruction rules of a sub-graph's kernels."""
        return self.own_rules.get(subgraph, self.rules)

    def program(self, kernel: int, cluster: int = 0) -> Instructions:
        """Return the program of a kernel by its place in the order of a cluster."""
        return next(self.programs([kernel], cluster))

    def programs(self, kernels: Iterable[int], cluster: int = 0) -> Iterator[Instructions]:
        """Yield the programs of kernels by their places in the order of a cluster."""
        return instruct([self.kernel(place, cluster) for place in kernels])

    def kernel(self, place: int, cluster: int = 0) -> Kernel:
        """Return the inputs of a kernel's program, by its place in the order of a cluster."""
        timeline, instance = self.timelines[cluster], int(self.timelines[cluster].order[place])
        template, subgraph = timeline.templates[instance], int(self.instances.subgraph[instance])
        rules = TilingRules.with_spare(self.rules_of(subgraph), timeline.spare[place])
        context, layers = self.context, template.layers
        streams = timeline.streams[timeline.rows[place] : timeline.rows[place + 1]]
        kernel = Kernel(
            template.stages, streams, local_edges(context, layers), rules,
            int(timeline.resident[place]), clearances(context, layers), self._rates,
        )  # fmt: skip
        if rules.across != BY_TILES:
            return kernel
        reads = reads_of(self.instances.book, int(self.instances.shape[instance]), template)
        solid = solid_layers(kernel.tiles, template.stages, streams)
        return kernel._replace(
            clear=timeline.overwritten(place, solid),
            reads=reads.without(streams[:, LATE_GB] + streams[:, LATE_DDR] > 0),
        )

    @functools.cached_property
    def _rates(self) -> Floats:
        return rates_of(self.context.target, self.context.dtype)

    def opens(self, cluster: int = 0) -> Flags:
        """Return which kernels of a cluster have a launch of their own, in order.

        Where launches are shared, a kernel goes in the launch before its own if it reads nothing of
        what is made in that, other clusters have nothing to do with it, and nothing is brought for
        it: it begins when the kernel before has ended, without a barrier between.
        """
        timeline, graph = self.timelines[cluster], self.instances
        found = np.ones(len(timeline.order), np.bool_)
        if self.knobs.launches == AUTO:
            return found
        brought = timeline.copied.any(axis=1) | (timeline.crossing > 0)
        here, made = set(timeline.order.tolist()), set[int]()
        for kernel, instance in enumerate(timeline.order.tolist()):
            makers, readers = graph.producers[instance], graph.consumers[instance]
            alone = made.isdisjoint(makers) and here.issuperset((*makers, *readers))
            if kernel and alone and not brought[kernel]:
                found[kernel] = False
                made.add(instance)
            else:
                made = {instance}
        return found

    @functools.cached_property
    def digest(self) -> str:
        """Return the hash of the programs: kernels, movements, and the order over clusters.

        Settings that differ may give the same programs; what they take is the same then.
        """
        share = self.share.clusters, self.share.samples, self.share.batches, self.share.split
        digest = hashlib.blake2b(repr(share).encode(), digest_size=8)
        for cluster, timeline in enumerate(self.timelines):
            digest.update(b"".join(self.signatures(cluster)))
            digest.update(timeline.copied.tobytes() + timeline.crossing.tobytes())
            # which weights are the same, and what is made early, no kernel's signature tells
            digest.update(b"".join(column.tobytes() for column in self.loads(cluster)))
            if not (opens := self.opens(cluster)).all():
                digest.update(opens.tobytes())
        if len(self.timelines) > 1:  # who waits for whom
            where = [(one, self.cluster[one], self.instances.producers[one]) for one in self.order]
            digest.update(repr(where).encode())
        return digest.hexdigest()

    def loads(self, cluster: int = 0) -> Loads:
        """Return the loads of a cluster that run over its kernels."""
        timeline = self.timelines[cluster]
        if not timeline.ahead.any():
            return NO_LOADS
        if cluster not in self._loads:
            kernels = [self.kernel_loads(k, cluster) for k in range(len(timeline.order))]
            room = LoadRoom.of(self.context.target)
            self._loads[cluster] = place_loads(kernels, timeline, room, self._made(cluster))
        return self._loads[cluster]

    def _made(self, cluster: int) -> Ints:
        """Return the step of a cluster from which on all is in DDR that each kernel reads there.

        What another cluster makes is not waited for: it is there when the kernel may begin.
        """
        timeline = self.timelines[cluster]
        place = {instance: k for k, instance in enumerate(timeline.order.tolist())}
        after = [
            max(
                (place.get(one, k - 1) + 1 for one in self.instances.producers[instance]), default=0
            )
            for instance, k in place.items()
        ]
        return timeline.first_steps[after]

    def kernel_loads(self, place: int, cluster: int = 0) -> KernelLoads:
        """Return what a kernel fetches that may be a load, by its place in a cluster's order."""
        timeline = self.timelines[cluster]
        if not timeline.ahead[place]:
            return NO_KERNEL_LOADS
        signature = self.signatures(cluster)[place]
        known = _LOADS.get(signature, lambda: self._loads_of(place, cluster))
        if not len(known.instruction):
            return known
        # kernels that take the same time may have other weights
        template = timeline.templates[int(timeline.order[place])]
        return known.of(weight_hashes(self.context, template))

    def _loads_of(self, place: int, cluster: int) -> KernelLoads:
        kernel = self.kernel(place, cluster)
        if not (kernel.rules.across and kernel.rules.has_gb):
            return NO_KERNEL_LOADS
        stored = storage_ratio(self.context.dtype)
        return loads_of(self.known_program(place, cluster), kernel, stored)

    def known_program(self, kernel: int, cluster: int = 0) -> Instructions:
        """Return the program of a kernel, which is kept for schedules that have it too."""
        signature = self.signatures(cluster)[kernel]
        return _PROGRAMS.get(signature, lambda: self.program(kernel, cluster))

    @functools.cached_property
    def _loads(self) -> dict[int, Loads]:
        return {}

    def signatures(self, cluster: int = 0) -> list[bytes]:
        """Return a 16-byte hash per kernel, in order, of all that determines its time."""
        if cluster not in self._signatures:
            self._signatures[cluster] = self._signed(cluster)
        return self._signatures[cluster]

    @functools.cached_property
    def _signatures(self) -> dict[int, list[bytes]]:
        return {}

    def _signed(self, cluster: int) -> list[bytes]:
        timeline, context = self.timelines[cluster], self.context
        order = timeline.order
        templates = b"".join(timeline.templates[index].digest for index in order.tolist())
        digest = functools.partial(digest_of, context.target.hash, context.dtype)
        digests = np.tile(digest(self.rules), (len(self.instances.subgraphs), 1))
        for subgraph, rules in self.own_rules.items():
            digests[subgraph] = digest(rules)
        hashes = hash_kernels(
            digests[self.instances.subgraph[order]],
            np.frombuffer(templates, np.int64).reshape(-1, 2),
            np.column_stack((timeline.resident, timeline.spare)), timeline.rows, timeline.streams,
        )  # fmt: skip
        text = hashes.tobytes()
        known = [text[start : start + 16] for start in range(0, len(text), 16)]
        if not any(rules.across == BY_TILES for rules in (self.rules, *self.own_rules.values())):
            return known
        for place, subgraph in enumerate(self.instances.subgraph[order].tolist()):
            if self.rules_of(subgraph).across == BY_TILES:  # depends on where buffers lie, too
                own = self.kernel(place, cluster)
                waits = repr(own.clear).encode() + b"".join(x.tobytes() for x in own.reads)
                known[place] = hashlib.blake2b(known[place] + waits, digest_size=16).digest()
        return known


_PROGRAMS = BoundedCache[bytes, Instructions](
    1 << 14, 192 << 20, lambda program: program.where.nbytes + program.amounts.nbytes
)
"""Programs by signature, for passes that are simulated whole."""


_LOADS = BoundedCache[bytes, KernelLoads](
    1 << 14, 32 << 20, lambda loads: sum(column.nbytes for column in loads)
)
"""Loads of kernels by signature; which weights they are of is another matter."""


@functools.lru_cache(maxsize=1024)
def digest_of(target: str, dtype: str, rules: InstructionRules) -> Ints:
    """Return two integers that hash the inputs shared by all kernels of a sub-graph."""
    text = f"{target} {dtype} {list(map(int, rules))}".encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), np.int64)


def hash_kernels(settings: Ints, templates: Ints, weights: Ints, rows: Ints, streams: Ints) -> Ints:
    """Return two 64-bit hashes per kernel: rules, template, place of weights, streams.

    Args:
        settings: Hashes of the kernels' rules, ``(kernels, 2)``.
        templates: Hashes of their templates, ``(kernels, 2)``.
        weights: Per kernel, where its weights are, and spare bytes for them in LB and in GB.
        rows: First layer of each kernel, and one entry more.
        streams: Of the layers, by column.
    """
    lanes, layers = np.arange(2), np.diff(rows)
    state = np.arange(len(streams))[:, None] - np.repeat(rows[:-1], layers)[:, None] + lanes
    for column in streams.T:
        state = _mix(state, column[:, None] + lanes)
    streamed = np.add.reduceat(state, rows[:-1])  # a layer's place in its kernel is in its hash
    state = _mix(settings, templates)
    for column in weights.T:
        state = _mix(state, column[:, None])
    return _mix(state, streamed)


def _mix(state: Ints, value: Ints) -> Ints:
    """Return one step of a 64-bit hash (the multiplier of Knuth's MMIX generator)."""
    mixed = (state ^ value) * 6364136223846793005
    return mixed ^ (mixed >> 29)


SCHEDULE_SCHEMA: Final = 1
"""Version of schedule files."""

FORMAT: Final = "autoturbo-schedule"
MACHINE_FORMAT: Final = "autoturbo-machine-schedule"


class AnySchedule(Protocol):
    """A schedule of a target, or of a machine of several units."""

    @property
    def model(self) -> Graph:
        """Return the whole model."""
        ...

    @property
    def scheduler(self) -> str:
        """Return the name of its scheduler."""
        ...

    @property
    def knobs(self) -> Knobs:
        """Return the candidate that it was built from."""
        ...

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """Return the schedules of its parts, each on a target; itself where there are none."""
        ...

    @property
    def whole(self) -> Schedule:
        """Return it as one schedule of the model, for uses that need only regions and order."""
        ...

    @property
    def text(self) -> str:
        """Return its file's content."""
        ...

    @property
    def expected(self) -> Mapping[str, Any] | None:
        """Return the measurement it is expected to give (the object M of ``--json``), or None."""
        ...

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write its file, atomically."""
        ...


def save_schedule(schedule: AnySchedule, path: str | Path, *, force: bool) -> None:
    """Write a schedule's file, atomically, neither over its model nor over a file of another kind.

    Raises:
        ScheduleFileError: The path cannot be written, or a file of another kind is there.
    """
    outputs = Outputs(force=force).reading(schedule.model.source)
    outputs.write(path, Kind.SCHEDULE, schedule.text, ScheduleFileError)


def schedule_text(schedule: Schedule) -> str:
    """Return the canonical text of a schedule."""
    context, share = schedule.context, dataclasses.asdict(schedule.share)
    if schedule.share.split == BATCH:  # named where it is not samples that clusters share out
        del share["split"]
    document = {
        **header(FORMAT, SCHEDULE_SCHEMA, schedule, context.chip, context.dtype),
        "share": share,
        "layers": layer_entries(context.layers),
        "subgraphs": [_subgraph(s) for s in schedule.instances.subgraphs],
        "order": [instance_entry(schedule, index) for index in schedule.order],
        "buffers": buffers_of(schedule),
        "expected": None if schedule.expected is None else dict(schedule.expected),
    }
    return document_text(document)


def document_text(document: Mapping[str, Any]) -> str:
    """Return the canonical text: a line per top-level field, and per element of a list."""
    lines = [f"{json.dumps(name)}: {_value(value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: object) -> str:
    if isinstance(value, list) and value:
        return "[\n " + ",\n ".join(json.dumps(item) for item in value) + "\n]"
    return json.dumps(value)


def header(
    form: str, version: int, schedule: AnySchedule, target: TuningTarget, dtype: str
) -> dict[str, Any]:
    """Return the header of a schedule file: its format, versions, model and target.

    Args:
        form: The format's name.
        version: The format's version.
        schedule: On a target or on a machine.
        target: That target or machine.
        dtype: The compute type.
    """
    model = schedule.model
    return {
        "format": form,
        "schema_version": version,
        "scheduler_version": SCHEDULER_VERSION,
        "scheduler": schedule.scheduler,
        "model": {"name": model.name, "hash": model.hash, "batch": model.batch},
        "target": {"name": target.name, "hash": target.hash},
        "dtype": dtype,
        "knobs": schedule.knobs.as_dict(),
    }


def layer_entries(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """Return a file's entries of layers."""
    return [{"name": layer.name, "operators": list(layer.operators)} for layer in layers]


def _subgraph(subgraph: SubGraph) -> dict[str, Any]:
    """Return a sub-graph's factors: all instances, and those along a second axis in each part."""
    split = subgraph.split
    entry = {
        "layers": list(subgraph.layers),
        "axis": split.axis,
        "depth": split.depth,
        "instances": split.instances,
    }
    if split.inner_axis >= 0:
        entry |= {"inner_axis": split.inner_axis, "inner_factor": split.inner_factor}
    return entry


def instance_entry(schedule: Schedule, index: int) -> dict[str, Any]:
    """Return a file's entry of an instance and where it runs."""
    graph, placement = schedule.instances, schedule.placement
    named = placement.core_ids[index] if placement.core_ids else ()
    return {
        "subgraph": int(graph.subgraph[index]),
        "part": int(graph.part[index]),
        "cores": list(placement.bindings[index]),
        **({"core_ids": list(named)} if named else {}),
        **({"most_cores": limit} if (limit := placement.limit_of(index)) else {}),
        "scope": placement.scopes[index].name,
        **({"cluster": schedule.cluster[index]} if schedule.cluster else {}),
    }


def buffers_of(schedule: Schedule) -> list[dict[str, Any]]:
    """Return the file's entries of the buffers of every cluster; steps are per cluster."""
    return [
        entry | ({"cluster": cluster} if schedule.cluster else {})
        for cluster, timeline in enumerate(schedule.timelines)
        for entry in (*buffer_entries(schedule, timeline), *_load_entries(schedule, cluster))
    ]


def _load_entries(schedule: Schedule, cluster: int) -> Iterator[dict[str, Any]]:
    """Yield a schedule file's entries of the loads of a cluster, in order."""
    loads, order = schedule.loads(cluster), schedule.timelines[cluster].order
    columns = loads.kernel, loads.step, loads.birth, loads.size, loads.address, loads.inputs
    for kernel, step, birth, size, address, inputs in np.column_stack(columns).tolist():
        owner = order[kernel]
        yield {
            "kind": "load",
            "tensor": "inputs" if inputs else "weights",
            "subgraph": int(schedule.instances.subgraph[owner]),
            "part": int(schedule.instances.part[owner]),
            "scope": Scope.GB.name,
            "address": address,
            "bytes": size,
            "first_step": birth,
            "last_step": step,
        }


def buffer_entries(schedule: Schedule, timeline: Timeline) -> list[dict[str, Any]]:
    """Return a schedule file's entries of the buffers of a cluster, in their order."""
    tensors = schedule.context.graph.tensors
    subgraph, part = schedule.instances.subgraph.tolist(), schedule.instances.part.tolist()
    b = timeline.buffers
    columns = (
        timeline.kind, timeline.tensor, timeline.owner,
        b.scope, b.address, b.core_bytes, b.cluster_bytes, b.birth, b.death,
    )  # fmt: skip
    return [
        {
            "kind": KINDS[kind],
            "tensor": tensors[tensor].name if tensor >= 0 else "weights",
            "subgraph": subgraph[owner],
            "part": part[owner],
            "scope": Scope(scope).name,
            "address": address,
            "bytes": core if scope == Scope.LB else cluster,
            "first_step": first,
            "last_step": last,
        }
        for kind, tensor, owner, scope, address, core, cluster, first, last in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
