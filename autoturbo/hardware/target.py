"""The accelerator as a frozen value, and the layout of its files.

The abstraction is that of GraphTurbo (OSDI '23, section 1 and figure 1)::

    host -- DDR -- DMA -- clusters x { GB -- interconnect -- cores x { LB, engines } }

A target is declared once, by the annotations of its fields and of its parts
(:mod:`autoturbo.hardware.parts`): the layout of files, their JSON schema, a commented template
(:mod:`autoturbo.hardware.template`) and the checks (:mod:`autoturbo.hardware.target_checks`)
follow. A file has the fields, a list with one engine of each kind, and a mapping for each other
section.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Final, Literal

from annotated_types import MaxLen

from autoturbo.errors import TargetError
from autoturbo.hardware.fields import (
    DTYPES,
    Field,
    FileValue,
    Ranges,
    Section,
    built,
    file_fields,
    number,
    sections_of,
    values_of,
    whole,
    written,
)
from autoturbo.hardware.parts import (
    FIXED,
    NO_GLOBAL_BUFFER,
    Calibration,
    DmaEngine,
    DramTiming,
    Energy,
    GlobalBuffer,
    LocalBuffer,
    MatrixEngine,
    OffChip,
    Overheads,
    TransferEngine,
    VectorEngine,
)
from autoturbo.registry import Shown
from autoturbo.schema import Choice, Described, json_schema, list_type, mapping_type

_PREFERRED = ("float16", "bfloat16", "int8", "float32", "bfloat8", "bfloat4")
"""Order in which a default data type is looked for: the cheapest that needs no quantisation."""

NAME = FileValue(
    about="short name: small letters, digits, '.', '_' and '-'",
    example="my-npu",
    pattern="[a-z0-9][a-z0-9._-]*",
    in_file=Annotated[str, MaxLen(64)],
)
"""The annotation of a target's or a machine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Shown):
    """An accelerator.

    Attributes:
        name: Short name, usable in a file name.
        description: One line for people; affects nothing.
        clusters: Clusters on the chip, data-parallel.
        cores: Cores in each cluster, in one dimension.
        clock: Hertz of cores and engines.
        matrix: Matrix engine of each core.
        vector: Vector engine of each core.
        transfer: Transfer engine of each core.
        dma: DMA engine of each cluster.
        lb: Local buffer of each core.
        gb: Global buffer of each cluster.
        ddr: Off-chip memory, shared by the clusters.
        overheads: Seconds of launch, ramp and barrier.
        energy: Energy of operations and traffic; None where nothing is known.
        calibration: How far simulated times were off measured ones; None where nobody compared.
        dram: Timing of ``ddr``; None where the length of runs does not matter or is not known.
        ranges: Fields that no source settles, by path (``"ddr.share"``), each with the two ends of
            what it may be, in the file's unit; results are told over these too.
    """

    name: Annotated[str, NAME]
    description: Annotated[
        str,
        FileValue(
            about="one line for people", example="", default="", in_file=Annotated[str, MaxLen(200)]
        ),
    ]
    clusters: Annotated[int, whole("clusters on the chip", 2, high=4096)]
    cores: Annotated[int, whole("cores per cluster", 4, suffix="per_cluster")]
    clock: Annotated[float, number("clock of cores and engines", 1000, 1e-3, 1e6, suffix="mhz")]
    matrix: Annotated[MatrixEngine, Section(about="the matrix engine of one core", engine=True)]
    vector: Annotated[VectorEngine, Section(about="the vector engine of one core", engine=True)]
    transfer: Annotated[
        TransferEngine,
        Section(
            about="the transfer engine of one core: LB to and from GB and other cores' LB",
            engine=True,
        ),
    ]
    dma: Annotated[
        DmaEngine,
        Section(about="the DMA engine of one cluster: DDR to and from GB or LB", engine=True),
    ]
    lb: Annotated[LocalBuffer, Section(about="local buffer: the scratchpad of one core")]
    gb: Annotated[
        GlobalBuffer,
        Section(
            about="global buffer: the scratchpad that a cluster shares; "
            "leave it out where there is none",
            optional=True,
        ),
    ] = NO_GLOBAL_BUFFER
    ddr: Annotated[OffChip, Section(about="off-chip memory, whatever its technology")]
    dram: Annotated[
        DramTiming | None,
        Section(
            about="timing of the off-chip memory; "
            "leave it out and short runs cost no more than long ones",
            optional=True,
        ),
    ] = None
    overheads: Annotated[Overheads, Section(about="fixed costs")]
    energy: Annotated[
        Energy | None, Section(about="energy; leave it out where nothing is known", optional=True)
    ] = None
    calibration: Annotated[
        Calibration | None,
        Section(about="how far simulated times were off measured ones", optional=True),
    ] = None
    ranges: Annotated[
        tuple[tuple[str, tuple[Any, Any]], ...],
        Ranges(
            about="what no source settles: two ends of what a field may be, by its path; "
            "only fields that a schedule does not depend on",
            example={"ddr.share": ["fixed", "free"]},
            default={},
        ),
    ] = ()

    def __repr__(self) -> str:
        """Return one line; what a target has is in its file."""
        return f"<Target {self.name!r}: {self.clusters} x {self.cores} cores>"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the data types of the matrix engine, in the order of :data:`DTYPES`."""
        return tuple(dtype for dtype in DTYPES if self.supports(dtype))

    @property
    def default_dtype(self) -> str:
        """Return the first supported of float16, bfloat16, int8, float32, bfloat8, bfloat4."""
        return next(dtype for dtype in _PREFERRED if self.supports(dtype))

    @property
    def ddr_bandwidth_per_cluster(self) -> float:
        """Return the peak DDR bytes per second of one cluster when all load it alike."""
        return self.ddr.bandwidth / self.clusters

    @property
    def hash(self) -> str:
        """Return the SHA-256 of all that affects results: every figure, no name or description."""
        return _hash(self)

    def supports(self, dtype: str) -> bool:
        """Return whether the matrix engine computes in ``dtype``."""
        return self.matrix.macs_per_cycle(dtype) > 0

    def matrix_macs_per_second(self, dtype: str) -> float:
        """Return the peak multiply-accumulates per second of the whole chip.

        Raises:
            TargetError: The matrix engine has no path for ``dtype``.
        """
        return self._chip_rate(self.matrix.macs_per_cycle(dtype), "matrix", dtype)

    def vector_ops_per_second(self, dtype: str) -> float:
        """Return the peak simple element operations per second of the whole chip.

        Raises:
            TargetError: The vector engine has no lanes for ``dtype``.
        """
        return self._chip_rate(self.vector.elements_per_cycle(dtype), "vector", dtype)

    def peak_seconds(
        self, dtype: str, macs: float, plain: float, special: float
    ) -> tuple[float, float]:
        """Return the seconds of work of the whole chip at its peak rates, engine by engine.

        Args:
            dtype: The compute type.
            macs: Multiply-accumulates on the matrix engine.
            plain: Simple operations on the vector engine.
            special: Slow operations on the vector engine.
        """
        slow = self.vector.special_lanes * self.clusters * self.cores * self.clock
        matrix_s = macs / self.matrix_macs_per_second(dtype) if macs else 0.0
        vector_s = plain / self.vector_ops_per_second(dtype) if plain else 0.0
        return matrix_s, vector_s + (special / slow if special else 0.0)

    def _chip_rate(self, per_cycle: float, engine: str, dtype: str) -> float:
        if per_cycle <= 0:
            supported = ", ".join(self.dtypes)
            raise TargetError(
                f"the {engine} engine of {self.name} does not compute in {dtype!r}",
                hint=f"it computes in {supported}",
            )
        return per_cycle * self.clock * self.clusters * self.cores

    def as_dict(self) -> dict[str, Any]:
        """Return the target as a target file holds it (units in field names), ready for JSON.

        Figures are written with 12 significant digits, so that units convert without residue.
        """
        return to_document(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Target:
        """Return the target that a document in the layout of :meth:`as_dict` describes.

        Raises:
            TargetError: The document is not a valid target.
        """
        # the checks follow from this class, so their module imports this one
        from autoturbo.hardware.target_checks import from_document

        return from_document(document)


@lru_cache(maxsize=256)
def _hash(target: Target) -> str:
    document = target.as_dict()
    for inert in ("schema_version", "name", "description", "calibration", "ranges"):
        document.pop(inert, None)
    _forget_defaults(target, document)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _forget_defaults(target: Target, document: dict[str, Any]) -> None:
    """Drop fields that came later where they change nothing: older hashes then still hold."""
    if not (target.dma.bypasses_gb and target.gb.capacity):
        for engine in document["engines"]:
            engine.pop("bypasses_gb", None)
    if target.dma.prefetch_over_kernels or not target.gb.capacity:
        for engine in document["engines"]:
            engine.pop("prefetch_over_kernels", None)
    if target.ddr.share == FIXED:
        document["ddr"].pop("share", None)
    if not target.ddr.multicast:
        document["ddr"].pop("multicast", None)
    if not target.matrix.im2col:
        for engine in document["engines"]:
            engine.pop("im2col", None)
    if not target.overheads.kernel_ramp:
        document["overheads"].pop("kernel_ramp_us", None)


def known_error(target: object, kernel_seconds: float | None = None) -> float | None:
    """Return the relative error of a target's simulated times; None where nobody compared them.

    Args:
        target: The target, or a machine, of which nothing is known.
        kernel_seconds: Mean seconds of a kernel of the result, where the file has the errors of
            short and long ones; the error of all measurements if None.
    """
    found = target.calibration if isinstance(target, Target) else None
    if found is None or kernel_seconds is None:
        return None if found is None else found.error
    return found.error_of(kernel_seconds)


SCHEMA_VERSION: Final = 1
"""Version of the file layout; a file of another version is refused."""

VERSION: Final = Annotated[
    int, Choice((SCHEMA_VERSION,)), Described(about="version of this layout: 1")
]

ENGINES: Final = sections_of(Target, engines=True)
"""Engines: exactly one entry of each kind in the list ``engines``, in any order."""

PARTS: Final = sections_of(Target, engines=False)
"""Mappings at the top level."""


_ONE_OF_EACH: Final = {
    "allOf": [
        {
            "contains": {
                "type": "object",
                "properties": {"kind": {"const": kind}},
                "required": ["kind"],
            },
            "minContains": 1,
            "maxContains": 1,
        }
        for kind in ENGINES
    ]
}
"""The JSON schema of a list with one engine of each kind."""


def fields_type(name: str, fields: Iterable[Field], **more: Any) -> Any:
    """Return the type of the mapping that holds fields of a file."""
    known = {f.name: Annotated[f.type, f.rule] for f in fields}
    optional = [f.name for f in fields if f.rule.default is not None]
    return mapping_type(name, {**more, **known}, optional)


@lru_cache(maxsize=1)
def layout() -> dict[str, Any]:
    """Return the types of the values at the top of a target's file, by key."""
    from pydantic import Field as Tag

    engines = [
        fields_type(kind, file_fields(section), kind=Literal[kind])
        for kind, (section, _) in ENGINES.items()
    ]
    engine: Any = Annotated[reduce(or_, engines), Tag(discriminator="kind")]
    top = {f.name: Annotated[f.type, f.rule] for f in file_fields(Target)}
    ranges = top.pop("ranges")  # of fields that come before
    return {
        "schema_version": VERSION,
        **top,
        "engines": Annotated[
            list_type(engine), Described(about="one engine of each kind", extra=_ONE_OF_EACH)
        ],
        **{
            key: Annotated[fields_type(key, file_fields(section)), rule]
            for key, (section, rule) in PARTS.items()
        },
        "ranges": ranges,
    }


