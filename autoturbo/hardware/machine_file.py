"""From a name or a file to a :class:`~autoturbo.hardware.machine.Machine`.

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
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from autoturbo.errors import Location, TargetError
from autoturbo.hardware.document import Document, Steps, parse_document, read_document
from autoturbo.hardware.fields import SCHEMA_VERSION, build_target
from autoturbo.hardware.loader import load_target, target_of
from autoturbo.hardware.machine import AnyTarget, Link, Machine, OperatorRule, Unit
from autoturbo.hardware.machine_schema import MOST_UNITS, SHARED
from autoturbo.hardware.problems import dotted, require_valid, suggestion
from autoturbo.hardware.schema import target_schema
from autoturbo.hardware.target import Target

_FOLDER: Final = Path(__file__).parent / "presets" / "machines"
_FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OWN: Final = ("count", "takes", "memory_mib")
_TOP: Final = ("schema_version", "name", "description", "units", *SHARED, "switch_us", "links")
_NEEDED: Final = ("schema_version", "name", "units", "ddr", "switch_us")
_RULE: Final = ("kinds", "channels_multiple", "grouped", "fused")
_LINK: Final = ("between", "bandwidth_gb_s", "latency_us", "through_ddr")
_MIB: Final = 1 << 20


def machine_names() -> tuple[str, ...]:
    """Machines that are shipped here."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """The machine of a preset or of a YAML file.

    Raises:
        TargetError: nothing has that name, or what has it is not a valid machine.
    """
    name = os.fspath(name_or_path)
    if name in machine_names():
        return _preset(name)
    if name.endswith(_FILE_SUFFIXES) or Path(name).exists():
        return machine_of(read_document(Path(name), name))
    hint, _ = suggestion(name, list(machine_names()), kind="machines")
    raise TargetError(f"unknown machine {name!r}", hint=hint)


def find_machine(name: str) -> Machine | None:
    """The machine of a name or file; None where it is a target's, or nothing's.

    Raises:
        TargetError: a file describes units, and is not a valid machine.
    """
    if name in machine_names():
        return _preset(name)
    document = _document(name)
    return machine_of(document) if document is not None and is_machine(document) else None


def find_target(name_or_path: str | os.PathLike[str]) -> AnyTarget:
    """The machine or the target of a name or file, which is read once.

    Raises:
        TargetError: nothing has that name, or what has it is neither.
    """
    name = os.fspath(name_or_path)
    if name in machine_names():
        return _preset(name)
    document = _document(name)
    if document is None:
        return load_target(name_or_path)
    return machine_of(document) if is_machine(document) else target_of(document)


def _document(name: str) -> Document | None:
    """What a file holds; None where there is none of that name, or the name is not a file's."""
    if not name.endswith(_FILE_SUFFIXES) or not Path(name).is_file():
        return None
    return read_document(Path(name), name)


def machine_document(name: str) -> tuple[dict[str, Any], str]:
    """What the file of a machine holds, and its text, comments and all.

    Args:
        name: of a preset, or the path of a file, that :func:`find_machine` knows.
    """
    path = _FOLDER / f"{name}.yaml" if name in machine_names() else Path(name)
    text = path.read_text("utf-8-sig")
    return dict(parse_document(text, name).value), text


def machine_from_dict(values: Mapping[str, Any]) -> Machine:
    """The machine that a document in the layout of :meth:`Machine.as_dict` describes.

    Raises:
        TargetError: it is not a valid machine.
    """
    return machine_of(Document(values))


def target_from_dict(values: Mapping[str, Any]) -> AnyTarget:
    """The target or the machine that a document describes.

    Raises:
        TargetError: it describes neither.
    """
    return machine_from_dict(values) if "units" in values else Target.from_dict(values)


def machine_as_dict(machine: Machine) -> dict[str, Any]:
    """A machine in the layout of its file; figures have 12 significant digits."""
    first = machine.units[0].target.as_dict()
    alike = itertools.groupby(machine.units, key=lambda unit: unit.kind)
    return {
        "schema_version": SCHEMA_VERSION,
        "name": machine.name,
        "description": machine.description,
        "units": [_unit_entry(list(units)) for _, units in alike],
        **{name: first[name] for name in SHARED if name in first},
        "switch_us": _figure(machine.switch * 1e6),
        "links": [_link_entry(link) for link in machine.links],
    }


def _unit_entry(units: list[Unit]) -> dict[str, Any]:
    """Alike units as one entry."""
    unit = units[0]
    body = {k: v for k, v in unit.target.as_dict().items() if k in _unit_fields()}
    entry: dict[str, Any] = {**body, "name": unit.kind}
    if len(units) > 1:
        entry["count"] = len(units)
    if unit.memory is not None:
        entry["memory_mib"] = _figure(unit.memory / _MIB)
    if unit.takes:
        entry["takes"] = [_rule_entry(rule) for rule in unit.takes]
    return entry


