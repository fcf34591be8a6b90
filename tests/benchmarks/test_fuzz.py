"""The harness of damaged inputs (``tools/fuzz.py``) can fail: it finds what is put in its way."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import fuzz
import pytest

from autoturbo.cli import main
from autoturbo.database import RunInfo, importing, rows
from autoturbo.database.records import Record
from autoturbo.errors import Location

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")

Make = Callable[[Path, random.Random], fuzz.Run]


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Callable[[Make], str]:
    """Add a kind of mutants; gives its name."""

    def add(make: Make) -> str:
        monkeypatch.setitem(fuzz.KINDS, "fake", make)
        return "fake"

    return add


def found(kind: str, folder: Path, count: int = 4, jobs: int = 2) -> list[tuple[int, str]]:
    findings = fuzz.fuzz_together(kind, range(count), folder, seconds=5.0, jobs=jobs)
    return sorted((one.number, one.what) for one in findings)


def test_an_input_that_is_taken_for_another_one_is_a_finding(
    kind: Callable[[Make], str], tmp_path: Path
) -> None:
    def make(_seeds: Path, _rng: random.Random) -> fuzz.Run:
        return fuzz.Run(
            "reads", lambda: 0 * sys.stdout.write("fine"), lambda said: f"it said {said}"
        )

    told = "wrong acceptance: it said fine"
    assert found(kind(make), tmp_path) == [(number, told) for number in range(4)]


def test_what_is_refused_is_not_asked_for_what_it_reads_back(
    kind: Callable[[Make], str], tmp_path: Path
) -> None:
    def make(_seeds: Path, _rng: random.Random) -> fuzz.Run:
        return fuzz.Run("refuses", lambda: 2, lambda _: "nothing was read")

    assert found(kind(make), tmp_path) == []


@pytest.mark.parametrize(("status", "told"), [(9, "exit status 9"), (1, "")])
def test_exit_statuses_that_no_command_has_are_findings(
    kind: Callable[[Make], str], tmp_path: Path, status: int, told: str
) -> None:
    name = kind(lambda *_: fuzz.Run("ends", lambda: status))
    assert found(name, tmp_path, 1) == ([(0, told)] if told else [])


def test_a_fork_that_dies_leaves_findings(kind: Callable[[Make], str], tmp_path: Path) -> None:
    """Of what it had still to try; the other fork goes on."""

    def make(_seeds: Path, rng: random.Random) -> fuzz.Run:
        number = _numbers.index(rng.random())

        def run() -> int:
            if number == 2:
                os.kill(os.getppid(), signal.SIGKILL)
            return 0

        return fuzz.Run("kills the harness", run)

    _numbers = [random.Random(f"0 fake {number}").random() for number in range(8)]  # noqa: S311
    lost = "not tried: a process of the harness ended with status -9"
    assert found(kind(make), tmp_path, 8) == [(2, lost), (4, lost), (6, lost)]


def test_a_process_that_dies_or_hangs_is_a_finding(
    kind: Callable[[Make], str], tmp_path: Path
) -> None:

    def dies() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def hangs() -> int:
        signal.pause()
        return 0

    assert found(kind(lambda *_: fuzz.Run("dies", dies)), tmp_path, 1) == [(0, "signal N")]
    name = kind(lambda *_: fuzz.Run("hangs", hangs))
    findings = fuzz.fuzz_together(name, [0], tmp_path, seconds=0.2)
    assert [one.what for one in findings] == ["no end within 0 s"]


def test_findings_give_the_status_1(
    kind: Callable[[Make], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "make_seeds", lambda _: None)
    name = kind(lambda *_: fuzz.Run("reads", lambda: 0, lambda _: "another one"))
    for words, status in ((["--mutants", "2"], 1), (["--mutants", "0"], 0)):
        monkeypatch.setattr("sys.argv", ["fuzz.py", "--kind", name, "--jobs", "1", *words])
        assert fuzz.main() == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("2 findings, 2 of them wrong acceptances")
    assert lines[1] == "  2 x wrong acceptance: another one  (mutant 0, 1: reads)"


def test_records_are_compared_to_the_bit() -> None:
    one = {"kind": "run", "a": 1, "b": [True, None]}
    two = {"b": [True, None], "a": 1.0, "kind": "run"}

    def compared(given: list[object], taken: list[object], said: str = "") -> str:
        before, after = ([json.dumps(v).encode() for v in values] for values in (given, taken))
        return str(fuzz.other_records(before, after, said))

    assert compared([one], [two]) == ""
    assert compared([one], [{**one, "a": True}]) == "1 records that were not in it"
    assert compared([one], [{**one, "a": 1 + 2**-52}]) == "1 records that were not in it"
    assert compared([one, one], [one]) == "1 records are missing"
    assert compared([one, one], [one], "x.db: left out 1 trial") == ""
    trial = {"kind": "trial", "run": "a", "number": 0}
    assert compared([trial, {**trial, "knobs": {}}], [trial]) == ""


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    fuzz.make_seeds(folder)
    return folder


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_every_kind_is_gone_through(seeds: Path, kind: str) -> None:
    assert found(kind, seeds, 3, jobs=1) == []


def test_an_importer_that_changes_what_it_reads_is_found(
    seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = rows.merge

    def later(connection: sqlite3.Connection, record: Record, at: Location) -> bool:
        if isinstance(record, RunInfo):
            record = dataclasses.replace(record, created="2100-01-31T12:00:00Z")
        return merge(connection, record, at)

    monkeypatch.setattr(importing, "merge", later)
    for change in ("shaken", "_edited"):  # none, so that it is taken
        monkeypatch.setattr(fuzz, change, lambda line, _: line)
    assert [what for _, what in found("json-lines", seeds, 1)] == [
        "wrong acceptance: N records that were not in it"
    ]


def test_sound_inputs_are_taken_as_what_they_are(seeds: Path, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert main(["db", "import", str(seeds / "records.jsonl"), "--db", "own.db"]) == 0
        back = fuzz._exported("own.db")
    assert fuzz.other_records((seeds / "records.jsonl").read_bytes().splitlines(), back, "") == ""
