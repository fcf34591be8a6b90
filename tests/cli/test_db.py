"""``db``: what commands say of a database, sound or not, and what they write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from autoturbo.database import Database, record_schema
from autoturbo.database.formats import pack, unpack
from tests import processes
from tests.cli.bad_files import tuned_in
from tests.cli.command_line import Cli, cli_in
from tests.database import database_samples as samples
from tests.database.small_disk import make_read_only, mounted
from tests.processes import HANG_S


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned_in(tmp_path_factory.mktemp("tuned"))


@pytest.fixture
def here(cli: Cli, tuned: Path) -> Cli:
    """The command line in a copy of that folder."""
    shutil.copytree(tuned, cli.folder, dirs_exist_ok=True)
    return cli


def overwrite(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)


def test_stats(here: Cli) -> None:
    ran = here("db", "stats")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("autoturbo.db: 1 run, 9 trials, 1 best schedule\n")
    assert "runs: 1 done" in ran.out
    found = here("--json", "db", "stats").object
    assert found["counts"] == {"runs": 1, "trials": 9, "best": 1}
    assert found["bytes"] == (here.folder / "autoturbo.db").stat().st_size
    assert [(p["model"], p["runs"], p["trials"]) for p in found["pairs"]] == [("tiny", 1, 9)]


def test_stats_of_an_empty_database(cli: Cli) -> None:
    Database.open(cli.folder / "autoturbo.db").close()
    assert "runs: none" in cli("db", "stats").out
    assert cli("--json", "db", "stats").object["bytes_per_record"] is None


def test_a_check_of_a_sound_database(here: Cli) -> None:
    ran = here("db", "check")
    assert (ran.status, ran.out) == (0, "autoturbo.db: sound, 11 records read\n")
    assert here("--json", "db", "check").object["sound"] is True


def test_a_file_that_is_no_database_any_more(here: Cli) -> None:
    overwrite(here.folder / "autoturbo.db", 1)
    for words in (("runs",), ("db", "export", "a.jsonl"), ("db", "list")):
        ran = here(*words)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == (
            "error: autoturbo.db: not an SQLite database; give another file with --db, "
            "or restore it from a copy if it was one\n"
        )
    ran = here("db", "check", "--save", "saved.jsonl")
    assert (ran.status, ran.err) == (1, "")
    assert ran.out.splitlines() == [
        "autoturbo.db: not an SQLite database",
        "nothing of it can be read: restore it from a copy, or import the last export",
    ]
    assert not (here.folder / "saved.jsonl").exists()


def test_a_check_of_a_damaged_database_fails(here: Cli) -> None:
    path = here.folder / "autoturbo.db"
    with Database.open(path) as database:
        run = database.runs()[0].id
    samples.raw(path, "UPDATE trials SET latency = 1e-9 WHERE number = 1")
    ran = here("db", "check")
    assert (ran.status, ran.err) == (1, "")
    lines = ran.out.splitlines()
    assert lines[0] == (
        f"autoturbo.db: trials {run} 1: what is looked up by is not what the record says"
    )
    assert lines[1] == (
        "'autoturbo db check --db autoturbo.db --save FILE.jsonl' writes the 10 records "
        "that can be read"
    )
    assert here("--json", "db", "check").object["sound"] is False


def test_what_a_damaged_database_holds_is_saved_and_taken_in(here: Cli) -> None:
    path = here.folder / "autoturbo.db"
    with Database.open(path) as database:
        run = database.runs()[0].id
    spoil = "UPDATE trials SET record = x'00' WHERE number = 1"
    samples.raw(path, spoil, "PRAGMA foreign_keys = OFF", "DELETE FROM runs")
    ran = here("db", "check", "--save", "saved.jsonl")
    assert (ran.status, ran.err) == (1, "")
    assert ran.out.splitlines() == [
        f"autoturbo.db: trials of run '{run}', which is not there: import its manifest.json first",
        f"autoturbo.db: trials {run} 1: cannot be unpacked: cut short, or too long",
        "saved.jsonl: 9 records",
        "'autoturbo db import saved.jsonl --db NEW.db' takes them into a new database",
    ]
    found = here("--json", "db", "check", "--save", "saved.jsonl").object
    assert (found["sound"], found["records"], found["saved"]) == (False, 9, "saved.jsonl")
    folder = next((here.folder / "runs").iterdir())
    assert here("--db", "new.db", "db", "import", folder / "manifest.json").status == 0
    assert here("--db", "new.db", "db", "import", "saved.jsonl").status == 0
    assert here("--json", "--db", "new.db", "runs").object["runs"][0]["trials"] == 8


def test_databases_and_exports_are_merged(here: Cli) -> None:
    listed = here("--json", "db", "list").object
    for name in ("a.jsonl", "a.db"):
        assert here("db", "export", name).status == 0
    ran = here("--db", "new.db", "db", "merge", "a.db", "a.jsonl")
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[1].startswith(
        "a.jsonl: read 1 run, 9 trials, 1 best schedule; of these new or better: 0 runs, "
    )
    assert here("--json", "--db", "new.db", "db", "list").object == listed
    ran = here("db", "merge", "autoturbo.db")
    assert ran.err == "error: autoturbo.db: the database itself; name another one\n"


def test_an_export_to_standard_output_is_records_alone(here: Cli) -> None:
    here("db", "export", "a.jsonl")
    for flags in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "autoturbo", *flags, "db", "export", "-"],
            cwd=here.folder, capture_output=True, check=True,
        )  # fmt: skip
        assert done.stdout == (here.folder / "a.jsonl").read_bytes()
        assert done.stderr == b""


@pytest.mark.parametrize("name", ["record", "schedule", "kernels"])
def test_schemas_that_are_published(name: str, here: Cli) -> None:
    found = here("--json", "db", "schema", name).object
    jsonschema.Draft202012Validator.check_schema(found)
    assert json.loads(here("db", "schema", name).out) == found
    if name == "record":
        assert found == record_schema() == here("--json", "db", "schema").object
        here("db", "export", "a.jsonl")
        for line in (here.folder / "a.jsonl").read_text().splitlines():
            jsonschema.validate(json.loads(line), found)
    if name == "kernels":
        here("apply", "tiny.onnx", "-o", "a.json")
        jsonschema.validate(json.loads((here.folder / "a.json").read_text()), found)
    if name == "schedule":
        here("db", "best", "-o", "a.json")
        jsonschema.validate(json.loads((here.folder / "a.json").read_text()), found)


def test_the_best_is_found_by_every_part_of_its_key(here: Cli) -> None:
    (best,) = here("--json", "db", "best").object["best"]
    flags = [
        *["--graph-hash", best["graph_hash"], "--scheduler-version", best["scheduler_version"]],
        *["--dtype", best["dtype"], "--target", "stcp920", "--model", "tiny.onnx"],
    ]
    assert here("--json", "db", "best", *flags).object["best"] == [best]
    ran = here("db", "best", "--scheduler-version", "0", "--explain-miss")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "error: autoturbo.db: no best schedule by version 0; "
        f"there is one by version {best['scheduler_version']}\n"
    )


@pytest.mark.parametrize("more", [(), ("--explain-miss",), ("-o", "a.json"), ("-q",), ("--json",)])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "nobody"], "of nobody; there is one of tiny"),
        (["--model", "tiny", "--batch", "7"], "of tiny at batch 7; there is one at batch 4"),
        (
            ["--model", "tiny", "--target", "goya"],
            "of tiny on goya; there is one on stcp920",
        ),
        (
            ["--model", "tiny.onnx", "--dtype", "int8"],
            "of tiny at batch 4 in int8; there is one in float16",
        ),
    ],
)
def test_nothing_that_matches_is_one_status_and_one_sentence(
    here: Cli, flags: list[str], said: str, more: tuple[str, ...]
) -> None:
    ran = here("db", "best", *flags, *more)
    assert (ran.status, ran.err) == (1, f"error: autoturbo.db: no best schedule {said}\n")
    assert not (here.folder / "a.json").exists()
    if "--json" in more:
        found = ran.object
        assert (found["best"], found["miss"]) == ([], f"no best schedule {said}")


def test_the_schedule_is_written_for_other_compilers(here: Cli) -> None:
    ran = here("apply", "tiny.onnx", "-o", "out.json")
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[1:] == ["written   out.json", "verified  regions, memory"]
    found = json.loads((here.folder / "out.json").read_text())
    assert found["format"] == "autoturbo-kernels"
    said = here("--json", "apply", "tiny.onnx", "-o", "out.json").object
    assert (said["file"], said["verified"]) == ("out.json", ["regions", "memory"])


BLOCKED = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("optuna", "xgboost", "ray", "pyarrow", "onnxruntime"):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Blocked())
from autoturbo.cli import main
sys.exit(max(main(command) for command in json.loads(sys.argv[1])))
"""


