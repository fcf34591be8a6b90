"""A schedule: everything that was decided, in order."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autoturbo.errors import ScheduleFileError
from autoturbo.files import Kind, Outputs
from autoturbo.graph.arrays import Ints
from autoturbo.graph.operators import Graph
from autoturbo.schedule.codegen.instructions import Instructions, Kernel, instruct
from autoturbo.schedule.codegen.stitch import clearances, local_edges
from autoturbo.schedule.codegen.tiling import InstructionRules, RulesOf
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.memory.timeline import Timeline
from autoturbo.schedule.place.bind import Placement
from autoturbo.schedule.place.instances import InstanceGraph
from autoturbo.schedule.problem import Problem

if TYPE_CHECKING:
    from autoturbo.report.notebook import Printer
    from autoturbo.schedule.units.machine_schedule import OnUnits

BATCH = "batch"
"""Clusters share out samples: as published."""

SPLITS = (BATCH, "spatial", "channel", "pipeline")
"""What clusters may share out: samples, rows or channels of every output, sub-graphs."""


@dataclass(frozen=True, slots=True)
class Share:
    """How the clusters share out the work.

    Where they share out samples (:data:`BATCH`), they work alike, each on samples of its own, and
    the figures are one cluster's. Otherwise all of them work on the same samples, and the figures
    are the chip's.

    Attributes:
        clusters: clusters that work.
        samples: samples of the busiest cluster; otherwise of the whole batch.
        batches: samples that it processes at once (the paper's batches per cluster); otherwise that
            all clusters together process at once.
        split: what they share out, one of :data:`SPLITS`.
    """

    clusters: int
    samples: int
    batches: int
    split: str = BATCH

    @property
    def loops(self) -> int:
        """Passes: of a cluster over its share; otherwise of all clusters over the batch."""
        return -(-self.samples // self.batches)

    @property
    def copies(self) -> int:
        """Clusters that do all that the schedule says, each by itself."""
        return self.clusters if self.split == BATCH else 1


@dataclass(frozen=True, eq=False)
class Schedule:
    """A model scheduled on a target.

    Attributes:
        model: the whole model, all samples.
        problem: the model for the samples that a cluster processes at once, and the target.
        scheduler: ``"graphturbo"`` or the name of a baseline.
        knobs: the setting.
        share: how the clusters share out the work.
        instances: sub-graphs, their parts and the edges between them.
        order: instances in order of execution, of all clusters.
        placement: bindings and declared scopes.
        timelines: kernels in order, their inputs and streams, buffers and their addresses; of
            every cluster where clusters do not work alike, otherwise one.
        rules: how kernels become instructions.
        own_rules: of sub-graphs that have others.
        expected: what a measurement of it gave (the object M of ``--json``), or None.
        cluster: per instance, its cluster; empty where clusters work alike.
        on_units: what runs each instance, of a schedule on a machine of several units.
    """

    model: Graph
    problem: Problem
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
    on_units: OnUnits | None = None

    @property
    def timeline(self) -> Timeline:
        """Of the first cluster."""
        return self.timelines[0]

    @functools.cached_property
    def text(self) -> str:
        """The one canonical text of this schedule: its file's content."""
        from autoturbo.schedule.files import schedule_text

        return schedule_text(self)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the schedule file, atomically.

        Args:
            path: the file; one that is no schedule file is not replaced, nor is the model's.
            force: replace a file of another kind.

        Raises:
            ScheduleFileError: the path cannot be written, or a file of another kind is there.
        """
        outputs = Outputs(force=force).reading(self.model.source)
        outputs.write(Path(path), Kind.SCHEDULE, self.text, ScheduleFileError)

    def __repr__(self) -> str:
        of = f"{self.model.name!r} on {self.problem.target.name!r}"
        return f"<Schedule of {of} by {self.scheduler!r}: {len(self.order)} instances>"

    def _repr_html_(self) -> str:
        from autoturbo.report.notebook import schedule_view

        return schedule_view(self).html()

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        from autoturbo.report.notebook import schedule_view

        del cycle
        printer.text(schedule_view(self).text())

    def rules_of(self, subgraph: int) -> InstructionRules:
        """How the kernels of a sub-graph become instructions."""
        return self.own_rules.get(subgraph, self.rules)

    def program(self, kernel: int, cluster: int = 0) -> Instructions:
        """The program of a kernel by its place in the order of a cluster."""
        return next(self.programs([kernel], cluster))

    def programs(self, kernels: Iterable[int], cluster: int = 0) -> Iterator[Instructions]:
        """Yield the programs of kernels by their places in the order of a cluster."""
        return instruct([self.kernel(place, cluster) for place in kernels])

    def kernel(self, place: int, cluster: int = 0) -> Kernel:
        """What the program of a kernel follows from, by its place in the order of a cluster."""
        timeline, instance = self.timelines[cluster], int(self.timelines[cluster].order[place])
        template, own = timeline.templates[instance], int(self.instances.subgraph[instance])
        return Kernel(
            template.stages,
            timeline.streams[timeline.rows[place] : timeline.rows[place + 1]],
            local_edges(self.problem, template.layers),
            RulesOf.roomier(self.rules_of(own), timeline.spare[place]),
            int(timeline.resident[place]),
            clearances(self.problem, template.layers),
        )

    def signatures(self, cluster: int = 0) -> list[bytes]:
        """A stable hash of all that a kernel's time depends on, 16 bytes each, in order."""
        timeline, problem = self.timelines[cluster], self.problem
        order = timeline.order
        templates = b"".join(timeline.templates[index].digest for index in order.tolist())
        digest = functools.partial(digest_of, problem.target.hash, problem.dtype)
        digests = np.tile(digest(self.rules), (len(self.instances.subgraphs), 1))
        for subgraph, rules in self.own_rules.items():
            digests[subgraph] = digest(rules)
        found = hash_kernels(
            digests[self.instances.subgraph[order]],
            np.frombuffer(templates, np.int64).reshape(-1, 2),
            np.column_stack((timeline.resident, timeline.spare)), timeline.rows, timeline.streams,
        )  # fmt: skip
        text = found.tobytes()
        return [text[at : at + 16] for at in range(0, len(text), 16)]


@functools.lru_cache(maxsize=1024)
def digest_of(target: str, dtype: str, rules: InstructionRules) -> Ints:
    """Two integers that stand for all that is the same for all kernels of a sub-graph."""
    text = f"{target} {dtype} {list(map(int, rules))}".encode()
    return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), np.int64)


def hash_kernels(settings: Ints, templates: Ints, weights: Ints, rows: Ints, streams: Ints) -> Ints:
    """Return two 64-bit hashes per kernel: setting, template, where weights are, streams."""
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
