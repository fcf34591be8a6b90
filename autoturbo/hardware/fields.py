"""The fields of a target file, as one table.

Everything about a field is said once, in its row here: its name with its unit, the attribute of
:class:`~autoturbo.hardware.target.Target` that holds it in SI units, its bounds, what it means.
The JSON schema, the reader, the writer and the commented template all follow from the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

from autoturbo.hardware.target import (
    DATAFLOWS,
    DTYPES,
    DmaEngine,
    DramTiming,
    Energy,
    GlobalBuffer,
    LocalBuffer,
    MatrixEngine,
    OffChip,
    Overheads,
    Target,
    TransferEngine,
    VectorEngine,
)

SCHEMA_VERSION: Final = 1
"""Version of the file layout; a file of another version is refused."""

_KIB: Final = 1024
_GIB: Final = 1024**3

# No figure of a data sheet has more significant digits than this, and with so few of them a
# conversion between decimal units and back is exact in binary floating point.
_DIGITS: Final = Context(prec=12)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a target file.

    Attributes:
        name: as the file spells it, with its unit.
        attribute: the attribute that holds it, in SI units.
        kind: "integer", "number", "bytes", "boolean", "choice", "per_dtype", "name" or "text".
        doc: what it means; becomes the schema's description and the template's comment.
        example: what the template holds.
        low: smallest value allowed, in the file's unit.
        high: largest value allowed, in the file's unit.
        exponent: the SI value is the file's times ten to this power (kind "number").
        block: the SI value is the file's times this many bytes (kind "bytes").
        default: what a file that leaves the field out means; None where it may not.
    """

    name: str
    attribute: str
    kind: str
    doc: str
    example: Any
    low: float = 0.0
    high: float = 1e9
    exponent: int = 0
    block: int = 1
    default: Any = None

    def to_si(self, value: Any) -> Any:
        """The attribute's value for a value of the file."""
        if self.kind == "integer":
            return int(value)
        if self.kind == "number":
            return _scaled(value, self.exponent)
        if self.kind == "bytes":
            return round(value * self.block)
        if self.kind == "per_dtype":
            return tuple((dtype, _scaled(value[dtype], 0)) for dtype in DTYPES if dtype in value)
        return value

    def from_si(self, value: Any) -> Any:
        """The file's value for an attribute's value."""
        if self.kind == "number":
            return _scaled(value, -self.exponent)
        if self.kind == "bytes":
            return value // self.block if value % self.block == 0 else value / self.block
        if self.kind == "per_dtype":
            figures = dict(value)
            return {dtype: _scaled(figures[dtype], 0) for dtype in DTYPES if dtype in figures}
        return value


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of a target file, or an engine of its list.

    Attributes:
        key: the mapping's key, or the engine's kind; also the attribute of the target.
        type: the class that holds it.
        doc: what it describes.
        fields: its fields, in the order of the file.
        optional: whether a target may lack it.
    """

    key: str
    type: type
    doc: str
    fields: tuple[Field, ...]
    optional: bool = False

    def build(self, document: dict[str, Any]) -> Any:
        """The section's value from its mapping in a file that has been validated."""
        return self.type(**_arguments(self.fields, document))


def _scaled(value: float, exponent: int) -> float:
    rounded = _DIGITS.create_decimal(Decimal(repr(float(value))))
    return float(rounded.scaleb(exponent)) + 0.0  # + 0.0 turns -0.0 into 0.0


def _arguments(fields: tuple[Field, ...], document: dict[str, Any]) -> dict[str, Any]:
    return {f.attribute: f.to_si(document.get(f.name, f.default)) for f in fields}


def _written(fields: tuple[Field, ...], owner: object) -> dict[str, Any]:
    return {f.name: f.from_si(getattr(owner, f.attribute)) for f in fields}


def _latency(doc: str, example: float) -> Field:
    return Field("latency_ns", "latency", "number", doc, example, exponent=-9)


def _bandwidth(doc: str, example: float) -> Field:
    return Field(
        "bandwidth_gb_s",
        "bandwidth",
        "number",
        f"{doc}, in 10^9 bytes/s",
        example,
        1e-3,
        exponent=9,
    )


def _startup(doc: str, example: int) -> Field:
    return Field("startup_cycles", "startup_cycles", "integer", doc, example, high=1_000_000)


def _flag(name: str, doc: str, *, usual: bool = True) -> Field:
    return Field(name, name, "boolean", doc, example=usual, default=usual)


