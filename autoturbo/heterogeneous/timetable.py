"""List scheduling of tasks on resources that share a memory's bandwidth.

Processing units and links are resources: each does one task at a time. A task that runs alone takes
its seconds and moves its bytes of shared memory evenly over them; tasks that run side by side and
together ask for more than the memory has share it fairly (max-min: nobody gets more than it asks
for, what is left over goes to the others), and those that get less take longer in proportion.

A free resource takes the ready task with the longest path to the end (list scheduling by upward
rank: Topcuoglu, Hariri and Wu, HEFT, IEEE TPDS 2002), of equals the first by number. Nothing waits
for a task that is not ready yet. Where memories are given, a task that has no room is passed over
until others have given some back.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoturbo.heterogeneous.memories import Ledger, Memories


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel on a unit, or a transfer on a link.

    Attributes:
        resource: Index of the unit or link that it keeps busy.
        seconds: Seconds that it takes alone; 0 for one that only waits for others.
        bytes: Bytes of shared memory that it reads and writes.
        after: Tasks that must have ended, by index; all smaller than its own.
    """

    resource: int
    seconds: float
    bytes: float
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """An interval in which no task begins or ends.

    Attributes:
        begin: Second at which it begins.
        end: Second at which it ends.
        rates: Bytes per second of the tasks that run, by task.
    """

    begin: float
    end: float
    rates: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Timetable:
    """The begin and end of every task.

    Attributes:
        begin: Second at which each task begins.
        end: Second at which each task ends.
        stretches: Stretches in which something runs, in order of time.
        peaks: Most bytes held at once, per memory.
    """

    begin: tuple[float, ...]
    end: tuple[float, ...]
    stretches: tuple[TimeSlice, ...] = field(default=(), repr=False)
    peaks: tuple[int, ...] = ()

    @property
    def makespan(self) -> float:
        """Return the seconds until the last task has ended."""
        return max(self.end, default=0.0)


def upward_ranks(tasks: Sequence[Task]) -> list[float]:
    """Return each task's critical path: seconds from its begin to the end of its last successor."""
    ranks = [0.0] * len(tasks)
    for index in range(len(tasks) - 1, -1, -1):
        ranks[index] += tasks[index].seconds
        for before in tasks[index].after:
            ranks[before] = max(ranks[before], ranks[index])
    return ranks


def least_seconds(tasks: Sequence[Task], bandwidth: float) -> float:
    """Return a lower bound of all timetables: the longest path, the busiest resource, the bytes."""
    busy: dict[int, float] = {}
    for task in tasks:
        busy[task.resource] = busy.get(task.resource, 0.0) + task.seconds
    path = max(upward_ranks(tasks), default=0.0)
    moved = sum(task.bytes for task in tasks) / bandwidth
    return max(path, moved, max(busy.values(), default=0.0))


def timetable(
    tasks: Sequence[Task], resources: int, bandwidth: float, memories: Memories | None = None
) -> Timetable:
    """Return the timetable of tasks by the rule of this module.

    Args:
        tasks: The tasks; each comes after those it waits for.
        resources: Number of resources.
        bandwidth: Bytes per second of the shared memory.
        memories: What tasks may hold; no limits if None.

    Raises:
        ValueError: A task waits for a later one.
        NoRoomError: At some moment nothing runs, and nothing that is ready has room.
    """
    return _Run(tasks, resources, bandwidth, memories or Memories()).finished()


def shares(demands: Sequence[float], bandwidth: float) -> list[float]:
    """Return max-min fair shares of a bandwidth, none larger than its demand."""
    parts = list(demands)
    if sum(demands) <= bandwidth:
        return parts
    # the most modest first: what they leave goes to the others
    remaining, waiting = bandwidth, sorted(range(len(demands)), key=lambda i: (demands[i], i))
    for position, index in enumerate(waiting):
        parts[index] = min(demands[index], remaining / (len(waiting) - position))
        remaining -= parts[index]
    return parts


@dataclass(eq=False)
class _Running:
    """A task under way: the share of it that is still to do, and its demand per second alone."""

    task: int
    left: float
    demand: float


