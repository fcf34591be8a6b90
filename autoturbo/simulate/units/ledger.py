"""Who holds how much of which memory while tasks run.

A holding is taken when its maker begins and given back when the last of its users has ended. A task
may begin only where all that it makes has room, in every memory that it counts against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes that lie in memories for some time.

    Attributes:
        memories: that they count against, by index.
        bytes: how many.
        maker: task at whose begin they are taken.
        users: tasks that must have ended before they are given back, the maker among them.
    """

    memories: tuple[int, ...]
    bytes: int
    maker: int
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Memories:
    """What there is of each memory, and what tasks hold of it.

    Attributes:
        capacities: bytes, by memory.
        fixed: bytes that are held all the time: weights, the model's inputs and outputs.
        holdings: all others.
    """

    capacities: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    holdings: tuple[Holding, ...] = ()


class NoRoomError(Exception):
    """Nothing runs, and nothing that is ready has room.

    Attributes:
        memory: that is too small.
        demand: bytes that would be held in it.
    """

    def __init__(self, memory: int, demand: int) -> None:
        super().__init__(f"memory {memory} would hold {demand} bytes")
        self.memory, self.demand = memory, demand


class Ledger:
    """Bytes held at a moment.

    Args:
        memories: what there is, and who holds it.
        tasks: how many there are.

    Raises:
        NoRoomError: what is held all the time does not fit.
    """

    def __init__(self, memories: Memories, tasks: int) -> None:
        self._capacities = memories.capacities
        self._held = list(memories.fixed)
        self._holdings = memories.holdings
        self._made: list[list[int]] = [[] for _ in range(tasks)]
        self._used: list[list[int]] = [[] for _ in range(tasks)]
        self._left = [len(set(one.users)) for one in memories.holdings]
        for index, one in enumerate(memories.holdings):
            self._made[one.maker].append(index)
            for user in set(one.users):
                self._used[user].append(index)
        for memory, held in enumerate(self._held):
            if held > self._capacities[memory]:
                raise NoRoomError(memory, held)
        self.peaks = list(self._held)

    def lacking(self, task: int) -> NoRoomError | None:
        """What stands in the way of a task; None where it has room."""
        for memory, demand in sorted(self._demands(self._made[task]).items()):
            if self._held[memory] + demand > self._capacities[memory]:
                return NoRoomError(memory, self._held[memory] + demand)
        return None

    def begin(self, task: int) -> None:
        """Take what a task makes."""
        for memory, demand in self._demands(self._made[task]).items():
            self._held[memory] += demand
            self.peaks[memory] = max(self.peaks[memory], self._held[memory])

    def end(self, task: int) -> None:
        """Give back what nobody waits for any more."""
        gone = []
        for index in self._used[task]:
            self._left[index] -= 1
            if not self._left[index]:
                gone.append(index)
        for memory, freed in self._demands(gone).items():
            self._held[memory] -= freed

    def _demands(self, holdings: Sequence[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        for index in holdings:
            one = self._holdings[index]
            for memory in one.memories:
                found[memory] = found.get(memory, 0) + one.bytes
        return found
