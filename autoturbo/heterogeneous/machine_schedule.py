"""A model scheduled on a machine of several processing units."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import VerifyError
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.parts import Assignment, Part
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import LAYERWISE, Knobs
from autoturbo.schedule.partition.grouping import SubGraph
from autoturbo.schedule.pipeline import assemble
from autoturbo.schedule.place.bind import Placement, Scope, bind_instances
from autoturbo.schedule.place.instances import PartBook, make_instances
from autoturbo.schedule.schedule import (
    MACHINE_FORMAT,
    Schedule,
    Share,
    UnitSchedules,
    document_text,
    header,
    layer_entries,
    save_schedule,
)
from autoturbo.schedule.unit_knobs import IN_TURN, SIDE_BY_SIDE


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sub-graph of a part: its layers in the whole model, and its index in the part."""

    layers: tuple[int, ...]
    part: int
    own: int


def whole_schedule(machine_schedule: MachineSchedule) -> Schedule:
    """Return one schedule of a model from those of its parts.

    Raises:
        VerifyError: A part processes its samples in several passes, or in clusters.
    """
    graph, machine = machine_schedule.model, machine_schedule.machine
    dtype, schedules = machine_schedule.dtype, machine_schedule.schedules
    parts = machine_schedule.assignment.parts
    for schedule in schedules:
        if schedule.share.loops > 1 or schedule.share.clusters > 1:
            message = "a part processes the batch in several passes or on several clusters"
            raise VerifyError(message, hint="take a smaller batch")
    context = make_context(graph, machine.units[0].target, dtype)
    pieces = sorted(
        (
            _Piece(_in_whole(context, schedules[index], part, subgraph.layers), index, number)
            for index, part in enumerate(parts)
            for number, subgraph in enumerate(schedules[index].instances.subgraphs)
        ),
        key=lambda piece: piece.layers[-1],
    )
    subgraphs = tuple(
        SubGraph(number, piece.layers, schedules[piece.part].instances.subgraphs[piece.own].split)
        for number, piece in enumerate(pieces)
    )
    instances = make_instances(PartBook(context), subgraphs)
    place = {(piece.part, piece.own): number for number, piece in enumerate(pieces)}
    order, origin = [], [(0, 0)] * instances.count
    for index, schedule in enumerate(schedules):
        own = schedule.instances
        for instance in schedule.order:
            subgraph = int(own.subgraph[instance])
            first = int(instances.first[place[index, subgraph]])
            order.append(first + instance - int(own.first[subgraph]))
            origin[order[-1]] = (index, instance)
    placement = bind_instances(instances, tuple(order), always=True)
    scopes = tuple(max(scope, Scope.DDR) for scope in placement.scopes)
    whole = assemble(
        graph, context, machine_schedule.scheduler, LAYERWISE,
        Share(1, graph.batch, graph.batch), instances, tuple(order),
        Placement(placement.bindings, scopes),
    )  # fmt: skip
    names = [unit.name for unit in machine.units]
    facts = {
        **header(MACHINE_FORMAT, MACHINE_SCHEDULE_SCHEMA, machine_schedule, machine, dtype),
        "units": names,
        "runs": [
            {**dataclasses.asdict(run), "unit": names[run.unit]} for run in machine_schedule.runs
        ],
    }
    units = tuple(names[part.unit] for part in parts)
    on = UnitSchedules(schedules, units, tuple(origin), facts)
    return dataclasses.replace(whole, on_units=on)


def _in_whole(
    context: SchedulingContext, schedule: Schedule, part: Part, layers: Sequence[int]
) -> tuple[int, ...]:
    """Return layers of a part's schedule as layers of the model; both are cut in the same way."""
    part_problem = schedule.context
    whole = []
    for layer in layers:
        mine = [part_problem.graph.operators[i].name for i in part_problem.layers[layer].operators]
        index = part.layers[layer]
        theirs = [context.graph.operators[i].name for i in context.layers[index].operators]
        if mine != theirs:
            raise VerifyError(
                f"layer {part_problem.layers[layer].name} is cut differently in its part"
            )
        whole.append(index)
    return tuple(whole)


@dataclass(frozen=True, slots=True)
class Run:
    """The times of a part, or of a copy.

    Attributes:
        part: Index of the part that runs, or whose results are copied.
        unit: Index of the unit that runs the part, or that results are copied to.
        copied: Bytes that are copied; 0 where the part runs.
        begin: Second at which it begins.
        end: Second at which it ends.
    """

    part: int
    unit: int
    copied: int
    begin: float
    end: float


@dataclass(frozen=True, eq=False)
class MachineSchedule:
    """A schedule of a machine: parts, their units and their times.

    Attributes:
        model: The whole model, all samples.
        machine: The machine that it runs on.
        dtype: The compute type of all units.
        scheduler: Name of the scheduler that made it.
        knobs: The candidate.
        layers: The layers of the model.
        assignment: Parts and their units.
        schedules: The schedule of each part on its unit.
        runs: Parts and copies, each after what it waits for.
        spilled: Per part, bytes of memory that hold what its layers make for each other.
        expected: Result of a measurement of it (the object M of ``--json``), or None.
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
        """Return the schedule as one of the model, for users of its regions and order alone.

        Raises:
            VerifyError: A part processes its samples in several passes, or in clusters.
        """
        return whole_schedule(self)

    @functools.cached_property
    def text(self) -> str:
        """Return the canonical text of this schedule: its file's content."""
        return machine_schedule_text(self)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the schedule file, atomically.

        Args:
            path: The file; one that is no schedule file is not replaced, nor is the model's.
            force: Replace a file of another kind.

        Raises:
            ScheduleFileError: The path cannot be written.
        """
        save_schedule(self, path, force=force)


MACHINE_SCHEDULE_SCHEMA: Final = 1
"""Version of schedule files of machines."""


def machine_schedule_text(schedule: MachineSchedule) -> str:
    """Return the canonical text: one top-level field a line, one element of a list a line."""
    machine = schedule.machine
    names = [unit.name for unit in machine.units]
    assignment = schedule.assignment
    document = {
        **header(MACHINE_FORMAT, MACHINE_SCHEDULE_SCHEMA, schedule, machine, schedule.dtype),
        "layers": layer_entries(schedule.layers),
        "branches": IN_TURN if assignment.in_turn else SIDE_BY_SIDE,
        "parts": [{"unit": names[p.unit], "layers": list(p.layers)} for p in assignment.parts],
        "runs": [_run_entry(run, names) for run in schedule.runs],
        "expected": None if schedule.expected is None else dict(schedule.expected),
    }
    return document_text(document)


def _run_entry(run: Run, names: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a part on its unit, or of the copy of its output to another unit."""
    copied = {"copied_bytes": run.copied} if run.copied else {}
    times = {"begin_s": run.begin, "end_s": run.end}
    return {"part": run.part, "unit": names[run.unit], **copied, **times}
