"""A password in the URL of ``--storage`` is written nowhere: every file and stream is searched."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import zlib
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.database import Database
from autoturbo.database.formats import dictionary, pack, unpack
from autoturbo.passwords import is_masked, masked, without_secrets
from tests.cli.bad_files import saved, tiny
from tests.cli.command_line import Cli, Ran, cli_in

SECRET = "hunter2-s3cret"  # noqa: S105  a password to look for
WORKING = f"sqlite:///file:study.db?uri=true&password={SECRET}"
KEPT = "sqlite:///file:study.db?uri=true&password=***"
FAILING = f"mysql+nosuch://ann:{SECRET}@db.example/studies"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.delenv("AUTOTURBO_STORAGE", raising=False)
    return cli_in(tmp_path, monkeypatch)


def texts_of(file: Path) -> list[str]:
    """A file's text, and every packed record wherever it stands in it, free pages included."""
    data = file.read_bytes()
    found = [data.decode("latin-1")]
    for match in re.finditer(re.escape(zlib.adler32(dictionary()).to_bytes(4)), data):
        unpacker, start = zlib.decompressobj(zdict=dictionary()), match.start() - 2
        parts = [b""]
        with contextlib.suppress(zlib.error):  # as far as it goes: a long one is on several pages
            for at in range(start, min(start + 1_000_000, len(data)), 64):
                parts.append(unpacker.decompress(data[at : at + 64]))  # noqa: PERF401
        found.append(b"".join(parts).decode("latin-1"))
    return found


def assert_nowhere(cli: Cli, *ran: Ran) -> None:
    """The secret is in no file of the folder, and in nothing that was printed."""
    for one in ran:
        assert SECRET not in one.out
        assert SECRET not in one.err
    files = [file for file in cli.folder.rglob("*") if file.is_file()]
    assert [f for f in files if any(SECRET in text for text in texts_of(f))] == []


def tuned(cli: Cli, *more: str) -> Ran:
    flags = ("--trials", "3", "--no-transfer", "--no-progress", *more)
    return cli("tune", saved(cli, tiny()), "--storage", WORKING, *flags)


def run_of(cli: Cli) -> str:
    with Database.open(cli.folder / "autoturbo.db") as database:
        (info,) = database.runs()
        assert info.settings["storage"] == KEPT
        return info.id


def mirrored(cli: Cli, run: str) -> int:
    """How many settings the study has, which are all that were tried: some are one schedule."""
    found = len(optuna.load_study(study_name=run, storage=WORKING).trials)
    (kept,) = cli("--json", "runs").object["runs"]
    assert found == kept["settings_tried"]
    return found


@pytest.mark.parametrize(
    "flags", [("--json", "--debug"), pytest.param(("--jobs", "2"), marks=pytest.mark.full)]
)
def test_tune_report_and_exports(cli: Cli, flags: tuple[str, ...]) -> None:
    ran = [tuned(cli, *flags)]
    run = run_of(cli)
    ran += [cli("db", "export", name) for name in ("out.jsonl", "out.db")]
    ran += [cli("--json", *words) for words in (("show", run), ("report", run), ("runs",))]
    assert [one.status for one in ran] == [0] * len(ran), [one.err for one in ran]
    assert_nowhere(cli, *ran)
    manifest = next(cli.folder.glob("runs/*/manifest.json"))
    assert json.loads(manifest.read_text())["settings"]["storage"] == KEPT
    assert mirrored(cli, run) >= 3


@pytest.mark.ray
@pytest.mark.full
def test_workers_of_ray(cli: Cli) -> None:
    ran = tuned(cli, "--ray", "local", "--jobs", "1", "--debug")
    assert ran.status == 0, ran.err
    assert_nowhere(cli, ran)


@pytest.mark.full
def test_resume_asks_for_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(cli)
    run = run_of(cli)
    refused = cli("resume", run, "--trials", "5")
    hint = "give the URL with --storage or in AUTOTURBO_STORAGE"
    message = f"run {run} is mirrored to {KEPT}, whose password is not kept; {hint}"
    assert (refused.status, refused.err) == (2, f"error: {message}\n")
    given = cli("resume", run, "--trials", "5", "--storage", WORKING)
    assert given.status == 0, given.err
    monkeypatch.setenv("AUTOTURBO_STORAGE", WORKING)
    from_environment = cli("resume", run, "--trials", "7")
    assert from_environment.status == 0, from_environment.err
    (kept,) = cli("--json", "runs").object["runs"]
    assert kept["trials"] == 7
    mirrored(cli, run)
    assert_nowhere(cli, refused, given, from_environment)