@pytest.mark.full
def test_what_serves_a_database_needs_nothing_that_tunes(here: Cli) -> None:
    """In a fresh process in which none of the packages that a search needs can be imported."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    commands = [
        ["db", "best", "--db", "served.db", "--model", "tiny"],
        ["apply", "tiny.onnx", "--db", "served.db", "-o", "out.onnx"],
        ["apply", "tiny.onnx", "--db", "served.db", "-o", "out.json"],
    ]
    here("db", "export", "served.db", "--best")
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, json.dumps(commands)],
        cwd=here.folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (here.folder / "out.onnx").exists()
    assert (here.folder / "out.json").exists()


def test_a_database_is_served_from_media_that_cannot_be_written(here: Cli) -> None:
    with mounted(here.folder / "disk", 4) as disk:
        shutil.copy(here.folder / "autoturbo.db", disk / "at.db")
        make_read_only(disk)
        assert here("db", "best", "--db", disk / "at.db").status == 0
        assert here("apply", "tiny.onnx", "--db", disk / "at.db", "-o", "out.onnx").status == 0
        for command in (
            ["tune", "tiny.onnx", "--trials", "2", "--db", str(disk / "at.db"), "-q"],
            ["tune", "tiny.onnx", "--trials", "2", "--db", str(disk / "new.db"), "-q"],
            ["db", "import", "x.jsonl", "--db", str(disk / "at.db")],
        ):
            here.write("x.jsonl", "")
            ran = here(*command)
            assert (ran.status, ran.out) == (2, "")
            assert ran.err.count("\n") == 1
            assert "the file and its folder must be writable, or give another --db" in ran.err


def test_a_full_disk_ends_a_run_with_one_line_and_it_goes_on_later(here: Cli) -> None:
    """The database grows over what is free; every trial that was recorded is there."""
    with mounted(here.folder / "disk", 1) as disk:
        shutil.copy(here.folder / "autoturbo.db", disk / "at.db")
        free = shutil.disk_usage(disk).free
        (disk / "ballast").write_bytes(b"x" * (free - 60_000))
        command = ["tune", "tiny.onnx", "--trials", "400", "--sampler", "random", "--db"]
        ran = here(*command, disk / "at.db", "-q")
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == (
            f"error: {disk / 'at.db'}: the disk is full; "
            "free some space and resume: what was recorded is safe\n"
        )
        shutil.rmtree(here.folder / "runs")
        runs = here("--json", "runs", "--db", disk / "at.db").object["runs"]
        (unfinished,) = (run for run in runs if run["state"] != "done")
        (disk / "ballast").unlink()
        more = ["--trials", str(unfinished["trials"] + 5), "-q"]
        ran = here("resume", unfinished["run"], *more, "--db", disk / "at.db")
        assert ran.status == 0, ran.err


def test_a_run_without_an_id_is_no_internal_error(here: Cli) -> None:
    strict, loose = "id TEXT NOT NULL PRIMARY KEY", "id TEXT PRIMARY KEY"
    relax = "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'runs'"
    for statement, values in ((relax, (strict, loose)), ("UPDATE runs SET id = NULL", ()),
                              (relax, (loose, strict))):  # fmt: skip
        with contextlib.closing(sqlite3.connect("autoturbo.db")) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(statement, values)
    ran = here("replay", "abcdef", "0")
    assert (ran.status, "internal" in ran.err) == (2, False)
    assert ran.err.startswith("error: autoturbo.db: no run 'abcdef'; ")


def test_damaged_figures_and_a_damaged_schema_are_no_internal_errors(here: Cli) -> None:
    with contextlib.closing(sqlite3.connect("autoturbo.db")) as connection, connection:
        connection.execute("UPDATE trials SET latency = 'x'")
    ran = here("runs")
    assert (ran.status, "internal" in ran.err) == (2, False)
    assert "a damaged row of run " in ran.err
    whole = Path("autoturbo.db").read_bytes()
    assert whole.count(b"CREATE TABLE runs") == 1
    Path("autoturbo.db").write_bytes(whole.replace(b"CREATE TABLE runs", b"CREATE TA\xffLE runs"))
    ran = here("runs")
    assert (ran.status, "internal" in ran.err) == (2, False)
    assert ran.err.startswith("error: autoturbo.db: the database is damaged; ")
    assert here("db", "check").status == 1


def test_a_run_that_another_process_works_on_is_not_resumed(here: Cli) -> None:
    with Database.open(here.folder / "autoturbo.db") as database:
        run = database.runs()[0].id
        with database.holding(run):
            ran = here("resume", run, "--trials", "20")
        assert database.run(run).trials == 9
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        f"error: autoturbo.db: run {run!r} is going on in process {os.getpid()}; "
        "wait for it, or end it and resume\n"
    )


@pytest.mark.full
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a kill that cannot be caught")
def test_a_killed_run_is_shown_as_killed_and_resumed(here: Cli) -> None:
    command = ["tune", "tiny.onnx", "--trials", "5000", "--sampler", "random", "--db", "at.db"]
    line = [sys.executable, "-m", "autoturbo.cli", *command, "-q"]
    with processes.started(line, cwd=here.folder) as process:
        trials, until = 0, time.monotonic() + HANG_S
        while trials < 20 and time.monotonic() < until:
            time.sleep(0.1)
            if (here.folder / "at.db").exists():
                ran = here("--json", "--db", "at.db", "runs")
                trials = max((run["trials"] for run in ran.objects[0].get("runs", ())), default=0)
        (running,) = here("--json", "--db", "at.db", "runs").object["runs"]
        process.kill()
    assert running["state"] == "running"
    (killed,) = here("--json", "--db", "at.db", "runs").object["runs"]
    assert killed["state"] == "killed"
    assert killed["trials"] >= trials >= 20
    more = ["--trials", str(killed["trials"])]
    assert here("--db", "at.db", "resume", killed["run"], *more, "-q").status == 0
    assert here("--json", "--db", "at.db", "runs").object["runs"][0]["state"] == "done"


@pytest.mark.parametrize(
    ("table", "where", "field"),
    [
        ("runs", "id = 'bb00'", "settings"),
        ("trials", "run = 'aa00'", "knobs"),
        ("best", "1", "key"),
    ],
)
def test_a_record_nested_too_deeply_is_named_and_the_rest_is_shown(
    here: Cli, table: str, where: str, field: str
) -> None:
    """It was an internal error, and ``runs`` showed nothing."""
    with samples.filled(here.folder / "t.db") as database:
        database.add_run(samples.run_info("bb00"))
    with contextlib.closing(sqlite3.connect(here.folder / "t.db")) as connection:
        query = f"SELECT record FROM {table} WHERE {where}"  # noqa: S608
        (kept,) = connection.execute(query).fetchone()
        values = {**json.loads(unpack(kept)), field: "DEEP"}
        text = json.dumps(values).replace('"DEEP"', "[" * 50_000 + "]" * 50_000)
        change = f"UPDATE {table} SET record = ? WHERE {where}"  # noqa: S608
        connection.execute(change, (pack(text),))
        connection.commit()
    runs = here("--db", "t.db", "runs")
    told = "left out: t.db: run bb00: a damaged record: nested too deeply; 'autoturbo db check'"
    assert ("aa00" in runs.out, told in runs.err) == (True, table == "runs")
    for command in (("db", "check"), ("show", "aa00"), ("show", "bb00"), ("db", "list")):
        ran = here("--db", "t.db", *command)
        assert "internal" not in ran.err
        assert ran.err.count("\n") <= 1
    assert "nested too deeply" in here("--db", "t.db", "db", "check").out
    here.write("one.jsonl", text + "\n")
    ran = here("--db", "o.db", "db", "import", "one.jsonl")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: one.jsonl:1: nested too deeply")
