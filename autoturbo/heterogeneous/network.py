"""Parts of a model on units as tasks: who waits for whom, over which link, and what is held where.

Parts are tasks of their units. What a part makes and another unit reads is copied over the link
between them, once for each unit that reads it: a task of the link, which begins when the part has
ended and takes the switch, the link's latency and the bytes at its bandwidth. Inputs of the model
and weights lie in the shared memory, where every unit reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.memories import Holding, Memories
from autoturbo.heterogeneous.parts import Assignment, Part, part_producers
from autoturbo.heterogeneous.profiles import Profile, Profiles, copy_seconds
from autoturbo.heterogeneous.timetable import Task


@dataclass(frozen=True, slots=True)
class Job:
    """A task of the timetable, named for people.

    Attributes:
        part: Index of the part that runs, or whose results are copied.
        unit: Index of the unit that runs the part, or that results are copied to.
        copied: Bytes that are copied; 0 where the part runs.
    """

    part: int
    unit: int
    copied: int = 0


class Network:
    """The parts of an assignment, the tensors between them, and the resources.

    Args:
        profiles: Profiles of the model on the machine.
        assignment: The unit of each layer, in parts.
    """

    def __init__(self, profiles: Profiles, assignment: Assignment) -> None:
        self.graph: Graph = profiles.graph
        self.machine: Machine = profiles.machine
        self.profiles = profiles
        self.parts: tuple[Part, ...] = assignment.parts
        self.in_turn = assignment.in_turn
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
        self.made = self._made()
        """Per part, tensors that it hands to others, or to the model's user."""

    @property
    def resources(self) -> int:
        """Return the number of units and links."""
        return len(self.machine.units) + len(self.links)

    def _made(self) -> list[list[int]]:
        """Return the tensors that each part hands to others, or to the model's user."""
        tensors: list[list[int]] = [[] for _ in self.parts]
        for tensor, producer in enumerate(self.graph.producer):
            if producer >= 0 and self._leaves(tensor, self.owner[producer]):
                tensors[self.owner[producer]].append(tensor)
        return tensors

    def _leaves(self, tensor: int, part: int) -> bool:
        read = any(self.owner[o] != part for o in self.graph.consumers[tensor])
        return read or tensor in self.graph.returned

    def bytes(self, tensor: int) -> int:
        """Return the bytes of a whole tensor in the shared memory."""
        return self.profiles.bytes(tensor)

    def readers(self, tensor: int, unit: int) -> list[int]:
        """Return the parts on a unit that read a tensor."""
        owners = {self.owner[o] for o in self.graph.consumers[tensor]}
        return sorted(part for part in owners if self.parts[part].unit == unit)

    def jobs(self, times: Sequence[Profile]) -> tuple[tuple[Job, ...], tuple[Task, ...]]:
        """Return parts and copies as jobs and tasks, in topological order."""
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
        return tuple(jobs), tuple(in_turn(tasks) if self.in_turn else tasks)

    def _handed_over(self, part: int) -> list[tuple[int, int]]:
        """Return the units that read a part's outputs, with the bytes."""
        sizes: dict[int, int] = {}
        maker = self.parts[part].unit
        for tensor in self.made[part]:
            for unit in range(len(self.machine.units)):
                if unit != maker and self.readers(tensor, unit):
                    sizes[unit] = sizes.get(unit, 0) + self.bytes(tensor)
        return sorted(sizes.items())

    def _copy(self, first: int, second: int, size: int, after: int) -> Task:
        link = self.machine.link(first, second)
        # read once and written once
        touched = 2 * size if link is None or link.through_ddr else 0
        seconds = copy_seconds(self.machine, first, second, size)
        resource = self.links[min(first, second), max(first, second)]
        return Task(resource, seconds, float(touched), (after,))

    def memories(self, jobs: Sequence[Job], times: Sequence[Profile]) -> Memories:
        """Return the demand on the shared memory: each unit's, by its index, and the total, last.

        A tensor lies in memory from the begin of what makes it to the end of what reads it last;
        weights, inputs and outputs of the model all the time. A unit's are the weights and inputs
        that it reads, the outputs that it makes, and what it makes for others or gets from them.
        """
        units, whole = self.machine.units, self.machine.ddr.capacity
        capacities = (*(whole if u.memory is None else min(u.memory, whole) for u in units), whole)
        kept = {t for t, tensor in enumerate(self.graph.tensors) if tensor.constant}
        kept |= {*self.graph.inputs, *self.graph.outputs}
        fixed = [sum(map(self.bytes, held)) for held in self._kept_by_units()]
        fixed.append(sum(map(self.bytes, kept)))
        return Memories(capacities, tuple(fixed), tuple(self._holdings(jobs, times)))

    def _kept_by_units(self) -> list[set[int]]:
        """Return the weights and inputs that each unit reads, and the outputs that it makes."""
        kept: list[set[int]] = [set() for _ in self.machine.units]
        for operator, part in self.owner.items():
            node, held = self.graph.operators[operator], kept[self.parts[part].unit]
            held.update(t for t in node.inputs if self._lasting(t))
            held.update(t for t in node.outputs if t in self.graph.returned)
        return kept

    def _lasting(self, tensor: int) -> bool:
        return self.graph.tensors[tensor].constant or tensor in self.graph.inputs

    def _holdings(self, jobs: Sequence[Job], times: Sequence[Profile]) -> Iterator[Holding]:
        """Yield the tensors between parts, their copies, and what parts keep for themselves."""
        job_of = {(job.part, job.unit): index for index, job in enumerate(jobs)}
        whole = len(self.machine.units)
        for index, part in enumerate(self.parts):
            own = job_of[index, part.unit]
            if times[index].spilled:
                yield Holding((part.unit, whole), times[index].spilled, own, (own,))
            for tensor in self.made[index]:
                size, copies = self.bytes(tensor), self._readers_elsewhere(tensor, part.unit)
                for unit, readers in copies.items():
                    copy, reading = (
                        job_of[index, unit],
                        (job_of[reader, unit] for reader in readers),
                    )
                    yield Holding((unit, whole), size, copy, (copy, *reading))
                if tensor in self.graph.returned:
                    continue
                here = (job_of[reader, part.unit] for reader in self.readers(tensor, part.unit))
                sent = (job_of[index, unit] for unit in copies)
                yield Holding((part.unit, whole), size, own, (own, *here, *sent))

    def _readers_elsewhere(self, tensor: int, own: int) -> dict[int, list[int]]:
        """Return the parts that read a tensor on another unit, by that unit."""
        units = (unit for unit in range(len(self.machine.units)) if unit != own)
        return {unit: readers for unit in units if (readers := self.readers(tensor, unit))}


def in_turn(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks one after the other."""
    return [
        dataclasses.replace(task, after=tuple(sorted({*task.after, index - 1}))) if index else task
        for index, task in enumerate(tasks)
    ]
