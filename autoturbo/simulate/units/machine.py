"""An assignment of layers to units, measured: kernels and copies in time.

Parts are tasks of their units. What a part makes and another unit reads is copied over the link
between them, once for each unit that reads it: a task of the link, which begins when the part has
ended and takes the switch, the link's latency and the bytes at its bandwidth. Inputs of the model
and weights lie in the shared memory, where every unit reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.schedule.units.parts import Assignment, Part, part_producers
from autoturbo.simulate.measurement import Failure
from autoturbo.simulate.units.profiles import Profile, Profiles, copy_seconds
from autoturbo.simulate.units.timetable import Task, Timetable, least_seconds, timetable


@dataclass(frozen=True, slots=True)
class Job:
    """A task of the timetable, as people know it.

    Attributes:
        part: index of the part that runs, or whose results are copied.
        unit: that runs it, or that they are copied to.
        copied: bytes that are copied; 0 where the part runs.
    """

    part: int
    unit: int
    copied: int = 0


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
        least: seconds that no timetable of these parts and copies beats.
        assignment: who runs what.
        jobs: parts and copies, each after what it waits for.
        timetable: when each job runs, aligned with them.
    """

    latency: float
    batch: int
    ddr_bytes: float
    copied_bytes: int
    busy: Mapping[str, float]
    copying: float
    peak_bytes: int
    least: float
    assignment: Assignment
    jobs: tuple[Job, ...]
    timetable: Timetable = field(repr=False)

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
    network = _Network(profiles, assignment)
    jobs, tasks = network.jobs(times)
    machine = profiles.machine
    table = timetable(tasks, network.resources, machine.bandwidth)
    peak = network.peak_bytes(table, jobs)
    if peak > machine.ddr.capacity:
        message = f"the shared memory holds {machine.ddr.capacity} bytes, {peak} are needed at once"
        levers = ("a smaller batch", "a smaller data type", "a machine with more memory")
        return Failure("DDR", message, peak, machine.ddr.capacity, (), levers)
    busy = dict.fromkeys((unit.name for unit in machine.units), 0.0)
    copying = 0.0
    for job, begin, end in zip(jobs, table.begin, table.end, strict=True):
        if job.copied:
            copying += end - begin
        else:
            busy[machine.units[job.unit].name] += end - begin
    return MachineMeasurement(
        latency=table.makespan,
        batch=profiles.graph.batch,
        ddr_bytes=sum(task.bytes for task in tasks),
        copied_bytes=sum(job.copied for job in jobs),
        busy=busy,
        copying=copying,
        peak_bytes=peak,
        least=least_seconds(tasks, machine.bandwidth),
        assignment=assignment,
        jobs=jobs,
        timetable=table,
    )


