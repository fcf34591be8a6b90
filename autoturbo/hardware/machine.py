"""Machines: processing units of several kinds that share an off-chip memory.

A processing unit is a :class:`~autoturbo.hardware.target.Target` of its own (clusters, cores,
engines, buffers) that may take only some operators; CPU and NPU of one chip are two of them
(PartitionTuner, ETRI Journal 45(2), 2023; baselines.md, section 3)::

    DDR (shared bandwidth) -- units { Target, what it takes } -- links between units, switch cost
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Len

from autoturbo.errors import TargetError
from autoturbo.hardware.fields import FileValue, Product, whole, written
from autoturbo.hardware.parts import OffChip
from autoturbo.hardware.target import SCHEMA_VERSION, Target


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """Layers that a unit takes, by the operator they are built around.

    Attributes:
        kinds: Operator kinds of the anchor, as the graph spells them (``"Conv"``).
        channels_multiple: Input and output channels must be multiples of it.
        grouped: Whether it takes convolutions in groups, depthwise ones among them.
        fused: Kinds that may stand in the same layer beside the anchor.
    """

    kinds: Annotated[
        tuple[str, ...],
        FileValue(
            about="operators that a layer may be built around", example=["Conv"], in_file=list[str]
        ),
    ]
    channels_multiple: Annotated[
        int, whole("input and output channels are multiples of it", 16, default=1)
    ] = 1
    grouped: Annotated[
        bool,
        FileValue(about="convolutions in groups too", example=True, default=True),
    ] = True
    fused: Annotated[
        tuple[str, ...],
        FileValue(
            about="operators that may stand in the same layer",
            example=["Relu"],
            default=(),
            in_file=list[str],
        ),
    ] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """A processing unit.

    Attributes:
        name: Within its machine.
        kind: Name that equal units share (``npu`` of ``npu0`` and ``npu1``).
        target: The unit alone, its off-chip memory being the machine's.
        takes: Layers it can run; empty where it runs everything.
        memory: Bytes of the shared memory that its weights and tensors may take at once; None
            where that is all of it.
    """

    name: str
    kind: str
    target: Target
    takes: tuple[OperatorRule, ...] = ()
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between two units, equal in both directions.

    Attributes:
        units: Names of kinds or of units at its ends.
        bandwidth: Bytes per second.
        latency: Seconds to the first byte.
        through_ddr: Whether the copy reads and writes the shared memory.
    """

    units: Annotated[
        tuple[str, str],
        FileValue(
            about="two units or kinds of units",
            example=["cpu", "npu"],
            name="between",
            in_file=Annotated[list[str], Len(2, 2)],
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
        FileValue(
            about="copies read and write the shared memory",
            example=True,
            default=True,
        ),
    ] = True

    def joins(self, first: Unit, second: Unit) -> bool:
        """Return whether the link connects two units."""
        ends = {first.name, first.kind}, {second.name, second.kind}
        first_end, second_end = self.units
        return (first_end in ends[0] and second_end in ends[1]) or (
            first_end in ends[1] and second_end in ends[0]
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """Processing units, their shared memory and the links between them.

    Attributes:
        name: Short name, usable in a file name.
        description: One line for people; affects nothing.
        units: Processing units, at least one; the first takes everything.
        ddr: The shared off-chip memory; its capacity is that of all units together.
        switch: Seconds it costs to hand over from one unit to another: driver, cache, interrupt.
        links: Links between units; those that none joins copy at the memory's bandwidth.
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
        """Return the bytes per second that the transfers of all units reach together."""
        return self.ddr.bandwidth * self.ddr.efficiency

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the data types that every unit computes in."""
        first, *others = (unit.target.dtypes for unit in self.units)
        return tuple(dtype for dtype in first if all(dtype in known for known in others))

    @property
    def default_dtype(self) -> str:
        """Return the compute type that is used if none is given.

        Raises:
            TargetError: The units have none in common.
        """
        if not self.dtypes:
            hint = "give each unit a rate for one and the same type"
            raise TargetError(f"the units of {self.name} have no data type in common", hint=hint)
        return self.dtypes[0]

    def supports(self, dtype: str) -> bool:
        """Return whether all units compute in a type."""
        return dtype in self.dtypes

    def as_dict(self) -> dict[str, Any]:
        """Return the machine as a file holds it, ready for JSON."""
        return machine_as_dict(self)

    @property
    def hash(self) -> str:
        """Return the SHA-256 of all that affects results, with no names except those in links."""
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
        """Return the link between two units by index; None if they share only the memory."""
        ends = self.units[first], self.units[second]
        return next((link for link in self.links if link.joins(*ends)), None)


def _rule(rule: OperatorRule) -> list[Any]:
    return [list(rule.kinds), rule.channels_multiple, rule.grouped, list(rule.fused)]


MIB: Final = 1 << 20

SHARED: Final = ("ddr", "dram")
"""Sections of a target's file that stand once beside a machine's units."""


def machine_as_dict(machine: Machine) -> dict[str, Any]:
    """Return a machine in the layout of its file; figures have 12 significant digits."""
    first = machine.units[0].target.as_dict()
    alike = itertools.groupby(machine.units, key=lambda unit: unit.kind)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": machine.name,
        "description": machine.description,
        "units": [_unit_entry(list(units)) for _, units in alike],
        **{name: first[name] for name in SHARED if name in first},
        **written(Machine, machine),
        "links": [written(Link, link) for link in machine.links],
    }


def _unit_entry(units: list[Unit]) -> dict[str, Any]:
    """Return the entry of a file for some equal units, with their count."""
    unit = units[0]
    left_out = ("schema_version", *SHARED)
    body = {k: v for k, v in unit.target.as_dict().items() if k not in left_out}
    entry: dict[str, Any] = {**body, "name": unit.kind}
    if len(units) > 1:
        entry["count"] = len(units)
    if unit.memory is not None:
        entry["memory_mib"] = float(f"{unit.memory / MIB:.12g}")
    if unit.takes:
        entry["takes"] = [written(OperatorRule, rule) for rule in unit.takes]
    return entry
