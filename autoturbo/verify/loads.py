"""The check of loads that run over kernels.

A load is fetched in its turn, once the step has begun that it is born at and the load that it waits
for is passed to the cores. So nothing is overwritten too early if no tensor lives in its
bytes in any of its steps and it waits for every load that had some of them; the kernel has what it
needs if whatever passes a load waits for it; and a pass comes to its end if no load is born after
the step in which something waits for it, nor waits for one that is passed later. What a kernel does
with the bytes of a load after that, :mod:`autoturbo.verify.races` knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.parts import storage_ratio
from autoturbo.schedule.codegen.instructions import Column, Instructions
from autoturbo.schedule.codegen.stages import Stage
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.codegen.work import Flags
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.memory.loads import LoadRoom, held_beside, rings_of
from autoturbo.schedule.schedule import Schedule
from autoturbo.verify.findings import Check, Finding, instance_name
from autoturbo.verify.races import meeting_pairs


def check_loads(schedule: Schedule) -> tuple[Finding, ...]:
    """Return findings about loads that run over kernels.

    Kinds: ``"load"`` where a kernel does not need it, or not then; ``"capacity"``, ``"alignment"``
    and ``"overlap"`` about where it lies; ``"lifetime"`` about when.
    """
    return tuple(
        finding
        for cluster in range(len(schedule.timelines))
        for finding in _Cluster(schedule, cluster).findings()
    )


class _Cluster:
    """Loads of a cluster, and who needs them."""

    def __init__(self, schedule: Schedule, cluster: int) -> None:
        self.schedule, self.timeline = schedule, schedule.timelines[cluster]
        self.loads, self.cluster = schedule.loads(cluster), cluster
        self.room = LoadRoom.of(schedule.context.target)
        self.begins = self.timeline.rows[:-1] + np.arange(len(self.timeline.order))

    def _program(self, kernel: int) -> Instructions:
        return self.schedule.known_program(kernel, self.cluster)

    def report(self, kind: str, load: int, message: str) -> Finding:
        kernel, instruction = int(self.loads.kernel[load]), int(self.loads.instruction[load])
        name = instance_name(self.schedule, int(self.timeline.order[kernel]))
        return Finding(Check.MEMORY, kind, f"{name}: load {instruction} {message}", name)

    def findings(self) -> Iterator[Finding]:
        loads = self.loads
        if not len(loads.step):
            return
        seen = set[tuple[int, int]]()
        places = list[tuple[int, int]]()
        for load, row in enumerate(np.column_stack(loads).tolist()):
            kernel, instruction, said, step, birth, _, size, address = row
            known = kernel < len(self.timeline.order) and (kernel, instruction) not in seen
            program = self._program(kernel) if known else None
            if program is None or not _fetches(program, instruction):
                yield self.report("load", load, "is none that its kernel needs")
                continue
            seen.add((kernel, instruction))
            passed, message = self._needed(program, load)
            places.append((kernel, passed))
            if said != passed:
                message = f"is said to be passed by {said}, it is by {passed}"
            if message:
                yield self.report("load", load, message)
            latest = self.begins[kernel] + 1 + _meanwhile(program, passed)
            if not 0 <= birth <= min(latest, step):
                yield self.report("lifetime", load, f"is born in step {birth}, after {latest}")
            if step - birth > max(self.timeline.ahead[kernel], step - latest):
                yield self.report("lifetime", load, f"is born {step - birth} steps ahead")
            if address % ALIGNMENT:
                yield self.report("alignment", load, f"begins at {address} in GB")
            if address < 0 or address + size > self.room.size:
                message = f"ends at {address + size} in GB, where loads have {self.room.size} bytes"
                yield self.report("capacity", load, message)
        yield from self._order(places)
        yield from self._overlaps()

    def _needed(self, program: Instructions, load: int) -> tuple[int, str]:
        """Return the instruction that passes a load to the cores, and what is wrong with it."""
        loads, where = self.loads, program.where
        kernel, instruction = int(loads.kernel[load]), int(loads.instruction[load])
        layer, tile = where[instruction, [Column.LAYER, Column.TILE]]
        passes = (where[:, Column.ROLE] == Role.PASS_WEIGHTS) & (where[:, Column.LAYER] == layer)
        found = np.flatnonzero(passes & (where[:, Column.TILE] == tile))
        if len(found) != 1:
            return instruction, f"is passed to the cores {len(found)} times"
        passed = int(found[0])
        stored = storage_ratio(self.schedule.context.dtype)
        size = int(np.ceil(program.amounts[instruction, Amount.DDR] * stored))
        need = int(self.begins[kernel] + 1 + layer)
        wrong = ""
        if instruction not in where[passed, Column.AFTER :]:
            wrong = "is passed to the cores before it has come"
        elif loads.size[load] != size:
            wrong = f"has {loads.size[load]} bytes, {size} are fetched"
        elif loads.step[load] != need:
            wrong = f"lives until step {loads.step[load]}, it is needed in step {need}"
        stages = self.timeline.templates[int(self.timeline.order[kernel])].stages
        if stages[:, Stage.SEQUENCE].any():
            wrong = "is of a recurrence, which reads it again and again"
        return passed, wrong

    def _order(self, places: list[tuple[int, int]]) -> Iterator[Finding]:
        """Yield findings about loads that are not fetched in the order in which they are passed."""
        for load, (one, two) in enumerate(itertools.pairwise(places)):
            if one >= two:
                yield self.report("load", load + 1, "is fetched after one that is passed later")
        for load in (np.flatnonzero(np.diff(self.loads.birth) < 0) + 1).tolist():
            yield self.report("lifetime", load, "is born before the load that is fetched first")
        for load in np.flatnonzero(self.loads.after >= np.arange(len(self.loads.after))).tolist():
            yield self.report("lifetime", load, "waits for a load that is passed later")

    def _overlaps(self) -> Iterator[Finding]:
        """Yield findings about loads whose bytes have other content in one of their steps."""
        timeline, loads = self.timeline, self.loads
        fetched = [np.count_nonzero(_weights(self._program(k))) for k in range(len(self.begins))]
        ahead = np.bincount(loads.kernel, minlength=len(fetched))
        held = held_beside(timeline, self.room, rings_of(timeline, ahead >= fetched))
        columns = loads.birth, loads.step, loads.address, loads.address + loads.size
        birth, death, low, high = (np.concatenate(pair) for pair in zip(columns, held, strict=True))
        for pairs in meeting_pairs(birth, death + 1):
            shared = high[pairs].min(axis=1) > low[pairs].max(axis=1)
            first, second = np.sort(pairs, axis=1).T
            count = len(loads.step)
            follows = np.append(loads.after, np.full(len(low) - count, -1))[second] >= first
            wrong = shared & (first < count) & ~((second < count) & follows)
            for pair in np.sort(pairs[wrong], axis=1).tolist():
                what = "another load" if pair[1] < len(loads.step) else "a buffer"
                message = f"and {what} use byte {low[pair].max()} of GB at the same time"
                yield self.report("overlap", pair[0], message)


def _weights(program: Instructions) -> Flags:
    """Return which instructions fetch weights."""
    return np.asarray(program.where[:, Column.ROLE] == Role.FETCH_WEIGHTS)


def _fetches(program: Instructions, instruction: int) -> bool:
    """Return whether an instruction fetches weights."""
    return 0 <= instruction < len(program.where) and bool(_weights(program)[instruction])


def _meanwhile(program: Instructions, passed: int) -> int:
    """Return the layer that is computed next after an instruction in a program's order."""
    role: Ints = program.where[passed:, Column.ROLE]
    computes = np.flatnonzero((role == Role.MULTIPLY) | (role == Role.APPLY))
    return int(program.where[passed + computes[0], Column.LAYER])
