"""List, show, check and calibrate descriptions of accelerators."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoturbo.commands.console import Console, Digest, Dtype, FaultJson, fault_json, warn
from autoturbo.commands.flag_values import whole_number
from autoturbo.commands.loading import load_model, load_targets
from autoturbo.commands.output_files import add_force_option, outputs_of
from autoturbo.commands.parser import Actions, takes
from autoturbo.errors import TargetError
from autoturbo.files import Kind
from autoturbo.registry import HOST
from autoturbo.report.units import capacity, macs, size
from autoturbo.schema import DeferredType, Described, JsonSchema, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.hardware import Target
    from autoturbo.hardware.machine import Machine
    from autoturbo.tuning.calibration import Calibrated

USAGE = "list|show|validate|schema|scaffold|calibrate"
EXAMPLE = "autoturbo targets show stcp920"


UnitJson = TypedDict("UnitJson", {
    "name": str, "description": str, "clusters": Natural, "cores": Natural, "dtypes": list[Dtype],
    "default_dtype": Dtype, "macs_per_s": float, "lb_bytes": Natural, "gb_bytes": Natural,
    "ddr_bytes_per_s": float, "hash": Digest,
})  # fmt: skip
"""An accelerator by its name, and what it reaches."""


class KindOfUnit(UnitJson):
    """One processing unit of a machine."""

    kind: str


MachineJson = TypedDict("MachineJson", {
    "name": str, "description": str, "units": list[KindOfUnit], "dtypes": list[Dtype],
    "ddr_bytes_per_s": float, "hash": Digest,
})  # fmt: skip
"""A machine of several processing units."""


class MeasuredJson(TypedDict):
    """A target that no file describes: what runs on it is measured there."""

    name: str
    description: str


class ListLine(TypedDict):
    """The presets and what plug-ins bring; machines have several units."""

    targets: list[UnitJson]
    machines: list[MachineJson]
    measured: list[MeasuredJson]


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


class FittedJson(TypedDict):
    """A field that was fitted, in the unit of target files, with its 95 % interval."""

    field: str
    unit: str
    before: float
    after: float
    low: float
    high: float
    at_bound: bool


class UntouchedJson(TypedDict):
    """A field that keeps its figure, and why."""

    field: str
    reason: str


class CalibrateLine(TypedDict):
    """Errors are medians of absolute relative errors; 'error_after' is of rows held out.

    So are 'error_below' and 'error_above', of rows whose kernels take less than 'regime_us', and of
    the others. With --check nothing is fitted, and all are of the figures as they are.
    """

    target: str
    file: str
    hash: Digest
    table: str
    table_sha256: Digest
    rows: Natural
    shapes: Natural
    error_before: float
    error_after: float
    regime_us: float
    rows_below: Natural
    error_below: float | None
    error_above: float | None
    fitted: list[FittedJson]
    untouched: list[UntouchedJson]


def described() -> Any:
    """Return the type of what a target file says, or a machine's."""
    from autoturbo.hardware.machine_files import machine_type
    from autoturbo.hardware.target import target_type

    return target_type() | machine_type()


_ABOUT = "The description itself, as a file of it would be."
ShowLine = Annotated[
    dict[str, Any], DeferredType(of=f"{__name__}:described"), Described(about=_ABOUT)
]
SchemaLine = Annotated[JsonSchema, Described(about="The JSON schema of target files.")]

_ACTION = Actions()
add_arguments, run, LINES = _ACTION.add_arguments, _ACTION.run, _ACTION.lines


@_ACTION("autoturbo targets list", ListLine)
def _list(_options: argparse.Namespace, console: Console) -> int:
    """List the presets."""
    from autoturbo.commands.loading import load_presets
    from autoturbo.hardware.machine_files import load_machine, machine_names
    from autoturbo.report.tables import definitions

    targets = load_presets()
    machines = [load_machine(name) for name in machine_names()]
    line: ListLine = {
        "targets": [_summary(target) for target in targets],
        "machines": [_summary_of_units(machine) for machine in machines],
        "measured": [{"name": HOST, "description": _HERE}],
    }
    console.emit(line)
    here = HOST, _HERE, "measured, never simulated: for 'tune', 'resume' and 'bench'"
    console.show(definitions([*map(_row, targets), *map(_row_of_units, machines), here]))
    return 0


_HERE = "this computer: its processor, with batches run by ONNX Runtime"


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
    ShowLine,
    takes("target", metavar="TARGET", help="preset or target file"),
    usage="TARGET",
)
def _show(options: argparse.Namespace, console: Console) -> int:
    """Show the description of one target."""
    from autoturbo.hardware.machine import Machine
    from autoturbo.hardware.machine_files import find_target, machine_document
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
    ValidateLine,
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
    from autoturbo.hardware.machine_files import find_machine, is_machine

    try:
        if not is_machine(read_document(Path(name), name)):
            return list(validate_target_file(name))
        find_machine(name)
    except TargetError as error:
        return [error]
    return []


