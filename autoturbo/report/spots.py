"""Where a schedule loses most: sub-graphs by what they take beyond what their work needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autoturbo.graph.extract import extract
from autoturbo.hardware.target import storage_ratio
from autoturbo.simulate.bound import lower_bound, weight_bytes
from autoturbo.simulate.shares import ScheduleShares, Shares

if TYPE_CHECKING:
    from autoturbo.schedule.schedule import Schedule

WORST = 5
"""Spots that are shown."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Alike sub-graphs, the blocks of a network, which lose time for the same reason.

    Attributes:
        layers: the last layer of each, by which knobs name it.
        subgraphs: their numbers.
        seconds: that they add to the latency together.
        shares: of that time.
        needs: seconds that their work needs whatever the schedule: the most of matrix work and
            vector work at peak and of reading their weights once from DDR.
    """

    layers: tuple[str, ...]
    subgraphs: tuple[int, ...]
    seconds: float
    shares: Shares
    needs: float

    @property
    def lost(self) -> float:
        """Seconds beyond what is needed, never negative."""
        return max(self.seconds - self.needs, 0.0)


def spots_of(schedule: Schedule, found: ScheduleShares, most: int = WORST) -> tuple[Spot, ...]:
    """The spots that lose most, the worst first.

    Args:
        schedule: what is asked about.
        found: its latency, handed out.
        most: spots at most.
    """
    kinds: dict[object, list[int]] = {}
    for subgraph in schedule.instances.subgraphs:
        kinds.setdefault(_kind(schedule, subgraph.index), []).append(subgraph.index)
    spots = [_spot(schedule, found, tuple(alike)) for alike in kinds.values()]
    losing = [spot for spot in spots if spot.lost > 0]
    return tuple(sorted(losing, key=lambda s: (-s.lost, s.subgraphs)))[:most]


def _kind(schedule: Schedule, index: int) -> object:
    """Equal for sub-graphs of the same operators on the same extents, split alike."""
    graph, subgraph = schedule.problem.graph, schedule.instances.subgraphs[index]
    inside = [graph.operators[o] for o in _operators(schedule, index)]
    described = tuple((operator.kind, operator.extents) for operator in inside)
    return subgraph.split.axes, described


def _operators(schedule: Schedule, index: int) -> list[int]:
    layers = schedule.instances.subgraphs[index].layers
    return [o for layer in layers for o in schedule.problem.layers[layer].operators]


def _spot(schedule: Schedule, found: ScheduleShares, alike: tuple[int, ...]) -> Spot:
    rows = np.asarray([found.subgraphs[i].shares.seconds for i in alike])
    shares = Shares.of(rows.sum(axis=0))
    layers = tuple(found.subgraphs[i].layer for i in alike)
    return Spot(layers, alike, shares.total, shares, len(alike) * _needs(schedule, alike[0]))


def _needs(schedule: Schedule, index: int) -> float:
    """Seconds of the whole chip for a sub-graph of the whole batch."""
    problem, share = schedule.problem, schedule.share
    try:
        part = extract(problem.graph, _operators(schedule, index))
    except ValueError:  # nothing that it makes is used
        return 0.0
    bound = lower_bound(part, problem.target, problem.dtype)
    read = weight_bytes(part, problem.dtype) * storage_ratio(problem.dtype)
    passes = share.loops * share.copies
    return max(
        bound.matrix_s * passes, bound.vector_s * passes, read / problem.target.ddr.bandwidth
    )


__all__ = ["WORST", "Spot", "spots_of"]
