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

# Who holds how much of which memory while tasks run.
#
# A holding is taken when its maker begins and given back when the last of its users has ended. A
# task may begin only where all that it makes has room, in every memory that it counts against.


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation in memories for some time.

    Attributes:
        memories: That they count against, by index.
        bytes: How many.
        maker: Task at whose begin they are taken.
        users: Tasks that must have ended before they are given back, the maker among them.
    """

    memories: tuple[int, ...]
    bytes: int
    maker: int
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memories:
    """The capacity of each memory, and the tasks' demands on it.

    Attributes:
        capacities: Bytes, by memory.
        fixed: Bytes that are held all the time: weights, the model's inputs and outputs.
        holdings: All others.
    """

    capacities: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    holdings: tuple[Holding, ...] = ()


class NoRoomError(Exception):
    """A deadlock: no task runs, and no ready task fits the memory.

    Attributes:
        memory: That is too small.
        demand: Bytes that would be held in it.
    """

    def __init__(self, memory: int, demand: int) -> None:
        super().__init__(f"memory {memory} would hold {demand} bytes")
        self.memory, self.demand = memory, demand


class Ledger:
    """The bytes allocated in each memory.

    Args:
        memories: The memories, and what is held in each by whom.
        tasks: How many tasks there are.

    Raises:
        NoRoomError: What is held all the time does not fit.
    """

    def __init__(self, memories: Memories, tasks: int) -> None:
        self._capacities = memories.capacities
        self._held = list(memories.fixed)
        self._holdings = memories.holdings
        self._made: list[list[int]] = [[] for _ in range(tasks)]
        self._used: list[list[int]] = [[] for _ in range(tasks)]
        self._left = [len(set(holding.users)) for holding in memories.holdings]
        for index, holding in enumerate(memories.holdings):
            self._made[holding.maker].append(index)
            for user in set(holding.users):
                self._used[user].append(index)
        for memory, held in enumerate(self._held):
            if held > self._capacities[memory]:
                raise NoRoomError(memory, held)
        self.peaks = list(self._held)

    def lacking(self, task: int) -> NoRoomError | None:
        """Return the error of the memory that lacks room for a task; None where it fits."""
        for memory, demand in sorted(self._demands(self._made[task]).items()):
            if self._held[memory] + demand > self._capacities[memory]:
                return NoRoomError(memory, self._held[memory] + demand)
        return None

    def begin(self, task: int) -> None:
        """Allocate a task's outputs."""
        for memory, demand in self._demands(self._made[task]).items():
            self._held[memory] += demand
            self.peaks[memory] = max(self.peaks[memory], self._held[memory])

    def end(self, task: int) -> None:
        """Free the tensors that no task waits for any more."""
        freed_holdings = []
        for index in self._used[task]:
            self._left[index] -= 1
            if not self._left[index]:
                freed_holdings.append(index)
        for memory, freed in self._demands(freed_holdings).items():
            self._held[memory] -= freed

    def _demands(self, holdings: Sequence[int]) -> dict[int, int]:
        demands: dict[int, int] = {}
        for index in holdings:
            holding = self._holdings[index]
            for memory in holding.memories:
                demands[memory] = demands.get(memory, 0) + holding.bytes
        return demands


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel on a unit, or a transfer on a link.

    Attributes:
        resource: Index of what it keeps busy.
        seconds: That it takes alone; 0 for one that only waits for others.
        bytes: Of shared memory that it reads and writes.
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
        begin: Seconds.
        end: Seconds.
        rates: Bytes per second of the tasks that run, by task.
    """

    begin: float
    end: float
    rates: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Timetable:
    """The begin and end of every task.

    Attributes:
        begin: Seconds, per task.
        end: Seconds, per task.
        stretches: In order of time, those in which something runs.
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
        resources: How many resources there are.
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
        heapq.heappush(self.ready[self.tasks[index].resource], (-self.ranks[index], index))

    def _start(self) -> None:
        """Give every free resource its next task; a task without seconds is over at once."""
        moved = True
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