@_ACTION(
    "autoturbo targets schema",
    SchemaLine,
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
    from autoturbo.hardware.machine_files import machine_schema

    schema = machine_schema() if options.machine else target_schema()
    console.emit(schema)
    console.document(json.dumps(schema, indent=2))
    return 0


@_ACTION("autoturbo targets scaffold > my.yaml", ScaffoldLine)
def _scaffold(_options: argparse.Namespace, console: Console) -> int:
    """Print a commented template of a target file."""
    from autoturbo.hardware import scaffold

    console.emit(ScaffoldLine(scaffold=scaffold()))
    console.document(scaffold())
    return 0


@_ACTION(
    "autoturbo targets calibrate my.yaml --measurements board.csv -o fitted.yaml",
    CalibrateLine,
    takes("target", metavar="TARGET", help="preset or target file to begin with"),
    takes(
        "--measurements", metavar="FILE", type=Path, required=True,
        help="CSV table: m,k,n,dtype or schedule,model, and a time such as latency_us",
    ),
    takes(
        "-o", "--output", metavar="FILE", type=Path, required=True,
        help="target file to write; only if it is better on rows held out",
    ),
    add_force_option,
    takes(
        "--check", action="store_true",
        help="fit nothing: write the target as it is, with its errors on these rows",
    ),
    takes(
        "--regime-us", metavar="US", type=whole_number("--regime-us", 1), default=40,
        help="microseconds of a kernel that separate two errors (default: 40)",
    ),
    takes(
        "--fields", metavar="F,...", default="",
        help="fields that may change, such as ddr.efficiency (default: rates and latencies)",
    ),
    takes(
        "--seed", metavar="N", type=whole_number("--seed", 0), default=0,
        help="seed of where fits start (default: 0)",
    ),
    usage="TARGET --measurements FILE -o FILE [options]",
)  # fmt: skip
def _calibrate(options: argparse.Namespace, console: Console) -> int:
    """Fit a target's figures to measured times, or state its errors on them."""
    from autoturbo.hardware.presets import source_text
    from autoturbo.tuning.calibrated_file import (
        calibrated_target,
        calibrated_text,
        stated_target,
        stated_text,
    )
    from autoturbo.tuning.calibration import calibrate, judged, parameters_of
    from autoturbo.tuning.implausible_rows import plausible
    from autoturbo.tuning.measured_table import read_table
    from autoturbo.tuning.regimes import uncovered

    outputs = outputs_of(options)
    outputs.check(options.output, Kind.TARGET)
    (start,) = load_targets([options.target])
    table = read_table(options.measurements, start, load_model)
    if table.unread:
        console.say(f"columns that say nothing here: {', '.join(table.unread)}")
    table = plausible(table, start, options.measurements, warn)
    regime = options.regime_us * 1e-6
    if what := uncovered(table.cases, regime):
        warn(f"{options.measurements}: {what}")
    if options.check:
        found = judged(start, table.cases, regime=regime)
        made = stated_target(found, table)
        text = stated_text(made, source_text(options.target))
    else:
        names = [name.strip() for name in options.fields.split(",") if name.strip()]
        parameters = parameters_of(start, names)
        found = calibrate(
            start, table.cases, parameters, seed=options.seed, regime=regime, told=console.say
        )
        made = calibrated_target(found, table)
        text = calibrated_text(made, found, table)
    outputs.write(options.output, Kind.TARGET, text)
    console.emit(_calibrated(made, found, str(options.output), table.sha256))
    _show_calibrated(console, found, len(table.cases))
    console.answer(f"written to {options.output}")
    return 0


def _calibrated(made: Target, found: Calibrated, file: str, sha256: str) -> CalibrateLine:
    known = made.calibration
    fitted: list[FittedJson] = [
        {
            "field": one.field, "unit": one.unit, "before": one.before, "after": one.after,
            "low": one.interval.low, "high": one.interval.high, "at_bound": one.at_bound,
        }
        for one in found.fit.fitted
    ]  # fmt: skip
    return {
        "target": made.name, "file": file, "hash": made.hash,
        "table": known.table if known else "", "table_sha256": sha256,
        "rows": known.rows if known else 0, "shapes": found.shapes,
        "error_before": found.before, "error_after": found.after,
        "regime_us": round(found.regimes.limit * 1e6, 9), "rows_below": found.regimes.rows_below,
        "error_below": found.regimes.below, "error_above": found.regimes.above, "fitted": fitted,
        "untouched": [{"field": u.field, "reason": u.reason} for u in found.fit.untouched],
    }  # fmt: skip


def _show_calibrated(console: Console, found: Calibrated, rows: int) -> None:
    """Show figures before and after, what stays and why, and the errors."""
    if not (found.fit.fitted or found.fit.untouched):
        console.answer(f"median error: {found.after:.1%} ({rows} rows, {found.shapes} shapes)")
        console.answer(f"kernels {found.regimes.line(rows)}")
        return
    console.table(
        ("field", "before", "after", "95 % interval", "unit"),
        [
            (
                one.field, f"{one.before:.4g}", f"{one.after:.4g}",
                "at its bound" if one.at_bound
                else f"{one.interval.low:.3g} to {one.interval.high:.3g}", one.unit,
            )
            for one in found.fit.fitted
        ],
    )  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for one in found.fit.untouched:
        reasons.setdefault(one.reason, []).append(one.field)
    for reason, fields in reasons.items():
        console.answer(f"stays as it is, {reason}: {', '.join(fields)}")
    shapes = f"{found.shapes} shapes held out in turn"
    errors = f"{found.before:.1%} before, {found.after:.1%} after"
    console.answer(f"median error: {errors} ({rows} rows, {shapes})")
    console.answer(f"held out, kernels {found.regimes.line(rows)}")
