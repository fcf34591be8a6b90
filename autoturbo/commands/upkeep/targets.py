"""List, show and check descriptions of accelerators."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoturbo.commands.console import Console, Digest, Dtype, FaultJson, fault_json, warn
from autoturbo.commands.parser import Actions, takes
from autoturbo.errors import TargetError
from autoturbo.report.units import capacity, macs, size
from autoturbo.schema import DeferredType, JsonSchema, Natural, Real, TypedDict

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine import Machine

USAGE = "list|show|validate|schema|scaffold"
EXAMPLE = "autoturbo targets show stcp920"


UnitJson = TypedDict("UnitJson", {
    "name": str, "description": str, "clusters": Natural, "cores": Natural, "dtypes": list[Dtype],
    "default_dtype": Dtype, "macs_per_s": Real, "lb_bytes": Natural, "gb_bytes": Natural,
    "ddr_bytes_per_s": Real, "hash": Digest,
})  # fmt: skip
"""An accelerator by its name, and what it reaches."""


class KindOfUnit(UnitJson):
    """One processing unit of a machine."""

    kind: str


MachineJson = TypedDict("MachineJson", {
    "name": str, "description": str, "units": list[KindOfUnit], "dtypes": list[Dtype],
    "ddr_bytes_per_s": Real, "hash": Digest,
})  # fmt: skip
"""A machine of several processing units."""


class ListLine(TypedDict):
    """The presets and what plug-ins bring; machines have several units."""

    targets: list[UnitJson]
    machines: list[MachineJson]


class ScaffoldLine(TypedDict):
    """A commented template, as text."""

    scaffold: str


class Valid(TypedDict):
    """A line for each file."""

    file: str
    valid: Literal[True]


class Invalid(TypedDict):
    """Of one that is not valid, 'errors' has all that is wrong with it and 'error' the first."""

    file: str
    valid: Literal[False]
    error: FaultJson
    errors: list[FaultJson]


ValidateLine = Valid | Invalid


def described() -> Any:
    """Return the type of what a target file says, or a machine's."""
    from autoturbo.hardware.machine import machine_type
    from autoturbo.hardware.target import target_type

    return target_type() | machine_type()


_ABOUT = "The description itself, as a file of it would be."
ShowLine = Annotated[dict[str, Any], DeferredType(of=f"{__name__}:described", about=_ABOUT)]
SchemaLine = Annotated[dict[str, Any], JsonSchema(about="The JSON schema of target files.")]

_ACTION = Actions()
add_arguments, run = _ACTION.add_arguments, _ACTION.run


@_ACTION("autoturbo targets list")
def _list(_options: argparse.Namespace, console: Console) -> int:
    """List the presets."""
    from autoturbo.commands.loading import load_presets
    from autoturbo.hardware.machine import load_machine, machine_names
    from autoturbo.report.tables import definitions

    targets = load_presets()
    machines = [load_machine(name) for name in machine_names()]
    line: ListLine = {
        "targets": [_summary(target) for target in targets],
        "machines": [_summary_of_units(machine) for machine in machines],
    }
    console.emit(line)
    console.show(definitions([*map(_row, targets), *map(_row_of_units, machines)]))
    return 0


def _summary_of_units(machine: Machine) -> MachineJson:
    units: list[KindOfUnit] = [
        {**_summary(u.target), "name": u.name, "kind": u.kind} for u in machine.units
    ]
    return {
        "name": machine.name, "description": machine.description, "units": units,
        "dtypes": list(machine.dtypes), "ddr_bytes_per_s": machine.ddr.bandwidth,
        "hash": machine.hash,
    }  # fmt: skip


def _row_of_units(machine: Machine) -> tuple[str, str, str]:
    """Return a machine's name, what it is, and what its units reach."""
    dtype = machine.dtypes[0]
    rates = {u.kind: u.target.matrix_macs_per_second(dtype) for u in machine.units}
    counts = Counter(unit.kind for unit in machine.units)
    units = [f"{count} x {kind} of {macs(rates[kind])}/s" for kind, count in counts.items()]
    figures = (*units, f"in {dtype}", f"DDR {size(machine.ddr.bandwidth)}/s")
    return machine.name, machine.description, ", ".join(figures)


