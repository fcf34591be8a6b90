"""Machines: processing units of several kinds that share an off-chip memory, and their files.

A processing unit is a :class:`~autoturbo.hardware.target.Target` of its own (clusters, cores,
engines, buffers) that may take only some operators; CPU and NPU of one chip are two of them
(PartitionTuner, ETRI Journal 45(2), 2023; baselines.md, section 3)::

    DDR (shared bandwidth) -- units { Target, what it takes } -- links between units, switch cost

The file's units are targets without off-chip memory, which stands once beside them::

    schema_version: 1
    name: zcu102-vta
    units:
      - name: cpu                # clusters, cores_per_cluster, clock_mhz, engines, lb, gb, ...
      - name: npu
        count: 4                 # npu0 to npu3
        memory_mib: 512          # of the shared memory that one of them may take
        takes:
          - kinds: [Conv]
            channels_multiple: 16
            grouped: false
            fused: [Relu]
    ddr: {...}                   # as in a target's file; dram likewise
    switch_us: 2000
    links:
      - between: [cpu, npu]
        bandwidth_gb_s: 1.0
        latency_us: 10
        through_ddr: true
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from autoturbo.errors import TargetError, did_you_mean
from autoturbo.hardware.document import Document, parse_document, read_document
from autoturbo.hardware.fields import (
    CheckedValue,
    Product,
    Section,
    built,
    file_fields,
    number,
    whole,
    written,
)
from autoturbo.hardware.parts import OffChip
from autoturbo.hardware.presets import load_target
from autoturbo.hardware.target import (
    OPTIONAL,
    SCHEMA_VERSION,
    Target,
    build_target,
    check_part,
    fields_type,
    layout,
    located,
    raise_first,
    target_issues,
    target_of,
)
from autoturbo.schema import (
    Entries,
    Flag,
    Names,
    ValidationIssue,
    json_schema,
    list_type,
    mapping_type,
)


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
        CheckedValue(
            about="operators that a layer may be built around", example=["Conv"], rule=Names()
        ),
    ]
    channels_multiple: Annotated[
        int, whole("input and output channels are multiples of it", 16, default=1)
    ] = 1
    grouped: Annotated[
        bool,
        CheckedValue(about="convolutions in groups too", example=True, default=True, rule=Flag()),
    ] = True
    fused: Annotated[
        tuple[str, ...],
        CheckedValue(
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
        CheckedValue(
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
        CheckedValue(
            about="copies read and write the shared memory",
            example=True,
            default=True,
            rule=Flag(),
        ),
    ] = True

    def joins(self, first: Unit, second: Unit) -> bool:
        """Return whether it connects two units."""
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
        units: At least one; the first takes everything.
        ddr: The shared off-chip memory; its capacity is that of all units together.
        switch: Seconds it costs to hand over from one unit to another: driver, cache, interrupt.
        links: Between units; units that no link joins exchange data at the memory's bandwidth.
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


AnyTarget = Target | Machine
"""What a model is scheduled on."""


def _rule(rule: OperatorRule) -> list[Any]:
    return [list(rule.kinds), rule.channels_multiple, rule.grouped, list(rule.fused)]


# Names and files

_FOLDER: Final = Path(__file__).parent / "presets" / "machines"
_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_MIB: Final = 1 << 20

SHARED: Final = ("ddr", "dram")
"""Sections of a target's file that stand once beside a machine's units."""

MOST_UNITS: Final = 64


def machine_names() -> tuple[str, ...]:
    """Return the names of the built-in machines."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """Return the machine of a preset or of a YAML file.

    Raises:
        TargetError: Nothing has that name, or it is not a valid machine.
    """
    name = os.fspath(name_or_path)
    if name in machine_names():
        return _preset(name)
    if name.endswith(_FILE_SUFFIXES) or Path(name).exists():
        return machine_of(read_document(Path(name), name))
    hint = did_you_mean(name, machine_names(), kind="machines")
    raise TargetError(f"unknown machine {name!r}", hint=hint)


def find_machine(name: str) -> Machine | None:
    """Return the machine of a name or file; None if it is a target's or unknown.

    Raises:
        TargetError: A file describes units, and is not a valid machine.
    """
    if name in machine_names():
        return _preset(name)
    document = _document(name)
    return machine_of(document) if document is not None and is_machine(document) else None


def find_target(name_or_path: str | os.PathLike[str]) -> AnyTarget:
    """Return the machine or the target of a name or file, which is read once.

    Raises:
        TargetError: Nothing has that name, or it is neither.
    """
    name = os.fspath(name_or_path)
    if name in machine_names():
        return _preset(name)
    document = _document(name)
    if document is None:
        return load_target(name_or_path)
    return machine_of(document) if is_machine(document) else target_of(document)


def _document(name: str) -> Document | None:
    """Return the document of a file; None if the name is not that of an existing file."""
    if not name.endswith(_FILE_SUFFIXES) or not Path(name).is_file():
        return None
    return read_document(Path(name), name)


def machine_document(name: str) -> tuple[dict[str, Any], str]:
    """Return the content of a machine's file, and its text with comments.

    Args:
        name: Of a preset, or the path of a file, that :func:`find_machine` knows.
    """
    path = _FOLDER / f"{name}.yaml" if name in machine_names() else Path(name)
    text = path.read_text("utf-8-sig")
    return dict(parse_document(text, name).value), text


def machine_from_dict(values: Mapping[str, Any]) -> Machine:
    """Return the machine that a document in the layout of :meth:`Machine.as_dict` describes.

    Raises:
        TargetError: It is not a valid machine.
    """
    return machine_of(Document(values))


def target_from_dict(values: Mapping[str, Any]) -> AnyTarget:
    """Return the target or the machine that a document describes.

    Raises:
        TargetError: It describes neither.
    """
    return machine_from_dict(values) if "units" in values else Target.from_dict(values)


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
    """Return equal units as one entry."""
    unit = units[0]
    left_out = ("schema_version", *SHARED)
    body = {k: v for k, v in unit.target.as_dict().items() if k not in left_out}
    entry: dict[str, Any] = {**body, "name": unit.kind}
    if len(units) > 1:
        entry["count"] = len(units)
    if unit.memory is not None:
        entry["memory_mib"] = float(f"{unit.memory / _MIB:.12g}")
    if unit.takes:
        entry["takes"] = [written(OperatorRule, rule) for rule in unit.takes]
    return entry


@lru_cache(maxsize=16)
def _preset(name: str) -> Machine:
    text = (_FOLDER / f"{name}.yaml").read_text("utf-8")
    return machine_of(parse_document(text, f"{name}.yaml"))


def is_machine(document: Document) -> bool:
    """Return whether a document describes a machine and not a target."""
    return isinstance(document.value, Mapping) and "units" in document.value


def machine_of(document: Document) -> Machine:
    """Return the machine that a document describes.

    Raises:
        TargetError: It is not a valid machine.
    """
    raise_first(check_machine(document))
    value = document.value
    units = tuple(_units(value))
    links = tuple(built(Link, link) for link in value.get("links", ()))
    description = value.get("description", "")
    (switch,) = file_fields(Machine)
    seconds = switch.rule.to_si(value[switch.name])
    return Machine(value["name"], description, units, units[0].target.ddr, seconds, links)


def check_machine(document: Document) -> list[TargetError]:
    """Return all errors of a machine's document, in the order of the file."""
    issues = check_part(machine_type(), document.value)
    return located(document, issues or _issues(document.value))


