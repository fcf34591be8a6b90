"""``tune --target host`` and ``bench``, on small models, measured for real."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import autoturbo
from autoturbo.database import Database, TrialRecord
from autoturbo.database.formats import canonical
from autoturbo.errors import ScheduleFileError, TargetError, UsageError
from autoturbo.extras import how_to_install
from autoturbo.host import compare, tuning
from autoturbo.host.compare import Stopwatch
from autoturbo.host.cpu import this_cpu
from autoturbo.host.files import HostSchedule
from autoturbo.host.search import HostSearch
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE, HostPlan
from autoturbo.simulator.measurement import Measurement
from tests.cli.command_line import Cli, cli_in
from tests.host.host_samples import residual, save
from tests.host.test_search import part_seconds

TUNE = ("tune", "residual.onnx", "--target", "host", "--trials", "3")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A folder with a model; comparisons are short, for no figure is looked at."""
    monkeypatch.setattr(compare, "LEAST_ROUNDS", 6)
    monkeypatch.setattr(compare, "MOST_ROUNDS", 6)
    monkeypatch.setattr(compare, "SHORT_S", 0.001)
    residual(tmp_path)
    return cli_in(tmp_path, monkeypatch)


def schedule_of(cli: Cli) -> Path:
    (file,) = cli.folder.glob("runs/residual-host-*/schedule.json")
    return file


def test_from_a_model_to_batches(cli: Cli) -> None:
    ran = cli(*TUNE, "-o", "mine.json")
    assert ran.status == 0, ran.err
    for word in ("whole batch", "best loop", "noise", "handed out", "verified"):
        assert word in ran.out
    assert "simulated" not in ran.out
    file = schedule_of(cli)
    assert (cli.folder / "mine.json").read_text() == file.read_text()
    x = np.random.default_rng(1).standard_normal((8, 8, 12, 12)).astype(np.float32)
    with autoturbo.load_runner(file) as runner:
        found = runner.run({"x": x})["y"].copy()
    import onnxruntime

    session = onnxruntime.InferenceSession(cli.folder / "residual.onnx")
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_a_run_is_found_by_id_folder_and_file(cli: Cli) -> None:
    run = cli("--json", *TUNE).object["run"]
    file = schedule_of(cli)
    for name in (run, run[:4], file.parent, file):
        ran = cli("--json", "bench", name)
        assert ran.status == 0, ran.err
        assert ran.object["gains"].keys() < {"whole batch", "best loop", "tuned"}
        assert ran.object["rounds"] == 6
    again = cli("--json", *TUNE).object["run"]
    assert again == f"{run}-2"
    for name in (run, again):  # one is the beginning of the other
        assert name in cli("--json", "bench", name).object["schedule_file"]
    (cli.folder / "residual.onnx").rename(cli.folder / "moved.onnx")
    assert cli("bench", run).status == 2
    assert cli("bench", run, "--model", "moved.onnx").status == 0


