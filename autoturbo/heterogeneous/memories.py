"""Memories: who holds how much of which while tasks run.

A holding is taken when its maker begins and given back when the last of its users has ended. A
task may begin only where all that it makes has room, in every memory that it counts against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation in memories for some time.

    Attributes:
        memories: Indices of the memories that the bytes count against.
        bytes: Bytes that are held.
        maker: Task at whose begin the bytes are taken.
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
        holdings: All other bytes, for the time that they are held.
    """

    capacities: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    holdings: tuple[Holding, ...] = ()


class NoRoomError(Exception):
    """A deadlock: no task runs, and no ready task fits the memory.

    Attributes:
        memory: Index of the memory that is too small.
        demand: Bytes that would be held in it.
    """

    def __init__(self, memory: int, demand: int) -> None:
        super().__init__(f"memory {memory} would hold {demand} bytes")
        self.memory, self.demand = memory, demand


class Ledger:
    """The bytes allocated in each memory.

    Args:
        memories: The memories, and what is held in each by whom.
        tasks: Number of tasks.

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
