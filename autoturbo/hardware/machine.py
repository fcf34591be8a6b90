"""Machines: processing units of several kinds that share an off-chip memory.

A processing unit is a :class:`~autoturbo.hardware.target.Target` of its own (clusters, cores,
engines, buffers) that may take only some operators; CPU and NPU of one chip are two of them
(PartitionTuner, ETRI Journal 45(2), 2023; baselines.md, section 3)::

    DDR (shared bandwidth) -- units { Target, what it takes } -- links between units, switch cost
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any

from autoturbo.errors import TargetError
from autoturbo.hardware.fields import As, Product, whole
from autoturbo.hardware.target import OffChip, Target
from autoturbo.schema import Flag, Names


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """Layers that a unit takes, by the operator they are built around.

    Attributes:
        kinds: operator kinds of the anchor, as the graph spells them (``"Conv"``).
        channels_multiple: input and output channels must be multiples of it.
        grouped: whether it takes convolutions in groups, depthwise ones among them.
        fused: kinds that may stand in the same layer beside the anchor.
    """

    kinds: Annotated[
        tuple[str, ...],
        As(about="operators that a layer may be built around", example=["Conv"], rule=Names()),
    ]
    channels_multiple: Annotated[
        int, whole("input and output channels are multiples of it", 16, default=1)
    ] = 1
    grouped: Annotated[
        bool, As(about="convolutions in groups too", example=True, default=True, rule=Flag())
    ] = True
    fused: Annotated[
        tuple[str, ...],
        As(
            about="operators that may stand in the same layer",
            example=["Relu"],
            default=(),
            rule=Names(),
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """A processing unit.

    Attributes:
        name: within its machine.
        kind: name that equal units share (``npu`` of ``npu0`` and ``npu1``).
        target: the unit alone, its off-chip memory being the machine's.
        takes: layers it can run; empty where it runs everything.
        memory: bytes of the shared memory that its weights and tensors may take at once; None
            where that is all of it.
    """

    name: str
    kind: str
    target: Target
    takes: tuple[OperatorRule, ...] = ()
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """What data cross between two units, in both directions.

    Attributes:
        units: names of kinds or of units at its ends.
        bandwidth: bytes per second.
        latency: seconds to the first byte.
        through_ddr: whether the copy reads and writes the shared memory.
    """

    units: Annotated[
        tuple[str, str],
        As(
            about="two units or kinds of units",
            example=["cpu", "npu"],
            name="between",
            rule=Names(least=2, most=2),
        ),
    ]
    bandwidth: Annotated[
        float,
        Product(about="of a copy, in 10^9 bytes/s", example=1.5, low=1e-3, high=1e6, suffix="gb_s"),
    ]
    latency: Annotated[
        float,
        Product(about="to the first byte", example=5, high=1e6, suffix="us", default=0.0),
    ]
    through_ddr: Annotated[
        bool,
        As(
            about="copies read and write the shared memory",
            example=True,
            default=True,
            rule=Flag(),
        ),
    ] = True

    def joins(self, first: Unit, second: Unit) -> bool:
        """Whether it is the one between two units."""
        ends = {first.name, first.kind}, {second.name, second.kind}
        one, other = self.units
        return (one in ends[0] and other in ends[1]) or (one in ends[1] and other in ends[0])


@dataclass(frozen=True, slots=True)
class Machine:
    """Processing units and what joins them.

    Attributes:
        name: short name, usable in a file name.
        description: one line for people; affects nothing.
        units: at least one; the first takes everything.
        ddr: the shared off-chip memory; its capacity is that of all units together.
        switch: seconds it costs to hand over from one unit to another: driver, cache, interrupt.
        links: between units; units that no link joins exchange data at the memory's bandwidth.
    """

    name: str
    description: str
    units: tuple[Unit, ...]
    ddr: OffChip
    switch: Annotated[
        float, Product(about="handing over from one unit to another", example=2000, suffix="us")
    ]
    links: tuple[Link, ...] = ()

    @property
    def bandwidth(self) -> float:
        """Bytes per second that the units' transfers have together."""
        return self.ddr.bandwidth * self.ddr.efficiency

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types that every unit computes in."""
        first, *others = (unit.target.dtypes for unit in self.units)
        return tuple(dtype for dtype in first if all(dtype in other for other in others))

    @property
    def default_dtype(self) -> str:
        """The compute type where none is asked for.

        Raises:
            TargetError: the units have none in common.
        """
        if not self.dtypes:
            hint = "give each unit a rate for one and the same type"
            raise TargetError(f"the units of {self.name} have no data type in common", hint=hint)
        return self.dtypes[0]

    def supports(self, dtype: str) -> bool:
        """Whether all units compute in a type."""
        return dtype in self.dtypes

    def as_dict(self) -> dict[str, Any]:
        """The machine as a file holds it, ready for JSON."""
        from autoturbo.hardware.machine_file import machine_as_dict

        return machine_as_dict(self)

    @property
    def hash(self) -> str:
        """SHA-256 over all that affects results: no names but those that links refer to."""
        values: list[Any] = [
            [
                [u.name, u.kind, u.target.hash, [_rule(r) for r in u.takes], u.memory]
                for u in self.units
            ],
            [self.ddr.capacity, self.ddr.bandwidth, self.ddr.latency, self.ddr.efficiency],
            self.switch,
            [[list(k.units), k.bandwidth, k.latency, k.through_ddr] for k in self.links],
        ]
        text = json.dumps(values, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def link(self, first: int, second: int) -> Link | None:
        """The link between two units by index; None where the memory is all they share."""
        ends = self.units[first], self.units[second]
        return next((link for link in self.links if link.joins(*ends)), None)


AnyTarget = Target | Machine
"""What a model is scheduled on."""


def _rule(rule: OperatorRule) -> list[Any]:
    return [list(rule.kinds), rule.channels_multiple, rule.grouped, list(rule.fused)]
