"""What a run handed out is what every command shows, however its measurer behaves."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoturbo.report.units import duration, ratio
from tests.cli import faulty_measurers
from tests.cli.command_line import Cli, Ran
from tests.host.host_samples import residual

MODEL = "net.onnx"

MEASURERS = ["noisy"]

MORE = [
    "right", "counter", "failing-3", "single", "constant", "drifting", "outlying", "unsteady",
    "failing-1", "failing-1-twice", "failing-last", "failing-half",
]  # fmt: skip


def slower(names: list[str]) -> list[Any]:
    """Cases of the full tier."""
    return [pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = faulty_measurers.cli_with_boards(tmp_path, monkeypatch)
    residual(tmp_path, 16).rename(tmp_path / MODEL)
    return made


@dataclass(frozen=True)
class Answer:
    """What a command says of a run; None for what it does not tell."""

    trial: int | None
    latency_s: float | None
    gain: float | None


def of_tune(line: dict[str, Any]) -> Answer:
    default, best = line["default"], line["best"]["latency_s"]
    gain = default and default["latency_s"] / best
    return Answer(line["best_trial"], best, gain)


def tuned(cli: Cli, measurer: str, *more: str) -> Ran:
    words = (
        "tune",
        MODEL,
        "--measurer",
        measurer,
        "--trials",
        "8",
        "--baselines",
        "graphturbo,tvm",
    )
    return cli("--json", *words, *more)


def answers(cli: Cli, run: str) -> dict[str, Answer]:
    """What each command that shows a run says of it."""
    said = {}
    (listed,) = cli("--json", "runs").object["runs"]
    known = listed["default_s"] and listed["default_s"] / listed["best_s"]
    said["runs"] = Answer(listed["best_trial"], listed["best_s"], known)
    shown = cli("--json", "show", run).object
    said["show"] = of_tune({**shown, "best_trial": shown["best_trial"]})
    explained = cli("--json", "explain", run, "--no-what-if").object
    said["explain"] = Answer(explained["trial"], explained["latency_s"], None)
    compared = cli("--json", "diff", run, run).object
    said["diff"] = Answer(None, compared["a"]["latency_s"], None)
    traced = cli("--json", "trace", run).object
    said["trace"] = Answer(traced["trial"], traced["latency_s"], None)
    (best,) = cli("--json", "db", "best").object["best"]
    said["db best"] = Answer(best["trial"], best["best"]["latency_s"], None)
    (file,) = cli.folder.glob("runs/*/schedule.json")
    expected = json.loads(file.read_text())["expected"]
    said["schedule.json"] = Answer(None, expected["latency_s"], None)
    return said


def check(cli: Cli, told: Answer, run: str, measurer: str) -> None:
    for command, answer in answers(cli, run).items():
        assert answer.trial in (told.trial, None), command
        assert answer.latency_s == pytest.approx(told.latency_s, rel=1e-9), command
        if answer.gain is not None or command in ("runs", "show"):
            assert answer.gain == (told.gain and pytest.approx(told.gain)), command
    applied = cli("apply", MODEL, "--measurer", measurer, "-o", "out.onnx", "--force")
    assert f"run {run}, trial {told.trial}" in applied.out + applied.err, applied.err
    reported = cli("--json", "report", run)
    assert reported.status == 0, reported.err
    assert reported.object["trial"] == told.trial
    page = re.sub(r"\s+", " ", Path(reported.object["file"]).read_text())
    assert told.latency_s is not None
    assert f"takes {duration(told.latency_s)} for a batch" in page
    if told.gain is None:
        assert "No gain is stated" in page
    elif told.gain > 1:
        assert f"{ratio(told.gain)}</b> as fast as the heuristic" in page
        assert f"{ratio(told.gain)} over the heuristic" in cli("show", run).out
    row = cli("runs").out
    assert ("-" if told.gain is None else ratio(told.gain)) in row


@pytest.mark.parametrize("measurer", [*MEASURERS, *slower(MORE)])
def test_every_command_shows_what_was_handed_out(cli: Cli, measurer: str) -> None:
    ran = tuned(cli, measurer)
    assert ran.status == 0, ran.err
    line = ran.object
    check(cli, of_tune(line), line["run"], measurer)
    resumed = cli("--json", "resume", line["run"], "--trials", "12")
    assert resumed.status == 0, resumed.err
    assert resumed.object["trials"] == 12
    check(cli, of_tune(resumed.object), line["run"], measurer)


TELLING_LATENCY_ALONE = ["counter", "single"]
"""Their runs take another course: what is known of bytes steers a search."""


@pytest.mark.full
@pytest.mark.parametrize(
    "measurer", ["failing-1", "failing-1-twice", "failing-last", *TELLING_LATENCY_ALONE]
)
def test_what_fails_or_says_little_changes_no_gain(cli: Cli, measurer: str) -> None:
    """Against a board that does not fail: of those that do, one failure is made up for."""
    right, line = tuned(cli, "right").object, tuned(cli, measurer).object
    apart = 5e-3 if measurer in TELLING_LATENCY_ALONE else 1e-6
    assert of_tune(line).gain == pytest.approx(of_tune(right).gain, rel=apart)
    assert ("confidence" in line, "lacking" in line) == (False, False)
    assert line.get("failures", {}) == {}


@pytest.mark.full
def test_a_board_that_fails_at_every_other_call_states_no_gain_too_many(cli: Cli) -> None:
    """The base is measured in full at the second try; of what may be better some is lost."""
    right, line = tuned(cli, "right").object, tuned(cli, "failing-half").object
    most, gain = of_tune(right).gain, of_tune(line).gain
    assert most is not None
    assert gain is not None
    assert 1 <= gain <= most * (1 + 1e-6)
    assert ("confidence" in line, "lacking" in line) == (False, False)
    assert line["failures"]["raised"] > 0


@pytest.mark.full
def test_no_gain_is_stated_over_a_base_that_lacks_a_candidate(cli: Cli) -> None:
    line = tuned(cli, "failing-3").object
    assert line["default"] is None
    assert line["lacking"]["heuristic"].startswith("1 of 3 schedules were not measured: ")
    assert set(line["baselines"]) == {"tvm"}
    shown = cli("show", line["run"]).out
    assert "gain: not known: the heuristic was not measured in full: 1 of 3 schedules" in shown
    assert cli("--json", "show", line["run"]).object["lacking"] == line["lacking"]


@pytest.mark.full
def test_a_last_check_that_fails_leaves_what_was_measured_well(cli: Cli) -> None:
    ran = tuned(cli, "failing-last")
    assert ran.status == 0, ran.err
    assert any("measuring it again failed: " in note for note in ran.object["notes"])


@pytest.mark.full
def test_a_measurer_that_turns_out_to_vary_is_raced(cli: Cli) -> None:
    line = tuned(cli, "unsteady").object
    assert line["confidence"]["demonstrated"]
    assert 0.005 < line["confidence"]["noise"] < 0.05
    assert any("measurements are taken to vary" in note for note in line["notes"])


@pytest.mark.full
def test_one_lucky_figure_is_no_gain(cli: Cli) -> None:
    line = tuned(cli, "outlying").object
    assert line["confidence"]["gain_high"] < 1.3
    assert of_tune(line).gain == pytest.approx(line["confidence"]["gain"])
    shown = cli("show", line["run"]).out
    assert "looked better once, and not when measured again: trial" in shown


@pytest.mark.full
def test_a_run_of_failures_hands_nothing_out(cli: Cli) -> None:
    """All NaN: every command says so, none shows a figure, and the run can go on."""
    ran = tuned(cli, "nan")
    assert ran.status == 1
    (listed,) = cli("--json", "runs").object["runs"]
    run = str(listed["run"])
    assert f"autoturbo resume {run}" in ran.out + ran.err
    assert (listed["best_s"], listed["default_s"], listed["state"]) == (None, None, "failed")
    shown = cli("--json", "show", run).object
    assert (shown["best"], shown["failures"]) == (None, {"invalid": 8})
    assert shown["lacking"]["heuristic"].endswith("the measurer returned nan as latency")
    for command in ("report", "trace"):
        none = cli(command, run)
        assert (none.status, none.err.count("\n")) == (2, 1)
        assert "has no schedule" in none.err
    assert cli("--json", "db", "best").object["best"] == []
    assert cli("--json", "explain", run).object["trial"] is None


@pytest.mark.full
def test_a_report_is_made_without_the_board(cli: Cli) -> None:
    """From recorded figures, with intervals and without bytes that nobody told."""
    (cli.folder / "lease").touch()
    line = tuned(cli, "leased").object
    (cli.folder / "lease").unlink()
    for command in ("show", "explain", "trace", "report"):
        assert cli(command, line["run"]).status == 0
    page = re.sub(r"\s+", " ", next(cli.folder.glob("runs/*/report.html")).read_text())
    told = line["confidence"]
    assert f"{ratio(told['gain_low'])} to {ratio(told['gain_high'])} at 95 % confidence" in page
    assert "measured again: raced " in page
    assert "the same, to the bit" not in page
    assert "where the time goes is simulated" in page
    assert " 0 B" not in page.partition("<nav")[0]
    low, high = re.findall(r'"low":\[([^]]+)\],"high":\[([^]]+)\]', page)[0]
    tuned_low, tuned_high = (float(ends.split(",")[-1]) for ends in (low, high))
    assert tuned_high / tuned_low == pytest.approx(told["gain_high"] / told["gain_low"], rel=1e-3)
    shown = cli("show", line["run"]).out
    assert [" - " in row for row in shown.splitlines() if row.startswith("tuned ")] == [True]
    (file,) = cli.folder.glob("runs/*/schedule.json")
    assert json.loads(file.read_text())["expected"]["ddr_bytes"] is None


@pytest.mark.full
def test_the_heuristic_stands_in_one_row(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--trials", "4", "--baselines", "graphturbo,tvm")
    names = [row.split()[0] for row in ran.out.splitlines() if " us " in row and "kB" in row]
    assert names == ["tvm", "heuristic", "tuned"]
    line = cli("--json", "tune", MODEL, "--trials", "4", "--baselines", "graphturbo,tvm").object
    assert line["baselines"]["graphturbo"] == line["default"]
