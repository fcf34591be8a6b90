"""Verifies the times of a machine's parts: units, order of tensors, and memory.

Everything is recomputed from the times that a schedule gives, not taken from its scheduler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from autoturbo.graph.operators import tensor_bytes
from autoturbo.heterogeneous.machine_schedule import MachineSchedule, Run
from autoturbo.heterogeneous.parts import part_producers
from autoturbo.verifier.findings import Check, Finding


def check_runs(schedule: MachineSchedule) -> list[Finding]:
    """Return findings about the times of parts, and about the memory that units use."""
    checker = _TimeChecker(schedule)
    return [*checker.overlaps(), *checker.waits(), *checker.capacities()]


class _TimeChecker:
    """The times of a schedule, by part and unit."""

    def __init__(self, schedule: MachineSchedule) -> None:
        self.schedule, self.graph = schedule, schedule.model
        self.parts = schedule.assignment.parts
        self.names = [unit.name for unit in schedule.machine.units]
        self.at = {(run.part, run.unit): run for run in schedule.runs}
        self.owner = {
            operator: index
            for index, part in enumerate(self.parts)
            for layer in part.layers
            for operator in schedule.layers[layer].operators
        }

    def overlaps(self) -> Iterator[Finding]:
        """Yield findings about units and links that do two things at once."""
        lanes: dict[tuple[int, int], list[Run]] = {}
        for run in self.schedule.runs:
            other = self.parts[run.part].unit if run.copied else run.unit
            lanes.setdefault((min(run.unit, other), max(run.unit, other)), []).append(run)
        for (first, second), runs in lanes.items():
            ordered = sorted(runs, key=lambda run: (run.begin, run.end))
            for one, two in itertools.pairwise(ordered):
                if two.begin < one.end:
                    link = f"the link of {self.names[first]} and {self.names[second]}"
                    where = self.names[first] if first == second else link
                    message = f"{where} does parts {one.part} and {two.part} at once"
                    yield Finding(Check.MEMORY, "overlap", message)

    def waits(self) -> Iterator[Finding]:
        """Yield findings about parts and copies that begin before their inputs are there."""
        producers = part_producers(self.graph, self.schedule.layers, self.parts)
        for run in self.schedule.runs:
            unit = self.parts[run.part].unit
            read = [run.part] if run.copied else producers[run.part]
            for source in read:
                made = self.at.get((source, unit))
                what = f"the copy of part {run.part}" if run.copied else f"part {run.part}"
                if made is None:
                    message = (
                        f"{what} reads part {source}, which is not copied to {self.names[unit]}"
                    )
                    yield Finding(Check.MEMORY, "not there", message)
                elif made.end > run.begin:
                    message = f"{what} begins before part {source} is on its unit"
                    yield Finding(Check.MEMORY, "early", message)
        for index, part in enumerate(self.parts):
            if (index, part.unit) not in self.at:
                message = f"part {index} never runs on {self.names[part.unit]}"
                yield Finding(Check.MEMORY, "not there", message)

    def capacities(self) -> Iterator[Finding]:
        """Yield findings about memories that exceed their capacity."""
        machine, whole = self.schedule.machine, self.schedule.machine.ddr.capacity
        limits = [whole if unit.memory is None else unit.memory for unit in machine.units]
        for index, most in enumerate([*limits, whole]):
            shared = index == len(limits)
            peak = self._peak(None if shared else index)
            if peak > most:
                who = "the shared memory" if shared else self.names[index]
                message = f"{who} holds {peak} bytes at once and may hold {most}"
                yield Finding(Check.MEMORY, "memory", message)

    def _peak(self, unit: int | None) -> int:
        """Return the most bytes that a unit holds at once; all units together if None."""
        held = sum(self._bytes(tensor) for tensor in self._permanent_tensors(unit))
        changes = [
            change
            for place, size, begin, end in self._allocations()
            if unit in (None, place)
            for change in ((begin, size), (end, -size))
        ]
        peak = held
        for _, change in sorted(changes):  # at one moment what goes comes first
            held += change
            peak = max(peak, held)
        return peak

    def _permanent_tensors(self, unit: int | None) -> set[int]:
        """Return weights and inputs that a unit reads and outputs that it makes; all if None."""
        graph, permanent = self.graph, set[int]()
        if unit is None:
            constants = (t for t, node in enumerate(graph.tensors) if node.constant)
            return {*constants, *graph.inputs, *graph.outputs}
        for operator, part in self.owner.items():
            if self.parts[part].unit == unit:
                node = graph.operators[operator]
                permanent |= {t for t in node.inputs if graph.producer[t] < 0}
                permanent |= {t for t in node.outputs if t in graph.returned}
        return permanent

    def _allocations(self) -> Iterator[tuple[int, int, float, float]]:
        """Yield the unit, bytes, begin and end in seconds of every temporary allocation."""
        for index, spilled in enumerate(self.schedule.spilled):
            run = self.at.get((index, self.parts[index].unit))
            if run is not None and spilled:
                yield run.unit, spilled, run.begin, run.end
        for tensor, producer in enumerate(self.graph.producer):
            if producer >= 0:
                yield from self._allocations_of(tensor, self.owner[producer])

    def _allocations_of(self, tensor: int, made_by: int) -> Iterator[tuple[int, int, float, float]]:
        """Yield the allocations of a tensor: where it is made, and where it is copied to."""
        home = self.parts[made_by].unit
        readers = {self.owner[o] for o in self.graph.consumers[tensor]} - {made_by}
        runs = [
            self.at[r, self.parts[r].unit] for r in readers if (r, self.parts[r].unit) in self.at
        ]
        for unit in sorted({self.parts[r].unit for r in readers} | {home}):
            made = self.at.get((made_by, unit))
            if made is None or (unit == home and (not readers or tensor in self.graph.returned)):
                continue
            ends = [run.end for run in runs if run.unit == unit]
            if unit == home:
                ends += [
                    self.at[made_by, other].end
                    for other in {run.unit for run in runs}
                    if (made_by, other) in self.at
                ]
            yield unit, self._bytes(tensor), made.begin, max([made.end, *ends])

    def _bytes(self, tensor: int) -> int:
        return tensor_bytes(self.graph.tensors[tensor], self.schedule.dtype)
