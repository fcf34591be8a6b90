"""Records as text: a line of an export, packed in a row of the database; checked and published.

Every row is packed for itself (zlib, RFC 1950), so that one that is damaged takes no other with it,
with a dictionary of what records have in common. Versions before 3 wrote the text as it is.
"""

from __future__ import annotations

import functools
import json
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from autoturbo.database.opening import CHECK
from autoturbo.database.records import (
    DERIVED,
    RECORD_SCHEMA,
    BestSchedule,
    Record,
    RunInfo,
    TrialRecord,
    Verified,
)
from autoturbo.errors import DatabaseError, KnobsError, Location, MeasurerError
from autoturbo.files import distinct
from autoturbo.schema import (
    Choice,
    ExactlyOne,
    InvalidError,
    checked,
    document_type,
    dotted,
    form_of,
    json_schema,
    list_type,
    map_type,
)
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.verifier.findings import Check

_T = TypeVar("_T")
R = TypeVar("R", bound=Record)

MOST_BYTES = 1 << 28
"""What a record's text may have: a file from elsewhere may not fill the memory."""

KINDS: Mapping[str, type[Record]] = {
    "run": RunInfo,
    "trial": TrialRecord,
    "best": BestSchedule,
}
"""The kinds of record, in the order in which an export holds them."""

_NAMES: Mapping[type[Record], str] = {kind: name for name, kind in KINDS.items()}
_KERNEL = "kernel"
_LINE = "expected one JSON record a line, as 'autoturbo db export' writes them"
_SMALL = 1 << 14  # a trial's text: a small window costs half a percent and saves half the time


def encode(record: Record) -> str:
    """Return the record's canonical JSON text, one line of ASCII.

    Raises:
        MeasurerError: A measured value that no record may hold (NaN, a latency of 0).
        ValueError: A run or a key with such a value.
    """
    kind = _NAMES[type(record)]
    try:
        values = checked(record_type(kind), record.as_dict())
        return canonical({"kind": kind, "schema": RECORD_SCHEMA, **values})
    except InvalidError as error:
        path = dotted(error.first.path)
        message = f"{kind} record: {path}: {error.first.message}"
        if path.startswith(("measurement", "failure", "handed_out")):
            raise MeasurerError(message) from None
        raise ValueError(message) from None


def decode(kept: str | bytes, at: Location) -> Record:
    """Return a record that this database wrote, packed or as text.

    Raises:
        DatabaseError: It is damaged or of a version that this one cannot read.
    """
    return read(kept, at, _own)


def decode_as(kept: str | bytes, kind: type[R], at: Location) -> R:
    """Return a record of a kind that this database wrote.

    Raises:
        DatabaseError: As :func:`decode`, or it is one of another kind.
    """
    record = decode(kept, at)
    if not isinstance(record, kind):
        raise DatabaseError(f"a damaged record: not a {kind.__name__}", at, CHECK)
    return record


def read(kept: str | bytes, at: Location, meaning: Callable[[str], _T]) -> _T:
    """Return the value that the text of a row encodes.

    Raises:
        DatabaseError: It is damaged or of a version that this one cannot read.
    """
    try:
        return meaning(unpack(kept))
    except KnobsError as error:
        hint = "another version of the scheduler wrote it"
        raise DatabaseError(f"a record with other knobs: {error}", at, hint) from None
    except RecursionError:
        raise DatabaseError("a damaged record: nested too deeply", at, CHECK) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"a damaged record: {type(error).__name__}: {error}"
        raise DatabaseError(message, at, CHECK) from None


def _own(text: str) -> Record:
    values = json.loads(text)
    kind, version = values.pop("kind"), values.pop("schema")
    if version != RECORD_SCHEMA:
        raise ValueError(f"record version {version!r}")
    return KINDS[kind].from_dict(values)


