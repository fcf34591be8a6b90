"""The main job, and what comes after it: resume, runs, show, compare, db."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autoturbo.commands.console import Console, LiveLine, standing_of
from autoturbo.commands.tuning.run_end import finish
from autoturbo.config import ExecutionConfig
from autoturbo.database import Database
from autoturbo.errors import ExecutorError, InterruptedRunError, UsageError
from autoturbo.hardware import load_target
from autoturbo.hardware.parts import Calibration
from autoturbo.registry import SCHEDULERS
from autoturbo.report.live_lines import RunStatus
from autoturbo.report.units import duration
from autoturbo.search.progress import Progress
from autoturbo.tuning.result import TuneResult
from autoturbo.tuning.run import resumable
from tests import processes
from tests.cli.command_line import Cli, Ran, cli_in, narrow_terminal
from tests.compiled_later import compiled_later
from tests.processes import HANG_S

MEASUREMENT = [
    *["latency_s", "throughput_per_s", "ddr_bytes", "gb_bytes", "matrix_utilization"],
    *["vector_utilization", "peak_lb_bytes", "peak_gb_bytes", "kernels", "lower_bound_s"],
    *["bound_fraction", "tight_bound_s", "energy_j", "incomplete"],
]
MODEL = "alexnet"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return cli_in(tmp_path, monkeypatch)


def tuned(cli: Cli, *more: str, model: str = MODEL, trials: int = 17) -> dict[str, Any]:
    ran = cli("--json", "tune", model, "--batch", "1", "--trials", str(trials), *more)
    assert ran.status == 0, ran.err
    return ran.object


def words(ran: Ran) -> list[list[str]]:
    return [line.split() for line in ran.out.splitlines()]


def test_what_people_see(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "17")
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == f"{MODEL} @ stcp920"
    assert "batch 1, 20 operators in 8 layers, 714 MMAC, 244 MB of weights" in lines[1]
    assert lines[2].startswith("  target  stcp920: ")
    assert lines[2].endswith("; float16")
    assert lines[3] == "  search  17 trials; sampler cost-model, seed 0"
    assert lines[4].startswith("  time    about 0:")
    table = next(i for i, line in enumerate(lines) if line.startswith("scheduler "))
    assert lines[table].split()[:5] == ["scheduler", "latency", "samples/s", "vs", "tvm"]
    rows = [line.split("  ")[0] for line in lines[table + 2 :]]
    assert rows[0] == "tvm (TVM-like)"
    assert "heuristic" in rows
    assert "tuned" in rows
    (run,) = (cli.folder / "runs").iterdir()
    name = run.name.rsplit("-", 1)[1]
    assert re.match(r"stopped      trial budget reached \(\d+ settings, 17 schedules\)", lines[-9])
    assert lines[-8:] == [
        "verified     regions, memory",
        f"schedule     runs/{run.name}/schedule.json",
        f"run folder   runs/{run.name}",
        "database     autoturbo.db",
        f"next         autoturbo show {name}",
        f"             autoturbo report {name}",
        f"             autoturbo resume {name} --trials 68",
        "",
    ]


@pytest.mark.full
def test_a_second_run_of_a_model_never_fails_because_of_the_first(cli: Cli) -> None:
    """``tune resnet50``, then ``tune resnet50 --batch 16`` (1) in the same folder."""
    first = cli("--json", "tune", "resnet50", "--trials", "2")
    assert first.status == 0, first.err
    run = first.object["run"]
    for batch in ("16", "1"):
        ran = cli("tune", "resnet50", "--batch", batch, "--trials", "2")
        assert ran.status == 0, ran.err
        starts = next(line for line in ran.out.splitlines() if line.startswith("  starts  "))
        assert "the schedule of resnet50 in autoturbo.db, run " in starts
        assert batch != "16" or f"run {run}, trial " in starts
        assert batch != "16" or "made smaller to fit" in starts


@pytest.mark.full
def test_the_best_that_was_measured_is_handed_out(cli: Cli) -> None:
    """``tune bert_base_s512 --sampler random --no-transfer``: no slower than the heuristic."""
    words = ["tune", "bert_base_s512", "--sampler", "random", "--no-transfer", "--trials", "3"]
    found = cli("--json", *words).object
    heuristic = found["baselines"]["graphturbo"]["latency_s"]
    assert found["default"]["latency_s"] == heuristic
    assert found["best"]["latency_s"] <= heuristic
    assert found["warm_starts"] == ["the heuristic", *2 * ["partition by dynamic programming"]]
    replayed = cli("--json", "replay", found["run"], "0").object
    assert (replayed["same"], replayed["warm_starts"]) == (True, found["warm_starts"])
    assert replayed["latency_s"] == heuristic


@pytest.mark.full
def test_the_names_that_scripts_rely_on(cli: Cli) -> None:
    found = tuned(cli)
    assert {"model", "target", "run", "trials", "seed", "default", "best", "baselines"} <= set(
        found
    )
    assert (found["model"], found["target"], found["trials"]) == (MODEL, "stcp920", 17)
    assert (found["seed"], found["state"]) == (0, "done")
    for measured in (found["default"], found["best"], *found["baselines"].values()):
        assert list(measured) == MEASUREMENT
    assert found["best"]["latency_s"] <= found["default"]["latency_s"]
    assert Path(found["schedule_file"]).is_file()


def test_under_json_standard_error_has_what_people_read(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "1", "--json")
    assert ran.err.startswith(f"{MODEL} @ stcp920\n  model")
    assert "scheduler" not in ran.err
    quiet = cli("tune", MODEL, "--batch", "1", "--trials", "1", "--json", "-q")
    assert quiet.err == ""


def test_quiet_says_which_pair_and_the_table(cli: Cli) -> None:
    lines = cli("tune", MODEL, "--batch", "1", "--trials", "1", "-q").out.splitlines()
    assert lines[0] == f"{MODEL} @ stcp920"
    assert lines[1].startswith("scheduler ")
    assert lines[-2].startswith("tuned ")
    assert lines[-1].startswith("matrix use is without 4.10 MMAC on the vector engine")


@pytest.mark.full
def test_it_says_why_it_stopped_early(cli: Cli) -> None:
    flags = ["--batch", "1", "--trials", "400", "--bound-gap", "900 %", "--patience", "300"]
    ran = cli("tune", MODEL, *flags)
    assert "or 300 trials without a better one or 900 % above the lower bound; sampler" in ran.out
    assert re.search(r"\nstopped      \d+ % above the lower bound, after 1 trial\n", ran.out)
    patient = cli("--json", "tune", MODEL, "--batch", "1", "--trials", "400", "--patience", "1")
    assert patient.object["stopped"] == "no-progress"
    assert patient.object["trials"] < 400
    ran = cli("resume", patient.object["run"])
    assert re.search(r"\nstopped      nothing better than trial \d+ was found for a while", ran.out)


@pytest.mark.full
def test_explain_says_which_knobs_mattered(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = tuned(cli, trials=65)
    run = ended["run"]
    narrow_terminal(monkeypatch)
    ran = cli("explain", run[:6])
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == f"run {run}: {MODEL} @ stcp920, objective latency"
    assert re.fullmatch(r"\d+ trials measured, \d+ failed", lines[1])
    assert re.fullmatch(r"trial \d+: \S+ \ws, \S+x the heuristic's speed", lines[2])
    assert lines[3] == "simulated; this chip was never calibrated"
    assert re.fullmatch(r"bound by \w+ \d+ %(, \w+ [\d.]+ %)+", lines[4])
    assert re.fullmatch(
        r"lower bound .* \(\w+\), which is \d+ % of the schedule's latency", lines[5]
    )
    assert "\n1. " in ran.out
    assert re.search(r"\nvalues tried of the model's knobs: \d+ of \d+\n", ran.out)
    found = cli("--json", "explain", run, "--no-what-if").object
    assert found["measured"] + found["failed"] == ended["trials"] > 65
    assert found == cli("--json", "explain", run, "--no-what-if", "--seed", "0").object
    shares = [k["share"] for k in found["knobs"]]
    if found["obstacle"] is None:
        assert "\nknob importance: knobs explain " in ran.out
        assert found["explained"] >= 0.2
        assert max(shares) > 0.05
    assert all(1 <= k["tried"] <= k["offered"] for k in found["knobs"])


@pytest.mark.full
def test_explain_of_few_trials_is_honest(cli: Cli) -> None:
    run = tuned(cli)["run"]
    found = cli("--json", "explain", run, "--no-what-if").object
    obstacle = f"too few trials: {found['measured']} measured, at least 30 are needed"
    assert found["obstacle"] == obstacle
    assert {k["share"] for k in found["knobs"]} == {None}
    assert f"\nimportance: {obstacle}\n" in cli("explain", run, "--no-what-if").out


@pytest.mark.full
def test_explain_of_a_schedule_file_is_that_of_its_run(cli: Cli) -> None:
    said = tuned(cli)
    of_run = cli("--json", "explain", said["run"]).object["bounds"]
    assert {r["kind"] for bottleneck in of_run["bottlenecks"] for r in bottleneck["remedies"]} >= {
        "knob",
        "target",
    }
    flags = [said["schedule_file"], "--model", MODEL, "--batch", "1", "--no-what-if"]
    found = cli("--json", "explain", *flags).object
    assert found["bounds"]["latency_s"] == of_run["latency_s"] == said["best"]["latency_s"]
    assert found["bounds"]["shares_s"] == of_run["shares_s"]
    assert [bottleneck["remedies"] for bottleneck in found["bounds"]["bottlenecks"]] == [[]] * len(
        of_run["bottlenecks"]
    )
    shown = cli("explain", *flags).out
    assert shown.startswith(f"{said['schedule_file']}: {MODEL} @ stcp920, graphturbo\n")


def test_explain_wants_a_model_for_files_and_none_for_runs(cli: Cli) -> None:
    assert cli("explain", "s.json").err == (
        "error: --model: s.json is a schedule file; name the model that it is of\n"
    )
    gone = cli("explain", "s.json", "--model", MODEL)
    assert (gone.status, gone.err) == (
        2, "error: s.json: cannot read: No such file or directory\n",
    )  # fmt: skip
    assert cli("explain", "4f1c", "--batch", "1").err == (
        "error: --batch: the run has its own; leave it out: it is for schedule files\n"
    )


def test_explain_refuses_a_model_that_changed(cli: Cli) -> None:
    from autoturbo.datasets import workloads

    cli.write("m.onnx", workloads.get(MODEL).file.read_bytes())
    run = tuned(cli, model="m.onnx", trials=1)["run"]
    cli.write("m.onnx", workloads.get("zfnet").file.read_bytes())
    ran = cli("explain", run)
    assert (ran.status, ran.err) == (
        2, f"error: run {run}: m.onnx has changed; explain another run\n",
    )  # fmt: skip


@pytest.mark.full
def test_several_models_and_targets(cli: Cli) -> None:
    flags = ["--target", "stcp920", "--target", "goya", "--batch", "1", "--trials", "1", "--json"]
    ran = cli("tune", MODEL, "zfnet", *flags)
    pairs = [(o["model"], o["target"]) for o in ran.objects]
    assert pairs == [
        (MODEL, "stcp920"),
        (MODEL, "goya"),
        ("zfnet", "stcp920"),
        ("zfnet", "goya"),
    ]


@pytest.mark.full
def test_several_pairs_end_with_a_line_for_each_and_one_matrix(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    flags = ["--target", "stcp920", "--target", "goya", "--batch", "1", "--trials", "3"]
    ran = cli("tune", MODEL, "zfnet", *flags, "--fix", "tile_subdivision=2")
    assert ran.status == 0, ran.err
    lines = [line.rstrip() for line in ran.out.splitlines()]
    (at,) = [i for i, line in enumerate(lines) if line.startswith("model ")][:1]
    assert lines[at].split("  ")[0] == "model"
    assert lines[at].split()[-1] == "run"
    listed = cli("--json", "runs").object["runs"]
    known = {(r["model"], r["target"]): r for r in listed}
    pairs = list(itertools.product((MODEL, "zfnet"), ("stcp920", "goya")))
    for line, pair in zip(lines[at + 2 : at + 6], pairs, strict=True):
        cells = re.split(r"  +", line)
        run = known[pair]
        assert (tuple(cells[:2]), cells[-1]) == (pair, run["run"])
        assert cells[2] == duration(run["best_s"])
        assert re.fullmatch(r"\d[\d.]*x\*?", cells[3])
        assert cells[4].endswith(" %")
    told = lines[at + 6 :]
    assert [line.split("  ")[0] for line in told if line][:4] == [
        *("figures", "pinned", "next", "tuned latency and gain over the heuristic"),
    ]
    assert "pinned       by you: tile_subdivision=2" in told
    assert "next         'autoturbo show RUN' tells the rest of a pair, as -v does of all" in told
    assert not any(line.startswith(("scheduler ", "run folder ", "schedule ")) for line in lines)
    quiet = cli("tune", MODEL, "zfnet", "--batch", "1", "--trials", "1", "-q")
    assert quiet.out.startswith("model ")
    assert quiet.out.count("stcp920") == 3


@pytest.mark.full
def test_several_pairs_end_with_titled_tables_and_one_matrix_if_asked(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow_terminal(monkeypatch)
    targets = ["stcp920", "goya", "mlu100", "ascend-910", "ipu-mk2"]
    flags = [word for target in targets for word in ("--target", target)]
    ran = cli("tune", MODEL, *flags, "--batch", "1", "--trials", "1", "-v")
    lines = [line.rstrip() for line in ran.out.splitlines()]
    tables = [i for i, line in enumerate(lines) if line.startswith("scheduler ")]
    assert [lines[i - 1] for i in tables] == [f"{MODEL} @ {target}" for target in targets]
    matrix = lines[lines.index("tuned latency and gain over the heuristic") + 1 :]
    heads = [line.split() for line in matrix if line.startswith("model ")]
    assert heads == [["model", *targets[:4]], ["model", *targets[4:]]]
    assert [len(line.split()) for line in matrix if line.startswith(MODEL)] == [13, 4]
    assert max(map(len, (*matrix, *(lines[i + 1] for i in tables)))) <= 80


def test_everything_is_loaded_before_anything_is_tuned(cli: Cli) -> None:
    ran = cli("tune", MODEL, "missing.onnx", "--trials", "1")
    assert (ran.status, ran.out) == (2, "")
    assert not (cli.folder / "runs").exists()


def test_a_file_wins_over_a_workload(cli: Cli) -> None:
    cli.write(MODEL, b"\x00")
    assert cli("inspect", MODEL).status == 2


@pytest.mark.full
def test_output_file(cli: Cli) -> None:
    found = tuned(cli, "-o", "best.json")
    written = (cli.folder / "best.json").read_bytes()
    assert written == (cli.folder / found["schedule_file"]).read_bytes()
    assert [f.name for f in cli.folder.iterdir() if f.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("runs", "runs: a folder, not a file; for example runs/out.json"),
        ("none/x.json", "none/x.json: no folder 'none'; create it first"),
    ],
)
def test_output_that_cannot_be_written_is_refused_before_the_run(
    output: str, message: str, cli: Cli
) -> None:
    (cli.folder / "runs").mkdir()
    ran = cli("tune", MODEL, "--trials", "1", "-o", output)
    assert (ran.status, ran.out, ran.err) == (2, "", f"error: {message}\n")


def test_one_output_for_several_runs_is_refused(cli: Cli) -> None:
    ran = cli("tune", MODEL, "zfnet", "-o", "a.json")
    hint = "leave it out: every run folder holds its schedule.json"
    assert ran.err == f"error: -o: one file cannot hold the schedules of 2 runs; {hint}\n"


def test_an_output_that_is_there_survives_a_refused_run(cli: Cli) -> None:
    cli.write("best.json", "old")
    ran = cli("tune", MODEL, "-o", "best.json", "--target", "goya", "--dtype", "float16")
    assert ran.status == 2
    assert (cli.folder / "best.json").read_text() == "old"


@pytest.mark.full
def test_several_objectives_give_a_front(cli: Cli) -> None:
    found = tuned(cli, "--objective", "latency,ddr-bytes", "--objective", "latency", trials=49)
    assert found["front"]
    latencies = [point["latency_s"] for point in found["front"]]
    assert min(latencies) == found["best"]["latency_s"]
    text = cli("resume", found["run"]).out
    number = len(found["front"])
    which = f" (all {number} of the Pareto front)" if number > 1 else ""
    assert f"\nverified     regions, memory{which}\n" in text


def test_resume_goes_on_with_a_larger_total(cli: Cli) -> None:
    first = tuned(cli, trials=17)
    ran = cli("--json", "resume", first["run"][:6], "--trials", "33")
    assert ran.status == 0, ran.err
    again = ran.object
    assert again["run"] == first["run"]
    assert again["trials"] == 33 + 3 * 33  # it climbs as well, as a run of so many does
    assert again["best"]["latency_s"] <= first["best"]["latency_s"]


@pytest.mark.full
def test_resume_says_what_tune_said_of_the_beginning(cli: Cli) -> None:
    begun = cli("tune", MODEL, "--batch", "1", "--trials", "2").out.splitlines()
    (only,) = cli("--json", "runs").object["runs"]
    lines = cli("resume", only["run"], "--trials", "3").out.splitlines()
    said = [line for line in begun if line.startswith(("  run ", "  starts ", "  note    not "))]
    assert lines[: 1 + len(said)] == [begun[0], *said]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--db", "no/a.db"], "no/a.db: no folder 'no'; create it first"),
        (["--db", "file"], "file: not an SQLite database; give another file with --db"),
        (["--runs-folder", "file"], "--runs-folder: file is a file; name a folder"),
    ],
)
def test_places_are_checked_before_the_model_is_read(cli: Cli, flags: list[str], said: str) -> None:
    cli.write("file", b"something else")
    ran = cli("tune", "no-such-model.onnx", *flags)
    assert (ran.status, ran.out, ran.err) == (2, "", f"error: {said}\n")


@pytest.mark.full
def test_resume_writes_the_copy_anew(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tuned(cli, "-o", "best.json", trials=1)
    before = (cli.folder / "best.json").read_text()
    (cli.folder / "below").mkdir()
    monkeypatch.chdir(cli.folder / "below")
    resumed = ["--db", "../autoturbo.db", "--json", "resume", first["run"], "--trials", "17"]
    ran = cli(*resumed)
    assert ran.status == 0, ran.err
    copy = (cli.folder / "best.json").read_text()
    assert copy == (cli.folder / "below" / ran.object["schedule_file"]).read_text() != before
    again = cli(*resumed, "-o", "mine.json")
    assert again.status == 0, again.err
    assert (cli.folder / "below" / "mine.json").read_text() == copy


@pytest.mark.full
def test_resume_goes_on_where_the_copy_s_folder_is_gone(cli: Cli) -> None:
    (cli.folder / "gone").mkdir()
    first = tuned(cli, "-o", "gone/best.json", trials=1)
    shutil.rmtree(cli.folder / "gone")
    ran = cli("resume", first["run"], "--trials", "2", "-q")
    assert ran.status == 0, ran
    place = cli.folder / "gone"
    assert ran.err == (
        f"no copy is written: {place}/best.json: no folder '{place}'; create it first\n"
    )
    refused = cli("resume", first["run"], "--trials", "3", "-o", "gone/best.json")
    assert (refused.status, refused.out) == (2, "")
    assert cli("--json", "runs").object["runs"][0]["trials"] == 2


@pytest.mark.full
def test_resume_for_some_time(cli: Cli) -> None:
    first = tuned(cli, trials=1)
    ran = cli("--json", "resume", first["run"], "--time-budget", "0.3")
    assert ran.status == 0, ran.err
    assert ran.object["settings"] > 1  # the first ones may give the heuristic's schedule again
    few = cli("--json", "resume", first["run"], "--time-budget", "1h", "--trials", "1")
    assert few.object["trials"] == ran.object["trials"]


@pytest.mark.full
def test_resume_finds_the_model_from_another_folder(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autoturbo.datasets import workloads

    cli.write("net.onnx", workloads.get(MODEL).file.read_bytes())
    first = tuned(cli, model="net.onnx", trials=1)
    (cli.folder / "below").mkdir()
    monkeypatch.chdir(cli.folder / "below")
    ran = cli("--json", "--db", "../autoturbo.db", "resume", first["run"])
    assert ran.status == 0, ran.err
    assert ran.object["best"] == first["best"]


def test_resume_refuses_another_model(cli: Cli) -> None:
    from autoturbo.datasets import workloads

    cli.write("net.onnx", workloads.get(MODEL).file.read_bytes())
    first = tuned(cli, model="net.onnx", trials=1)
    cli.write("net.onnx", workloads.get("zfnet").file.read_bytes())
    ran = cli("resume", first["run"])
    assert ran.status == 2
    assert ran.err.startswith(f"error: net.onnx: run {first['run']} cannot go on: the model (")


def test_runs_and_show(cli: Cli) -> None:
    found = tuned(cli)
    listed = cli("--json", "runs").object["runs"]
    assert [run["run"] for run in listed] == [found["run"]]
    assert (listed[0]["state"], listed[0]["trials"], listed[0]["budget"]) == ("done", 17, 17)
    assert words(cli("runs"))[2][:4] == [found["run"], MODEL, "stcp920", "done"]
    shown = cli("--json", "show", found["run"][:5]).object
    assert (shown["default"], shown["best"]) == (found["default"], found["best"])
    assert sum(shown["failures"].values()) < 17
    text = cli("show", found["run"], "-v").out
    assert text.startswith(f"run {found['run']}: {MODEL} @ stcp920, batch 1, float16\ndone, 17/17")
    assert "knobs of trial" in text
    assert "\nsettings:\n" in text
    assert "\n  sampler: cost-model\n" in text


def test_runs_fit_eighty_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuned(cli, trials=1)
    with Database.open(cli.folder / "autoturbo.db") as database:
        info = dataclasses.replace(database.run(found["run"]), id=f"{found['run']}-12")
        database.add_run(dataclasses.replace(info, target="ascend-910", state="interrupted"))
    wide = cli("runs").out
    narrow_terminal(monkeypatch)
    text = cli("runs").out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.split() == wide.split()  # no word is broken
    assert found["run"] in cli("runs", "-v").out.splitlines()[-2]


def test_show_of_a_run_that_there_is_not(cli: Cli) -> None:
    tuned(cli, trials=1)
    ran = cli("show", "zzz")
    assert ran.err == "error: autoturbo.db: no run 'zzz'; 'autoturbo runs' lists them\n"


@pytest.mark.full
def test_compare_before_and_after(cli: Cli) -> None:
    before = cli("--json", "compare", MODEL, "--batch", "1")
    assert list(before.object["schedulers"])[-1] != "tuned"
    assert before.err == "no tuned schedule in the database: 'autoturbo tune' adds one\n"
    found = tuned(cli)
    after = cli("--json", "compare", MODEL, "--batch", "1").object
    assert (after["model"], after["target"]) == (MODEL, "stcp920")
    assert after["schedulers"]["tuned"] == found["best"]
    assert {*SCHEDULERS.names(), "tuned"} == set(after["schedulers"])
    latencies = [found["latency_s"] for found in after["schedulers"].values()]
    assert latencies == sorted(latencies, reverse=True)
    assert any(line[:1] == ["tuned"] for line in words(cli("compare", MODEL, "--batch", "1")))


@pytest.mark.full
def test_schedule_and_knobs_files_measure_the_same(cli: Cli) -> None:
    found = tuned(cli, "-o", "best.json")
    flags = ["--json", "simulate", MODEL, "--batch", "1"]
    by_schedule = cli(*flags, "--schedule", "best.json").object
    assert by_schedule.pop("counters")["bytes"]["ddr_read"] > 0
    assert by_schedule.pop("scheduler") == "schedule"
    for told in ("known_error", "latency_range"):
        assert by_schedule.pop(told) == found[told]
    assert by_schedule == found["best"]
    knobs = cli("--json", "show", found["run"]).object["knobs"]
    cli.write("knobs.json", json.dumps(knobs))
    by_knobs = cli(*flags, "--knobs", "knobs.json").object
    assert by_knobs.pop("counters")["busy_s"]["matrix"] > 0
    assert by_knobs.pop("scheduler") == "knobs"
    for told in ("known_error", "latency_range"):
        assert by_knobs.pop(told) == found[told]
    assert by_knobs == found["best"]


@pytest.mark.full
def test_database_commands(cli: Cli) -> None:
    found = tuned(cli)
    listed = cli("--json", "db", "list").object
    assert listed["counts"]["trials"] == found["settings"] >= found["trials"] == 17
    assert listed["best"][0]["best"] == found["best"]
    assert cli("db", "list").out.startswith(
        f"autoturbo.db: 1 run, {found['settings']} trials, 1 best schedule\n"
    )
    exported = cli("--json", "db", "export", "all.jsonl").object
    assert exported["counts"] == listed["counts"]
    imported = cli("--json", "--db", "copy.db", "db", "import", "all.jsonl").object
    assert imported["changed"] == listed["counts"]
    assert cli("--json", "--db", "copy.db", "db", "list").object == listed
    again = cli("--db", "copy.db", "db", "import", "all.jsonl")
    assert again.out.endswith("new or better: 0 runs, 0 trials, 0 best schedules\n")


def test_database_best(cli: Cli) -> None:
    found = tuned(cli)
    by_name = cli("--json", "db", "best", "--model", MODEL, "--target", "stcp920").object
    assert [best["run"] for best in by_name["best"]] == [found["run"]]
    assert words(cli("db", "best"))[2][0] == MODEL
    missed = cli("db", "best", "--model", "zfnet")
    assert missed.status == 1
    assert f"no best schedule of zfnet; there is one of {MODEL}" in missed.err
    cli("db", "best", "--model", MODEL, "-o", "best.json")
    assert (cli.folder / "best.json").read_bytes() == Path(found["schedule_file"]).read_bytes()
    ran = cli("db", "best", "--model", "zfnet", "-o", "none.json")
    assert (ran.status, (cli.folder / "none.json").exists()) == (1, False)


@pytest.mark.full
def test_database_best_by_what_is_in_the_files(cli: Cli) -> None:
    from autoturbo.datasets import workloads

    found = tuned(cli)
    cli.write("renamed.onnx", workloads.get(MODEL).file.read_bytes())
    cli.write("mine.yaml", cli("targets", "show", "stcp920").out)
    flags = ["--model", "renamed.onnx", "--batch", "1", "--target", "mine.yaml"]
    best = cli("--json", "db", "best", *flags).object["best"]
    assert [b["run"] for b in best] == [found["run"]]
    assert cli("--json", "db", "best", "--target", "goya").object["best"] == []


def test_a_target_that_nothing_fits(cli: Cli) -> None:
    text = cli("targets", "show", "stcp920").out
    cli.write("tiny.yaml", re.sub(r"capacity_gib: [\d.]+", "capacity_gib: 0.001", text))
    ran = cli("tune", MODEL, "--target", "tiny.yaml", "--trials", "2", "-q")
    assert ran.status == 3, ran
    assert ran.err.startswith(f"error: {MODEL} on stcp920: none of 2 settings fits: ")
    assert ran.err.count("\n") == 1
    assert ran.out == ""
    one = cli("--json", "simulate", MODEL, "--target", "tiny.yaml")
    assert (one.status, one.object["error"]["kind"]) == (3, "infeasible")


def progress(done: int, remaining: float | None = 5.0) -> Progress:
    return Progress("m", "t", done, 10, 2e-3, 4e-3, 3, 0.5, 2.0, 100, {"LB": 1}, 5.0, remaining)


def test_standing_of_progress() -> None:
    assert standing_of(progress(5)) == RunStatus(
        *("m", "t", 5, 10, 2e-3, 3, 4e-3, 0.5, 2.0, 100, {"LB": 1}, 5.0, 10.0)
    )
    assert standing_of(progress(5, None)).expected is None


def test_without_a_terminal_one_line_each_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with LiveLine(Console(), lambda: now) as line:
        for second in range(0, 35, 3):
            now = float(second)
            line(progress(second))
    lines = capsys.readouterr().err.splitlines()
    assert [text.split(" | ")[1] for text in lines] == [
        "########## 12/10 trials", "########## 24/10 trials",
    ]  # fmt: skip
    assert lines[0].startswith("m @ t | ########## 12/10 trials | best 2.00 ms, 2.00x vs heuristic")
    assert " | 0:05, ~0:05 left | " in lines[0]


@pytest.mark.parametrize("console", [Console(progress=False), Console(verbosity=-1)])
def test_no_live_line(console: Console, capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(0, 1000, 50))
    with LiveLine(console, lambda: float(next(times))) as line:
        line(progress(1))
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_line_is_redrawn_and_goes_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with LiveLine(Console()) as line:
        line(progress(1))
        line(progress(2))
    err = capsys.readouterr().err
    assert "m @ t | ##........ 2/10 trials | best 2.00 ms" in err
    assert "\x1b[2K" in err


def frames(err: str) -> list[list[str]]:
    """What stood on the terminal, one drawing after the other."""
    drawn = re.split(r"(?:\x1b\[1A)?\x1b\[2K", err)
    text = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", one).replace("\r", "") for one in drawn]
    return [one.splitlines() for one in text if one.strip()]


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_on_a_terminal_every_pair_has_a_line(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that have ended keep theirs; where lines are few, the last sums up who waits."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "4")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with LiveLine(Console()) as line:
        for target in "tuvw":
            line.expect("m", target)
        line(dataclasses.replace(progress(0), best_latency=None, phase="planning"))
        line(dataclasses.replace(progress(2), target="u"))
        line(dataclasses.replace(progress(10), ended=True))
        line(dataclasses.replace(progress(3), target="u"))
    *_, last = frames(capsys.readouterr().err)
    assert max(map(len, last)) <= columns
    assert [shown.split(" | ")[0] for shown in last] == [
        "m @ t",
        "m @ u",
        "2 more pairs: 2 waiting",
    ]
    assert "| ########## 10/10 " in last[0]
    assert last[0].split(" | ")[3].strip() == "0:05, done"
    assert "| ###....... 3/10" in last[1]
    assert "~0:05 left" in last[1]


def test_piped_every_pair_is_told_of_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with LiveLine(Console(), lambda: now) as line:
        line.expect("m", "t")
        line.expect("m", "u")
        for second, target in ((11, "t"), (22, "u")):
            now = float(second)
            line(dataclasses.replace(progress(5), target=target))
    lines = capsys.readouterr().err.splitlines()
    assert [text.split(" | ")[0] for text in lines] == ["m @ t", "m @ u"]


def test_while_code_is_compiled_the_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = compiled_later(3, monkeypatch)
    now = 0.0
    with LiveLine(Console(), lambda: now):
        for value, function in enumerate(functions):
            now += 11
            function(value)
            function(value)
    shown = capsys.readouterr().err.splitlines()
    pattern = r"compiling (\d+) of (\d+) functions, once per installation, about \d+ s"
    counts = [(int(a), int(b)) for a, b in re.findall(pattern, "\n".join(shown))]
    assert [done for done, _ in counts] == [0, 1, 2]
    assert len(shown) == 3
    assert counts[0][1] >= 3


@pytest.mark.parametrize("flags", [[], ["--json"], ["-q"], ["--no-progress"]])
def test_every_command_says_that_it_compiles(
    flags: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error alone."""
    (function,) = compiled_later(1, monkeypatch)

    def run(*_: object) -> int:
        return int(function(0))

    monkeypatch.setattr("autoturbo.commands.upkeep.schema.run", run)
    monkeypatch.setattr("autoturbo.commands.console.EVERY_S", 0.0)
    ran = cli("schema", *flags)
    assert (ran.status, ran.out) == (0, "")
    assert ran.err.startswith("compiling 0 of ") != bool({"-q", "--no-progress"} & set(flags))