class _Network:
    """Parts, what they hand over, and the resources that this takes."""

    def __init__(self, profiles: Profiles, assignment: Assignment) -> None:
        self.graph: Graph = profiles.graph
        self.machine: Machine = profiles.machine
        self.profiles = profiles
        self.parts: tuple[Part, ...] = assignment.parts
        self.producers = part_producers(self.graph, profiles.layers, self.parts)
        operators = [
            {o for layer in part.layers for o in profiles.layers[layer].operators}
            for part in self.parts
        ]
        self.owner = {o: index for index, inside in enumerate(operators) for o in inside}
        units = len(self.machine.units)
        self.links = {
            ends: units + i
            for i, ends in enumerate((a, b) for a in range(units) for b in range(a + 1, units))
        }
        """One resource for each pair of units, in both directions."""

    @property
    def resources(self) -> int:
        """Units and links."""
        return len(self.machine.units) + len(self.links)

    def made(self, part: int) -> Iterator[int]:
        """Tensors that a part hands to others, or to the model's user."""
        for tensor, producer in enumerate(self.graph.producer):
            if producer >= 0 and self.owner[producer] == part and self._leaves(tensor, part):
                yield tensor

    def _leaves(self, tensor: int, part: int) -> bool:
        read = any(self.owner[o] != part for o in self.graph.consumers[tensor])
        return read or tensor in self.graph.outputs

    def bytes(self, tensor: int) -> int:
        """Of a whole tensor in the shared memory."""
        return self.profiles.bytes(tensor)

    def readers(self, tensor: int, unit: int) -> list[int]:
        """Parts on a unit that read a tensor."""
        owners = {self.owner[o] for o in self.graph.consumers[tensor]}
        return sorted(part for part in owners if self.parts[part].unit == unit)

    def jobs(self, times: Sequence[Profile]) -> tuple[tuple[Job, ...], tuple[Task, ...]]:
        """Parts and copies in an order in which each comes after what it waits for."""
        jobs: list[Job] = []
        tasks: list[Task] = []
        ran: dict[int, int] = {}
        copied: dict[tuple[int, int], int] = {}
        for index, part in enumerate(self.parts):
            after = tuple(
                ran[p] if self.parts[p].unit == part.unit else copied[p, part.unit]
                for p in self.producers[index]
            )
            ran[index] = len(jobs)
            jobs.append(Job(index, part.unit))
            tasks.append(Task(part.unit, times[index].seconds, times[index].bytes, after))
            for unit, size in self._handed_over(index):
                copied[index, unit] = len(jobs)
                jobs.append(Job(index, unit, size))
                tasks.append(self._copy(part.unit, unit, size, ran[index]))
        return tuple(jobs), tuple(tasks)

    def _handed_over(self, part: int) -> list[tuple[int, int]]:
        """Units that read what a part makes, with the bytes."""
        sizes: dict[int, int] = {}
        own = self.parts[part].unit
        for tensor in self.made(part):
            for unit in range(len(self.machine.units)):
                if unit != own and self.readers(tensor, unit):
                    sizes[unit] = sizes.get(unit, 0) + self.bytes(tensor)
        return sorted(sizes.items())

    def _copy(self, first: int, second: int, size: int, after: int) -> Task:
        link = self.machine.link(first, second)
        touched = 2 * size if link is None or link.through_ddr else 0
        seconds = copy_seconds(self.machine, first, second, size)
        resource = self.links[min(first, second), max(first, second)]
        return Task(resource, seconds, float(touched), (after,))

    def peak_bytes(self, table: Timetable, jobs: Sequence[Job]) -> int:
        """Most bytes of weights, inputs, results and copies at once.

        A tensor lies in memory from the begin of what makes it to the end of what reads it last;
        weights, inputs and outputs of the model all the time.
        """
        held = {t for t, one in enumerate(self.graph.tensors) if one.constant}
        held |= {*self.graph.inputs, *self.graph.outputs}
        changes: list[tuple[float, int]] = []
        when = {(j.part, j.unit): i for i, j in enumerate(jobs)}
        for index, part in enumerate(self.parts):
            for tensor in self.made(index):
                if tensor in held:
                    continue
                places = [part.unit, *(u for u, _ in self._handed_over(index))]
                changes += self._kept(tensor, index, places, when, table)
        peak = total = sum(self.bytes(t) for t in held)
        for _, change in sorted(changes):  # at one moment what goes comes first
            total += change
            peak = max(peak, total)
        return peak

    def _kept(
        self,
        tensor: int,
        part: int,
        places: Sequence[int],
        when: Mapping[tuple[int, int], int],
        table: Timetable,
    ) -> Iterator[tuple[float, int]]:
        size, own = self.bytes(tensor), self.parts[part].unit
        for unit in places:
            readers = self.readers(tensor, unit)
            if unit != own and not readers:
                continue
            begin = table.begin[when[part, unit]]
            ends = [table.end[when[reader, unit]] for reader in readers]
            if unit == own:
                ends += [table.end[when[part, other]] for other in places]
            yield begin, size
            yield max(ends), -size