def _issues(value: Any) -> Iterator[ValidationIssue]:
    """Yield the issues that the types of the fields do not catch."""
    listed = value["units"]
    for index, unit in enumerate(listed):
        for issue in target_issues({**unit, **_shared(value)}):
            yield issue.under(("units", index))
    if "takes" in listed[0]:
        yield ValidationIssue(("units", 0, "takes"), "the first unit must take everything")
    kinds = [unit["name"] for unit in listed]
    for index, kind in enumerate(kinds):
        if kind in kinds[:index]:
            path = ("units", index, "name")
            yield ValidationIssue(path, f"a second unit {kind!r}", "use 'count'")
    known = sorted({name for unit in listed for name in (unit["name"], *_names(unit))})
    for index, link in enumerate(value.get("links", ())):
        for end in link["between"]:
            if end not in known:
                hint = did_you_mean(end, known, kind="units")
                path = ("links", index, "between")
                yield ValidationIssue(path, f"no unit is called {end!r}", hint)


def _names(unit: Mapping[str, Any]) -> list[str]:
    """Return the names of the units of an entry."""
    kind, count = unit["name"], unit.get("count", 1)
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(count)]


def _shared(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[key] for key in SHARED if key in value}


def _units(value: Mapping[str, Any]) -> Iterator[Unit]:
    """Yield the units of a checked document, each as often as its count says."""
    for entry in value["units"]:
        target = build_target({"schema_version": SCHEMA_VERSION, **entry, **_shared(value)})
        target = dataclasses.replace(target, name=f"{value['name']}/{target.name}")
        rules = tuple(built(OperatorRule, rule) for rule in entry.get("takes", ()))
        memory = None if "memory_mib" not in entry else round(entry["memory_mib"] * _MIB)
        for name in _names(entry):
            yield Unit(name, entry["name"], target, rules, memory)


@lru_cache(maxsize=1)
def machine_type() -> Any:
    """Return the type of a machine's file: targets without off-chip memory around a shared one."""
    target = layout()
    unit = {key: kind for key, kind in target.items() if key not in ("schema_version", *SHARED)}
    memory = number("of the shared memory that it may take, in MiB", 512, 1e-3, suffix="mib")
    rules = list_type(fields_type("Rule", file_fields(OperatorRule)))
    takes = Section(about="layers that it can run; leave it out where it runs all")
    count = whole("how many there are, called npu0, npu1, ...", 4, high=MOST_UNITS)
    unit_fields = {
        "count": Annotated[int, count],
        "memory_mib": Annotated[float, memory],
        "takes": Annotated[rules, takes],
    }
    units = list_type(mapping_type("Unit", {**unit, **unit_fields}, {*OPTIONAL, *unit_fields}))
    links = list_type(fields_type("Link", file_fields(Link)))
    of_units = Entries(
        about="kinds of units; the first takes every layer", least=1, most=MOST_UNITS
    )
    (switch,) = file_fields(Machine)
    top = {key: target[key] for key in ("schema_version", "name", "description")}
    fields = {
        **top,
        "units": Annotated[units, of_units],
        **{key: target[key] for key in SHARED},
        switch.name: Annotated[switch.type, switch.rule],
        "links": Annotated[links, Section(about="what joins units")],
    }
    return mapping_type("Machine", fields, {*OPTIONAL, "links"})


def machine_schema() -> dict[str, Any]:
    """Return a new JSON schema (draft 2020-12) of machine files.

    The reader checks what it cannot express: the first unit takes everything, names of units
    differ, and links name existing units.
    """
    about = "Processing units of several kinds around one memory"
    return json_schema(machine_type(), "AutoTurbo machine", about)
