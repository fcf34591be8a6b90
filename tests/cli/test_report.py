"""``report``: a run as one file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autoturbo.report.units import duration
from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


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
        "error: a report needs vl-convert-python, which is not installed; install it with:"
        " pip install 'autoturbo[report]'\n"
    )


def test_an_index_of_all_runs_has_the_matrix_and_links(cli: Cli) -> None:
    first = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2").object
    second = cli("--json", "tune", "zfnet", "--batch", "1", "--trials", "2").object
    assert cli("report", first["run"]).status == 0
    said = cli("--json", "report", "--all").object
    assert (said["file"], said["runs"]) == ("runs.html", 2)
    page = Path("runs.html").read_text(encoding="utf-8")
    assert len(page.encode()) == said["bytes"]
    link = f'href="runs/alexnet-stcp920-{first["run"]}/report.html"'
    assert page.count(link) == 2  # in the matrix and in the list
    assert page.count("href=") == 2  # the other run has no report
    assert second["run"] in page
    for found in (first, second):
        assert duration(found["best"]["latency_s"]) in page
    elsewhere = cli("--json", "report", "--all", "-o", "runs/all.html").object
    assert f'href="alexnet-stcp920-{first["run"]}/report.html"' in Path(
        elsewhere["file"]
    ).read_text(encoding="utf-8")
