"""PartitionTuner and the schedulers it was compared with: layers assigned to a machine's units.

Yu et al., "PartitionTuner", ETRI Journal 45(2), 2023 (baselines.md, section 3), on our layers and
profiles. Kept as published, holes included: no cost for crossing from one branch to the next, one
price for all links, no contention, no check that side by side is faster. Units are given by type,
by profile, and by profile with groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoturbo.graph.layers import Layer
from autoturbo.graph.operators import Graph
from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.parts import Assignment, Branch, assign, branches_of, layer_producers

LONGEST_GROUP = 3
"""Layers that are profiled together at most (PartitionTuner: chains of two or three operators)."""


class Costs(Protocol):
    """The profiles of one model on one machine."""

    @property
    def graph(self) -> Graph:
        """Return the model."""
        ...

    @property
    def machine(self) -> Machine:
        """Return the machine that runs it."""
        ...

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return the layers of the model."""
        ...

    @property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Return, per layer, the units that can run it."""
        ...

    def seconds(self, unit: int, layers: Sequence[int]) -> float:
        """Return the seconds of layers together on a unit; infinite where they do not fit."""
        ...

    def handover(self, first: int, second: int, layer: int) -> float:
        """Return the seconds to copy a layer's inputs from one unit to another, with the switch."""
        ...


def static(costs: Costs) -> Assignment:
    """Return the assignment by type: layers go to the first unit besides unit 0 that takes them."""
    units = [possible[1] if len(possible) > 1 else possible[0] for possible in costs.units]
    return assign(costs.graph, costs.layers, units, range(len(units)))


def profiled(costs: Costs) -> Assignment:
    """Return the assignment by profiles of single layers, branch by branch (as DUET, no groups)."""
    return _assigned(costs, 1)


def partition_tuner(costs: Costs) -> Assignment:
    """Return the assignment by profiles of single layers and of groups, branch by branch."""
    return _assigned(costs, LONGEST_GROUP)


@dataclass(frozen=True, slots=True)
class _Step:
    """The best way to run the first layers of a branch, its last ones as a group on a unit."""

    seconds: float
    unit: int
    length: int
    before: _Step | None


def _assigned(costs: Costs, longest: int) -> Assignment:
    branches = branches_of(layer_producers(costs.graph, costs.layers))
    units, heads = [0] * len(costs.layers), set[int]()
    for index, branch in enumerate(branches):
        step: _Step | None = _best_way(costs, branch.layers, longest)
        end = len(branch.layers)
        # steps are linked from the end of the branch back
        while step is not None:
            group = branch.layers[end - step.length : end]
            for layer in group:
                units[layer] = _spread(costs, branch, index, step.unit, layer)
            heads.add(group[0])
            end, step = end - step.length, step.before
    return assign(costs.graph, costs.layers, units, heads)


def _best_way(costs: Costs, layers: Sequence[int], longest: int) -> _Step:
    """Return the best units along a branch by a dynamic programme (Viterbi) over kinds of units."""
    # equal units take equal times, so that one of a kind stands for all
    kinds = _first_of_kind(costs.machine)
    ways: list[dict[int, _Step]] = []
    for end in range(1, len(layers) + 1):
        steps: dict[int, _Step] = {}
        for unit in kinds:
            for length in range(1, min(longest, end) + 1):
                step = _extended(costs, ways, layers[end - length : end], unit)
                if step is not None and (unit not in steps or step.seconds < steps[unit].seconds):
                    steps[unit] = step
        ways.append(steps)
    return min(ways[-1].values(), key=lambda step: step.seconds)


def _extended(
    costs: Costs, ways: Sequence[dict[int, _Step]], group: Sequence[int], unit: int
) -> _Step | None:
    """Return a group on a unit after the best assignment of what comes before it."""
    if any(unit not in costs.units[layer] for layer in group):
        return None
    group_s = costs.seconds(unit, group)
    if math.isinf(group_s) or (
        len(group) > 1 and group_s >= sum(costs.seconds(unit, [i]) for i in group)
    ):
        return None  # a group that is no faster than its layers is none
    first = len(ways) + 1 - len(group)
    if first == 0:
        return _Step(group_s, unit, len(group), None)
    best = None
    for step in ways[first - 1].values():
        # what the layer reads goes there and what it makes comes back
        moved = 0.0 if step.unit == unit else 2 * costs.handover(step.unit, unit, group[0])
        total = step.seconds + moved + group_s
        if best is None or total < best.seconds:
            best = _Step(total, unit, len(group), step)
    return best


def _first_of_kind(machine: Machine) -> list[int]:
    """Return the first unit of every kind."""
    first: dict[str, int] = {}
    for index, unit in enumerate(machine.units):
        first.setdefault(unit.kind, index)
    return list(first.values())


def _spread(costs: Costs, branch: Branch, index: int, unit: int, layer: int) -> int:
    """Return a branch's unit: parallel branches go to units of their own where there are enough."""
    kind = costs.machine.units[unit].kind
    alike = [i for i, other_unit in enumerate(costs.machine.units) if other_unit.kind == kind]
    if len(branch.beside) == 1 or len(alike) == 1:
        return unit
    chosen = alike[branch.beside.index(index) % len(alike)]
    return chosen if chosen in costs.units[layer] else unit