def test_what_cannot_be_kept_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = compiled_later(2, monkeypatch)
    monkeypatch.setattr("autoturbo.compiled.kept_in", lambda: None)
    monkeypatch.setattr("autoturbo.commands.console.EVERY_S", 0.0)
    with LiveLine(Console()), LiveLine(Console()):
        for function in functions:
            function(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(", every time anew, about " in line for line in lines)


def test_on_a_terminal_the_line_goes_away_when_all_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed afterwards stands in its place; a run's own line takes the outer one's."""
    (first, second) = compiled_later(2, monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with LiveLine(Console()):
        first(0)
        sys.stderr.write("done\n")
        with LiveLine(Console()):
            second(0)
    line, rest = capsys.readouterr().err.split("done\n")
    for shown in (line, rest):
        assert "functions, once per installation, about" in shown
        assert shown.endswith("\x1b[2K")


def test_the_header_comes_before_anything_is_measured(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring compiles, which takes a minute or more on a fresh installation."""

    def measured(*_: object) -> float:
        raise UsageError("measured")

    monkeypatch.setattr("autoturbo.commands.tuning.space.seconds_per_trial", measured)
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "1")
    assert ran.err == "error: measured\n"
    assert [line[:10].strip() for line in ran.out.splitlines()[1:4]] == [
        "model", "target", "search",
    ]  # fmt: skip


