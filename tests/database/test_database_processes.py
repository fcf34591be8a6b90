"""Several processes at once, and processes that are killed: real ones, on real files."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autoturbo.database import Counts, Database
from autoturbo.database.formats import encode
from tests import processes
from tests.database import database_samples as samples

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITER = Path(__file__).with_name("database_writer.py")


def start(*arguments: object) -> subprocess.Popen[str]:
    return processes.started([sys.executable, "-W", "error", *map(str, arguments)])


def finished(started: list[subprocess.Popen[str]]) -> None:
    for process in started:
        _, errors = process.communicate(timeout=processes.HANG_S)
        assert process.returncode == 0, errors


def acknowledged(path: Path, first: int, wait: float) -> tuple[int, int]:
    """Start a writer, kill it ``wait`` seconds after its first batch.

    Gives the numbers of the first trial that was not acknowledged, and of the first that cannot
    have been written.
    """
    with start(WRITER, path, "aa00", first, 10_000, 5) as process:
        assert process.stdout
        lines = [process.stdout.readline()]
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    last = int([line for line in lines if line.endswith("\n")][-1])
    return last + 1, last + 6


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a kill that cannot be caught")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "at.db"
    with Database.open(path) as database:
        database.add_run(samples.run_info())
    chance = random.Random(seed)  # noqa: S311
    count = 0
    for _ in range(2):
        safe, most = acknowledged(path, count, chance.uniform(0, 0.2))
        with Database.open(path, create=False) as database:
            assert database.health()["integrity"] == "ok"
            trials = database.trials("aa00")
            count = len(trials)
            assert safe <= count <= most
            assert count % 5 == 0  # a batch is there whole or not at all
            assert trials == tuple(samples.trial(n, 1.0 / (n + 1)) for n in range(count))
            assert database.run("aa00").best_trial == count - 1
            assert database.doubted() == ()
            assert all(best.trial <= count - 1 for best in database.best())


CREATOR = """
import sys
from autoturbo.database import Database
print("ready", flush=True)
Database.open(sys.argv[1]).close()
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a kill that cannot be caught")
def test_a_kill_while_the_database_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
    chance = random.Random(0)  # noqa: S311
    for number in range(6):
        path = tmp_path / f"at{number}.db"
        with start("-c", CREATOR, path) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.012))
            process.send_signal(signal.SIGKILL)
        with Database.open(path) as database:
            database.add_run(samples.run_info())
            assert database.health()["integrity"] == "ok"


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    names = [f"run{number}" for number in range(4)]
    with Database.open(path) as database:
        for name in names:
            database.add_run(samples.run_info(name))
    finished([start(WRITER, path, name, 0, 10, 5) for name in names])
    with Database.open(path, create=False) as database:
        assert database.health()["integrity"] == "ok"
        assert database.counts() == Counts(runs=4, trials=200, best=1)
        for name in names:
            expected = tuple(samples.trial(n, 1.0 / (n + 1), name) for n in range(50))
            assert database.trials(name) == expected
        (best,) = database.best()
        assert (best.measurement.latency, best.trial) == (1.0 / 50, 49)
        assert best.run == "run0"  # of equals the one with the smallest text, whoever came first


@pytest.mark.full
def test_two_processes_that_repeat_a_run_agree(tmp_path: Path) -> None:
    path = tmp_path / "at.db"
    with Database.open(path) as database:
        database.add_run(samples.run_info())
    finished([start(WRITER, path, "aa00", 0, 10, 5) for _ in range(3)])
    with Database.open(path) as database:
        expected = tuple(samples.trial(n, 1.0 / (n + 1)) for n in range(50))
        assert database.trials("aa00") == expected


MAKER = """
import sys, time
from tests.database import database_samples as samples
from autoturbo.database import Database
time.sleep(max(0.0, float(sys.argv[3]) - time.time()))
with Database.open(sys.argv[1]) as database:
    database.add_run(samples.run_info(sys.argv[2]))
"""


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[Path]:
    script = tmp_path / "maker.py"
    script.write_text(MAKER)
    yield script
    script.unlink()


@pytest.mark.full
@pytest.mark.parametrize("attempt", range(2))
def test_processes_that_create_the_database_at_the_same_moment(
    tmp_path: Path, maker: Path, attempt: int
) -> None:
    path = tmp_path / f"at{attempt}.db"
    moment = time.time() + 0.6
    finished([start(maker, path, f"run{number}", moment) for number in range(6)])
    with Database.open(path, create=False) as database:
        assert [run.id for run in database.runs()] == [f"run{number}" for number in range(6)]
        health = database.health()
        assert (health["integrity"], health["journal_mode"]) == ("ok", "wal")


IMPORTER = """
import sys
from autoturbo.database import Database
with Database.open(sys.argv[1]) as database:
    print("ready", flush=True)
    database.take_in(sys.argv[2])
    database.export(sys.argv[3])
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a kill that cannot be caught")
def test_a_kill_leaves_an_import_and_an_export_whole_or_undone(tmp_path: Path) -> None:
    source, out = tmp_path / "source.jsonl", tmp_path / "out.jsonl"
    with samples.filled(tmp_path / "source.db", trials=500) as database:
        database.export(source)
    before = encode(samples.run_info()).encode()  # an export that may be replaced
    chance = random.Random(0)  # noqa: S311
    for number in range(8):
        path = tmp_path / f"at{number}.db"
        out.write_bytes(before)
        with start("-c", IMPORTER, path, source, out) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
        with Database.open(path, create=False) as database:
            assert database.health()["integrity"] == "ok"
            assert database.counts().trials in (0, 500)
        assert out.read_bytes() in (before, source.read_bytes())
