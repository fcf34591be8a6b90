from __future__ import annotations

import dataclasses
import itertools
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoturbo.database import Counts, Database, RunInfo, record_schema
from autoturbo.database.formats import encode
from autoturbo.database.rows import rank
from autoturbo.errors import DatabaseError
from autoturbo.simulator.measurement import VERSION
from tests.database import database_samples as samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from autoturbo.database.records import Record

PER_EXAMPLE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None
)
FRESH = itertools.count()


def write(path: Path, records: Sequence[Record]) -> Path:
    path.write_text("".join(encode(record) + "\n" for record in records))
    return path


def imported(folder: Path, *files: Path) -> bytes:
    """All that a new database holds after importing the files in turn."""
    number = next(FRESH)
    with Database.open(folder / f"db{number}.db") as database:
        for file in files:
            database.take_in(file)
        return samples.content(database, folder / f"out{number}.jsonl")


@st.composite
def exports(draw: st.DrawFn) -> list[Record]:
    """Records as a database may export them; an id stands for one key and settings everywhere."""
    chosen = draw(st.lists(samples.runs, max_size=3, unique_by=lambda run: run.id))
    runs: list[Record] = [
        samples.run_info(
            run.id, state=run.state, created=run.created, model=run.model, versions=run.versions
        )
        for run in chosen
    ]
    trials: list[Record] = []
    if chosen:
        ids = st.sampled_from([run.id for run in chosen])
        numbers = st.integers(0, 2)
        for trial in draw(st.lists(samples.trials, max_size=5)):
            placed = dataclasses.replace(trial, run=draw(ids), number=draw(numbers))
            trials.append(samples.agreeing(placed))
    others = draw(st.lists(samples.loose_bests, max_size=5))
    return draw(st.permutations([*runs, *trials, *others]))


@PER_EXAMPLE
@given(exports())
def test_import_of_an_export_gives_an_equal_database(tmp_path: Path, records: list[Record]) -> None:
    first = imported(tmp_path, write(tmp_path / "in.jsonl", records))
    (tmp_path / "first.jsonl").write_bytes(first)
    assert imported(tmp_path, tmp_path / "first.jsonl") == first


@PER_EXAMPLE
@given(exports())
def test_importing_again_changes_nothing(tmp_path: Path, records: list[Record]) -> None:
    file = write(tmp_path / "in.jsonl", records)
    with Database.open(tmp_path / f"again{next(FRESH)}.db") as database:
        database.take_in(file)
        before = samples.content(database, tmp_path / "before.jsonl")
        assert database.take_in(file).changed == Counts()
        assert samples.content(database, tmp_path / "after.jsonl") == before


@pytest.mark.full
@PER_EXAMPLE
@given(exports(), exports(), exports())
def test_the_order_of_imports_makes_no_difference(
    tmp_path: Path, one: list[Record], two: list[Record], three: list[Record]
) -> None:
    names = ("one.jsonl", "two.jsonl", "three.jsonl")
    files = [write(tmp_path / n, r) for n, r in zip(names, (one, two, three), strict=True)]
    together = write(tmp_path / "all.jsonl", [*one, *two, *three])
    results = [imported(tmp_path, *order) for order in itertools.permutations(files)]
    assert {*results, imported(tmp_path, together)} == {results[0]}


@given(samples.records, samples.records)
def test_ranks_of_equals_are_equal_and_of_others_are_not(one: Any, two: Any) -> None:
    if type(one) is type(two):
        same = rank(one) == rank(two)
        assert same == (rank(one)[-1] == rank(two)[-1])
        assert same or (rank(one) < rank(two)) != (rank(two) < rank(one))


def test_what_is_better_stays() -> None:
    assert rank(samples.run_info(state="done")) < rank(samples.run_info(state="running"))
    assert rank(samples.trial(0, 0.01)) < rank(samples.trial(0, 0.02))
    assert rank(samples.trial(0, 9.0)) < rank(samples.trial(0, None))
    assert rank(samples.best(0.01)) < rank(samples.best(0.02))
    refused = samples.run_info(refused=(samples.refused(),))
    assert rank(refused) < rank(samples.run_info())


