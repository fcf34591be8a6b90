"""Runs that release 0.1.0 stored, before options had one configuration, are read and go on."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from autoturbo.database import Database
from autoturbo.datasets import workloads
from autoturbo.simulator.measurement import Measurement
from autoturbo.tuning.keys import scheduler_version
from tests.cli.command_line import Cli, cli_in

STORED = Path(__file__).parent / "release_0_1"
USUAL, OTHER, POINT = "7cf74f2288", "b3a1a67eae", "cce262ffaf"
"""A run as usual, one with every option that that release had, a point of a sweep."""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line where that release tuned ``model.onnx`` into ``old.db``."""
    shutil.copy(workloads.get("llama_decode").file, tmp_path / "model.onnx")
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        connection.executescript((STORED / "runs.sql").read_text(encoding="utf-8"))
    return cli_in(tmp_path, monkeypatch)


def current(folder: Path) -> bool:
    """Whether the scheduler is still that of the release: else its runs are shown and refused."""
    with Database.open(folder / "old.db", read_only=True) as store:
        return store.run(USUAL).key.scheduler_version == scheduler_version()


@pytest.mark.parametrize("run", [USUAL, OTHER, POINT])
def test_a_stored_run_goes_on_as_that_release_went_on(cli: Cli, run: str) -> None:
    expected = json.loads((STORED / "resumed.json").read_text(encoding="utf-8"))[run]
    ran = cli("resume", run, "--trials", str(len(expected)), "--db", "old.db", "--json")
    if not current(cli.folder):
        assert "the scheduler's version" in ran.object["error"]["message"]
        return
    assert ran.status == 0, ran.err
    with Database.open(cli.folder / "old.db", read_only=True) as store:
        trials = [(t.number, t.knobs.id, t.outcome) for t in store.trials(run)]
    measured = [[n, k, o.latency if isinstance(o, Measurement) else None] for n, k, o in trials]
    assert measured == expected


def test_stored_runs_are_listed_and_shown(cli: Cli) -> None:
    listed = cli("runs", "--db", "old.db", "--json").object["runs"]
    assert {one["run"]: (one["trials"], one["budget"], one["seed"]) for one in listed} == {
        USUAL: (8, 8, 3), OTHER: (6, 6, 0), POINT: (3, 3, 0), "ec8c09707b": (3, 3, 0),
    }  # fmt: skip
    shown = cli("show", OTHER, "--db", "old.db", "--json").object["settings"]
    assert (shown["objective"], shown["round"], shown["patience"]) == ("latency,throughput", 4, 5)


def test_a_stored_run_is_reported_with_its_options(cli: Cli) -> None:
    ran = cli("report", OTHER, "--db", "old.db", "-o", "report.html")
    if not current(cli.folder):
        assert ran.status == 2
        return
    assert ran.status == 0, ran.err
    page = (cli.folder / "report.html").read_text(encoding="utf-8")
    words = "--trials 6 --patience 5 --bound-gap 0.1% --sampler random"
    assert words in page
    assert "--objective latency,throughput --round 4 --subgraphs 2" in page


@pytest.mark.full
def test_points_of_a_stored_sweep_are_known(cli: Cli) -> None:
    again = cli(
        "sweep", "model.onnx", "--vary", "lb.capacity_kib=512,1024", "--trials", "3",
        "--db", "old.db", "--json",
    )  # fmt: skip
    assert again.object["known"] == (2 if current(cli.folder) else 0)