class _Run:
    """The state of a simulation."""

    def __init__(
        self, tasks: Sequence[Task], resources: int, bandwidth: float, memories: Memories
    ) -> None:
        self.tasks, self.bandwidth = tasks, bandwidth
        self.ledger = Ledger(memories, len(tasks))
        self.ranks = upward_ranks(tasks)
        self.begin = [0.0] * len(tasks)
        self.end = [0.0] * len(tasks)
        self.waits = [len(task.after) for task in tasks]
        self.readers: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for before in task.after:
                if before >= index:
                    raise ValueError(f"task {index} waits for task {before}, which comes later")
                self.readers[before].append(index)
        self.ready: list[list[tuple[float, int]]] = [[] for _ in range(resources)]
        self.running: dict[int, _Running] = {}
        self.stretches: list[TimeSlice] = []
        self.now = 0.0

    def finished(self) -> Timetable:
        """Simulate all tasks, and return their timetable."""
        for index, count in enumerate(self.waits):
            if count == 0:
                self._offer(index)
        self._start()
        while self.running:
            self._advance()
            self._start()
        self._check_done()
        return Timetable(
            tuple(self.begin), tuple(self.end), tuple(self.stretches), tuple(self.ledger.peaks)
        )

    def _check_done(self) -> None:
        """Raise an error if a task is still ready: it waits for room that nobody frees."""
        for queue in self.ready:
            if queue and (error := self.ledger.lacking(queue[0][1])) is not None:
                raise error

    def _offer(self, index: int) -> None:
        # a heap gives the least: the longest path first, of equals the first by number
        heapq.heappush(self.ready[self.tasks[index].resource], (-self.ranks[index], index))

    def _start(self) -> None:
        """Give every free resource its next task; a task without seconds is over at once."""
        moved = True
        # a task that is over at once makes others ready, on resources already looked at
        while moved:
            moved = False
            for resource, queue in enumerate(self.ready):
                index = None if resource in self.running else self._next(queue)
                if index is None:
                    continue
                moved = True
                self.begin[index] = self.now
                self.ledger.begin(index)
                seconds = self.tasks[index].seconds
                if seconds > 0:
                    demand = self.tasks[index].bytes / seconds
                    self.running[resource] = _Running(index, 1.0, demand)
                else:
                    self._finish(index)

    def _next(self, queue: list[tuple[float, int]]) -> int | None:
        """Take the first task of a queue that fits the memory."""
        passed: list[tuple[float, int]] = []
        earliest = None
        while queue and earliest is None:
            entry = heapq.heappop(queue)
            if self.ledger.lacking(entry[1]) is None:
                earliest = entry[1]
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(queue, entry)
        return earliest

    def _advance(self) -> None:
        """Advance to the next moment at which a task ends."""
        running = list(self.running.items())
        parts = shares([running_task.demand for _, running_task in running], self.bandwidth)
        speeds = [
            (part / running_task.demand if running_task.demand > 0 else 1.0)
            / self.tasks[running_task.task].seconds
            for (_, running_task), part in zip(running, parts, strict=True)
        ]
        steps = [
            running_task.left / speed
            for (_, running_task), speed in zip(running, speeds, strict=True)
        ]
        step = min(steps)
        rates = tuple(
            (running_task.task, part)
            for (_, running_task), part in zip(running, parts, strict=True)
        )
        self.stretches.append(TimeSlice(self.now, self.now + step, rates))
        self.now += step
        for (resource, running_task), speed, step_s in zip(running, speeds, steps, strict=True):
            # those that end now end exactly, whatever rounding left of them
            if step_s <= step * (1 + 1e-12):
                del self.running[resource]
                self._finish(running_task.task)
            else:
                running_task.left -= step * speed

    def _finish(self, index: int) -> None:
        self.end[index] = self.now
        self.ledger.end(index)
        for reader in self.readers[index]:
            self.waits[reader] -= 1
            if self.waits[reader] == 0:
                self._offer(reader)