def test_several_runs_are_expected_to_take_what_each_does_together(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoturbo.commands.tuning.tune.expected_seconds", lambda *_: (40.0, 1))
    words = ("tune", MODEL, "--batch", "1", "--trials", "1", "--no-warm-starts")
    lines = cli(*words, "--seeds", "2").out.splitlines()
    assert "  time    about 0:40 for each seed" in lines
    assert "time: about 1:20 for all 2 runs" in lines
    assert not any("for all" in line for line in cli(*words).out.splitlines())


def test_an_interrupted_run_says_how_to_go_on(cli: Cli) -> None:
    from autoturbo.commands.loading import load_model
    from autoturbo.hardware import load_target
    from autoturbo.tuning.tuner import tune

    model = load_model(MODEL, batch=1)
    result = tune(model, load_target("stcp920"), trials=1, database=cli.folder / "x y.db")
    stopped: TuneResult = dataclasses.replace(result, state="interrupted")
    with pytest.raises(InterruptedRunError) as raised:
        finish([stopped], Console(verbosity=-1), "x y.db")
    command = f"autoturbo resume {result.run} --db 'x y.db'"
    assert raised.value.hint == f"go on with '{command}'"


def test_what_resumes_a_run_is_said_before_anything_is_measured(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object) -> None:
        raise ExecutorError("nothing can be measured")

    monkeypatch.setattr("autoturbo.tuning.tuner.carry_out", power_cut)
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "2", "--db", "of it.db")
    (run,) = (one["run"] for one in cli("--json", "runs", "--db", "of it.db").object["runs"])
    goes_on = f"autoturbo resume {run} --db 'of it.db'"
    assert ran.err.splitlines()[0] == f"run {run}: if it ends early, go on with: {goes_on}"
    assert "error: nothing can be measured" in ran.err