OPTIONAL: Final = (
    *(f.name for f in file_fields(Target) if f.rule.default is not None),
    *(key for key, (_, rule) in PARTS.items() if rule.optional),
)
"""Keys at the top of a target's file that may be left out."""


@lru_cache(maxsize=1)
def target_type() -> Any:
    """Return the type of a target's file."""
    return mapping_type("Target", layout(), OPTIONAL)


def target_schema() -> dict[str, Any]:
    """Return a new JSON schema (draft 2020-12) of target files."""
    about = "An accelerator that networks are scheduled on"
    return json_schema(target_type(), "AutoTurbo target", about)


def build_target(document: Mapping[str, Any]) -> Target:
    """Return the target of a checked document."""
    engines = {engine["kind"]: engine for engine in document["engines"]}
    values = values_of(Target, document)
    values |= {key: built(section, engines[key]) for key, (section, _) in ENGINES.items()}
    values |= {k: built(kind, document[k]) for k, (kind, _) in PARTS.items() if k in document}
    return Target(**values)


def to_document(target: Target) -> dict[str, Any]:
    """Return the target in the layout of a target file: the inverse of :func:`build_target`."""
    engines = [
        {"kind": key, **written(section, getattr(target, key))}
        for key, (section, _) in ENGINES.items()
    ]
    held = {key: getattr(target, key) for key in PARTS}
    # a chip without a global buffer has no section of it, as its file has none
    parts = {
        key: written(PARTS[key][0], value)
        for key, value in held.items()
        if value is not None and not (key == "gb" and value.capacity == 0)
    }
    top = written(Target, target)
    ranges = top.pop("ranges")
    return {
        "schema_version": SCHEMA_VERSION,
        **top,
        "engines": engines,
        **parts,
        **({"ranges": ranges} if ranges else {}),
    }


TIMED: Final = {
    "clock_mhz": ("", next(f for f in file_fields(Target) if f.attribute == "clock")),
    **{
        f"{key}.{f.name}": (key, f)
        for key, (section, _) in {**ENGINES, **PARTS}.items()
        for f in file_fields(section)
        if f.rule.timed
    },
}
"""Section and field of all that only times depend on, by path: a schedule stays what it is."""


def timed_with(target: Target, path: str, value: Any) -> Target:
    """Return the target with another value of a field that only times depend on.

    Args:
        target: The target.
        path: Path of the field, one of :data:`TIMED`.
        value: The new value, in the unit of the file.
    """
    section, f = TIMED[path]
    changed = {f.attribute: f.rule.to_si(value)}
    if section:
        changed = {section: dataclasses.replace(getattr(target, section), **changed)}
    return dataclasses.replace(target, **changed)


def timed_value(target: Target, path: str) -> float:
    """Return the number of a field that only times depend on, in the unit of the file.

    Args:
        target: The target.
        path: Path of the field, one of :data:`TIMED`.
    """
    section, f = TIMED[path]
    value = getattr(getattr(target, section) if section else target, f.attribute)
    return float(f.rule.from_si(value))
