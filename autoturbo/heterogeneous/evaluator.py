"""Measures knobs on a machine of several processing units, with the interface of the evaluator.

``Knobs()`` assigns layers as PartitionTuner does, the published heuristic for such machines;
:class:`autoturbo.schedule.unit_knobs.UnitKnobs` say otherwise.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autoturbo.errors import (
    InfeasibleError,
    KnobsError,
    Location,
    ScheduleFileError,
    UsageError,
    did_you_mean,
)
from autoturbo.graph.extract import extract
from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.hardware.target import Target
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.heterogeneous.machine_schedule import MachineSchedule, Run
from autoturbo.heterogeneous.measurement import MachineMeasurement, measure_assignment
from autoturbo.heterogeneous.parts import Assignment, assign
from autoturbo.heterogeneous.profiles import Profiles
from autoturbo.registry import MACHINE_SCHEDULERS
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.unit_knobs import IN_TURN, UnitKnobs
from autoturbo.schedule.work import engine_code
from autoturbo.simulator.bound import lower_bound
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from autoturbo.heterogeneous.files import Decided

PUBLISHED = "partition_tuner"
"""What ``Knobs()`` stands for."""

FIRST_UNIT = "first_unit"
"""The first unit alone, under a name that does not depend on the machine."""

TUNED = "units"
"""The scheduler's name of a candidate that is given."""


def scheduler_names(machine: Machine) -> tuple[str, ...]:
    """Return the machine's schedulers: the first unit alone, and the published ones."""
    return machine.units[0].name, *MACHINE_SCHEDULERS.names()