def test_tune_takes_it_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTURBO_STORAGE", WORKING)
    ran = cli("tune", saved(cli, tiny()), "--trials", "2", "--no-progress")
    assert ran.status == 0, ran.err
    assert mirrored(cli, run_of(cli)) >= 2
    assert_nowhere(cli, ran)


@pytest.mark.parametrize(
    ("url", "flags"),
    [
        (FAILING, ("--debug",)),
        (f"sqlite:////no/such/folder/x.db?password={SECRET}", ("--debug",)),
        (f"ann:{SECRET}@host", ("--json",)),
        (f"mysql:/ann:{SECRET}@host/x", ()),
        (f"redis://:{SECRET}@host:6379", ()),
    ],
)
def test_a_storage_that_fails(cli: Cli, url: str, flags: tuple[str, ...]) -> None:
    ran = cli("tune", saved(cli, tiny()), "--trials", "2", "--storage", url, *flags)
    assert ran.status == 2
    assert "internal" not in ran.err + ran.out
    assert_nowhere(cli, ran)


def test_a_storage_that_fails_in_the_middle(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError(f"cannot reach {WORKING} with {SECRET}")

    monkeypatch.setattr(optuna.Study, "add_trials", gone)
    ran = tuned(cli, "--debug")
    assert ran.status == 2
    last = ran.err.splitlines()[-1]
    assert last.startswith(f"error: storage '{KEPT}': cannot reach {KEPT} with ***; all that was")
    assert_nowhere(cli, ran)


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (("{}",), ("--debug",)),
        (("m.onnx", "{}"), ()),
        (("m.onnx", "--storag", "{}"), ("--json",)),
        (("m.onnx", "--storag={}"), ("--debug",)),
        (("m.onnx", "--seed={}"), ()),
    ],
)
def test_a_url_in_the_wrong_place(cli: Cli, words: tuple[str, ...], flags: tuple[str, ...]) -> None:
    ran = cli("tune", *(word.format(FAILING) for word in words), *flags)
    assert ran.status == 2
    assert_nowhere(cli, ran)


def test_what_an_earlier_release_kept_is_not_handed_on(cli: Cli) -> None:
    tuned(cli)
    run = run_of(cli)
    with contextlib.closing(sqlite3.connect("autoturbo.db", isolation_level=None)) as connection:
        (kept,) = connection.execute("SELECT record FROM runs").fetchone()
        old = unpack(kept).replace("password=***", f"password={SECRET}")
        assert SECRET in old
        connection.execute("UPDATE runs SET record = ?", (pack(old),))
    copies = cli.folder / "copies"
    copies.mkdir()
    for name in ("out.jsonl", "out.db"):
        assert cli("db", "export", copies / name).status == 0
    assert cli("db", "merge", "autoturbo.db", "--db", copies / "merged.db").status == 0
    assert_nowhere(Cli(copies), cli("resume", run))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("sqlite:////home/a:b@c/study.db", "sqlite:////home/a:b@c/study.db"),
        ("postgresql://ann@host/x", "postgresql://ann@host/x"),
        ("postgresql://ann:pw@host:5432/x", "postgresql://ann:***@host:5432/x"),
        ("mysql+pymysql://ann:p@ss/w:rd@host/x", "mysql+pymysql://ann:***@host/x"),
        ("redis://:pw@host", "redis://:***@host"),
        ("x://host/y?sslpassword=pw&mode=1", "x://host/y?sslpassword=***&mode=1"),
    ],
)
def test_what_is_hidden(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert is_masked(shown) == (url != shown)
    assert masked(shown) == shown


@given(st.text("ab@:/%2+&=# é'\"\\", min_size=3, max_size=12))
def test_no_text_tells_a_password(password: str) -> None:
    url = f"mysql://ann:<{password}>@host/x"
    assert f"<{password}>" not in masked(url)
    assert f"<{password}>" not in without_secrets(f"no access to {url} by <{password}>", url)
