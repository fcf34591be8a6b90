"""A model scheduled on a machine of several processing units."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.units.parts import Assignment


@dataclass(frozen=True, slots=True)
class Run:
    """When a part runs, or is copied.

    Attributes:
        part: index of the part that runs, or whose results are copied.
        unit: that runs it, or that they are copied to, by index.
        copied: bytes that are copied; 0 where the part runs.
        begin: seconds.
        end: seconds.
    """

    part: int
    unit: int
    copied: int
    begin: float
    end: float


@dataclass(frozen=True, eq=False)
class MachineSchedule:
    """Who runs what, in which parts, and when.

    Attributes:
        model: the whole model, all samples.
        machine: what it runs on.
        dtype: the compute type of all units.
        scheduler: what made it.
        knobs: the setting.
        layers: of the model.
        assignment: parts and their units.
        schedules: of the parts, each on its unit.
        runs: parts and copies, each after what it waits for.
        spilled: per part, bytes of memory that hold what its layers make for each other.
        expected: what a measurement of it gave (the object M of ``--json``), or None.
    """

    model: Graph
    machine: Machine
    dtype: str
    scheduler: str
    knobs: Knobs
    layers: tuple[Layer, ...]
    assignment: Assignment
    schedules: tuple[Schedule, ...]
    runs: tuple[Run, ...]
    spilled: tuple[int, ...]
    expected: Mapping[str, Any] | None = None

    @functools.cached_property
    def whole(self) -> Schedule:
        """The same as one schedule of the model, for what only regions and order matter to.

        Raises:
            VerifyError: a part processes its samples in several passes, or in clusters.
        """
        from autoturbo.schedule.units.whole import whole_schedule

        return whole_schedule(self)

    @functools.cached_property
    def text(self) -> str:
        """The one canonical text of this schedule: its file's content."""
        from autoturbo.schedule.units.files import machine_schedule_text

        return machine_schedule_text(self)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the schedule file, atomically.

        Args:
            path: the file; one that is no schedule file is not replaced, nor is the model's.
            force: replace a file of another kind.

        Raises:
            ScheduleFileError: the path cannot be written.
        """
        from autoturbo.errors import ScheduleFileError
        from autoturbo.files import Kind, Outputs

        outputs = Outputs(force=force).reading(self.model.source)
        outputs.write(path, Kind.SCHEDULE, self.text, ScheduleFileError)