class MachineEvaluator:
    """Builds and measures schedules of one model on one machine.

    Args:
        graph: The whole model.
        machine: The machine that it runs on.
        dtype: The compute type; all units must support it.

    Raises:
        UsageError: Not all units compute in the type.
    """

    def __init__(self, graph: Graph, machine: Machine, dtype: str) -> None:
        if not machine.supports(dtype):
            known = f"they have {', '.join(machine.dtypes) or 'none'} in common"
            raise UsageError(f"not all units of {machine.name} compute in {dtype}", hint=known)
        self.profiles = Profiles(graph, machine, dtype)
        self.names = tuple(layer.name for layer in self.profiles.layers)

    @functools.cached_property
    def bound(self) -> LowerBound:
        """Return a lower bound of every assignment."""
        p = self.profiles
        return machine_bound(p.graph, p.machine, p.dtype, p.layers, p.units)

    # Settings

    def assignment(self, knobs: Knobs) -> Assignment:
        """Return the assignment of a candidate.

        Raises:
            KnobsError: The candidate does not fit the model or the machine.
        """
        if knobs != Knobs(units=knobs.units):
            name = next(n for n in knobs.as_dict() if n != "units")
            message = "on a machine of several units each part is scheduled by the heuristic"
            raise KnobsError(message, Location(field=name), "leave all knobs but 'units' out")
        if knobs.units is None:
            return self.published
        units, cuts = self._units(knobs.units), self._layers(knobs.units.cuts)
        assignment = assign(self.profiles.graph, self.profiles.layers, units, cuts)
        return dataclasses.replace(assignment, in_turn=knobs.units.branches == IN_TURN)

    @functools.cached_property
    def published(self) -> Assignment:
        """Return PartitionTuner's assignment."""
        return self._made(PUBLISHED)

    def named(self, name: str) -> Assignment:
        """Return the assignment of a scheduler by name.

        Raises:
            UsageError: No scheduler of that name.
        """
        names = (FIRST_UNIT, *scheduler_names(self.profiles.machine))
        if name not in names:
            message = f"no scheduler of machines is called {name!r}"
            raise UsageError(message, hint=did_you_mean(name, names))
        if name in MACHINE_SCHEDULERS.names():
            return self.published if name == PUBLISHED else self._made(name)
        layers = range(len(self.names))
        return assign(self.profiles.graph, self.profiles.layers, [0] * len(self.names), layers)

    def _made(self, name: str) -> Assignment:
        assignment: Assignment = MACHINE_SCHEDULERS.make(name, self.profiles)
        return assignment

    def _units(self, knobs: UnitKnobs) -> list[int]:
        """Return the unit of each layer."""
        units = [0] * len(self.names)
        known = {unit.name: index for index, unit in enumerate(self.profiles.machine.units)}
        for layer, (name, unit) in zip(
            self._layers([name for name, _ in knobs.layers]), knobs.layers, strict=True
        ):
            if unit not in known:
                message = f"no unit of {self.profiles.machine.name} is called {unit!r}"
                raise KnobsError(message, Location(field="units"), did_you_mean(unit, known))
            if known[unit] not in self.profiles.units[layer]:
                message = f"unit {unit} does not take layer {name!r}"
                raise KnobsError(message, Location(field="units"), "give it to another unit")
            units[layer] = known[unit]
        return units

    def _layers(self, names: list[str] | tuple[str, ...]) -> list[int]:
        """Return the indices of layers by name."""
        for name in names:
            if name not in self._index:
                message = f"the model has no layer {name!r}"
                listed = "'autoturbo inspect MODEL --layers' lists them"
                hint = did_you_mean(name, self.names, listed)
                raise KnobsError(message, Location(field="units"), hint)
        return [self._index[name] for name in names]

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.names)}

    # Measuring

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Measure a candidate; a failure is a value."""
        try:
            return self.measure(self.assignment(knobs))
        except KnobsError as error:
            return Failure("invalid", str(error))

    def measure(self, assignment: Assignment) -> Outcome:
        """Measure an assignment, or say why it does not fit."""
        measured = measure_assignment(self.profiles, assignment)
        return measured if isinstance(measured, Failure) else self._measurement(measured)

    def statistics(self, knobs: Knobs) -> PlanStatistics | None:
        """Return None: kernels of parts are not predicted."""
        del knobs
        return None

    def _measurement(self, found: MachineMeasurement) -> Measurement:
        """Return the measurement in the form that all measurers share."""
        targets = [unit.target for unit in self.profiles.machine.units]
        dtype, parts = self.profiles.dtype, found.profiles
        matrix = sum(target.matrix_macs_per_second(dtype) for target in targets)
        held = {f"held:{name}": count for name, count in found.held.items()}
        name = f"{self.profiles.graph.name} on {self.profiles.machine.name}"
        return Measurement(
            latency=self.bound.checked(found.latency, name),
            batch=found.batch,
            ddr_bytes=round(found.ddr_bytes),
            gb_bytes=sum(part.gb_bytes for part in parts),
            matrix_utilization=self.profiles.graph.macs / matrix / found.latency,
            vector_utilization=self._vector_s / found.latency,
            peak_lb_bytes=max(part.peak_lb for part in parts),
            peak_gb_bytes=max(part.peak_gb for part in parts),
            kernels=sum(part.kernels for part in parts),
            bound=self.bound,
            busy={**found.busy, "copies": found.copying},
            bytes={"copied": found.copied_bytes, "held": found.peak_bytes, **held},
        )

    @functools.cached_property
    def _vector_s(self) -> float:
        """Return the seconds of the vector work with all units together at their peaks."""
        p = self.profiles
        alone = [lower_bound(p.graph, unit.target, p.dtype).vector_s for unit in p.machine.units]
        return 1.0 / sum(1.0 / unit_s for unit_s in alone) if all(alone) else 0.0

    # Schedules

    def schedule(self, knobs: Knobs) -> MachineSchedule:
        """Return the schedule of a candidate, with its expected measurement.

        Raises:
            KnobsError: The candidate does not fit the model or the machine.
            InfeasibleError: It does not fit the memory.
        """
        scheduler = PUBLISHED if knobs.units is None else TUNED
        return self.schedule_of(self.assignment(knobs), knobs, scheduler)

    def schedule_of(self, assignment: Assignment, knobs: Knobs, scheduler: str) -> MachineSchedule:
        """Return the schedule of an assignment.

        Raises:
            InfeasibleError: It does not fit the memory.
        """
        measured, p = measure_assignment(self.profiles, assignment), self.profiles
        if isinstance(measured, Failure):
            raise InfeasibleError(measured.message, hint=", or ".join(measured.levers) or None)
        table = measured.timetable
        runs = tuple(
            Run(job.part, job.unit, job.copied, begin, end)
            for job, begin, end in zip(measured.jobs, table.begin, table.end, strict=True)
        )
        return MachineSchedule(
            p.graph, p.machine, p.dtype, scheduler, knobs, p.layers, assignment,
            tuple(p.schedule(part.unit, part.layers) for part in assignment.parts),
            runs, tuple(part.spilled for part in measured.profiles),
            self._measurement(measured).as_json(),
        )  # fmt: skip

    def scheduler(self, name: str) -> tuple[MachineSchedule, Outcome]:
        """Return the schedule of a scheduler by name, and its measurement.

        Raises:
            UsageError: No scheduler of that name.
            InfeasibleError: Its assignment does not fit the memory.
        """
        assignment = self.named(name)
        return self.schedule_of(assignment, Knobs(), name), self.measure(assignment)

    def heuristic(self) -> Knobs:
        """Return the candidate that stands for :data:`PUBLISHED`."""
        return Knobs()

    def measure_scheduler(self, name: str) -> Outcome:
        """Return the measurement of a scheduler by name.

        Raises:
            UsageError: No scheduler of that name.
        """
        return self.measure(self.named(name))

    def rebuilt(self, stored: Decided, place: str | Path) -> MachineSchedule:
        """Return the schedule that a file describes.

        Raises:
            ScheduleFileError: Parts do not run when the file says.
            InfeasibleError: It does not fit the memory.
        """
        schedule = self.schedule_of(stored.assignment, stored.knobs, stored.scheduler)
        if stored.runs is not None and stored.runs != schedule.runs:
            location = Location(place, field="runs")
            raise ScheduleFileError("parts do not run when these decisions let them", location)
        return dataclasses.replace(schedule, expected=stored.expected)


def evaluator_of(graph: Graph, target: TuningTarget, dtype: str) -> Evaluator | MachineEvaluator:
    """Return the evaluator of a model on a target or a machine.

    Raises:
        UsageError: It does not compute in the type.
        TypeError: It is of neither kind.
    """
    match target:
        case Target():
            return Evaluator(graph, target, dtype)
        case Machine():
            return MachineEvaluator(graph, target, dtype)
    raise TypeError(target)


def machine_bound(
    graph: Graph,
    machine: Machine,
    dtype: str,
    layers: Sequence[Layer],
    units: Sequence[Sequence[int]],
) -> LowerBound:
    """Return the lower bound for one evaluation of the whole batch.

    Args:
        graph: The model.
        machine: The machine that it runs on.
        dtype: The compute type of all units.
        layers: The layers of the model.
        units: Per layer, the units that can run it.
    """
    alone = [lower_bound(graph, unit.target, dtype) for unit in machine.units]
    first = LowerBound(0.0, 0.0, 0.0)
    # the first unit takes everything, so a layer with no choice is the first one's
    bound = [i for layer, possible in zip(layers, units, strict=True) if len(possible) == 1
             for i in layer.operators]  # fmt: skip
    if bound:
        first = lower_bound(extract(graph, bound), machine.units[0].target, dtype)
    shared = _same_engines(graph, machine, dtype)
    return LowerBound(
        matrix_s=max(first.matrix_s, _together([b.matrix_s for b in alone]) if shared else 0.0),
        vector_s=max(first.vector_s, _together([b.vector_s for b in alone]) if shared else 0.0),
        ddr_s=min(b.ddr_s for b in alone),
        uncounted=graph.uncounted,
    )


def _same_engines(graph: Graph, machine: Machine, dtype: str) -> bool:
    """Return whether every operator is on the same engine on all units."""
    targets = {unit.kind: unit.target for unit in machine.units}.values()
    return all(
        len({engine_code(operator, target, dtype) for target in targets}) == 1
        for operator in graph.operators
    )


def _together(seconds: Sequence[float]) -> float:
    """Return the least seconds of work shared by units that alone take the given seconds."""
    if not all(seconds):
        return 0.0
    return 1.0 / sum(1.0 / unit_s for unit_s in seconds)


__all__ = ["MachineEvaluator", "evaluator_of", "scheduler_names"]
