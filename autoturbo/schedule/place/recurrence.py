"""What a step of a recurrence takes, and which of its output's dimensions cores share out first.

A step begins when the one before has ended: its seconds are those of one core's part, of the state
that cores then exchange, and of the barrier between. Sharing out samples needs no exchange, but
every core then reads all weights of a step; sharing out hidden units leaves each core a part of
them that may stay in its local buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoturbo.graph.domain import AxisKind
from autoturbo.graph.operators import Operator, element_bytes
from autoturbo.hardware.parts import storage_ratio
from autoturbo.hardware.target import Target
from autoturbo.schedule.codegen.work import (
    COLUMNS,
    DEPTH,
    MATRIX,
    ROWS,
    array_of,
    axis_roles,
    matrix_cycles,
    priced,
)
from autoturbo.schedule.problem import STAGING_SHARE


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence on a target.

    Attributes:
        operator: one that goes step by step.
        target: the accelerator.
        dtype: the compute type.
    """

    operator: Operator
    target: Target
    dtype: str

    def extent(self, role: int) -> int:
        """Return the points along the axes of a role that are no hidden units."""
        roles = zip(self.operator.axes, axis_roles(self.operator), strict=True)
        own = (axis for axis, its in roles if its == role)
        return math.prod(axis.extent for axis in own if axis.kind is not AxisKind.SPREAD)

    @property
    def hidden(self) -> int:
        """Return the number of hidden units."""
        return next((a.extent for a in self.operator.axes if a.kind is AxisKind.SPREAD), 1)

    def step_seconds(self, samples: float, directions: float, units: float) -> float:
        """Return the seconds of one step on a core with so many samples, directions and units.

        What is read from the local buffer and loaded is left out.
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
        """Return the seconds of one step, given the parts of each axis that is shared out.

        Weights that no core has room for are loaded again at every step.
        """
        extents, units, shared = dict.fromkeys((ROWS, COLUMNS), 1.0), float(self.hidden), 1
        roles = axis_roles(self.operator)
        for index, (axis, role) in enumerate(zip(self.operator.axes, roles, strict=True)):
            own = axis.extent / parts.get(index, 1)
            if axis.kind is AxisKind.SPREAD:
                units = own
            elif role in extents:
                extents[role] *= own
            shared *= parts.get(index, 1) if role == COLUMNS else 1
        weights = self.operator.work.macs * self.hidden * units * extents[COLUMNS] * self._element
        room = max(self.target.lb.weight_capacity, self.target.lb.capacity // STAGING_SHARE)
        again = weights * shared / self.target.ddr_bandwidth_per_cluster
        return self.step_seconds(extents[ROWS], extents[COLUMNS], units) + again * (weights > room)