def _rule_entry(rule: OperatorRule) -> dict[str, Any]:
    values = dataclasses.asdict(rule)
    return {**values, "kinds": list(rule.kinds), "fused": list(rule.fused)}


def _link_entry(link: Link) -> dict[str, Any]:
    return {
        "between": list(link.units),
        "bandwidth_gb_s": _figure(link.bandwidth / 1e9),
        "latency_us": _figure(link.latency * 1e6),
        "through_ddr": link.through_ddr,
    }


def _figure(value: float) -> float:
    return float(f"{value:.12g}")


@lru_cache(maxsize=16)
def _preset(name: str) -> Machine:
    text = (_FOLDER / f"{name}.yaml").read_text("utf-8")
    return machine_of(parse_document(text, f"{name}.yaml"))


def is_machine(document: Document) -> bool:
    """Whether a document describes a machine and not a target."""
    return isinstance(document.value, Mapping) and "units" in document.value


def machine_of(document: Document) -> Machine:
    """The machine that a document describes.

    Raises:
        TargetError: it is not a valid machine.
    """
    reader = _Reader(document)
    reader.mapping((), _TOP, _NEEDED)
    if document.duplicates:
        path, at = document.duplicates[0]
        raise TargetError("given twice", Location(document.file, at[0], at[1], dotted(path)))
    if document.value["schema_version"] != SCHEMA_VERSION:
        raise reader.wrong(("schema_version",), f"this release reads version {SCHEMA_VERSION}")
    units = tuple(reader.units())
    if units[0].takes:
        raise reader.wrong(("units", 0, "takes"), "the first unit must take everything")
    return Machine(
        name=units[0].target.name.rsplit("/", 1)[0],
        description=reader.text("description"),
        units=units,
        ddr=units[0].target.ddr,
        switch=reader.number(("switch_us",), 0.0, 1e9) * 1e-6,
        links=tuple(reader.links(units)),
    )


