"""Where a schedule loses most: what its parts take beyond what their work needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from autoturbo.graph.extract import extract
from autoturbo.hardware.target import storage_ratio
from autoturbo.schedule.work import in_integers
from autoturbo.simulate.bound import lower_bound, weight_bytes
from autoturbo.simulate.shares import ScheduleShares, Shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autoturbo.schedule.schedule import Schedule

WORST = 5
"""Spots that are shown."""

Part = Literal["layer", "between"]


@dataclass(frozen=True, slots=True)
class Spot:
    """Alike layers, as the blocks of a network have them, or what lies between kernels.

    Attributes:
        part: ``"layer"``; or ``"between"``: launches, barriers, and the movements before kernels,
            of the whole schedule.
        layers: names of the layers; none between kernels.
        subgraphs: numbers of the sub-graphs that they belong to, alike as well.
        anchors: the last layer of each of these, by which knobs name it.
        seconds: that they add to the latency together.
        shares: of that time.
        needs: seconds that their work needs whatever the schedule: the most of matrix work and
            vector work at peak and of reading their weights once from DDR; none between kernels.
    """

    part: Part
    layers: tuple[str, ...]
    subgraphs: tuple[int, ...]
    anchors: tuple[str, ...]
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
    spots = [s for alike in kinds.values() for s in _of_kind(schedule, found, tuple(alike))]
    spots.append(_between(found))
    losing = [spot for spot in spots if spot.lost > 0]
    return tuple(sorted(losing, key=lambda s: (-s.lost, s.subgraphs, s.layers)))[:most]


def _kind(schedule: Schedule, index: int) -> object:
    """Equal for sub-graphs of the same operators on the same extents, split alike."""
    graph, subgraph = schedule.problem.graph, schedule.instances.subgraphs[index]
    layers = (schedule.problem.layers[layer] for layer in subgraph.layers)
    inside = ((graph.operators[o] for o in layer.operators) for layer in layers)
    described = tuple(tuple((o.kind, o.extents) for o in operators) for operators in inside)
    return subgraph.split.axes, described


def _of_kind(schedule: Schedule, found: ScheduleShares, alike: tuple[int, ...]) -> Iterator[Spot]:
    """The layers of alike sub-graphs, one spot for each place in them."""
    graph, names = schedule.instances, [layer.name for layer in schedule.problem.layers]
    anchors = tuple(found.subgraphs[i].layer for i in alike)
    for layers in zip(*(graph.subgraphs[i].layers for i in alike), strict=True):
        shares = _sum(found.layers[layer].shares for layer in layers)
        yield Spot(
            "layer", tuple(names[layer] for layer in layers), alike, anchors, shares.total, shares,
            len(alike) * _needs(schedule, layers[0]),
        )  # fmt: skip


def _between(found: ScheduleShares) -> Spot:
    """What is paid beside the work of layers, waiting for other clusters included."""
    inside = _sum(layer.shares for layer in found.layers)
    around = np.maximum(np.asarray(found.shares.seconds) - np.asarray(inside.seconds), 0.0)
    every = tuple(one.subgraph for one in found.subgraphs)
    return Spot("between", (), every, (), float(around.sum()), Shares.of(around), 0.0)


def _sum(some: Iterable[Shares]) -> Shares:
    return Shares.of(np.sum([one.seconds for one in some], axis=0))


def _needs(schedule: Schedule, layer: int) -> float:
    """Seconds of the whole chip for a layer of the whole batch."""
    problem, share = schedule.problem, schedule.share
    try:
        part = extract(problem.graph, problem.layers[layer].operators)
    except ValueError:  # nothing that it makes is used
        return 0.0
    bound = lower_bound(part, problem.target, problem.dtype)
    integers = in_integers(problem.target, problem.dtype)
    read = weight_bytes(part, problem.dtype, integers=integers) * storage_ratio(problem.dtype)
    passes = share.loops * share.copies
    return max(
        bound.matrix_s * passes, bound.vector_s * passes, read / problem.target.ddr.bandwidth
    )


__all__ = ["WORST", "Part", "Spot", "spots_of"]
