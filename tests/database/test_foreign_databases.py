"""Databases from elsewhere: what cannot be believed is left out, and what is not ours refused."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from autoturbo.database import Counts, Database, ImportResult, check
from autoturbo.database.formats import canonical, encode, pack
from autoturbo.database.records import Record
from autoturbo.database.rows import TABLES, row_of
from autoturbo.database.tables import MIGRATIONS
from autoturbo.errors import DatabaseError
from autoturbo.schedule.knobs import Knobs
from tests.database import database_samples as samples
from tests.processes import HANG_S

BEST = "best 9f31 77aa fp16 0.1.0/1/1"
WHOLE = Counts(runs=1, trials=3, best=1)

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def raw(path: Path, *statements: str, values: tuple[object, ...] = ()) -> None:
    """Change a file behind our back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        for statement in statements:
            connection.execute(statement, values)


def theirs(folder: Path) -> Path:
    path = folder / "theirs.db"
    samples.filled(path).close()
    return path


def merged(path: Path) -> tuple[ImportResult, Counts]:
    with Database.open(path.with_name("ours.db")) as ours:
        result = ours.take_in(path)
        counts = ours.counts()
        for info in ours.runs():  # whatever came in can be read
            ours.trials(info.id)
        ours.best()
        ours.export(path.with_name("out.jsonl"))
    return result, counts