def parse_line(line: bytes, at: Location) -> Record | None:
    """Return the record in one line of an export, checked; None for the time of a kernel.

    Those were written by versions before 4 of the tables, and nothing reads them.

    Raises:
        DatabaseError: What the line holds is not a record, and which field is wrong.
    """
    try:
        values = json.loads(line.decode("utf-8"), object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        place = Location(at.file, at.line, error.colno)
        raise DatabaseError(f"not JSON: {error.msg}", place, _LINE) from None
    except UnicodeDecodeError:
        raise DatabaseError("not UTF-8 text", at, _LINE) from None
    except RecursionError:
        raise DatabaseError("nested too deeply", at, _LINE) from None
    except ValueError as error:
        raise DatabaseError(str(error), at, _LINE) from None
    if not isinstance(values, dict):
        raise DatabaseError("not a JSON object", at, _LINE)
    if values.get("kind") == _KERNEL:
        return None
    try:
        return _parsed(values, at)
    except RecursionError:
        raise DatabaseError("nested too deeply", at, _LINE) from None


def _parsed(values: Mapping[str, Any], at: Location) -> Record:
    """Return the record that values from elsewhere are, ``kind`` and ``schema`` among them.

    Raises:
        DatabaseError: They are none, and which field is wrong.
    """
    fields = dict(values)
    kind, version = fields.pop("kind", None), fields.pop("schema", None)
    if not isinstance(kind, str) or kind not in KINDS:
        hint = "expected a line of 'autoturbo db export': run, trial or best"
        raise DatabaseError(f"{kind!r:.40} is not a kind of record", _field(at, "kind"), hint)
    if version != RECORD_SCHEMA or isinstance(version, bool):
        message = f"a record of version {version!r:.40}; this version reads {RECORD_SCHEMA}"
        raise DatabaseError(message, _field(at, "schema"), "export it with a matching version")
    try:
        return KINDS[kind].from_dict(checked(record_type(kind), fields))
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
    knobs = map_type(Any)
    outcome = {
        "measurement": NotRequired[form_of(Measurement)],
        "failure": NotRequired[form_of(Failure)],
    }
    checks = list_type(Annotated[str, Choice(tuple(check.value for check in Check))])
    more = {
        "run": {"without": DERIVED, "required": ("state",)},
        "trial": {"without": ("outcome",), "knobs": knobs, **outcome},
        "best": {
            "required": ("versions",),
            "knobs": knobs,
            "verified": document_type(Verified, checks=checks),
        },
    }
    for name, kind in KINDS.items():
        tagged: dict[str, Any] = (
            {"kind": Literal[name], "schema": Literal[RECORD_SCHEMA]} if tags else {}
        )
        form: Any = document_type(kind, **more[name], **tagged)
        yield name, Annotated[form, ExactlyOne(of=tuple(outcome))] if name == "trial" else form


def record_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a line of an export."""
    from pydantic import Field

    lines = [form for _, form in _forms(tags=True)]
    kind: Any = Annotated[functools.reduce(operator.or_, lines), Field(discriminator="kind")]
    about = "One line of an export. Times in seconds, sizes in bytes, dates in UTC."
    return json_schema(kind, f"AutoTurbo record, version {RECORD_SCHEMA}", about)


def canonical(values: Mapping[str, Any]) -> str:
    """Return JSON values as one line of ASCII: the same values, the same text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def pack(text: str) -> bytes:
    """Return a text of ASCII as a row holds it."""
    data = text.encode("ascii")
    bits, memory = (13, 7) if len(data) < _SMALL else (15, 8)
    packer = zlib.compressobj(6, zlib.DEFLATED, bits, memory, zdict=dictionary())
    return packer.compress(data) + packer.flush()


def unpack(kept: str | bytes) -> str:
    """Return the text of a row, of any version.

    Raises:
        ValueError: What is kept is damaged, or larger than :data:`MOST_BYTES`.
    """
    if isinstance(kept, str):
        return kept
    if not isinstance(kept, bytes):
        raise ValueError("its record is neither text nor packed")  # noqa: TRY004  of a file
    try:
        unpacker = zlib.decompressobj(zdict=dictionary())
        text = unpacker.decompress(kept, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("cannot be unpacked: cut short, or too long")
    return text.decode("ascii")


@functools.cache
def dictionary() -> bytes:
    """Return the compression dictionary; never edited, since every packed row was made with it."""
    return Path(__file__).with_name("common.txt").read_bytes()


def _field(at: Location, name: str) -> Location:
    return Location(at.file, at.line, None, name or None)
