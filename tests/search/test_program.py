"""Programs that propose settings: what they are told, what is refused, and that nothing is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autoturbo.database import Database
from tests.cli.command_line import Cli, cli_in

HILL_CLIMB = Path(__file__).parents[2] / "examples" / "proposer" / "hill_climb.py"
TUNE = ("tune", "resnet18", "--batch", "4", "-q", "--baselines", "graphturbo")

STUBBORN = """\
import json, sys
log = open("log.jsonl", "a")
turn = 0
for line in sys.stdin:
    log.write(line); log.flush()
    message = json.loads(line)
    if "ask" in message:
        turn += 1
        wrong = [{"no_such_knob": 1}, {"prefetch_depth": 99}, 7, {}]
        print(json.dumps({"propose": wrong if turn == 1 else [{"prefetch_depth": 2}]}), flush=True)
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def program(cli: Cli, text: str) -> tuple[str, ...]:
    cli.write("propose.py", text)
    return ("--sampler", "program", "--proposer", f"{sys.executable} propose.py")


def told(cli: Cli) -> list[dict[str, object]]:
    return [json.loads(line) for line in (cli.folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.full
def test_the_example_proposes_and_a_run_goes_on_where_it_was(cli: Cli) -> None:
    how = ("--sampler", "program", "--proposer", f"{sys.executable} {HILL_CLIMB}")
    first = cli("--json", *TUNE, *how, "--trials", "20").object
    assert (first["trials"], first["stopped"]) == (20, "trials")
    again = cli("--json", "resume", first["run"], *how[2:], "--trials", "40").object
    assert again["trials"] == 40
    assert again["best"]["latency_s"] <= first["best"]["latency_s"]
    refused = cli("resume", first["run"], "--trials", "60")
    assert (refused.status, refused.err) == (
        2, "error: sampler 'program' has no program; add --proposer 'COMMAND'\n",
    )  # fmt: skip


@pytest.mark.full
def test_what_is_no_setting_is_refused_and_asked_for_again(cli: Cli) -> None:
    found = cli("--json", *TUNE, *program(cli, STUBBORN), "--trials", "24").object
    assert found["trials"] == 24  # chance fills up what the program owes
    lines = told(cli)
    assert {"space", "model", "target", "objectives", "seed"} == lines[0].keys()
    refused = [line["refused"] for line in lines if "refused" in line]
    assert len(refused) >= 4
    assert "no_such_knob" in refused[0]["message"]  # type: ignore[index]
    known = [line["told"] for line in lines if "told" in line]
    assert all({"latency_s", "failed"} & one.keys() for one in known)  # type: ignore[attr-defined]
    with Database.open(cli.folder / "autoturbo.db") as database:
        tried = [trial.knobs.prefetch_depth for trial in database.trials(found["run"])]
    assert 2 in tried


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            "print('hello', flush=True)\ninput()", "answers 'hello'", marks=pytest.mark.full
        ),
        ("import sys; sys.exit(5)", "has ended with status 5"),
    ],
)
def test_a_program_that_fails_is_one_line_and_keeps_what_was_measured(
    cli: Cli, text: str, line: str
) -> None:
    ran = cli(*TUNE, *program(cli, text), "--trials", "20")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert line in ran.err
    (run,) = cli("--json", "runs").object["runs"]
    assert (run["trials"], run["state"]) == (1, "failed")


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--sampler", "program"), "add --proposer 'COMMAND'"),
        (("--proposer", "cat"), "add --sampler program"),
        (("--sampler", "program", "--proposer", "no-such-program 1"), "there is no such program"),
        (("--sampler", "program", "--proposer", "'"), "No closing quotation"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    cli: Cli, flags: tuple[str, ...], line: str
) -> None:
    ran = cli(*TUNE, *flags)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert line in ran.err
    assert not (cli.folder / "autoturbo.db").exists()
