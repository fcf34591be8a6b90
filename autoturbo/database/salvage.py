"""What a damaged database still holds, in a new one.

Every record is recognised by its own text and checked as the line of an export is, so a page that
was overwritten takes with it what stood on it and nothing else. What an earlier version of a row
has left on a page that is free again counts too: which of two is kept is what merging says.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autoturbo.database.formats import encode, parse_line
from autoturbo.database.holding import any_held
from autoturbo.database.packing import unpack
from autoturbo.database.pages import Pages, Row, rows_of
from autoturbo.database.records import (
    BestSchedule,
    Counts,
    KernelRecord,
    Record,
    RunInfo,
    TrialRecord,
)
from autoturbo.database.store import Database
from autoturbo.errors import AutoTurboError, DatabaseError, Location
from autoturbo.files import NO_OTHERS, Kind

_KERNEL = (str, str, str, float)
_RUN = '"kind":"run"'
_SHORTEST = 20  # bytes of a record, packed


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was saved, and what is known to be lost.

    Attributes:
        saved: records in the new database.
        missing: numbers of trials below the last saved one that are gone, by run.
        orphans: trials whose run's record is gone, beside the new database.
        orphans_file: where they are, as JSON lines; None where there are none.
        lost_best: runs that have trials but whose best schedule is gone.
    """

    saved: Counts
    missing: Mapping[str, tuple[int, ...]]
    orphans: int
    orphans_file: Path | None
    lost_best: tuple[str, ...]


def salvage(path: str | Path, out: str | Path) -> Salvaged:
    """Save what a damaged file and its write-ahead log hold into a new database.

    Nothing is written to the damaged one. Trials whose run is lost go to a file of JSON lines
    beside the new database: ``db import`` takes them in once the run is there.

    Raises:
        DatabaseError: the file cannot be read, holds no record, or the new one is there already.
    """
    path, out = Path(path), Path(out)
    if out.exists():
        raise DatabaseError("there is a file of that name", Location(out), "give a new name")
    data, log = _contents(path)
    texts = (text for text in _texts(data, log) if _RUN in text)
    runs = [r for text in texts for r in _parsed(text) if isinstance(r, RunInfo)]
    orphans_file = out.with_name(f"{out.name}.orphans.jsonl")
    with Database.open(out) as database:
        with NO_OTHERS.open(orphans_file, Kind.RECORDS, DatabaseError) as file:
            sieve = _Sieve(runs, file)
            every = (record for text in _texts(data, log) for record in _parsed(text))
            kept = itertools.chain(runs, filter(sieve.passes, every), _kernels(data, log))
            database.merge_in((Location(path), record) for record in kept)
        result = _result(database, sieve.orphans, orphans_file)
    if not sieve.orphans:
        orphans_file.unlink()
    if result.saved == Counts() and not sieve.orphans:
        out.unlink()
        hint = "restore the file from a copy, or import the last export into a new one"
        raise DatabaseError("holds no record that can be read", Location(path), hint)
    return result


def repair(path: str | Path) -> tuple[Salvaged, Path]:
    """Put what can be saved of a database in its place; the damaged file is kept beside it.

    Gives what was saved, and where the damaged file is.

    Raises:
        DatabaseError: a run is going on in it, or as :func:`salvage`.
    """
    path = Path(path)
    aside = _free_name(path)
    if any_held(path):
        hint = "wait for it, or end it"
        raise DatabaseError("a run is going on in the database", Location(path), hint)
    fresh = path.with_name(f"{path.name}.repaired")
    fresh.unlink(missing_ok=True)
    found = salvage(path, fresh)
    path.rename(aside)
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").rename(f"{aside}{ending}")
    fresh.rename(path)
    if found.orphans_file is not None:
        orphans = found.orphans_file.rename(f"{path}.orphans.jsonl")
        found = dataclasses.replace(found, orphans_file=orphans)
    return found, aside


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{n or ''}") for n in itertools.count())
    return next(name for name in names if not name.exists())


def _result(database: Database, orphans: int, file: Path) -> Salvaged:
    infos = database.runs()
    gaps = {info.id: _gaps([trial.number for trial in database.trials(info.id)]) for info in infos}
    keys = {best.key for best in database.best()}
    done = [info for info in infos if info.state == "done" and info.best_trial is not None]
    return Salvaged(
        database.counts(),
        {run: missing for run, missing in gaps.items() if missing},
        orphans,
        file if orphans else None,
        tuple(info.id for info in done if info.key not in keys),
    )


@dataclass(eq=False)
class _Sieve:
    """Keeps back trials without a run, which go to a file, and what failed a check."""

    runs: Sequence[RunInfo]
    file: BinaryIO
    orphans: int = 0

    def __post_init__(self) -> None:
        self._ids = {run.id for run in self.runs}
        self._refused = {(run.id, trial.trial) for run in self.runs for trial in run.refused}

    def passes(self, record: Record) -> bool:
        """Whether the record goes to the new database."""
        if isinstance(record, RunInfo):
            return False  # they came first
        if isinstance(record, BestSchedule):
            return (record.run, record.trial) not in self._refused
        if not isinstance(record, TrialRecord) or record.run in self._ids:
            return True
        self.file.write(encode(record).encode() + b"\n")
        self.orphans += 1
        return False


def _contents(path: Path) -> tuple[bytes, bytes]:
    """The file and its write-ahead log, which may be gone."""
    if path.exists() and not path.is_file():
        raise DatabaseError("not a regular file", Location(path))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatabaseError(f"cannot read: {error.strerror}", Location(path)) from None
    try:
        return data, Path(f"{path}-wal").read_bytes()
    except OSError:
        return data, b""


def _rows(data: bytes, log: bytes) -> Iterator[Row]:
    """Of all pages as committed last; where a log stands over some, of those below as well."""
    yield from rows_of(Pages(data, log))
    if log:
        yield from rows_of(Pages(data))


def _texts(data: bytes, log: bytes) -> Iterator[str]:
    """Whatever may be a record's text."""
    for row in _rows(data, log):
        for value in row:
            if isinstance(value, str | bytes) and len(value) >= _SHORTEST:
                with suppress(ValueError):
                    yield unpack(value)


def _parsed(text: str) -> Iterator[Record]:
    """The record that a text is, if it is one and whole."""
    with suppress(AutoTurboError, ValueError):
        yield parse_line(text.encode(), Location())


def _kernels(data: bytes, log: bytes) -> Iterator[Record]:
    """Kernel times, whose rows are told by their types."""
    for row in _rows(data, log):
        if tuple(map(type, row)) == _KERNEL:
            with suppress(AutoTurboError, ValueError):
                record = KernelRecord(*row)  # type: ignore[arg-type]
                encode(record)
                yield record


def _gaps(numbers: Sequence[int]) -> tuple[int, ...]:
    """Numbers that are missing below the last one."""
    return tuple(sorted(set(range(max(numbers, default=-1))) - set(numbers)))
