"""Machines by name and in files: how they are found, read and checked.

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
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from annotated_types import Len

from autoturbo.errors import TargetError, did_you_mean
from autoturbo.hardware.document import Document, parse_document, read_document
from autoturbo.hardware.fields import Section, built, file_fields, number, whole
from autoturbo.hardware.machine import MIB, SHARED, Link, Machine, OperatorRule, Unit
from autoturbo.hardware.presets import load_target
from autoturbo.hardware.target import (
    OPTIONAL,
    SCHEMA_VERSION,
    Target,
    build_target,
    fields_type,
    layout,
)
from autoturbo.hardware.target_checks import (
    check_part,
    located,
    raise_first,
    target_issues,
    target_of,
)
from autoturbo.hardware.tuning_target import TuningTarget
from autoturbo.schema import Described, ValidationIssue, json_schema, list_type, mapping_type

_FOLDER: Final = Path(__file__).parent / "presets" / "machines"

_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")

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


def find_target(name_or_path: str | os.PathLike[str]) -> TuningTarget:
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
        name: Name of a preset, or path of a file, that :func:`find_machine` knows.
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


def target_from_dict(values: Mapping[str, Any]) -> TuningTarget:
    """Return the target or the machine that a document describes.

    Raises:
        TargetError: It describes neither.
    """
    return machine_from_dict(values) if "units" in values else Target.from_dict(values)


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
        # a unit is checked as the target that it is with the shared memory
        for issue in target_issues({**unit, **_shared(value)}):
            yield issue.under(("units", index))
    # a layer that no other unit takes must run somewhere
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
        memory = None if "memory_mib" not in entry else round(entry["memory_mib"] * MIB)
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
        "count": Annotated[count.type_in_file(int), count],
        "memory_mib": Annotated[memory.type_in_file(float), memory],
        "takes": Annotated[rules, takes],
    }
    units = list_type(mapping_type("Unit", {**unit, **unit_fields}, {*OPTIONAL, *unit_fields}))
    links = list_type(fields_type("Link", file_fields(Link)))
    of_units = Described(about="kinds of units; the first takes every layer")
    (switch,) = file_fields(Machine)
    top = {key: target[key] for key in ("schema_version", "name", "description")}
    fields = {
        **top,
        "units": Annotated[units, Len(1, MOST_UNITS), of_units],
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
