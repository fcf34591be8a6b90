"""Buffers in time and space: GraphTurbo, OSDI '23, section 4.3.

Time counts steps: a step per layer of every kernel in order, and one for the copies before a
kernel. A buffer is live from the step that makes it to the last that reads it, and its space is
reused right after. When the live set passes a capacity, the longest-lived tensor (in steps) is
moved out first, from LB to GB, then to DDR. The paper leaves placement open; all lifetimes are
known beforehand, so ours places the largest buffers first, each at the lowest address that is free
for its whole life (first fit in order of birth left a third of ResNet-50's skip tensors homeless).

A tensor that is not in LB is streamed through a staging zone at the top of LB by whoever writes or
reads it, tile by tile; likewise weights and streams pass a staging zone at the top of GB.
"""

from __future__ import annotations

import dataclasses
import heapq
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoturbo.compiled import compiled
from autoturbo.graph.arrays import Ints
from autoturbo.schedule.context import Zones
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.work import Flags

ALIGNMENT = 64
"""Bytes: a burst of every memory in the presets."""

VICTIMS: Mapping[str, Callable[[int, int], int]] = {
    "longest": lambda life, _: life,
    "largest": lambda _, size: size,
    "size_times_lifetime": operator.mul,
}
"""Spill rules: by steps of its life and bytes, the buffer with most leaves first."""

STRIDE, CROWDED = 8, 1e8
"""Steps in which buffers count as alive together, and pairs of such buffers beyond which the first
born, not the largest, are placed first: placing the largest first takes time by the pair."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """Tensors in time. Arrays of one entry per buffer.

    Attributes:
        birth: Step that makes it.
        death: Last step that reads it.
        core_bytes: Bytes in the local buffer of the busiest core.
        cluster_bytes: All of it.
        scope: Where it is declared on entry of :func:`allocate`; where it is kept in its result.
        address: Offset in LB of every core or in GB; -1 in DDR. On entry, what is fixed already.
    """

    birth: Ints
    death: Ints
    core_bytes: Ints
    cluster_bytes: Ints
    scope: Ints
    address: Ints


def allocate(buffers: Buffers, zones: Zones, victims: Sequence[str]) -> Buffers:
    """Place buffers in LB, those that do not fit in GB, and the rest in DDR.

    Buffers with an address on entry stay there.

    Args:
        buffers: Buffers with the scopes that binding declared.
        zones: Capacities.
        victims: Per buffer, which one leaves first when it is made: keys of :data:`VICTIMS`.

    Returns:
        The buffers with their scopes and addresses; those in DDR have no address.
    """
    scope, address = buffers.scope.copy(), buffers.address.copy()
    born = np.argsort(buffers.birth, kind="stable")
    fixed = address >= 0
    levels = (Scope.LB, buffers.core_bytes, zones.lb), (Scope.GB, buffers.cluster_bytes, zones.gb)
    for level, sizes, room in levels:
        lives = np.stack((buffers.birth, buffers.death, -(-sizes // ALIGNMENT) * ALIGNMENT))
        scope[_leaving(born[scope[born] == level], lives, fixed, victims, room)] = level + 1
        in_level = born[scope[born] == level]
        # what is fixed, then the largest or the first born first, of equals the first born
        size = lives[2, in_level] * (not _crowded(lives[:2, in_level]))
        in_level = in_level[np.lexsort((-size, ~fixed[in_level]))]
        _place(in_level, lives, room, address)
        scope[in_level[address[in_level] < 0]] = level + 1
    return dataclasses.replace(buffers, scope=scope, address=address)


def _leaving(born: Ints, lives: Ints, fixed: Flags, victims: Sequence[str], room: int) -> list[int]:
    """Return the buffers that leave a level while its live set exceeds its capacity.

    Of equal ones the first born leaves.

    Args:
        born: The level's buffers in order of birth.
        lives: Birth, death (steps) and bytes of all buffers, ``(3, buffers)``.
        fixed: Whether a buffer stays in any case, for all buffers.
        victims: Per buffer, the rule by which one leaves when it is made: keys of :data:`VICTIMS`.
        room: Capacity of the level in bytes.
    """
    birth, death, size = lives.tolist()
    alive, ends, live, left = dict[int, int](), list[tuple[int, int]](), 0, list[int]()
    for buffer in born.tolist():
        # In its last step a buffer is still read: its space is free from the next one on.
        while ends and ends[0][0] < birth[buffer]:
            # Some of those that end here have left before.
            live -= alive.pop(heapq.heappop(ends)[1], 0)
        alive[buffer], live, rule = size[buffer], live + size[buffer], VICTIMS[victims[buffer]]
        heapq.heappush(ends, (death[buffer], buffer))
        while live > room and (free := [other for other in alive if not fixed[other]]):
            left.append(max(free, key=lambda x: rule(death[x] - birth[x] + 1, size[x])))
            live -= alive.pop(left[-1])
    return left


def _crowded(lives: Ints) -> bool:
    """Return whether more than :data:`CROWDED` pairs of buffers live in the same few steps."""
    first, last = lives // STRIDE
    change = np.zeros(int(last.max(initial=0)) + 2)
    np.add.at(change, first, 1)
    np.subtract.at(change, last + 1, 1)
    return float((change.cumsum() ** 2).sum()) > CROWDED


@compiled
def _place(order: Ints, lives: Ints, room: int, address: Ints) -> None:
    """Place buffers in turn, each at the lowest address that is free for its whole life.

    Buffers with an address stay there; those that find no room get none.

    Args:
        order: The buffers, in turn.
        lives: Birth, death (steps) and bytes of all buffers, ``(3, buffers)``.
        room: Capacity in bytes.
        address: Addresses of all buffers, -1 for none; those found are written into it.
    """
    birth, death, size = lives
    placed, count = np.empty_like(order), 0  # by address
    for buffer in order:
        at, fixed = max(address[buffer], 0), address[buffer] >= 0
        for position in range(0 if fixed else count):
            other = placed[position]
            if address[other] >= at + size[buffer]:
                break
            if death[other] >= birth[buffer] and birth[other] <= death[buffer]:
                at = max(at, address[other] + size[other])
        # Without a place it is passed over: a smaller one may still fit.
        if not fixed and at + size[buffer] > room:
            continue
        address[buffer] = at
        position = count
        while position > 0 and address[placed[position - 1]] > at:
            placed[position] = placed[position - 1]
            position -= 1
        placed[position] = buffer
        count += 1


def peak_use(buffers: Buffers, level: Scope) -> int:
    """Return the highest end of any buffer at a level, in bytes."""
    in_level = buffers.scope == level
    sizes = buffers.core_bytes if level is Scope.LB else buffers.cluster_bytes
    return int((buffers.address[in_level] + sizes[in_level]).max()) if in_level.any() else 0


def live_peak_bytes(buffers: Buffers, level: Scope) -> int:
    """Return the most bytes alive at once at a level, whole tensors of a cluster."""
    in_level = buffers.scope == level
    if not in_level.any():
        return 0
    change = np.zeros(int(buffers.death.max()) + 2, np.int64)
    np.add.at(change, buffers.birth[in_level], buffers.cluster_bytes[in_level])
    np.subtract.at(change, buffers.death[in_level] + 1, buffers.cluster_bytes[in_level])
    return int(change.cumsum().max())