@pytest.fixture
def faked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Figures that are made up, with noise of a hundredth: early operators want few samples."""
    chance = np.random.default_rng(0)

    def seconds(_: Stopwatch, plan: HostPlan) -> float:
        return part_seconds(plan) * 1e-3 * math.exp(0.01 * chance.standard_normal())

    monkeypatch.setattr(Stopwatch, "seconds", seconds)

    def alone(self: HostSearch, plan: HostPlan) -> float:
        self.ledger.enter_part(plan, part_seconds(plan) * 1e-3)
        return part_seconds(plan) * 1e-3

    monkeypatch.setattr(HostSearch, "time_part", alone)
    return cli


def parts_of(trials: Sequence[TrialRecord]) -> list[str]:
    """Return the parts whose seconds alone were kept with trials, in the order of those."""
    outcomes = (trial.outcome for trial in trials if isinstance(trial.outcome, Measurement))
    return [part for outcome in outcomes for part in outcome.kernel_times]


def test_resume_goes_on_where_a_run_stopped(faked: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = faked
    search = HostSearch.search

    def stopped(self: HostSearch) -> None:
        self.trials = 2
        search(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostSearch, "search", stopped)
        ran = cli(*TUNE)
    assert ran.status == 130
    (info,) = cli("--json", "runs").object["runs"]
    run, made = info["run"], info["trials"]
    assert f"'autoturbo resume {run}'" in ran.err
    assert info["state"] == "interrupted"
    assert info["budget"] == made + 1
    shown = cli("show", run)
    assert "fastest so far, not compared yet" in shown.out
    assert "not come to its comparison" in cli("explain", run).err
    with Database.open(cli.folder / "autoturbo.db") as database:
        before = database.trials(run)
    assert parts_of(before)
    assert cli("resume", run, "--trials", "4", "-o", "mine.json").status == 0
    assert (cli.folder / "mine.json").read_text() == schedule_of(cli).read_text()
    with Database.open(cli.folder / "autoturbo.db") as database:
        after = database.trials(run)
        assert after[:made] == before
        assert len({trial.knobs for trial in after}) == len(after) == made + 2
        assert parts_of(after) == parts_of(before)
        assert database.run(run).state == "done"


def test_every_command_says_the_same_of_a_run(faked: Cli) -> None:
    cli = faked
    tuned = cli("--json", *TUNE, "--trials", "20").object
    run = tuned["run"]
    assert tuned["chosen"] == TUNED
    shown, explained = (cli("--json", word, run).object for word in ("show", "explain"))
    (listed,) = cli("--json", "runs").object["runs"]
    compared = {name: tuned[name] for name in shown["compared"]}
    assert shown["compared"] == explained["compared"] == compared
    assert shown["best_trial"] == listed["best_trial"] == tuned["best_trial"]
    assert shown["best_s"] == listed["best_s"] == tuned["plans"][TUNED]["seconds"]
    gain = tuned["gains"][LOOP]["ratio"]
    assert listed["default_s"] / listed["best_s"] == pytest.approx(gain, rel=1e-12)
    assert [step["plan"] for step in explained["steps"]] == [LOOP, TUNED]
    steps = {step["base"]: step["gain"] for step in explained["steps"]}
    assert steps[LOOP] == tuned["gains"][LOOP]
    for name, gain in tuned["gains"].items():
        took = tuned["plans"][name]["seconds"] / tuned["plans"][TUNED]["seconds"]
        assert took == pytest.approx(gain["ratio"], rel=1e-12)
    said = f"{gain['ratio']:.2f}x over the {WHOLE}" if (gain := tuned["gains"][WHOLE]) else ""
    for words in (("show", run), ("bench", run)):
        assert "over the whole batch" in cli(*words).out
    assert said in cli("show", run).out
    text = cli("explain", run).out
    assert "Conv_0" in text or "conv" in text.lower()
    assert "in place of best loop" in text
    assert cli("report", run).status == 0
    (page,) = cli.folder.glob("runs/*/report.html")
    assert said in page.read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert cli("report", "--all").status == 0
    assert "report.html" in (cli.folder / "runs.html").read_text()


def test_a_run_moves_to_another_database(faked: Cli) -> None:
    cli = faked
    run = cli("--json", *TUNE).object["run"]
    shown = cli("show", run).out
    assert cli("db", "export", "runs.jsonl").status == 0
    assert cli("db", "import", "runs.jsonl", "--db", "other.db").status == 0
    assert cli("db", "merge", "--db", "other.db", "autoturbo.db").status == 0
    assert "sound" in cli("db", "check", "--db", "other.db").out
    assert cli("show", run, "--db", "other.db").out == shown
    with Database.open(cli.folder / "other.db") as database:
        assert not database.best()


def test_a_record_that_makes_no_sense_is_no_comparison(faked: Cli) -> None:
    """Records come from elsewhere: rounds that are not alike, plans of other models."""
    run = faked("--json", *TUNE).object["run"]
    assert faked("db", "export", "runs.jsonl").status == 0
    lines = [json.loads(line) for line in (faked.folder / "runs.jsonl").read_text().splitlines()]
    short, other, strange = (json.loads(json.dumps(lines)) for _ in range(3))
    (info,) = (line for line in short if line["kind"] == "run")
    info["handed_out"]["measurement"]["samples"].pop()
    for line in other:
        if line["kind"] == "trial":
            line["knobs"]["host"]["subgraphs"][0]["first"] = 1
    (info,) = (line for line in strange if line["kind"] == "run")
    info["settings"]["target_description"] = {"cores": 2}
    for number, forged in enumerate((short, other, strange)):
        name = f"forged{number}"
        text = "".join(canonical(line) + "\n" for line in forged)
        (faked.folder / f"{name}.jsonl").write_text(text)
        database = ("--db", f"{name}.db")
        assert faked("db", "import", f"{name}.jsonl", *database).status == 0
        assert faked("show", run, *database).status == 0
        assert faked("report", run, "-o", f"{name}.html", *database).status == 0
        assert faked("explain", run, *database).status == (0 if forged is strange else 2)


@pytest.mark.parametrize(
    "words",
    [("trace", "RUN"), ("diff", "RUN", "RUN"), ("replay", "RUN", "0"),
     ("verify", "residual.onnx", "--run", "RUN")],
)  # fmt: skip
def test_commands_of_schedules_refuse_a_run_of_plans(faked: Cli, words: tuple[str, ...]) -> None:
    run = faked("--json", *TUNE).object["run"]
    ran = faked(*(run if word == "RUN" else word for word in words))
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert f"run {run} is of this computer" in ran.err
    assert "bench" in ran.err


def test_without_time_for_a_comparison_no_gain_is_stated(
    faked: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "compare_plans", lambda *_: None)
    ran = faked(*TUNE)
    assert ran.status == 0, ran.err
    assert "not stated: there was no time for a comparison" in ran.out
    line = faked("--json", *TUNE, "--seed", "1").object
    assert (line["rounds"], line["noise"], line["gains"]) == (0, None, {})
    assert line["chosen"] in (WHOLE, LOOP)
    shown = faked("--json", "show", line["run"]).object
    assert shown["compared"] == {name: line[name] for name in shown["compared"]}
    assert faked("--json", "explain", line["run"]).object["steps"][0]["gain"] is None
    assert faked("bench", line["run"]).status == 0
    with Database.open(faked.folder / "autoturbo.db") as database:
        handed = database.run(line["run"]).handed_out
    assert handed is not None
    assert handed.race is None
    assert handed.varies
    assert handed.doubt


def test_tuning_from_python(faked: Cli) -> None:
    graph = autoturbo.load_model("residual.onnx")
    found = autoturbo.tune(graph, "host", trials=6, seed=3)
    result: Any = found
    assert (found.target, found.model, found.state) == ("host", "residual", "done")
    assert found.measured == len(found.trials)
    assert found.trials[found.best.trial].knobs == found.best.knobs
    assert result.comparison.made
    assert set(found.outcomes()) >= {WHOLE, "best"}
    assert "handed out" in found.view().text()
    assert "<table" in found._repr_html_()
    assert "<svg" in found._repr_html_()
    assert "times as fast as the whole batch" in found.plot("convergence").svg()
    assert "whole batch" in found.plot("speed").svg()
    with pytest.raises(UsageError):
        found.plot("timeline")
    assert found.schedule_file.is_file()
    assert not (faked.folder / "autoturbo.db").exists()
    kept = autoturbo.tune("residual.onnx", "host", trials=2, database="runs.db")
    again = autoturbo.resume(kept.run, trials=4, database="runs.db")
    assert again.run == kept.run
    assert again.trials[: kept.measured] == kept.trials
    with pytest.raises(UsageError) as caught:
        autoturbo.tune(graph, "host", sampler="tpe")
    assert caught.value.at.field == "--sampler"
    with pytest.raises(TargetError):
        autoturbo.tune(graph, "cpu")


def test_the_list_of_targets_and_the_help_name_this_computer(cli: Cli) -> None:
    assert "host " in cli("targets", "list").out
    assert cli("--json", "targets", "list").object["measured"][0]["name"] == "host"
    assert "host for this computer" in cli("tune", "--help").out


def test_a_model_that_cannot_be_divided_is_no_error(cli: Cli) -> None:
    mixed = [helper.make_node("Softmax", ["x"], ["y"], axis=0)]
    save(cli.folder / "mixed.onnx", mixed, [4, 3], [4, 3])
    ran = cli("--json", "tune", "mixed.onnx", "--target", "host")
    assert ran.status == 0, ran.err
    line = ran.object
    assert line["chosen"] == "whole batch"
    assert line["trials"] == len(line["plans"]) == 1
    assert "works across the batch" in line["notes"][0]
    shown = cli("tune", "mixed.onnx", "--target", "host")
    assert "none on this computer" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target", "host", "--sampler", "tpe"), "--sampler: means nothing for --target host"),
        (("--target", "host", "--ray"), "--ray: means nothing for --target host"),
        (("--target", "host", "--verify"), "--verify: means nothing for --target host"),
        (("--target", "host", "--target", "goya"), "goes with no other target"),
    ],
)
def test_what_means_nothing_here_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    ran = cli("tune", "residual.onnx", *words)
    assert ran.status == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_what_bench_does_not_find(cli: Cli) -> None:
    assert "no run of this computer begins with 'abc'" in cli("bench", "abc").err
    for run in ("aa11", "aa22"):
        folder = cli.folder / "runs" / f"m-host-{run}"
        folder.mkdir(parents=True)
        (folder / "schedule.json").write_text("{")
    ran = cli("bench", "aa")
    assert "it may be aa11 or aa22" in ran.err
    ran = cli("bench", "aa1")
    assert ran.status == 2
    assert "schedule.json" in ran.err


def test_files_that_are_no_schedules_of_this_model(cli: Cli) -> None:
    assert cli(*TUNE).status == 0
    file = schedule_of(cli)
    good = json.loads(file.read_text())

    def broken(change: dict[str, object], field: str) -> None:
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(ScheduleFileError) as caught:
            autoturbo.load_runner(file)
        assert caught.value.at.field == field
        assert caught.value.at.file == file

    broken({"schema_version": 2}, "schema_version")
    broken({"chosen": "another"}, "chosen")
    broken({"model": {**good["model"], "hash": "0"}}, "model.hash")
    broken({"plans": {}}, "plans")
    plan = good["plans"][WHOLE]
    short = {**plan, "subgraphs": plan["subgraphs"][:0]}
    broken({"plans": {**good["plans"], WHOLE: short}}, f"plans.{WHOLE}")
    broken({"seconds": {}}, "plans")
    file.write_text(json.dumps(good))
    assert json.loads(HostSchedule.read(file).text) == good
    with pytest.raises(ScheduleFileError) as caught:
        autoturbo.load_runner(file, "none.onnx")
    assert caught.value.at.field == "model.file"


def test_without_the_runtime_it_says_how_to_get_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    ran = cli(*TUNE)
    assert ran.status == 1
    assert how_to_install("verify") in ran.err


def test_the_processor_is_described_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = this_cpu()
    assert found.cores <= found.hardware_threads
    assert 1e8 < found.core_macs_per_s <= found.macs_per_s < 1e14
    assert 1e8 < found.bandwidth < 1e13
    (file,) = tmp_path.glob("autoturbo/cpu-*.json")
    assert this_cpu() == found  # measured anew, a rate would differ
    file.write_text("{}")
    assert this_cpu().name == found.name
    for workers, threads in found.layouts():
        assert workers * threads in (found.cores, found.hardware_threads)


def test_weights_that_are_not_there_are_drawn(cli: Cli) -> None:
    ran = cli("--json", "tune", "squeezenet1_1", "--batch", "1", "--target", "host")
    assert ran.status == 0, ran.err
    assert "drawn at random" in ran.object["notes"][-1]
