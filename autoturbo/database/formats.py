"""Records as text: a line of an export, packed in a row of the database; checked and published.

Every row is packed for itself (zlib, RFC 1950), so that one that is damaged takes no other with it,
with a dictionary of what records have in common. Versions before 3 wrote the text as it is.
"""

from __future__ import annotations

import functools
import json
import operator
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from autoturbo.database.records import (
    DERIVED,
    RECORD_SCHEMA,
    BestSchedule,
    Record,
    RunInfo,
    TrialRecord,
    Verified,
)
from autoturbo.database.tables import CHECK
from autoturbo.errors import DatabaseError, KnobsError, Location, MeasurerError
from autoturbo.files import distinct
from autoturbo.schema import (
    Choice,
    ExactlyOne,
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
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.verifier.findings import Check

_T = TypeVar("_T")

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
        return parsed(values, at)
    except RecursionError:
        raise DatabaseError("nested too deeply", at, _LINE) from None


def parsed(values: Mapping[str, Any], at: Location) -> Record:
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


# Which of two records of the same thing is kept, and the rows they stand in.
#
# The rank of a record is a total order, and of two the lower is kept, whole. Taking the least is
# commutative, associative and idempotent, so databases can be merged in any order and any number of
# times.

_STATES = ("done", "failed", "interrupted", "running")  # what is over outranks what may go on
_KEY = ("graph_hash", "target_hash", "dtype", "scheduler_version")


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a kind of records.

    Attributes:
        name: Of the table.
        key: Columns that tell one record from another.
        others: The other columns; the last one has the record.
    """

    name: str
    key: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns, in the order of :func:`row_of`."""
        return (*self.key, *self.others)

    def there(self, connection: sqlite3.Connection) -> tuple[str, ...]:
        """Return those columns that a database has, which an earlier version may have made."""
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({self.name})")}
        return tuple(name for name in self.columns if name in present)

    @property
    def find(self) -> str:
        """Return the statement that looks up the last column by the key."""
        where = " AND ".join(f"{name} = ?" for name in self.key)
        return f"SELECT {self.others[-1]} FROM {self.name} WHERE {where}"  # noqa: S608  our names

    @property
    def put(self) -> str:
        """Return the statement that writes a row over the one with its key."""
        names, marks = ", ".join(self.columns), ", ".join("?" * len(self.columns))
        return f"INSERT OR REPLACE INTO {self.name} ({names}) VALUES ({marks})"  # noqa: S608


TABLES: Mapping[type[Record], Table] = {
    RunInfo: Table("runs", ("id",), (*_KEY, "model", "target", "state", "created", "record")),
    TrialRecord: Table("trials", ("run", "number"), ("latency", "record")),
    BestSchedule: Table(
        "best",
        _KEY,
        ("model", "target", "batch", "run", "trial", "latency", "verified", "decisions", "record"),
    ),
}
"""The tables, in the order in which an export holds their records."""


def rank(record: Record) -> tuple[Any, ...]:
    """Return a sort key of records for the same thing: the lower one is kept.

    A run that is over goes before one that may go on, then what was handed out after more trials,
    then the one that refuses more trials; a measurement before a failure, the faster first; among
    best schedules of equal latency the smaller text of the knobs, and of one schedule the record of
    more checks passed, then of the newer verifier. Ties of all that matters are broken by the
    records' text.
    """
    match record:
        case RunInfo():
            state = _STATES.index(record.state)
            covered = 0 if record.handed_out is None else record.handed_out.covers
            return (state, -covered, -len(record.refused), record.created, encode(record))
        case TrialRecord():
            latency = record.latency
            return (latency is None, latency or 0.0, record.created, encode(record))
        case BestSchedule():
            knobs = record.knobs.canonical()
            checks, verifier = record.verified.strength if record.verified else (0, 0)
            what = (record.measurement.latency, knobs)
            return (*what, -checks, -verifier, record.created, encode(record))


def merge(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
    """Write the record unless the database has one of lower rank.

    Returns:
        Whether it was written; False also where the very same record is there.

    Raises:
        DatabaseError: A run of that id with other settings is there; a record there is damaged.
    """
    row = row_of(record)
    if not _outranks(connection, record, row, at):
        return False
    connection.execute(TABLES[type(record)].put, row)
    return True


def is_news(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
    """Return whether :func:`merge` would write a record."""
    return _outranks(connection, record, row_of(record), at)


def _outranks(
    connection: sqlite3.Connection, record: Record, row: tuple[Any, ...], at: Location
) -> bool:
    table = TABLES[type(record)]
    found = connection.execute(table.find, row[: len(table.key)]).fetchone()
    if found is None:
        return True
    (kept,) = found
    if kept == row[-1]:
        return False
    old = decode(kept, at)
    _check_same_run(record, old, at)
    return rank(old) > rank(record)


def row_of(record: Record) -> tuple[Any, ...]:
    """Return the values of the record's columns.

    Raises:
        MeasurerError: A measured value that no record may hold.
        ValueError: Another such value.
    """
    text = encode(record)
    match record:
        case RunInfo():
            names = (column(record.model), column(record.target))
            return (record.id, *astuple(record.key), *names, record.state, record.created,
                    pack(text))  # fmt: skip
        case TrialRecord():
            latency = None if record.latency is None else float(record.latency)
            return (record.run, int(record.number), latency, pack(text))
        case BestSchedule():
            names = (column(record.model), column(record.target))
            columns = (record.run, int(record.trial), float(record.measurement.latency))
            checks = " ".join(record.verified.checks) if record.verified else None
            decisions = pack(canonical(record.decisions)) if record.decisions else b""
            return (*astuple(record.key), *names, int(record.batch), *columns, checks, decisions,
                    pack(text))  # fmt: skip


def has_run(connection: sqlite3.Connection, run: str) -> bool:
    """Return whether there is a run of that id."""
    row = connection.execute("SELECT 1 FROM runs WHERE id = ?", (column(run),)).fetchone()
    return row is not None


def column(text: str) -> str:
    """Return text as SQLite can hold it: halves of surrogate pairs, in odd names, are spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_same_run(new: Record, old: Record, at: Location) -> None:
    if isinstance(new, RunInfo) and isinstance(old, RunInfo) and (names := new.unlike(old)):
        message = f"run {new.id!r} is another one in the file, with other {', '.join(names)}"
        raise DatabaseError(message, at, "no export of a database has two; give each its own file")
