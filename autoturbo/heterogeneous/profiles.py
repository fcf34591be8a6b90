"""Profiles: the time of layers on a processing unit by themselves.

A profile is the simulator's measurement of the published heuristic's schedule of the layers on the
unit, launch and barrier included, with all that crosses their boundary in DDR. Layers of the same
structure are profiled once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoturbo.graph.extract import extract
from autoturbo.graph.layers import Layer, layers_of
from autoturbo.graph.operators import Graph, tensor_bytes
from autoturbo.hardware.machine import Machine
from autoturbo.heterogeneous.parts import units_of
from autoturbo.schedule.memory.allocate import Buffers, live_peak_bytes
from autoturbo.schedule.memory.timeline import TENSOR
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement, Outcome

SCHEDULER = "graphturbo"
"""What schedules the layers of a part on its unit."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The time and memory of layers together on a unit.

    Attributes:
        seconds: Seconds that they take alone, with the memory's whole bandwidth.
        bytes: Bytes read from and written to the shared memory.
        spilled: Most bytes of shared memory that hold what layers make for each other.
        gb_bytes: Bytes read from and written to global buffers.
        kernels: Kernels that are launched.
        peak_lb: Most bytes of one core's local buffer in use.
        peak_gb: Most bytes of one cluster's global buffer in use.
    """

    seconds: float
    bytes: float
    spilled: int = 0
    gb_bytes: int = 0
    kernels: int = 0
    peak_lb: int = 0
    peak_gb: int = 0


@dataclass(eq=False)
class Profiles:
    """Profiles of one model's layers on one machine's units.

    Attributes:
        graph: The model.
        machine: The machine that it runs on.
        dtype: The compute type of all units.
        layers: The layers of the model.
        units: Per layer, the units that can run it.
        made: Schedules that were simulated so far.
    """

    graph: Graph
    machine: Machine
    dtype: str
    layers: tuple[Layer, ...] = ()
    units: tuple[tuple[int, ...], ...] = ()
    made: int = 0
    _known: dict[tuple[str, str], Profile | Failure] = field(default_factory=dict)
    _asked: dict[tuple[int, tuple[int, ...]], Profile | Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Split the model into layers."""
        self.layers = layers_of(self.graph)
        self.units = units_of(self.machine, self.graph, self.layers)

    def of(self, unit: int, layers: Sequence[int]) -> Profile | Failure:
        """Return the profile of layers together on a unit; a failure where they do not fit.

        Raises:
            ValueError: The unit does not take one of them.
        """
        key = (unit, tuple(layers))
        if key not in self._asked:
            for layer in layers:
                if unit not in self.units[layer]:
                    name = self.layers[layer].name
                    message = f"unit {self.machine.units[unit].name} does not take layer {name}"
                    raise ValueError(message)
            self._asked[key] = self._profile(unit, layers)
        return self._asked[key]

    def seconds(self, unit: int, layers: Sequence[int]) -> float:
        """Return the seconds of layers together on a unit; infinite where they do not fit."""
        profile = self.of(unit, layers)
        return profile.seconds if isinstance(profile, Profile) else math.inf

    def handover(self, first: int, second: int, layer: int) -> float:
        """Return the seconds to copy a layer's inputs from one unit to another, with the switch."""
        read = sum(self.bytes(tensor) for tensor in self.layers[layer].inputs)
        return copy_seconds(self.machine, first, second, read)

    def bytes(self, tensor: int) -> int:
        """Return the bytes of a whole tensor in the shared memory."""
        return tensor_bytes(self.graph.tensors[tensor], self.dtype)

    def schedule(self, unit: int, layers: Sequence[int]) -> Schedule:
        """Return the schedule that a profile measures."""
        target = self.machine.units[unit].target
        return Evaluator(self._part(layers), target, self.dtype).scheduler(SCHEDULER)[0]

    def _part(self, layers: Sequence[int]) -> Graph:
        inside = (o for layer in layers for o in self.layers[layer].operators)
        return extract(self.graph, inside)

    def _profile(self, unit: int, layers: Sequence[int]) -> Profile | Failure:
        target = self.machine.units[unit].target
        part = self._part(layers)
        key = (part.hash, target.hash)
        if key not in self._known:
            self.made += 1
            schedule, outcome = Evaluator(part, target, self.dtype).scheduler(SCHEDULER)
            self._known[key] = _profile_of(schedule, outcome)
        return self._known[key]


def copy_seconds(machine: Machine, first: int, second: int, copied: int) -> float:
    """Return the seconds to copy bytes from one unit to another, at full bandwidth."""
    link = machine.link(first, second)
    if link is None:
        # the copy reads and writes the shared memory: there is no other way
        return machine.switch + machine.ddr.latency + 2 * copied / machine.bandwidth
    return machine.switch + link.latency + copied / link.bandwidth


def _profile_of(schedule: Schedule, outcome: Outcome) -> Profile | Failure:
    if not isinstance(outcome, Measurement):
        return outcome
    return Profile(
        outcome.latency, float(outcome.ddr_bytes), _spilled(schedule), outcome.gb_bytes,
        outcome.kernels, outcome.peak_lb_bytes, outcome.peak_gb_bytes,
    )  # fmt: skip


def _spilled(schedule: Schedule) -> int:
    """Return the peak bytes of DDR for tensors that do not leave the part, in all clusters."""
    graph, total = schedule.context.graph, 0
    for timeline in schedule.timelines:
        inside = (timeline.kind == TENSOR) & ~np.isin(timeline.tensor, list(graph.outputs))
        inner = [np.asarray(column)[inside] for column in dataclasses.astuple(timeline.buffers)]
        total += live_peak_bytes(Buffers(*inner), Scope.DDR)
    return total * schedule.share.copies  # a timeline stands for all clusters that work alike
