"""The JSON text of records: written, read, checked, and published as a JSON schema."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired

from autoturbo.database.packing import unpack
from autoturbo.database.records import (
    DERIVED,
    RECORD_SCHEMA,
    BestSchedule,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
    Verified,
)
from autoturbo.errors import DatabaseError, KnobsError, Location, MeasurerError
from autoturbo.schema import (
    Choice,
    Either,
    InvalidError,
    Json,
    checked,
    document_type,
    dotted,
    form_of,
    json_schema,
    list_type,
    map_type,
)
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.verify.findings import Check

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


def encode(record: Record) -> str:
    """The record's canonical JSON text, one line of ASCII.

    Raises:
        MeasurerError: a measured value that no record may hold (NaN, a latency of 0).
        ValueError: a run or a key with such a value.
    """
    kind = _NAMES[type(record)]
    try:
        values = checked(record_type(kind), record.as_dict())
        return canonical({"kind": kind, "schema": RECORD_SCHEMA, **values})
    except InvalidError as error:
        path = dotted(error.first.path)
        message = f"{kind} record: {path}: {error.first.message}"
        if path.startswith(("measurement", "failure", "seconds")):
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
        return _built(kind, {"schema": version, **checked(record_type(kind), values)})
    except InvalidError as error:
        place = _field(at, dotted(error.first.path))
        raise DatabaseError(error.first.message, place, error.first.hint) from None
    except KnobsError as error:
        place = _field(at, f"knobs.{error.at.field}" if error.at.field else "knobs")
        raise DatabaseError(error.message, place, error.hint) from None


@functools.cache
def record_type(kind: str) -> Any:
    """Return the type of one kind of record's JSON form, without ``kind`` and ``schema``."""
    return next(form for name, form in _forms() if name == kind)


def _forms(tags: bool = False) -> Iterator[tuple[str, Any]]:
    """Give the types of records' JSON forms, with ``kind`` and ``schema`` if they are asked for."""
    knobs = map_type(Annotated[Any, Json()])
    outcome = {
        "measurement": NotRequired[form_of(Measurement)],
        "failure": NotRequired[form_of(Failure)],
    }
    checks = list_type(
        Annotated[str, Choice(of=tuple(check.value for check in Check), kind="check")]
    )
    more = {
        "run": {"without": DERIVED, "required": ("state",)},
        "trial": {"without": ("outcome",), "knobs": knobs, **outcome},
        "best": {
            "required": ("versions",),
            "knobs": knobs,
            "verified": document_type(Verified, checks=checks),
        },
        "kernel": {},
    }
    for name, kind in KINDS.items():
        tagged: dict[str, Any] = (
            {"kind": Literal[name], "schema": Literal[RECORD_SCHEMA]} if tags else {}
        )
        form: Any = document_type(kind, **more[name], **tagged)
        rule = Either(of=tuple(outcome))
        yield name, Annotated[form, rule] if name == "trial" else form


def record_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a line of an export."""
    from pydantic import Field

    lines = [form for _, form in _forms(tags=True)]
    kind: Any = Annotated[functools.reduce(operator.or_, lines), Field(discriminator="kind")]
    about = "One line of an export. Times in seconds, sizes in bytes, dates in UTC."
    return json_schema(kind, f"AutoTurbo record, version {RECORD_SCHEMA}", about)


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
