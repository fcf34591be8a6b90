"""Identical lines of lists, told once with their number: blocks of a network are alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from autoturbo.report.names import layer_title
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import ScheduleShares, Shares

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """Alike layers or sub-graphs as one line of a list, with their times added up.

    Attributes:
        label: Number, operator and shape of the layers, and the first one's name in the model file.
        members: Indices of the layers or sub-graphs.
        seconds: Seconds that they add to the latency together.
        shares: That time by what bounds it.
        slack: Sum of the slack of sub-graphs, least slack of layers.
    """

    label: str
    members: tuple[int, ...]
    seconds: float
    shares: Shares
    slack: float


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Return items grouped by key, the groups in the order of their first items."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def numbered(schedule: Schedule, layers: Sequence[int]) -> str:
    """Return alike layers as one label: ``12 x MatMul 128x768x768 (node_MatMul_49, ...)``."""
    name = schedule.context.layers[layers[0]].name
    title = layer_title(schedule, layers[0])
    if len(layers) == 1:
        return f"{title} ({name})"
    return f"{len(layers)} x {title} ({name}, ...)"


def subgraph_kind(schedule: Schedule, index: int) -> Hashable:
    """Return a key, equal for sub-graphs of the same operators and extents, split the same way."""
    graph, subgraph = schedule.context.graph, schedule.instances.subgraphs[index]
    layers = (schedule.context.layers[layer] for layer in subgraph.layers)
    inside = ((graph.operators[o] for o in layer.operators) for layer in layers)
    described = tuple(tuple((o.kind, o.extents) for o in operators) for operators in inside)
    return subgraph.split.axes, described


def subgraph_lines(schedule: Schedule, found: ScheduleShares) -> tuple[Line, ...]:
    """Return the sub-graphs, isomorphic ones on one line, those that take longest first."""
    subgraphs = schedule.instances.subgraphs
    groups = alike(found.subgraphs, lambda one: subgraph_kind(schedule, one.subgraph))
    return _longest_first(
        Line(
            numbered(schedule, [subgraphs[one.subgraph].layers[-1] for one in group]),
            tuple(one.subgraph for one in group), sum(one.seconds for one in group),
            added(one.shares for one in group), sum(one.slack for one in group),
        )
        for group in groups
    )  # fmt: skip


def layer_lines(schedule: Schedule, found: ScheduleShares) -> tuple[Line, ...]:
    """Return the layers, those that read alike and are bound alike on one line, longest first."""
    groups = alike(
        found.layers,
        lambda one: (layer_title(schedule, one.layer), one.seconds > 0 and one.shares.limit),
    )
    return _longest_first(
        Line(
            numbered(schedule, [one.layer for one in group]), tuple(one.layer for one in group),
            sum(one.seconds for one in group), added(one.shares for one in group),
            min(one.slack for one in group),
        )
        for group in groups
    )  # fmt: skip


def added(some: Iterable[Shares]) -> Shares:
    """Return the sum of the shares of several parts."""
    return Shares.of(np.sum([one.seconds for one in some], axis=0))


def _longest_first(lines: Iterable[Line]) -> tuple[Line, ...]:
    return tuple(sorted(lines, key=lambda line: (-line.seconds, line.members)))
