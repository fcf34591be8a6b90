"""The check of loads that run over kernels.

A load is fetched in its turn, once the step has begun that it is born at and the load that it waits
for is passed to the cores; one whose bytes another has brought and that are kept is not fetched. So
nothing is overwritten too early if no tensor lives in its bytes in any of its steps and it waits
for every load that had some of them; the kernel has what it needs if whatever passes a load waits
for it; and a pass comes to its end if no load is born after the step in which something waits for
it, nor waits for one that is passed later. What a kernel does with the bytes of a load after that,
:mod:`autoturbo.verifier.races` knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from autoturbo.graph.arrays import Ints
from autoturbo.hardware.parts import storage_ratio
from autoturbo.schedule.codegen.instructions import Column, Instructions
from autoturbo.schedule.codegen.loads import COPY, LoadRoom, held_beside, rings_of
from autoturbo.schedule.codegen.tiling import Amount, Role
from autoturbo.schedule.memory.allocate import ALIGNMENT
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.schedule.work import Flags
from autoturbo.verifier.findings import Check, Finding, instance_name
from autoturbo.verifier.races import meeting_pairs


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
        self.begins = self.timeline.first_steps

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
        for load, key in enumerate(
            zip(loads.kernel.tolist(), loads.instruction.tolist(), strict=True)
        ):
            known = key[0] < len(self.timeline.order) and key not in seen
            if not known or not self._fetches(load):
                yield self.report("load", load, "is none that its kernel needs")
                continue
            seen.add(key)
            copies = key[1] == COPY
            passed, message = self._copied(load) if copies else self._needed(load)
            places.append((key[0], passed))
            if message:
                yield self.report("load", load, message)
            if loads.until[load] < loads.step[load]:
                yield self.report("lifetime", load, "is not kept until it is needed")
            if loads.kept[load] >= 0:
                yield from self._kept(load, int(loads.kept[load]))
            else:
                yield from self._placed(load, passed)
        yield from self._order(places)
        yield from self._overlaps()

    def _placed(self, load: int, passed: int) -> Iterator[Finding]:
        """Yield findings about when a load is born, and where it lies."""
        loads, kernel = self.loads, int(self.loads.kernel[load])
        birth, step, address = (int(c[load]) for c in (loads.birth, loads.step, loads.address))
        latest = int(self.begins[kernel])
        if passed != COPY:
            latest += 1 + _meanwhile(self._program(kernel), passed)
        if not 0 <= birth <= min(latest, step):
            yield self.report("lifetime", load, f"is born in step {birth}, after {latest}")
        if step - birth > max(self.timeline.ahead[kernel], step - latest):
            yield self.report("lifetime", load, f"is born {step - birth} steps ahead")
        if address % ALIGNMENT:
            yield self.report("alignment", load, f"begins at {address} in GB")
        end = address + int(loads.size[load])
        if address < 0 or end > self.room.size:
            message = f"ends at {end} in GB, where loads have {self.room.size} bytes"
            yield self.report("capacity", load, message)
        if loads.inputs[load] and birth < self._made(kernel):
            yield self.report("lifetime", load, "is fetched before what it brings is made")

    def _made(self, kernel: int) -> int:
        """Return the step from which on DDR has what a kernel reads.

        Kernels of other clusters have made it when the kernel may begin.
        """
        order = self.timeline.order.tolist()
        makers = self.schedule.instances.producers[order[kernel]]
        # In DDR once the kernel that makes it has ended, which is when the next one begins.
        ends = (order.index(one) + 1 if one in order else kernel for one in makers)
        return int(self.begins[max(ends, default=0)])

    def _kept(self, load: int, source: int) -> Iterator[Finding]:
        """Yield findings about a load that is not fetched, since another has brought its bytes."""
        loads = self.loads
        # No chains: what is kept was fetched by an earlier load itself.
        if source >= load or loads.kept[source] >= 0:
            yield self.report("load", load, "is not there when its kernel begins")
            return
        same = loads.size[source] == loads.size[load]
        if not same or loads.address[source] != loads.address[load]:
            yield self.report("load", load, "lies elsewhere than what it is said to be")
        if loads.until[source] < loads.step[load]:
            message = f"is kept until {loads.until[source]}, needed in {loads.step[load]}"
            yield self.report("lifetime", load, message)
        one, two = (self._content(number) for number in (source, load))
        if one != two or not one:
            yield self.report("load", load, "is not what it is said to be")

    def _content(self, load: int) -> int:
        """Return the hash of what a load brings."""
        kernel = int(self.loads.kernel[load])
        known = self.schedule.kernel_loads(kernel, self.cluster)
        return int(known.content[known.instruction == self.loads.instruction[load]].sum())

    def _fetches(self, load: int) -> bool:
        """Return whether a load brings what its kernel reads: inputs, weights or a copy."""
        loads, kernel = self.loads, int(self.loads.kernel[load])
        instruction = int(loads.instruction[load])
        if instruction == COPY:
            return bool(loads.inputs[load] and self.timeline.copied[kernel, Scope.DDR])
        role = Role.FETCH_INPUT if loads.inputs[load] else Role.FETCH_WEIGHTS
        program = self._program(kernel)
        return 0 <= instruction < len(program.where) and bool(_fetching(program, role)[instruction])

    def _copied(self, load: int) -> tuple[int, str]:
        """Return that a load is passed by a copy before its kernel, and what is wrong with it."""
        loads, kernel = self.loads, int(self.loads.kernel[load])
        size, need = int(self.timeline.copied[kernel, Scope.DDR]), int(self.begins[kernel])
        wrong = ""
        if loads.size[load] != size:
            wrong = f"has {loads.size[load]} bytes, {size} are copied"
        elif loads.step[load] != need:
            wrong = f"lives until step {loads.step[load]}, it is needed in step {need}"
        elif loads.passed[load] != COPY:
            wrong = f"is said to be passed by {loads.passed[load]}, it is copied"
        return COPY, wrong

    def _needed(self, load: int) -> tuple[int, str]:
        """Return the instruction that passes a load to the cores, and what is wrong with it."""
        loads, kernel = self.loads, int(self.loads.kernel[load])
        program, instruction = self._program(kernel), int(loads.instruction[load])
        where = program.where
        layer, tile = where[instruction, [Column.LAYER, Column.TILE]]
        role = Role.PASS_INPUT if loads.inputs[load] else Role.PASS_WEIGHTS
        passes = (where[:, Column.ROLE] == role) & (where[:, Column.LAYER] == layer)
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
        elif loads.passed[load] != passed:
            wrong = f"is said to be passed by {loads.passed[load]}, it is by {passed}"
        stages = self.timeline.templates[int(self.timeline.order[kernel])].stages
        if stages[:, Stage.SEQUENCE].any():
            wrong = "is of a recurrence, which reads it again and again"
        return passed, wrong

    def _order(self, places: list[tuple[int, int]]) -> Iterator[Finding]:
        """Yield findings about loads that are not fetched in the order in which they are passed."""
        for load, (one, two) in enumerate(itertools.pairwise(places)):
            if one >= two:
                yield self.report("load", load + 1, "is fetched after one that is passed later")
        for inputs in (0, 1):
            queue = np.flatnonzero(self.loads.fetched & (self.loads.inputs == inputs))
            for load in queue[1:][np.diff(self.loads.birth[queue]) < 0].tolist():
                yield self.report("lifetime", load, "is born before the load that is fetched first")
        for load in np.flatnonzero(self.loads.after >= np.arange(len(self.loads.after))).tolist():
            yield self.report("lifetime", load, "waits for a load that is passed later")

    def _overlaps(self) -> Iterator[Finding]:
        """Yield findings about loads whose bytes have other content in one of their steps."""
        timeline, loads = self.timeline, self.loads
        fetched = [
            np.count_nonzero(_fetching(self._program(k), Role.FETCH_WEIGHTS))
            for k in range(len(self.begins))
        ]
        ahead = np.bincount(loads.kernel[loads.inputs == 0], minlength=len(fetched))
        held = held_beside(timeline, self.room, rings_of(timeline, ahead >= fetched))
        columns = loads.birth, loads.until, loads.address, loads.address + loads.size
        birth, death, low, high = (np.concatenate(pair) for pair in zip(columns, held, strict=True))
        for pairs in meeting_pairs(birth, death + 1):
            shared = high[pairs].min(axis=1) > low[pairs].max(axis=1)
            first, second = np.sort(pairs, axis=1).T
            count = len(loads.step)
            follows = np.append(loads.after, np.full(len(low) - count, -1))[second] >= first
            # until it is passed, of one that is not kept
            follows &= (loads.until == loads.step)[np.minimum(first, count - 1)]
            own = np.append(loads.fetched, np.ones(len(low) - count, np.bool_))
            shared &= own[first] & own[second]  # the bytes of the others are those of one of them
            wrong = shared & (first < count) & ~((second < count) & follows)
            for pair in np.sort(pairs[wrong], axis=1).tolist():
                what = "another load" if pair[1] < len(loads.step) else "a buffer"
                message = f"and {what} use byte {low[pair].max()} of GB at the same time"
                yield self.report("overlap", pair[0], message)


def _fetching(program: Instructions, role: Role) -> Flags:
    """Return a mask of the instructions that fetch weights, or inputs."""
    return np.asarray(program.where[:, Column.ROLE] == role)


def _meanwhile(program: Instructions, passed: int) -> int:
    """Return the first layer that is not over before an instruction in a program's order."""
    role: Ints = program.where[passed:, Column.ROLE]
    computes = np.flatnonzero((role == Role.MULTIPLY) | (role == Role.APPLY))
    return int(program.where[passed + computes, Column.LAYER].min())