@pytest.mark.full
@pytest.mark.ray
def test_workers_make_no_difference(cli: Cli) -> None:
    texts = []
    for number, where in enumerate(([], ["--jobs", "2"], ["--ray"])):
        flags = [*where, "--db", f"{number}.db", "--runs-folder", f"runs{number}"]
        texts.append(Path(tuned(cli, *flags)["schedule_file"]).read_bytes())
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.ray
def test_an_unreachable_ray_address(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "1", "-q", "--ray", "127.0.0.1:1")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error: no Ray cluster answers at 127.0.0.1:1: ")
    assert ran.err.count("\n") == 1
    assert list(cli.folder.iterdir()) == []  # neither a run nor a database


@pytest.mark.full
def test_a_run_stays_as_it_is_where_ray_does_not_answer(cli: Cli) -> None:
    run = tuned(cli, trials=2)["run"]
    ran = cli("resume", run, "-q", "--trials", "4", "--ray", "127.0.0.1:1")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    (info,) = cli("--json", "runs").object["runs"]
    assert (info["state"], info["trials"]) == ("done", 2)


@pytest.mark.parametrize(
    ("how", "flags"),
    [
        ({}, ""),
        ({"ray": "10.0.0.1:6379"}, " --ray 10.0.0.1:6379"),
        (
            {"ray": "local", "jobs": 3, "ray_resource": "big board"},
            " --ray local --jobs 3 --ray-resource 'big board'",
        ),
    ],
)
def test_whoever_loses_the_workers_is_told_what_goes_on(
    tmp_path: Path, how: dict[str, Any], flags: str
) -> None:
    failing = ExecutorError("no worker is left", hint="start another")
    with (
        Database.open(tmp_path / "a b.db") as store,
        pytest.raises(ExecutorError) as raised,
        resumable(store, ["4f1c", "5ee3"], ExecutionConfig(**how)),
    ):
        raise failing
    goes_on = f"autoturbo resume 4f1c --all{flags} --db '{tmp_path}/a b.db'"
    assert raised.value.hint == f"start another, then go on with '{goes_on}'"


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A run in another process whose first trial is measured."""
    command = [sys.executable, "-m", "autoturbo", "tune", *arguments]
    process = processes.started(command, cwd=folder)
    deadline = time.monotonic() + HANG_S
    while process.poll() is None and time.monotonic() < deadline:
        if list(folder.glob("runs/*/log.txt")):
            break
        time.sleep(0.05)
    return process


@pytest.mark.full
def test_ctrl_c_saves_and_ends_with_130(tmp_path: Path) -> None:
    process = started(tmp_path, MODEL, "--trials", "100000")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, err
    assert "interrupted after" in err
    assert "go on with 'autoturbo resume " in err
    assert "Traceback" not in err


@pytest.mark.full
def test_after_kill_9_resume_ends_as_if_nothing_had_been(cli: Cli) -> None:
    arguments = [MODEL, "--batch", "1", "--trials", "65"]
    process = started(cli.folder, *arguments)
    process.kill()
    process.communicate(timeout=HANG_S)
    (run,) = cli("--json", "runs").object["runs"]
    assert run["state"] == "killed"
    resumed = cli("--json", "resume", run["run"]).object
    whole = cli("--json", "tune", *arguments, "--db", "whole.db", "--runs-folder", "w").object
    assert (resumed["trials"], resumed["best"]) == (whole["trials"], whole["best"])
    texts = [Path(result["schedule_file"]).read_bytes() for result in (resumed, whole)]
    assert texts[0] == texts[1]


@pytest.mark.full
def test_every_command_states_the_error_of_kernels_as_short(cli: Cli) -> None:
    known = Calibration(
        0.1, 20, "board.csv", regime=1.0, error_below=0.3, error_above=0.05, rows_below=10
    )
    target = dataclasses.replace(load_target("stcp920"), name="compared", calibration=known)
    cli.write("compared.yaml", json.dumps(target.as_dict()))
    words = ("alexnet", "--batch", "1", "--trials", "2", "--target", "compared.yaml")
    ran = cli("tune", *words)
    run = of_run(cli)
    for said in (ran, cli("show", run), cli("explain", run, "--no-what-if")):
        assert "known error of 30 %" in said.out


def of_run(cli: Cli) -> str:
    """The only run."""
    (run,) = cli("--json", "runs").object["runs"]
    return str(run["run"])


@pytest.mark.full
def test_gains_below_the_known_error_are_marked(cli: Cli) -> None:
    stcp920 = load_target("stcp920")
    for percent in (1, 900):
        target = dataclasses.replace(
            stcp920,
            name=f"off-by-{percent}",
            calibration=Calibration(percent / 100, 20, "board.csv"),
        )
        cli.write(f"{percent}.yaml", json.dumps(target.as_dict()))
    two = ("--target", "1.yaml", "--target", "900.yaml")
    ran = cli("tune", "alexnet", "--batch", "1", "--trials", "6", *two)
    assert "figures      off-by-1: simulated; known error of 1 %\n" in ran.out
    assert "figures      off-by-900: simulated; known error of 900 %\n" in ran.out
    assert re.search(r"alexnet +off-by-900 .* \d\.\d\dx\* ", ran.out)
    assert re.search(r"alexnet .* \d\.\d\dx .* \d\.\d\dx\*", ran.out)
    assert "*: gain below the known error of the simulation of that target" in ran.out
    both = cli("--json", "tune", "alexnet", "--batch", "1", "--trials", "2", *two).objects
    assert [one["known_error"] for one in both] == [0.01, 9]


@pytest.mark.full
def test_the_known_error_is_that_of_kernels_as_long(cli: Cli) -> None:
    """A mean launch of its kernels is the same whatever the regime, so one file calls it short."""
    known = Calibration(0.06, 20, "board.csv", error_below=0.5, error_above=0.05, rows_below=4)
    for name, regime in (("low", 1e-7), ("high", 0.1)):
        calibration = dataclasses.replace(known, regime=regime)
        target = dataclasses.replace(load_target("stcp920"), name=name, calibration=calibration)
        cli.write(f"{name}.yaml", json.dumps(target.as_dict()))
    two = ("--target", "low.yaml", "--target", "high.yaml")
    both = cli("--json", "tune", MODEL, "--batch", "1", "--trials", "1", *two).objects
    assert [one["known_error"] for one in both] == [0.05, 0.5]


@pytest.mark.full
def test_several_seeds_are_told_together(cli: Cli) -> None:
    ran = cli("tune", MODEL, "--batch", "1", "--trials", "4", "--seeds", "3", "--seed", "7")
    assert ran.status == 0, ran.err
    (told,) = [line for line in ran.out.splitlines() if line.startswith("seeds ")]
    assert " in the mean, " in told
    assert told.startswith("seeds        3: ")
    assert " at 95 % confidence; the best is of seed " in told
    assert [f"seed {seed}: " in ran.out for seed in (6, 7, 8, 9, 10)] == [False, *[True] * 3, False]
    refused = cli("tune", MODEL, "--target", "host", "--seeds", "2")
    assert "--seeds: means nothing for --target host" in refused.err