def _nanoseconds(name: str, attribute: str, doc: str, example: float) -> Field:
    return Field(name, attribute, "number", doc, example, high=1e6, exponent=-9)


def _size(attribute: str, doc: str, example: int) -> Field:
    return Field(f"{attribute}_bytes", attribute, "integer", doc, example, low=1)


def _count(name: str, doc: str, example: int) -> Field:
    return Field(name, name, "integer", doc, example, low=1, high=65536)


def _capacity(name: str, attribute: str, doc: str, example: float) -> Field:
    return Field(name, attribute, "bytes", f"{doc}, in KiB", example, low=1, block=_KIB)


def _energy(name: str, doc: str, example: float, **more: Any) -> Field:
    attribute = name.partition("_")[0]
    return Field(name, attribute, "number", doc, example, high=1e6, **more)


TOP: Final = (
    Field("name", "name", "name", "short name: small letters, digits, '.', '_' and '-'", "my-npu"),
    Field("description", "description", "text", "one line for people", "", default=""),
    Field("clusters", "clusters", "integer", "clusters on the chip", 2, low=1, high=4096),
    Field("cores_per_cluster", "cores", "integer", "cores per cluster", 4, low=1, high=65536),
    Field(
        "clock_mhz", "clock", "number", "clock of cores and engines", 1000, 1e-3, 1e6, exponent=6
    ),
)
"""Scalar fields at the top level, after ``schema_version``."""

ENGINES: Final = (
    Section(
        "matrix",
        MatrixEngine,
        "the matrix engine of one core",
        (
            Field("rows", "rows", "integer", "native tile along M", 32, low=1, high=65536),
            Field("columns", "columns", "integer", "native tile along N", 32, low=1, high=65536),
            Field(
                "dataflow",
                "dataflow",
                "choice",
                f"what stays in the array: one of {', '.join(DATAFLOWS)}",
                "output_stationary",
                default="output_stationary",
            ),
            Field(
                "depth",
                "depth",
                "integer",
                "elements of the reduction per cycle at each point: 1 for a plain array",
                1,
                low=1,
                high=65536,
                default=1,
            ),
            Field(
                "rate",
                "rate",
                "per_dtype",
                "times rows x columns x depth MAC per cycle; a data type not listed cannot run",
                {"float16": 1.0, "int8": 2.0},
                low=1 / 1024,
                high=1024,
            ),
            _startup("pipeline fill and issue of one tile, in cycles", 32),
            _flag("folds_overlap", "a fold streams into the array while the one before it drains"),
            _flag("swap_operands", "a product may run transposed where that is shorter"),
            _flag(
                "rereads_operands",
                "every rows x columns block of a result reads its operands from LB anew",
                usual=False,
            ),
        ),
    ),
    Section(
        "vector",
        VectorEngine,
        "the vector engine of one core",
        (
            Field(
                "lanes",
                "lanes",
                "per_dtype",
                "elements per cycle of add, multiply and the like, per data type",
                {"float16": 32, "int8": 64},
                low=1e-3,
                high=1e6,
            ),
            Field(
                "special_lanes",
                "special_lanes",
                "number",
                "elements per cycle of exp, div, sqrt, erf, tanh",
                8,
                low=1e-3,
                high=1e6,
            ),
            _startup("issue of one vector operation, in cycles", 8),
        ),
    ),
    Section(
        "transfer",
        TransferEngine,
        "the transfer engine of one core: LB to and from GB and other cores' LB",
        (
            _bandwidth("each direction", 64),
            _latency("issue to first byte", 100),
            Field(
                "broadcast",
                "broadcast",
                "boolean",
                "one read of GB can feed all cores",
                example=True,
            ),
        ),
    ),
    Section(
        "dma",
        DmaEngine,
        "the DMA engine of one cluster: DDR to and from GB or LB",
        (
            Field("channels", "channels", "integer", "transfers at once", 2, low=1, high=65536),
            _bandwidth("of each channel", 32),
            _latency("start of one transfer", 500),
        ),
    ),
)
"""Engines: exactly one entry of each kind in the list ``engines``, in any order."""

