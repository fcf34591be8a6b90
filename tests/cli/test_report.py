"""``report``: a run as one file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
