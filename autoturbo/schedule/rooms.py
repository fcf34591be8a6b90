"""What a sub-graph's tensors can be kept in: their sizes as a whole, rooms and rates of memories.

A part is laid out alone; whether what it reads and writes can stay on the chip until the next part
or sub-graph comes for it is a matter of whole tensors and of what the buffers hold.
"""

from __future__ import annotations

import numpy as np

from autoturbo.schedule.allocate import Zones
from autoturbo.schedule.instances import external_inputs
from autoturbo.schedule.problem import Problem
from autoturbo.schedule.work import Floats

ROOMS = (
    "whole_input_bytes",
    "whole_output_bytes",
    "lb_bytes",
    "weight_room_bytes",
    "gb_room_bytes",
    "ddr_bandwidth",
    "gb_bandwidth",
    "overhead_s",
)
"""Columns of :func:`rooms_of`: bytes of all that a sub-graph reads from others and writes, in a
pass; of a cluster the local buffers, what weight tiles have of them anyway, and GB without its
staging zone; bytes a second of DDR and GB for one cluster; launch and barrier."""


def rooms_of(problem: Problem, layers: tuple[int, ...]) -> Floats:
    """A row of :data:`ROOMS` for the sub-graph of some layers, remembered."""
    key = ("rooms", layers)
    found = problem.books.get(key)
    if not isinstance(found, np.ndarray):
        made = [t for t in external_inputs(problem, layers) if problem.producer[t] >= 0]
        own = [_bytes(problem, made), _bytes(problem, problem.layers[layers[-1]].outputs)]
        found = np.concatenate((own, _memories(problem)))
        problem.books[key] = found
    return found


def _bytes(problem: Problem, tensors: tuple[int, ...] | list[int]) -> int:
    element = problem.arrays.element
    return sum(problem.graph.tensors[t].elements * int(element[t]) for t in tensors)


def _memories(problem: Problem) -> Floats:
    found = problem.memory.get("rooms")
    if not isinstance(found, np.ndarray):
        target, zones = problem.target, Zones.of(problem.target)
        weights = max(target.lb.weight_capacity, zones.lb_staging)
        found = np.asarray((
            target.cores * target.lb.capacity, target.cores * weights, zones.gb,
            target.ddr_bandwidth_per_cluster, target.gb.bandwidth,
            target.overheads.per_kernel,
        ), np.float64)  # fmt: skip
        problem.memory["rooms"] = found
    return found
