"""Damaged inputs of every kind (``tools/fuzz.py``) are refused or read as what they are."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
import sqlite3
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


@pytest.mark.full
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
    for change in ("shaken", "edited"):  # none, so that it is taken
        monkeypatch.setattr(fuzz, change, lambda line, _: line)
    assert [what for _, what in found("json-lines", seeds, 1)] == [
        "wrong acceptance: N records that were not in it"
    ]


def test_sound_inputs_are_taken_as_what_they_are(seeds: Path, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert main(["db", "import", str(seeds / "records.jsonl"), "--db", "own.db"]) == 0
        back = fuzz.exported("own.db")
    assert fuzz.other_records((seeds / "records.jsonl").read_bytes().splitlines(), back, "") == ""