def _summary(target: Target) -> UnitJson:
    return {
        "name": target.name, "description": target.description, "clusters": target.clusters,
        "cores": target.cores, "dtypes": list(target.dtypes),
        "default_dtype": target.default_dtype,
        "macs_per_s": target.matrix_macs_per_second(target.default_dtype),
        "lb_bytes": target.lb.capacity, "gb_bytes": target.gb.capacity,
        "ddr_bytes_per_s": target.ddr.bandwidth, "hash": target.hash,
    }  # fmt: skip


def _counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _row(target: Target) -> tuple[str, str, str]:
    """Return a target's name, what it is, and its figures."""
    dtype = target.default_dtype
    figures = (
        f"{_counted(target.clusters, 'cluster')} of {_counted(target.cores, 'core')}",
        f"{macs(target.matrix_macs_per_second(dtype))}/s in {dtype}",
        f"LB {capacity(target.lb.capacity)}",
        f"GB {capacity(target.gb.capacity)}" if target.gb.capacity else "no GB",
        f"DDR {size(target.ddr.bandwidth)}/s",
    )
    return target.name, target.description, ", ".join(figures)


@_ACTION(
    "autoturbo targets show stcp920",
    takes("target", metavar="TARGET", help="preset or target file"),
    usage="TARGET",
)
def _show(options: argparse.Namespace, console: Console) -> int:
    """Show the description of one target."""
    from autoturbo.hardware.machine import Machine, find_target, machine_document
    from autoturbo.hardware.presets import is_builtin, preset_text

    target = find_target(options.target)
    if isinstance(target, Machine):
        document, text = machine_document(options.target)
        console.emit(document)
        console.document(text)
        return 0
    console.emit(target.as_dict())
    text = json.dumps(target.as_dict(), indent=2, ensure_ascii=False)
    # a preset with its comments, which say where each figure is from
    console.document(preset_text(options.target) if is_builtin(options.target) else text)
    return 0


@_ACTION(
    "autoturbo targets validate examples/targets/edge.yaml",
    takes("files", metavar="FILE", nargs="+", help="target file (YAML)"),
    usage="FILE...",
)
def _validate(options: argparse.Namespace, console: Console) -> int:
    """Check target files and report every error in them."""
    found = {name: _wrong_with(name) for name in options.files}
    for name, errors in found.items():
        told = [fault_json(error) for error in errors]
        if told:
            console.emit(Invalid(file=name, valid=False, error=told[0], errors=told))
        else:
            console.emit(Valid(file=name, valid=True))
        for error in errors:
            warn(f"error: {error}")
        if not errors:
            console.say(f"{name}: valid")
    return 2 if any(found.values()) else 0


def _wrong_with(name: str) -> list[TargetError]:
    """Return all that is wrong with a target's file; the first thing only with a machine's."""
    from autoturbo.hardware import validate_target_file
    from autoturbo.hardware.document import read_document
    from autoturbo.hardware.machine import find_machine, is_machine

    try:
        if not is_machine(read_document(Path(name), name)):
            return list(validate_target_file(name))
        find_machine(name)
    except TargetError as error:
        return [error]
    return []


@_ACTION(
    "autoturbo targets schema",
    takes(
        "--machine",
        action="store_true",
        help="the schema of machines with several processing units",
    ),
    usage="[--machine]",
)
def _schema(options: argparse.Namespace, console: Console) -> int:
    """Print the JSON schema of target files."""
    from autoturbo.hardware import target_schema
    from autoturbo.hardware.machine import machine_schema

    schema = machine_schema() if options.machine else target_schema()
    console.emit(schema)
    console.document(json.dumps(schema, indent=2))
    return 0


@_ACTION("autoturbo targets scaffold > my.yaml")
def _scaffold(_options: argparse.Namespace, console: Console) -> int:
    """Print a commented template of a target file."""
    from autoturbo.hardware import scaffold

    console.emit(ScaffoldLine(scaffold=scaffold()))
    console.document(scaffold())
    return 0