def test_the_lines_of_an_export(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with samples.filled(tmp_path / "at.db") as database:
        assert database.export(out) == Counts(runs=1, trials=3, best=1)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    kinds = ["run", "trial", "trial", "trial", "best"]
    assert [line["kind"] for line in lines] == kinds
    for line in lines:
        jsonschema.validate(line, record_schema(), jsonschema.Draft202012Validator)


def test_an_export_replaces_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    write(out, samples.sample_records())
    with Database.open(tmp_path / "at.db") as database:
        assert database.export(out) == Counts()
    assert out.read_text() == ""


def test_what_an_import_reports(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [*samples.sample_records(), samples.best(0.02)])
    with Database.open(tmp_path / "at.db") as database:
        result = database.take_in(file)
        assert result.read == Counts(runs=1, trials=2, best=2)
        assert result.changed == Counts(runs=1, trials=2, best=1)
        assert database.best() == (samples.best(0.01, verified=samples.verified()),)


def test_of_one_schedule_the_stronger_verification_stays(tmp_path: Path) -> None:
    weaker = [
        samples.best(created="2025-01-01T00:00:00Z"),
        samples.best(verified=samples.verified()),
        samples.best(verified=samples.verified("regions", "memory", "numbers")),
    ]
    strongest = samples.best(
        verified=samples.verified("regions", "memory", "numbers", verifier="10")
    )
    for order in itertools.permutations([*weaker, strongest]):
        with Database.open(tmp_path / f"{next(FRESH)}.db") as database:
            database.take_in(write(tmp_path / "in.jsonl", list(order)))
            assert database.best() == (strongest,)
    faster = samples.best(0.005)
    with Database.open(tmp_path / "faster.db") as database:
        database.take_in(write(tmp_path / "in.jsonl", [faster, strongest]))
        assert database.best() == (faster,)


def test_trials_may_follow_their_run_in_another_file(tmp_path: Path) -> None:
    run, first, *_ = samples.sample_records()
    trials = write(tmp_path / "trials.jsonl", [first])
    with Database.open(tmp_path / "at.db") as database:
        database.take_in(write(tmp_path / "run.jsonl", [run]))
        assert database.take_in(trials).changed == Counts(trials=1)


def test_blank_lines_and_other_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\r\n\n" + encode(samples.best()).encode() + b"\r\n  \n")
    with Database.open(tmp_path / "at.db") as database:
        assert database.take_in(file).read == Counts(best=1)


KERNEL = b'{"kind":"kernel","schema":1,"seconds":1e-06,"signature":"51a9"}\n'
"""The time of a kernel, as versions before 4 of the tables exported them."""


def test_kernel_times_of_an_earlier_export_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path / "in.jsonl", samples.sample_records())
    file.write_bytes(file.read_bytes() + 2 * KERNEL)
    with Database.open(tmp_path / "at.db") as database:
        result = database.take_in(file)
        assert result.read == database.counts() == Counts(runs=1, trials=2, best=1)
    assert (result.left_out, result.findings) == (Counts(), ())
    assert caplog.messages == [f"{file}: left out 2 kernel times, which are not kept any more"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_import_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write, args=(pipe, samples.sample_records()))
    writer.start()
    with Database.open(tmp_path / "at.db") as database:
        assert database.take_in(pipe).changed.trials == 2
    writer.join()


RUN = encode(samples.run_info())
TRIAL = encode(samples.trial(0))


def changed(text: str, **changes: Any) -> str:
    return json.dumps({**json.loads(text), **changes})


