"""An assignment of layers to units, measured: kernels and copies in time.

Side by side as far as memories allow (:mod:`autoturbo.simulate.units.timetable`); where that leaves
something without room, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoturbo.hardware.machine import Machine
from autoturbo.schedule.units.parts import Assignment
from autoturbo.simulate.measurement import Failure
from autoturbo.simulate.units.ledger import Memories, NoRoomError
from autoturbo.simulate.units.network import Job, Network, in_turn
from autoturbo.simulate.units.profiles import Profile, Profiles
from autoturbo.simulate.units.timetable import Task, Timetable, least_seconds, timetable


@dataclass(frozen=True, slots=True)
class MachineMeasurement:
    """An assignment measured. Seconds and bytes, for the whole batch.

    Attributes:
        latency: until the last part has ended.
        batch: samples.
        ddr_bytes: of shared memory that kernels and copies read and write.
        copied_bytes: that cross between units.
        busy: seconds of each unit, by its name.
        copying: seconds of all copies together.
        peak_bytes: most bytes of weights and tensors that are held at once.
        held: likewise of each unit, by its name.
        least: seconds that no timetable of these parts and copies beats.
        assignment: who runs what.
        jobs: parts and copies, each after what it waits for.
        timetable: when each job runs, aligned with them.
        profiles: of the parts, aligned with those of the assignment.
    """

    latency: float
    batch: int
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
    def throughput(self) -> float:
        """Samples per second."""
        return self.batch / self.latency


MachineOutcome = MachineMeasurement | Failure


def measure_assignment(profiles: Profiles, assignment: Assignment) -> MachineOutcome:
    """What an assignment takes, or why it does not fit.

    Args:
        profiles: of the model on the machine.
        assignment: of its layers.
    """
    times: list[Profile] = []
    for part in assignment.parts:
        found = profiles.of(part.unit, part.layers)
        if isinstance(found, Failure):
            return found
        times.append(found)
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
        batch=profiles.graph.batch,
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
    """Side by side where there is room, else one after the other.

    Raises:
        NoRoomError: there is none either way.
    """
    try:
        return timetable(tasks, resources, bandwidth, memories)
    except NoRoomError:
        return timetable(in_turn(tasks), resources, bandwidth, memories)


def _overflow(machine: Machine, memories: Memories, error: NoRoomError) -> Failure:
    """Which memory is too small, and what would help."""
    capacity, shared = memories.capacities[error.memory], error.memory == len(machine.units)
    whose = "the shared memory holds" if shared else f"{machine.units[error.memory].name} may hold"
    message = f"{whose} {capacity} bytes, {error.demand} are needed at once"
    own = () if shared else ("fewer layers on that unit",)
    levers = (*own, "a smaller batch", "a smaller data type", "a machine with more memory")
    return Failure("DDR", message, error.demand, capacity, (), levers)


def _busy(
    machine: Machine, jobs: Sequence[Job], table: Timetable
) -> tuple[dict[str, float], float]:
    """Seconds of each unit, by its name, and of all copies."""
    busy, copying = dict.fromkeys((unit.name for unit in machine.units), 0.0), 0.0
    for job, begin, end in zip(jobs, table.begin, table.end, strict=True):
        if job.copied:
            copying += end - begin
        else:
            busy[machine.units[job.unit].name] += end - begin
    return busy, copying
