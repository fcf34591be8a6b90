"""The JSON text of records: written, read, checked, and published as a JSON schema."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from autoturbo.database.packing import unpack
from autoturbo.database.records import (
    RECORD_SCHEMA,
    RUN_STATES,
    BestSchedule,
    KernelRecord,
    PairKey,
    Record,
    Refused,
    RunInfo,
    TrialRecord,
    Verified,
)
from autoturbo.database.shapes import (
    Count,
    Free,
    ListOf,
    MapOf,
    MismatchError,
    Number,
    Shape,
    Table,
    Text,
    table_of,
)
from autoturbo.errors import DatabaseError, KnobsError, Location, MeasurerError
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.verify.findings import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS: Mapping[str, type[Record]] = {
    "run": RunInfo,
    "trial": TrialRecord,
    "best": BestSchedule,
    "kernel": KernelRecord,
}
"""The kinds of record, in the order in which an export holds them."""

_NAMES: Mapping[type[Record], str] = {kind: name for name, kind in KINDS.items()}
_READERS: Mapping[str, Callable[[Mapping[str, Any]], Record]] = {
    "run": RunInfo.from_dict,
    "trial": TrialRecord.from_dict,
    "best": BestSchedule.from_dict,
    "kernel": KernelRecord.from_dict,
}

# Identifiers and hashes are printable ASCII: they are compared, sorted and typed in. Names for
# people may be anything, half a surrogate pair from a strange file name included.
_TOKEN = Text(r"[!-~]([ -~]*[!-~])?", "3f2a90c1d4")
_TIME = Text(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})",
    "2026-01-31T12:00:00Z",
)
_VERIFIER = Text("[0-9]{1,9}", "1")
_CHECKS = ListOf(Text(choices=tuple(Check)))


def encode(record: Record) -> str:
    """The record's canonical JSON text, one line of ASCII.

    Raises:
        MeasurerError: a measured value that no record may hold (NaN, a latency of 0).
        ValueError: a run or a key with such a value.
    """
    kind = _NAMES[type(record)]
    try:
        values = shape(kind).load(record.as_dict())
        return canonical({"kind": kind, "schema": RECORD_SCHEMA, **values})
    except MismatchError as error:
        message = f"{kind} record: {error.path}: {error.message}"
        if error.path.startswith(("measurement", "failure", "seconds")):
            raise MeasurerError(message) from None
        raise ValueError(message) from None


def decode(kept: str | bytes, at: Location) -> Record:
    """Read a record that the database wrote, packed or as text.

    Raises:
        DatabaseError: it is damaged or of a version that this one cannot read.
    """
    try:
        values = json.loads(unpack(kept))
        return _built(values.pop("kind"), values)
    except KnobsError as error:
        hint = "another version of the scheduler wrote it"
        raise DatabaseError(f"a record with other knobs: {error}", at, hint) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"a damaged record: {type(error).__name__}: {error}"
        raise DatabaseError(message, at, "restore the file from a copy") from None


def values_of(kept: bytes, at: Location) -> dict[str, Any]:
    """A packed JSON object beside a record.

    Raises:
        DatabaseError: it is damaged.
    """
    try:
        values: dict[str, Any] = json.loads(unpack(kept))
    except ValueError as error:
        hint = "restore the file from a copy"
        raise DatabaseError(f"a damaged record: {error}", at, hint) from None
    return values


def parse_line(line: bytes, at: Location) -> Record:
    """Read and check one line of an export.

    Raises:
        DatabaseError: what the line holds is not a record, and which field is wrong.
    """
    values = _object(line, at)
    kind, version = values.pop("kind", None), values.pop("schema", None)
    if not isinstance(kind, str) or kind not in KINDS:
        hint = f"expected a line of 'autoturbo db export': one of {', '.join(KINDS)}"
        raise DatabaseError(f"{kind!r:.40} is not a kind of record", _field(at, "kind"), hint)
    if version != RECORD_SCHEMA or isinstance(version, bool):
        message = f"a record of version {version!r:.40}; this version reads {RECORD_SCHEMA}"
        raise DatabaseError(message, _field(at, "schema"), "export it with a matching version")
    try:
        return _built(kind, {"schema": version, **shape(kind).load(values)})
    except MismatchError as error:
        raise DatabaseError(error.message, _field(at, error.path), error.hint) from None
    except KnobsError as error:
        place = _field(at, f"knobs.{error.at.field}" if error.at.field else "knobs")
        raise DatabaseError(error.message, place, error.hint) from None


@functools.cache
def shape(kind: str) -> Table:
    """The shape of one kind of record, without ``kind`` and ``schema``."""
    key = table_of(PairKey, **dict.fromkeys(PairKey.__dataclass_fields__, _TOKEN))
    measurement = table_of(Measurement, latency=Number(above=0.0), batch=Count(1))
    named: dict[str, Shape] = {"model": Text(), "batch": Count(1), "target": Text()}
    versions: dict[str, Shape] = {"versions": MapOf(Text()), "created": _TIME}
    knobs: dict[str, Shape] = {"knobs": MapOf(Free())}
    found: dict[str, Shape] = {"run": _TOKEN, "trial": Count()}
    best: dict[str, Shape] = {"measurement": measurement, "schedule": Text()}
    details: dict[str, Shape] = {"model_file": Text(), "settings": MapOf(Free())}
    state: dict[str, Shape] = {"state": Text(choices=RUN_STATES)}
    outcome: dict[str, Shape] = {"measurement": measurement, "failure": table_of(Failure)}
    trial: dict[str, Shape] = {"run": _TOKEN, "number": Count(), **knobs, **outcome}
    refused = {"refused": ListOf(table_of(Refused, verifier=_VERIFIER))}
    checked = table_of(Verified, checks=_CHECKS, verifier=_VERIFIER, created=_TIME)
    more: dict[str, Shape] = {"verified": checked, "decisions": MapOf(Free())}
    tables = {
        "run": Table(
            {"id": _TOKEN, "key": key, **named, **details, **versions, **state, **refused},
            frozenset(refused),
        ),
        "trial": Table({**trial, "created": _TIME}, either=tuple(outcome)),
        "best": Table(
            {"key": key, **named, **knobs, **best, **found, **versions, **more},
            frozenset(more),
        ),
        "kernel": table_of(
            KernelRecord, target_hash=_TOKEN, scheduler_version=_TOKEN, signature=_TOKEN
        ),
    }
    return tables[kind]


def record_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a line of an export."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"AutoTurbo record, version {RECORD_SCHEMA}",
        "description": "One line of an export. Times in seconds, sizes in bytes, dates in UTC.",
        "oneOf": [_kind_schema(name, kind) for name, kind in KINDS.items()],
    }


def _kind_schema(name: str, kind: type[Record]) -> dict[str, Any]:
    schema = shape(name).schema()
    tags = {"kind": {"const": name}, "schema": {"const": RECORD_SCHEMA}}
    return {
        **schema,
        "title": name,
        "description": (kind.__doc__ or "").partition("\n")[0],
        "properties": {**tags, **schema["properties"]},
        "required": [*tags, *schema["required"]],
    }


def _built(kind: str, values: dict[str, Any]) -> Record:
    version = values.pop("schema")
    if version != RECORD_SCHEMA:
        raise ValueError(f"record version {version!r}")
    return _READERS[kind](values)


def _object(line: bytes, at: Location) -> dict[str, Any]:
    """The line as a JSON object; raises DatabaseError."""
    hint = "expected one JSON record a line, as 'autoturbo db export' writes them"
    try:
        values = json.loads(line.decode("utf-8"), object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        place = Location(at.file, at.line, error.colno)
        raise DatabaseError(f"not JSON: {error.msg}", place, hint) from None
    except UnicodeDecodeError:
        raise DatabaseError("not UTF-8 text", at, hint) from None
    except RecursionError:
        raise DatabaseError("nested too deeply", at, hint) from None
    except ValueError as error:
        raise DatabaseError(str(error), at, hint) from None
    if not isinstance(values, dict):
        raise DatabaseError("not a JSON object", at, hint)
    return values


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r:.60} is there twice")
    return values


def _field(at: Location, name: str) -> Location:
    return Location(at.file, at.line, None, name or None)


def canonical(values: Mapping[str, Any]) -> str:
    """JSON values as one line of ASCII: the same values, the same text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
