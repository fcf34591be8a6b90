"""``diff`` and ``replay``: two results beside each other, and one trial again."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from autoturbo.report.units import duration, ratio
from autoturbo.schedule.knobs import Knobs
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement, Outcome
from tests.cli.command_line import Cli, cli_in

MODEL = "alexnet"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """A folder with two runs, at batch 1 and 4, and what they said."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        cli = cli_in(folder, patch)
        one, four = (
            cli("--json", "tune", MODEL, "--batch", batch, "--trials", "3").object
            for batch in ("1", "4")
        )
    return folder, one, four


@pytest.fixture
def cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: tuple[Path, dict[str, Any], dict[str, Any]],
) -> Cli:
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    return cli_in(tmp_path, monkeypatch)


@pytest.fixture
def one(made: tuple[Path, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return made[1]


@pytest.fixture
def four(made: tuple[Path, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    return made[2]


@pytest.mark.full
def test_a_run_beside_a_file_of_another_batch(
    cli: Cli, one: dict[str, Any], four: dict[str, Any]
) -> None:
    found = cli("--json", "diff", one["run"], four["schedule_file"]).object
    assert found["of"] == {"batch": [1, 4]}
    assert found["a"]["latency_s"] == one["best"]["latency_s"]
    assert found["latency_ratio"] == four["best"]["latency_s"] / one["best"]["latency_s"]
    shown = cli("diff", one["run"], four["schedule_file"])
    assert "A and B differ in batch: their figures are of different problems" in shown.out


def test_a_file_beside_itself_is_the_same(cli: Cli, one: dict[str, Any]) -> None:
    file = one["schedule_file"]
    ran = cli("diff", file, file, "--fail-if-slower", "0%")
    assert ran.status == 0
    assert "A and B have the same knobs" in ran.out


def test_a_page_lays_a_run_beside_a_file(
    cli: Cli, one: dict[str, Any], four: dict[str, Any]
) -> None:
    ran = cli("--json", "diff", one["run"], four["schedule_file"], "--html", "both.html")
    page = Path("both.html").read_text(encoding="utf-8")
    assert ran.object["html"] == {"file": "both.html", "bytes": len(page.encode())}
    first, second = (found["best"]["latency_s"] for found in (one, four))
    assert f"A takes {duration(first)} and B takes {duration(second)}: A is" in plain_spaces(page)
    assert f"is {ratio(second / first)} as fast as B" in plain_spaces(page)
    assert "Not the same batch" in page
    assert cli("diff", one["run"], one["run"], "--html", "both.html").status == 0  # its own kind
    again = plain_spaces(Path("both.html").read_text(encoding="utf-8"))
    assert "neither is faster (simulated)" in again


def test_a_page_needs_a_run_of_the_files_model(cli: Cli, one: dict[str, Any]) -> None:
    document = json.loads(Path(one["schedule_file"]).read_text())
    document["model"]["hash"] = "0" * 64
    Path("other.json").write_text(json.dumps(document))
    ran = cli("diff", one["run"], "other.json", "--html", "both.html")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "other.json: no run of autoturbo.db has its model and target" in ran.err
    assert not Path("both.html").exists()


def plain_spaces(page: str) -> str:
    """A page whose numbers and units are apart by spaces that break."""
    return page.replace("\N{NO-BREAK SPACE}", " ")


def test_what_is_slower_than_allowed_fails(cli: Cli, one: dict[str, Any]) -> None:
    file = Path(one["schedule_file"])
    document = json.loads(file.read_text())
    document["expected"]["latency_s"] *= 1.05
    document["knobs"]["spill_victim"] = "largest"
    Path("slow.json").write_text(json.dumps(document))
    assert cli("diff", file, "slow.json", "--fail-if-slower", "6%").status == 0
    assert cli("diff", "slow.json", file, "--fail-if-slower", "0%").status == 0
    ran = cli("diff", file, "slow.json", "--fail-if-slower", "2%")
    assert ran.status == 1
    assert "B is 5 % slower than A; 2 % is allowed" in ran.out
    assert any(
        line.split()[:3] == ["spill_victim", "auto", "largest"] for line in ran.out.splitlines()
    )
    assert cli("--json", "diff", file, "slow.json").object["knobs"] == {
        "spill_victim": ["auto", "largest"]
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "b.json: cannot read: No such file or directory"),
        ("{}", "b.json: not a schedule file; 'autoturbo tune' writes them"),
        ("[1]", "b.json: not a schedule file"),
    ],
)
def test_what_is_no_schedule_is_refused(
    cli: Cli, one: dict[str, Any], content: str | None, message: str
) -> None:
    file = one["schedule_file"]
    if content is not None:
        Path("b.json").write_text(content)
    ran = cli("diff", file, "b.json")
    assert ran.status == 2
    assert message in ran.err


def test_a_schedule_that_was_never_measured_is_refused(cli: Cli, one: dict[str, Any]) -> None:
    file = Path(one["schedule_file"])
    document = {**json.loads(file.read_text()), "expected": None}
    Path("b.json").write_text(json.dumps(document))
    ran = cli("diff", file, "b.json")
    assert ran.status == 2
    assert "b.json: expected: the file does not say what the schedule measures" in ran.err


def test_every_trial_measures_the_same_again(cli: Cli, one: dict[str, Any]) -> None:
    run = one["run"]
    for number in range(3):
        ran = cli("--json", "replay", run, str(number))
        assert ran.status == 0
        assert ran.object["same"] is True
    assert "replayed and recorded are equal, to the bit" in cli("replay", run, "1").out


@pytest.mark.full
def test_another_number_is_told(
    cli: Cli, one: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Evaluator.evaluate

    def doubled(self: Evaluator, knobs: Knobs) -> Outcome:
        outcome = honest(self, knobs)
        assert isinstance(outcome, Measurement)
        return dataclasses.replace(outcome, latency=2 * outcome.latency)

    monkeypatch.setattr(Evaluator, "evaluate", doubled)
    ran = cli("--json", "replay", one["run"], "1")
    assert ran.status == 1
    assert ran.object["changed"] == ["latency"]


def test_a_trial_that_is_not_there(cli: Cli, one: dict[str, Any]) -> None:
    ran = cli("replay", one["run"], "99")
    assert ran.status == 2
    (run,) = (r for r in cli("--json", "runs").object["runs"] if r["run"] == one["run"])
    count = run["settings_tried"]
    assert f"has no trial 99; it has {count}, 0 to {count - 1}" in ran.err
