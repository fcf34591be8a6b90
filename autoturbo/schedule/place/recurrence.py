"""What a step of a recurrence takes, and which of its output's dimensions cores share out first.

A step begins when the one before has ended: its seconds are those of one core's part, of the
state that cores then exchange, and of the barrier between. Sharing out samples needs no
exchange, but every core then reads all weights of a step; sharing out hidden units leaves each
core a part of them that may stay in its local buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Operator, element_bytes
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.target import Target
from autoturbo.schedule.context import STAGING_SHARE
from autoturbo.schedule.work import (
    COLUMNS,
    DEPTH,
    MATRIX,
    ROWS,
    array_of,
    axis_roles,
    matrix_cycles,
    priced,
)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence on a target.

    Attributes:
        operator: One that goes step by step.
        target: The accelerator.
        dtype: The compute type.
    """

    operator: Operator
    target: Target
    dtype: str

    def extent(self, role: int) -> int:
        """Return the points along the axes of a role, hidden units left out."""
        roles = zip(self.operator.axes, axis_roles(self.operator), strict=True)
        role_axes = (axis for axis, its in roles if its == role)
        return math.prod(axis.extent for axis in role_axes if axis.kind is not AxisKind.SPREAD)

    @property
    def hidden(self) -> int:
        """Return the number of hidden units."""
        return next((a.extent for a in self.operator.axes if a.kind is AxisKind.SPREAD), 1)

    def step_seconds(self, samples: float, directions: float, units: float) -> float:
        """Return the seconds of one step on a core that has some samples, directions and units.

        Reads of the local buffer and loads are left out.
        """
        work, engine = priced(self.operator, self.target, self.dtype), self.target.matrix
        vector, points = self.target.vector, samples * directions * units
        depth = self.extent(DEPTH)
        simple, seconds = points * (work.vector + depth * work.per_point), 0.0
        if work.engine == MATRIX:
            array = array_of(engine)
            cycles = matrix_cycles(work.macs, samples, directions * units, depth, array)
            rate = dict(engine.rate)[self.dtype]
            seconds = (cycles / rate + engine.startup_cycles) / self.target.clock
        else:
            simple += points * depth * work.macs
        cycles = simple / vector.elements_per_cycle(self.dtype) + vector.startup_cycles
        cycles += points * work.special / vector.special_lanes
        transfer, exchange = self.target.transfer, 0.0
        if units < self.hidden:  # a core gets those that others made
            foreign = samples * directions * (self.hidden - units) * self._element
            exchange = foreign / transfer.bandwidth + transfer.latency
            exchange += self.target.overheads.barrier
        return seconds + cycles / self.target.clock + exchange

    @property
    def _element(self) -> float:
        return element_bytes("float32", self.dtype) * storage_ratio(self.dtype)

    def bound_seconds(self, parts: Mapping[int, int]) -> float:
        """Return the seconds of one step, given the number of parts of each divided axis.

        Weights that no core has room for are loaded again at every step.
        """
        extents, units, shared = dict.fromkeys((ROWS, COLUMNS), 1.0), float(self.hidden), 1
        roles = axis_roles(self.operator)
        for index, (axis, role) in enumerate(zip(self.operator.axes, roles, strict=True)):
            part_extent = axis.extent / parts.get(index, 1)
            if axis.kind is AxisKind.SPREAD:
                units = part_extent
            elif role in extents:
                extents[role] *= part_extent
            shared *= parts.get(index, 1) if role == COLUMNS else 1
        weights = self.operator.work.macs * self.hidden * units * extents[COLUMNS] * self._element
        # What a kernel has for tiles of weights, if no knob asks for more.
        room = max(self.target.lb.weight_capacity, self.target.lb.capacity // STAGING_SHARE)
        load_s = weights * shared / self.target.ddr_bandwidth_per_cluster
        return self.step_seconds(extents[ROWS], extents[COLUMNS], units) + load_s * (weights > room)
