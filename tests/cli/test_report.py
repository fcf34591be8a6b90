"""``report``: a run as one file."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from autoturbo.database import Database
from autoturbo.extras import how_to_install
from autoturbo.report.runs import ListedRun, index, pairs_of
from autoturbo.report.units import duration, ratio
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.full
def test_the_report_lies_in_the_runs_folder_or_where_it_is_asked_for(cli: Cli) -> None:
    run = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2").object["run"]
    said = cli("--json", "report", run).object
    assert said["file"] == f"runs/alexnet-stcp920-{run}/report.html"
    page = Path(said["file"]).read_text(encoding="utf-8")
    assert len(page.encode()) == said["bytes"]
    assert said["trusted"] is True
    assert f"autoturbo replay {run} {said['trial']}" in page
    assert "regions: every part reads" in page
    shown = cli("report", run, "-o", "r.html")
    assert shown.out.startswith("wrote r.html: ")
    assert Path("r.html").read_text(encoding="utf-8") == page
    refused = cli("report", run, "-o", "no/such/r.html")
    assert (refused.status, refused.err.count("\n")) == (2, 1)


def test_without_the_library_one_line_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    ran = cli("report", "4f1c")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == (
        "error: a report needs vl-convert-python, which is not installed;"
        f" {how_to_install('report')}\n"
    )


def tuned(cli: Cli, *models: str) -> list[dict[str, Any]]:
    """What 'tune' says of each model."""
    return [cli("--json", "tune", m, "--batch", "1", "--trials", "2").object for m in models]


@pytest.mark.full
def test_an_index_has_a_row_for_each_pair_and_links_pages_that_it_makes(cli: Cli) -> None:
    first, second = tuned(cli, "alexnet", "zfnet")
    assert cli("report", first["run"]).status == 0
    said = cli("--json", "report", "--all").object
    assert (said["file"], said["runs"], said["made"]) == ("runs.html", 2, 1)
    page = Path("runs.html").read_text(encoding="utf-8")
    assert len(page.encode()) == said["bytes"]
    whole = f'href="runs/alexnet-stcp920-{first["run"]}/report.html"'
    light = f'href="runs/zfnet-stcp920-{second["run"]}/light.html"'
    assert [page.count(link) for link in (whole, light, "href=")] == [2, 2, 4]  # pairs, and runs
    for found in (first, second):
        assert duration(found["best"]["latency_s"]) in page
    elsewhere = cli("--json", "report", "--all", "-o", "runs/all.html").object
    assert f'href="alexnet-stcp920-{first["run"]}/report.html"' in Path(
        elsewhere["file"]
    ).read_text(encoding="utf-8")


def test_a_light_page_tells_what_is_recorded_and_needs_no_library(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    (found,) = tuned(cli, "alexnet")
    assert cli("report", "--all").status == 0
    page = Path(f"runs/alexnet-stcp920-{found['run']}/light.html").read_text(encoding="utf-8")
    assert "script-src" not in page
    assert "<script" not in page
    gain = found["default"]["latency_s"] / found["best"]["latency_s"]
    for text in (ratio(gain), duration(found["best"]["latency_s"]), f"report {found['run']}"):
        assert text in page
    assert cli("report", "--all").status == 0  # its own page is replaced


def test_of_a_machine_no_whole_report_is_promised(cli: Cli) -> None:
    asked = ("--target", "zcu102-vta", "--batch", "1", "--trials", "3")
    found = cli("--json", "tune", "alexnet", *asked).object["run"]
    assert cli("report", "--all").status == 0
    page = Path(f"runs/alexnet-zcu102-vta-{found}/light.html").read_text(encoding="utf-8")
    assert "there is no other report" in page
    assert f"autoturbo report {found}" not in page
    assert f"autoturbo replay {found}" in page


@pytest.mark.full
def test_a_page_that_cannot_be_written_is_a_line_and_the_index_lacks_its_link(cli: Cli) -> None:
    first, second = tuned(cli, "alexnet", "zfnet")
    mine = Path(f"runs/alexnet-stcp920-{first['run']}/light.html")
    mine.write_text("my notes", encoding="utf-8")
    ran = cli("report", "--all")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"left out: the page of run {first['run']}: ")
    assert mine.read_text(encoding="utf-8") == "my notes"
    page = Path("runs.html").read_text(encoding="utf-8")
    assert first["run"] in page
    assert "alexnet-stcp920-" not in page
    assert page.count(f"zfnet-stcp920-{second['run']}/light.html") == 2


@pytest.mark.full
def test_a_pair_is_its_fastest_run_and_what_is_measured_is_another_one(cli: Cli) -> None:
    (found,) = tuned(cli, "alexnet")
    with Database.open("autoturbo.db", create=False) as database:
        run = database.run(found["run"])
        slow = dataclasses.replace(
            run, id="51", handed_out=None, settings={**run.settings, "seed": 1}
        )
        board = dataclasses.replace(slow, id="b0", settings={**run.settings, "measurer": "board"})
        runs = [ListedRun(dataclasses.replace(slow, best_latency=9.0), "done"),
                ListedRun(run, "done"), ListedRun(board, "done")]  # fmt: skip
    pairs = pairs_of(runs)
    assert [(pair.best.info.id, pair.runs) for pair in pairs] == [(run.id, 2), ("b0", 1)]
    assert "measured by board" in index(runs, "autoturbo.db")