class _Reader:
    """Takes a document apart; what is wrong with it raises where it stands."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def wrong(self, path: Steps, message: str, hint: str | None = None) -> TargetError:
        """An error at a place of the document."""
        values, keys = self.document.values, self.document.keys
        line, column = values.get(path) or keys.get(path) or (None, None)
        return TargetError(message, Location(self.document.file, line, column, dotted(path)), hint)

    def at(self, path: Steps, default: Any = None) -> Any:
        """The value at a path; the default where there is none."""
        value = self.document.value
        for step in path:
            if isinstance(value, Mapping) and step not in value:
                return default
            value = value[step]
        return value

    def mapping(self, path: Steps, known: tuple[str, ...], needed: tuple[str, ...]) -> None:
        """Refuse what is no mapping, lacks a field or has an unknown one."""
        value = self.at(path)
        if not isinstance(value, Mapping):
            raise self.wrong(path, "must be a mapping of fields")
        for name in value:
            if name not in known:
                hint, _ = suggestion(str(name), list(known))
                raise self.wrong((*path, str(name)), "unknown field", hint)
        for name in needed:
            if name not in value:
                raise self.wrong((*path, name), "missing field", "add it")

    def number(self, path: Steps, low: float, high: float, default: float | None = None) -> float:
        """A number within bounds."""
        value = self.at(path, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            raise self.wrong(path, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, path: Steps, low: int, high: int, default: int) -> int:
        """A whole number within bounds."""
        value = self.at(path, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(path, f"must be a whole number from {low} to {high}")
        return value

    def flag(self, path: Steps, *, default: bool) -> bool:
        """A truth value."""
        value = self.at(path, default)
        if not isinstance(value, bool):
            raise self.wrong(path, "must be true or false")
        return value

    def text(self, name: str) -> str:
        """One line of text, empty where it is left out."""
        value = self.at((name,), "")
        if not isinstance(value, str):
            raise self.wrong((name,), "must be text")
        return value

    def names(self, path: Steps, default: list[str] | None = None) -> tuple[str, ...]:
        """A list of texts."""
        value = self.at(path, default)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(path, "must be a list of names")
        return tuple(value)

    def units(self) -> Iterator[Unit]:
        """Units of the list, those with a count as often as it says."""
        listed = self.at(("units",))
        if not isinstance(listed, list) or not listed or len(listed) > MOST_UNITS:
            raise self.wrong(("units",), f"must be a list of 1 to {MOST_UNITS} units")
        seen = set[str]()
        for index in range(len(listed)):
            path: Steps = ("units", index)
            self.mapping(path, (*_unit_fields(), *_OWN), ("name",))
            count = self.whole((*path, "count"), 1, MOST_UNITS, 1)
            target, rules = self.target(path), tuple(self.rules(path))
            kind = target.name.rsplit("/", 1)[1]
            if kind in seen:
                raise self.wrong((*path, "name"), f"a second unit {kind!r}", "use 'count'")
            seen.add(kind)
            memory = self.memory((*path, "memory_mib"))
            for number in range(count):
                name = kind if count == 1 else f"{kind}{number}"
                yield Unit(name, kind, target, rules, memory)

    def memory(self, path: Steps) -> int | None:
        """Bytes that a unit may take; None where nothing is said."""
        if self.at(path) is None:
            return None
        return round(self.number(path, 1e-3, 1e9) * _MIB)

    def target(self, path: Steps) -> Any:
        """A unit as a target of its own, with the machine's memory."""
        body = {k: v for k, v in self.at(path).items() if k not in _OWN}
        memory = {k: self.at((k,)) for k in SHARED if self.at((k,)) is not None}
        value = {"schema_version": SCHEMA_VERSION, **body, **memory}
        keys, values = (self.moved(found, path) for found in self.positions())
        try:
            require_valid(Document(value, self.document.file, keys, values))
        except TargetError as error:
            field = error.at.field or ""
            if field.split(".")[0] not in SHARED:
                at = dataclasses.replace(error.at, field=f"{dotted(path)}.{field}")
                raise TargetError(error.message, at, error.hint) from None
            raise
        target = build_target(value)
        return dataclasses.replace(target, name=f"{self.machine_name()}/{target.name}")

    def machine_name(self) -> str:
        """Checked by the rule for names of targets."""
        name = self.at(("name",))
        if not isinstance(name, str) or not re.match(_name_pattern(), name):
            hint = "use small letters, digits, '.', '_' and '-', a letter or digit first"
            raise self.wrong(("name",), "not usable as a name", hint)
        return name

    def positions(self) -> tuple[dict[Steps, tuple[int, int]], dict[Steps, tuple[int, int]]]:
        """Where keys and values stand."""
        return self.document.keys, self.document.values

    def moved(
        self, found: Mapping[Steps, tuple[int, int]], unit: Steps
    ) -> dict[Steps, tuple[int, int]]:
        """Positions as they would be in the file of a target."""
        moved = {p: at for p, at in found.items() if p and p[0] in SHARED}
        moved |= {p[len(unit) :]: at for p, at in found.items() if p[: len(unit)] == unit}
        return moved

    def rules(self, path: Steps) -> Iterator[OperatorRule]:
        """What a unit takes."""
        listed = self.at((*path, "takes"), [])
        if not isinstance(listed, list):
            raise self.wrong((*path, "takes"), "must be a list of rules")
        for index in range(len(listed)):
            rule: Steps = (*path, "takes", index)
            self.mapping(rule, _RULE, ("kinds",))
            yield OperatorRule(
                self.names((*rule, "kinds")),
                self.whole((*rule, "channels_multiple"), 1, 65536, 1),
                self.flag((*rule, "grouped"), default=True),
                self.names((*rule, "fused"), []),
            )

    def links(self, units: tuple[Unit, ...]) -> Iterator[Link]:
        """What joins the units."""
        listed = self.at(("links",), [])
        if not isinstance(listed, list):
            raise self.wrong(("links",), "must be a list of links")
        known = sorted({name for unit in units for name in (unit.name, unit.kind)})
        for index in range(len(listed)):
            path: Steps = ("links", index)
            self.mapping(path, _LINK, ("between", "bandwidth_gb_s"))
            ends = self.names((*path, "between"))
            if len(ends) != 2:  # noqa: PLR2004  a link has two ends
                raise self.wrong((*path, "between"), "must name two units")
            for end in ends:
                if end not in known:
                    hint, _ = suggestion(end, known, kind="units")
                    raise self.wrong((*path, "between"), f"no unit is called {end!r}", hint)
            yield Link(
                (ends[0], ends[1]),
                self.number((*path, "bandwidth_gb_s"), 1e-3, 1e6) * 1e9,
                self.number((*path, "latency_us"), 0.0, 1e6, 0.0) * 1e-6,
                self.flag((*path, "through_ddr"), default=True),
            )


def _unit_fields() -> tuple[str, ...]:
    """Fields of a target that a unit has."""
    left_out = {"schema_version", *SHARED}
    return tuple(name for name in target_schema()["properties"] if name not in left_out)


def _name_pattern() -> str:
    pattern: str = target_schema()["properties"]["name"]["pattern"]
    return pattern