def without(text: str, name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(text).items() if key != name})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["a,b,c", "1,2,3"],
            (
                "IN:1:1: not JSON: Expecting value; "
                "expected one JSON record a line, as 'autoturbo db export' writes them"
            ),
        ),
        ([RUN, without(TRIAL, "knobs")], "IN:2: knobs: missing field; add it"),
        (
            [RUN, changed(TRIAL, schema=2)],
            (
                "IN:2: schema: a record of version 2; this version reads 1; "
                "export it with a matching version"
            ),
        ),
        (
            [RUN, TRIAL[:-1] + ',"number":1}'],
            (
                "IN:2: the field 'number' is there twice; "
                "expected one JSON record a line, as 'autoturbo db export' writes them"
            ),
        ),
        (
            [TRIAL],
            (
                "IN:1: a trial of run 'aa00', which is neither in the file nor in the database; "
                "import the file that has the run first"
            ),
        ),
        (
            [RUN, TRIAL, changed(RUN, settings={"seed": 1, "trials": 20})],
            (
                "IN:3: run 'aa00' is another one in the file, with other effort, seed, shapes; "
                "no export of a database has two; give each its own file"
            ),
        ),
        (
            [RUN, changed(RUN, key={**json.loads(RUN)["key"], "dtype": "int8"})],
            (
                "IN:2: run 'aa00' is another one in the file, with other hashes or versions; "
                "no export of a database has two; give each its own file"
            ),
        ),
    ],
)
def test_imports_that_cannot_be(tmp_path: Path, lines: list[str], expected: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(lines))
    with Database.open(tmp_path / "at.db") as database:
        with pytest.raises(DatabaseError) as caught:
            database.take_in(file)
        assert str(caught.value).replace(str(file), "IN") == expected
        assert database.counts() == Counts()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".", "TMP: a folder, not an export"),
        ("nothing.jsonl", "TMP/nothing.jsonl: cannot read: No such file or directory"),
        ("a\0b", "TMP/a\0b: cannot read: embedded null byte"),
        ("at.db", "TMP/at.db: the database itself; name another one"),
    ],
)
def test_files_that_cannot_be_imported(tmp_path: Path, name: str, expected: str) -> None:
    with Database.open(tmp_path / "at.db") as database:
        samples.raw(tmp_path / "at.db", "PRAGMA wal_checkpoint(TRUNCATE)")
        with pytest.raises(DatabaseError) as caught:
            database.take_in(tmp_path / name)
    assert str(caught.value).replace(str(tmp_path), "TMP") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".", "TMP: a folder, not a file; for example TMP/out.json"),
        ("no/out.jsonl", "TMP/no/out.jsonl: no folder 'TMP/no'; create it first"),
        ("at.db/out.jsonl", "TMP/at.db/out.jsonl: cannot write: Not a directory"),
        (
            "at.db",
            "TMP/at.db: it would replace the database itself; give another name",
        ),
    ],
)
def test_places_where_no_export_can_be(tmp_path: Path, name: str, expected: str) -> None:
    with samples.filled(tmp_path / "at.db") as database:
        with pytest.raises(DatabaseError) as caught:
            database.export(tmp_path / name)
        assert str(caught.value).replace(str(tmp_path), "TMP") == expected
        assert database.counts().trials == 3
    assert [path.name for path in tmp_path.iterdir()] == ["at.db"]


def test_the_better_state_of_a_run_stays(tmp_path: Path) -> None:
    states = ("interrupted", "done", "running")
    files = [
        write(tmp_path / f"{state}.jsonl", [samples.run_info(state=state)]) for state in states
    ]
    with Database.open(tmp_path / "at.db") as database:
        for file in files:
            database.take_in(file)
        found = database.run("aa00")
    assert isinstance(found, RunInfo)
    assert found.state == "done"


@pytest.mark.parametrize(
    ("kind", "lost", "field"),
    [
        ("best", lambda one: one["measurement"].pop("bytes"), "measurement.bytes"),
        ("best", lambda one: one.update(decisions={}), "decisions"),
        ("trial", lambda one: one["failure"].pop("levers"), "failure.levers"),
        ("trial", lambda one: one["knobs"].update(binding="auto"), "knobs.binding"),
    ],
)
def test_what_this_version_wrote_has_lost_nothing(
    tmp_path: Path, kind: str, lost: Callable[[dict[str, Any]], Any], field: str
) -> None:
    """An older release may have written less, and what it wrote is taken in."""
    for version, refused in ((VERSION, True), (f"{VERSION}+board@1", True), ("0.1.0/1/1", False)):
        key = dataclasses.replace(samples.KEY, scheduler_version=version)
        run = samples.run_info(key=key)
        found: list[Record] = [run, samples.trial(1, None), samples.best(key=key)]
        lines = [json.loads(encode(record)) for record in found]
        for line in lines:
            if line["kind"] == kind:
                lost(line)
        path = tmp_path / "records.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        with Database.open(tmp_path / f"{next(FRESH)}.db") as database:
            if refused:
                with pytest.raises(DatabaseError) as caught:
                    database.take_in(path)
                assert caught.value.at.field == field
            else:
                assert database.take_in(path).changed.trials == 1