def forged(path: Path, record: Record) -> None:
    """Put a record into a file as another program could, past every check."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(TABLES[type(record)].put, row_of(record))


ROWS = {
    "a blob": ("UPDATE trials SET record = x'00ff' WHERE number = 1", "trials aa00 1: "),
    "text": ("UPDATE trials SET record = 'garbage' WHERE number = 1", "trials aa00 1: "),
    "a number": ("UPDATE trials SET record = 7 WHERE number = 1", "trials aa00 1: "),
    "not UTF-8": (
        "UPDATE trials SET record = CAST(x'fffe7b' AS TEXT) WHERE number = 1",
        "trials aa00 1: ",
    ),
    "another number": (
        "UPDATE trials SET number = 1000 WHERE number = 1",
        "trials aa00 1000: what is looked up by is not what the record says",
    ),
    "a faster column": (
        "UPDATE trials SET latency = 1e-9 WHERE number = 1",
        "trials aa00 1: what is looked up by is not what the record says",
    ),
    "another table's": (
        "UPDATE trials SET record = (SELECT record FROM best) WHERE number = 1",
        "trials aa00 1: its record is one of another table",
    ),
    "a best one": ("UPDATE best SET record = x'78'", "best 9f31 77aa fp16 0.1.0/1/1: "),
    "decisions": ("UPDATE best SET decisions = x'78'", "best 9f31 77aa fp16 0.1.0/1/1: "),
}


@pytest.mark.parametrize(("statement", "finding"), ROWS.values(), ids=ROWS)
def test_a_bad_row_is_left_out_and_named(tmp_path: Path, statement: str, finding: str) -> None:
    path = theirs(tmp_path)
    raw(path, "PRAGMA ignore_check_constraints = ON", statement)
    result, counts = merged(path)
    (found,) = result.findings
    assert found.startswith(finding)
    assert sum(dataclasses.astuple(result.left_out)) == 1
    assert sum(dataclasses.astuple(counts)) == sum(dataclasses.astuple(WHOLE)) - 1
    assert check(path).findings == (found,)


LIES = {
    "below the bound": (
        samples.trial(3, 1e-6),
        "trials aa00 3: measurement.latency: below the lower bound of 4e-06 s",
    ),
    "a best one below it": (
        samples.best(1e-9),
        f"{BEST}: measurement.latency: below the lower bound of 4e-06 s",
    ),
    "no schedule": (
        samples.best(0.001, schedule="garbage"),
        f"{BEST}: schedule: not a schedule file's text",
    ),
    "another model's schedule": (
        samples.best(0.001, schedule=samples.schedule_text(dtype="int8")),
        f"{BEST}: schedule: of another model, target or data type than the key",
    ),
    "other knobs": (
        samples.best(0.001, schedule=samples.schedule_text(knobs=Knobs(max_layers=3))),
        f"{BEST}: schedule: of other knobs than the record's",
    ),
    "another pair's settings": (
        samples.run_info("bb00", settings={"graph_hash": "0000"}),
        "runs bb00: settings.graph_hash: not that of the run's key",
    ),
}


@pytest.mark.parametrize(("lie", "finding"), LIES.values(), ids=LIES)
def test_a_record_that_contradicts_itself_is_left_out(
    tmp_path: Path, lie: Record, finding: str
) -> None:
    path = theirs(tmp_path)
    forged(path, lie)
    result, _ = merged(path)
    assert result.findings == (finding,)
    with Database.open(tmp_path / "ours.db") as ours:
        assert all(best.measurement.latency == 0.01 for best in ours.best())


@pytest.mark.parametrize("lie", [lie for lie, _ in LIES.values()], ids=LIES)
def test_an_export_with_it_is_refused_whole(tmp_path: Path, lie: Record) -> None:
    records = [samples.run_info(), lie]
    lines = "\n".join(map(encode, records))
    (tmp_path / "in.jsonl").write_text(f"{lines}\n")
    with Database.open(tmp_path / "ours.db") as ours:
        with pytest.raises(DatabaseError) as caught:
            ours.take_in(tmp_path / "in.jsonl")
        assert caught.value.at.line == 2
        assert ours.counts() == Counts()


def test_what_another_zlib_has_packed_is_sound(tmp_path: Path) -> None:
    path = theirs(tmp_path)
    best = samples.best(decisions={"layers": []})
    forged(path, best)
    others = zlib.compress(canonical(best.decisions).encode(), 0)
    raw(path, "UPDATE best SET decisions = ?", values=(others,))
    result, counts = merged(path)
    assert (result.findings, counts) == ((), WHOLE)
    assert check(path).sound
    with Database.open(tmp_path / "ours.db") as ours:
        assert ours.best() == (best,)


def test_unknown_knobs_are_left_out(tmp_path: Path) -> None:
    path = theirs(tmp_path)
    text = encode(samples.trial(1, 0.005)).replace('"max_layers"', '"no_such_knob"')
    raw(path, "UPDATE trials SET record = ? WHERE number = 1", values=(pack(text),))
    result, _ = merged(path)
    assert result.left_out == Counts(trials=1)
    assert "no_such_knob" in result.findings[0]


def test_nobody_beats_the_bound(tmp_path: Path) -> None:
    path = theirs(tmp_path)
    key = dataclasses.replace(samples.KEY, scheduler_version="0.1.0/1/1+board 2")
    forged(path, samples.run_info("bb00", key=key))
    forged(path, samples.trial(0, 1e-6, run="bb00"))
    result, _ = merged(path)
    assert result.left_out == Counts(trials=1)


def test_trials_of_a_run_that_is_left_out_are_too(tmp_path: Path) -> None:
    path = theirs(tmp_path)
    raw(path, "UPDATE runs SET record = 'garbage'")
    result, counts = merged(path)
    assert result.left_out == Counts(runs=1, trials=3)
    assert counts == Counts(best=1)
    assert result.findings[1].endswith("its run is neither in the file nor in the database")


FOREIGN = {
    "a view": [
        f"CREATE VIEW odd AS {NUMBERS} SELECT i FROM n",  # noqa: S608
    ],
    "a view in the place of a table": [
        "DROP TABLE runs",
        f"CREATE VIEW runs AS {NUMBERS} SELECT i AS id, i AS record FROM n",  # noqa: S608
    ],
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM trials; END"],
    "a virtual table": ["CREATE VIRTUAL TABLE odd USING fts5 (x)"],
    "a table": ["CREATE TABLE odd (x)"],
    "an index": ["CREATE INDEX odd ON runs (created)"],
    "other columns": ["ALTER TABLE runs ADD COLUMN odd"],
    "no table": ["DROP TABLE trials"],
}


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_schema_is_refused_before_it_is_read(
    tmp_path: Path, statements: list[str]
) -> None:
    path = theirs(tmp_path)
    raw(path, *statements)
    with Database.open(tmp_path / "ours.db") as ours:
        for act in (
            lambda: ours.take_in(path),
            lambda: check(path),
            lambda: Database.open(path),
            lambda: Database.open(path, read_only=True),
        ):
            with pytest.raises(DatabaseError, match=r"theirs\.db: a foreign schema"):
                act()
        assert ours.counts() == Counts()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a view in the place of a table", ("db", "merge", "theirs.db")),
        pytest.param("a view", ("runs", "--db", "theirs.db"), marks=pytest.mark.full),
        pytest.param("a view", ("db", "check", "--db", "theirs.db"), marks=pytest.mark.full),
    ],
    ids=["merge", "runs", "check"],
)
def test_a_recursive_view_does_not_hang(
    tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    raw(theirs(tmp_path), *FOREIGN[name])
    program = [sys.executable, "-m", "autoturbo", *command]
    ran = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: theirs.db: a foreign schema: the view ")
    assert len(ran.stderr.splitlines()) == 1


def test_every_version_of_our_own_schema_is_known(tmp_path: Path) -> None:
    for version in range(1, len(MIGRATIONS) + 1):
        path = tmp_path / f"{version}.db"
        statements = [s for step in MIGRATIONS[:version] for s in step]
        raw(path, *statements, "PRAGMA application_id = 1096054114", "ANALYZE",
            f"PRAGMA user_version = {version}")  # fmt: skip
        with Database.open(path, read_only=True) as database:
            assert database.counts() == Counts()


def test_what_a_merge_prints(tmp_path: Path) -> None:
    raw(theirs(tmp_path), "UPDATE trials SET record = x'00'")
    program = [sys.executable, "-m", "autoturbo", "db", "merge", "theirs.db"]
    ran = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")  # not all of it was taken in
    reason = "cannot be unpacked: cut short, or too long"
    believed = "1 run, 0 trials, 1 best schedule"
    assert ran.stdout.splitlines() == [
        f"read {believed}; of these new or better: {believed}",
        "theirs.db: left out 0 runs, 3 trials, 0 best schedules",
        *(f"theirs.db: trials aa00 {number}: {reason}" for number in range(3)),
    ]
    again = subprocess.run([*program, "--json"], cwd=tmp_path, capture_output=True, check=False)
    found = json.loads(again.stdout)
    assert (found["left_out"]["trials"], len(found["findings"])) == (3, 3)
