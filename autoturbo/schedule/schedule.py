"""A schedule: everything that was decided, in order."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoturbo.graph.operators import Graph
from autoturbo.schedule.bind import Placement
from autoturbo.schedule.instances import InstanceGraph
from autoturbo.schedule.instructions import Instructions, instruct
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.stitch import local_edges
from autoturbo.schedule.tiling import InstructionRules
from autoturbo.schedule.timeline import Step, Timeline

SCHEDULER_VERSION = "1"
"""Raised whenever the same knobs would give another schedule; part of every database key."""


@dataclass(frozen=True, slots=True)
class Share:
    """How the clusters share out the batch.

    Attributes:
        clusters: clusters that work.
        samples: samples of the busiest cluster.
        batches: samples that it processes at once (the paper's batches per cluster).
    """

    clusters: int
    samples: int
    batches: int

    @property
    def loops(self) -> int:
        """Passes of a cluster over its share."""
        return -(-self.samples // self.batches)


@dataclass(frozen=True, eq=False)
class Schedule:
    """A model scheduled on a target.

    Attributes:
        model: the whole model, all samples.
        problem: the model for the samples that a cluster processes at once, and the target.
        scheduler: ``"graphturbo"`` or the name of a baseline.
        knobs: the setting.
        share: how the clusters share out the batch.
        instances: sub-graphs, their parts and the edges between them.
        order: instances in order of execution.
        placement: bindings and declared scopes.
        timeline: kernels in order, their inputs and streams, buffers and their addresses.
        rules: how kernels become instructions.
        expected: what a measurement of it gave (the object M of ``--json``), or None.
    """

    model: Graph
    problem: Problem
    scheduler: str
    knobs: Knobs
    share: Share
    instances: InstanceGraph
    order: tuple[int, ...]
    placement: Placement
    timeline: Timeline
    rules: InstructionRules
    expected: Mapping[str, Any] | None = None

    @functools.cached_property
    def text(self) -> str:
        """The one canonical text of this schedule: its file's content."""
        from autoturbo.schedule.files import schedule_text

        return schedule_text(self)

    def save(self, path: str | Path) -> None:
        """Write the schedule file, atomically.

        Raises:
            ScheduleFileError: the path cannot be written.
        """
        from autoturbo.schedule.files import write_schedule

        write_schedule(self, Path(path))

    def instructions(self, step: Step) -> Instructions:
        """The program of one kernel."""
        edges = local_edges(self.problem, step.template.layers)
        return instruct(
            step.template.stages, step.streams, edges, self.rules,
            weights_resident=step.weights_resident,
        )  # fmt: skip

    def signature(self, step: Step) -> str:
        """A stable hash of all that one kernel's time depends on."""
        digest = hashlib.blake2b(self._setting, digest_size=16)
        digest.update(step.template.digest)
        digest.update(step.streams.tobytes())
        digest.update(bytes([step.weights_resident]))
        return digest.hexdigest()

    @functools.cached_property
    def _setting(self) -> bytes:
        target = self.problem.target.hash
        return f"{target} {self.problem.dtype} {self.rules.as_array().tolist()}".encode()
