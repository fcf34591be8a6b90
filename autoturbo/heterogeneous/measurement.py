"""An assignment of layers to units, measured: kernels and copies in time.

Side by side as far as memories allow (:mod:`autoturbo.heterogeneous.timetable`); where that leaves
something without room, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.memories import Memories, NoRoomError
from autoturbo.heterogeneous.network import Job, Network, in_turn
from autoturbo.heterogeneous.parts import Assignment
from autoturbo.heterogeneous.profiles import Profile, Profiles
from autoturbo.heterogeneous.timetable import Task, Timetable, least_seconds, timetable
from autoturbo.simulator.measurement import Failure


@dataclass(frozen=True, slots=True)
class MachineMeasurement:
    """The measurement of an assignment, in seconds and bytes for the whole batch.

    Attributes:
        latency: Seconds until the last part has ended.
        batch: Samples; None where the model's inputs do not agree on them.
        ddr_bytes: Bytes of shared memory that kernels and copies read and write.
        copied_bytes: Bytes that are copied from unit to unit.
        busy: Seconds of each unit, by its name.
        copying: Seconds of all copies together.
        peak_bytes: Most bytes of weights and tensors that are held at once.
        held: Most bytes that each unit holds at once, by its name.
        least: Seconds that no timetable of these parts and copies beats.
        assignment: The parts, each with the unit that runs it.
        jobs: Parts and copies, each after what it waits for.
        timetable: Begin and end of each job, aligned with the jobs.
        profiles: Time and memory of each part, aligned with the parts of the assignment.
    """

    latency: float
    batch: int | None
    ddr_bytes: float
    copied_bytes: int
    busy: Mapping[str, float]
    copying: float
    peak_bytes: int
    held: Mapping[str, int]
    least: float
    assignment: Assignment
    jobs: tuple[Job, ...]
    timetable: Timetable = field(repr=False)
    profiles: tuple[Profile, ...] = field(repr=False)

    @property
    def throughput(self) -> float | None:
        """Return the samples per second; None where nobody knows the samples."""
        return None if self.batch is None else self.batch / self.latency


MachineOutcome = MachineMeasurement | Failure


def measure_assignment(profiles: Profiles, assignment: Assignment) -> MachineOutcome:
    """Return the measurement of an assignment, or why it does not fit.

    Args:
        profiles: Profiles of the model on the machine.
        assignment: The unit of each layer, in parts.
    """
    times: list[Profile] = []
    for part in assignment.parts:
        profile = profiles.of(part.unit, part.layers)
        if isinstance(profile, Failure):
            return profile
        times.append(profile)
    network, machine = Network(profiles, assignment), profiles.machine
    jobs, tasks = network.jobs(times)
    memories = network.memories(jobs, times)
    try:
        table = _fitted(tasks, network.resources, machine.bandwidth, memories)
    except NoRoomError as error:
        return _overflow(machine, memories, error)
    busy, copying = _busy(machine, jobs, table)
    names = (unit.name for unit in machine.units)
    return MachineMeasurement(
        latency=table.makespan,
        batch=profiles.graph.known_batch,
        ddr_bytes=sum(task.bytes for task in tasks),
        copied_bytes=sum(job.copied for job in jobs),
        busy=busy,
        copying=copying,
        peak_bytes=table.peaks[-1],
        held=dict(zip(names, table.peaks, strict=False)),
        least=least_seconds(tasks, machine.bandwidth),
        assignment=assignment,
        jobs=jobs,
        timetable=table,
        profiles=tuple(times),
    )


def _fitted(
    tasks: Sequence[Task], resources: int, bandwidth: float, memories: Memories
) -> Timetable:
    """Return a timetable with tasks in parallel where there is room, else in sequence.

    Raises:
        NoRoomError: There is none either way.
    """
    try:
        return timetable(tasks, resources, bandwidth, memories)
    except NoRoomError:
        return timetable(in_turn(tasks), resources, bandwidth, memories)


def _overflow(machine: Machine, memories: Memories, error: NoRoomError) -> Failure:
    """Return the failure of a memory that is too small, with remedies."""
    capacity, shared = memories.capacities[error.memory], error.memory == len(machine.units)
    whose = "the shared memory holds" if shared else f"{machine.units[error.memory].name} may hold"
    message = f"{whose} {capacity} bytes, {error.demand} are needed at once"
    remedies = () if shared else ("fewer layers on that unit",)
    levers = (*remedies, "a smaller batch", "a smaller data type", "a machine with more memory")
    return Failure("DDR", message, error.demand, capacity, (), levers)


def _busy(
    machine: Machine, jobs: Sequence[Job], table: Timetable
) -> tuple[dict[str, float], float]:
    """Return the busy seconds of each unit, by its name, and of all copies."""
    busy, copying = dict.fromkeys((unit.name for unit in machine.units), 0.0), 0.0
    for job, begin, end in zip(jobs, table.begin, table.end, strict=True):
        if job.copied:
            copying += end - begin
        else:
            busy[machine.units[job.unit].name] += end - begin
    return busy, copying
