"""``trace``: a run's best schedule as a timeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command_line import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


@pytest.mark.full
def test_the_timeline_lies_in_the_runs_folder_or_where_it_is_asked_for(cli: Cli) -> None:
    run = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2").object["run"]
    said = cli("--json", "trace", run).object
    assert said["file"] == f"runs/alexnet-stcp920-{run}/trace.json"
    assert len(json.loads(Path(said["file"]).read_text())["traceEvents"]) == said["events"]
    shown = cli("trace", run, "-o", "t.json", "--detail", "instructions")
    assert "wrote t.json" in shown.out
    assert len(json.loads(Path("t.json").read_text())["traceEvents"]) > said["events"]
    assert cli("trace", run, "-o", "no/such/t.json").status == 2
    assert "did you mean 'layers'" in cli("trace", run, "--detail", "layer").err