PARTS: Final = (
    Section(
        "lb",
        LocalBuffer,
        "local buffer: the scratchpad of one core",
        (
            _capacity("capacity_kib", "capacity", "activations, per core", 512),
            _capacity("weight_capacity_kib", "weight_capacity", "weights, per core", 128),
            _bandwidth("per core", 256),
        ),
    ),
    Section(
        "gb",
        GlobalBuffer,
        "global buffer: the scratchpad that a cluster shares; leave it out where there is none",
        (
            _capacity("capacity_kib", "capacity", "per cluster", 4096),
            _bandwidth("per cluster", 128),
            _latency("to the first byte", 100),
        ),
        optional=True,
    ),
    Section(
        "ddr",
        OffChip,
        "off-chip memory, whatever its technology",
        (
            Field(
                "capacity_gib",
                "capacity",
                "bytes",
                "per cluster, in GiB",
                4,
                low=1e-3,
                high=1e6,
                block=_GIB,
            ),
            _bandwidth("peak of the whole chip, shared by its clusters", 64),
            _latency("to the first byte", 200),
            Field(
                "efficiency",
                "efficiency",
                "number",
                "fraction of the peak that long transfers reach",
                0.85,
                low=1e-3,
                high=1.0,
            ),
        ),
    ),
    Section(
        "dram",
        DramTiming,
        "timing of the off-chip memory; leave it out and short runs cost no more than long ones",
        (
            _count("channels", "channels side by side", 2),
            _size("burst", "one access of a channel", 32),
            _size("page", "an open row of one channel", 2048),
            _size("interleave", "consecutive bytes in one channel", 256),
            _count("banks", "banks of a channel, in all ranks", 8),
            _nanoseconds("row_cycle_ns", "row_cycle", "two openings of one bank's rows, tRC", 60),
            _nanoseconds(
                "four_activates_ns",
                "four_activates",
                "in which a channel opens four rows, tFAW over its ranks",
                40,
            ),
            _count("groups", "bank groups; 1 where there are none", 1),
            Field(
                "group_gap",
                "group_gap",
                "number",
                "bursts of one bank group over those of several, tCCD_L / tCCD_S",
                1.0,
                low=1.0,
                high=16.0,
            ),
            Field(
                "group_interleave",
                "group_interleave",
                "boolean",
                "neighbouring bursts lie in different bank groups",
                example=False,
            ),
            _nanoseconds(
                "turnaround_ns", "turnaround", "idle bus from reading to writing and back", 28
            ),
            _size("write_batch", "written by a channel between two turns", 1024),
            _size("queue", "requests that a channel's controller looks ahead", 1024),
        ),
        optional=True,
    ),
    Section(
        "overheads",
        Overheads,
        "fixed costs",
        (
            Field(
                "kernel_launch_us",
                "kernel_launch",
                "number",
                "start of a kernel on a cluster",
                3.0,
                exponent=-6,
            ),
            Field(
                "barrier_us",
                "barrier",
                "number",
                "meeting of a cluster's cores at a kernel's end",
                0.5,
                exponent=-6,
            ),
        ),
    ),
    Section(
        "energy",
        Energy,
        "energy; leave it out where nothing is known",
        (
            Field(
                "mac_pj",
                "mac",
                "per_dtype",
                "picojoules per multiply-accumulate, per data type",
                {"float16": 0.8, "int8": 0.3},
                high=1e6,
            ),
            _energy("lb_pj_per_byte", "picojoules per byte of LB", 1.5),
            _energy("gb_pj_per_byte", "picojoules per byte of GB", 6.0, default=0.0),
            _energy("ddr_pj_per_byte", "picojoules per byte of DDR", 60.0),
            _energy("static_w", "watts of the whole chip whatever it does", 5.0),
        ),
        optional=True,
    ),
)
"""Mappings at the top level."""


def build_target(document: dict[str, Any]) -> Target:
    """The target of a document that has been validated."""
    engines = {engine["kind"]: engine for engine in document["engines"]}
    values = _arguments(TOP, document)
    values |= {section.key: section.build(engines[section.key]) for section in ENGINES}
    values |= {part.key: part.build(document[part.key]) for part in PARTS if part.key in document}
    values.setdefault("gb", GlobalBuffer(capacity=0, bandwidth=0.0, latency=0.0))
    return Target(**values)


def to_document(target: Target) -> dict[str, Any]:
    """The target in the layout of a target file: the inverse of :func:`build_target`."""
    engines = [
        {"kind": section.key, **_written(section.fields, getattr(target, section.key))}
        for section in ENGINES
    ]
    parts = {
        part.key: _written(part.fields, getattr(target, part.key))
        for part in PARTS
        if _present(target, part.key)
    }
    top = _written(TOP, target)
    return {"schema_version": SCHEMA_VERSION, **top, "engines": engines, **parts}


def _present(target: Target, key: str) -> bool:
    present = {
        "gb": target.gb.capacity > 0,
        "energy": target.energy is not None,
        "dram": target.dram is not None,
    }
    return present.get(key, True)
