"""``tune --target host`` and ``bench``, on small models, measured for real."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import autoturbo
from autoturbo.errors import ScheduleFileError
from autoturbo.host import compare
from autoturbo.host.cpu import this_cpu
from autoturbo.host.files import HostSchedule
from autoturbo.host.search import HostSearch
from tests.cli.command_line import Cli, cli_in
from tests.host.host_samples import residual, save

TUNE = ("tune", "residual.onnx", "--target", "host", "--trials", "3")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A folder with a model; comparisons are short, for no figure is looked at."""
    monkeypatch.setattr(compare, "LEAST_ROUNDS", 6)
    monkeypatch.setattr(compare, "MOST_ROUNDS", 6)
    monkeypatch.setattr(compare, "_SHORT_S", 0.001)
    residual(tmp_path)
    return cli_in(tmp_path, monkeypatch)


def schedule_of(cli: Cli) -> Path:
    (file,) = cli.folder.glob("runs/residual-host-*/schedule.json")
    return file


def test_from_a_model_to_batches(cli: Cli) -> None:
    ran = cli(*TUNE, "-o", "mine.json")
    assert ran.status == 0, ran.err
    for word in ("whole batch", "best loop", "tuned", "noise", "handed out", "verified"):
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


def test_a_run_is_found_by_id_folder_and_file(cli: Cli) -> None:
    run = cli("--json", *TUNE).object["run"]
    file = schedule_of(cli)
    for name in (run, run[:4], file.parent, file):
        ran = cli("--json", "bench", name)
        assert ran.status == 0, ran.err
        assert ran.object["gains"].keys() < {"whole batch", "best loop", "tuned"}
        assert ran.object["rounds"] == 6
    (cli.folder / "residual.onnx").rename(cli.folder / "moved.onnx")
    assert cli("bench", run).status == 2
    assert cli("bench", run, "--model", "moved.onnx").status == 0


def test_the_same_command_goes_on_where_it_stopped(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = HostSearch._search

    def stopped(self: HostSearch) -> None:
        self.trials = 2
        search(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostSearch, "_search", stopped)
        ran = cli(*TUNE)
    assert ran.status == 130
    assert "the same command goes on" in ran.err
    (journal,) = cli.folder.glob("runs/*/measurements.jsonl")
    before = journal.read_text()
    journal.write_text(before + '{"plan": {"subgr')  # what a kill leaves
    assert cli(*TUNE).status == 0
    again = journal.read_text().removeprefix(before).partition("\n")[2].splitlines()

    def plans(lines: list[str]) -> Counter[str]:
        return Counter(json.dumps(json.loads(line)["plan"]) for line in lines)

    compared = {json.dumps(p) for p in json.loads(schedule_of(cli).read_text())["plans"].values()}
    known = set(plans(before.splitlines()))
    races = 4 * 4  # of the best plans, a few rounds
    repeated = {plan: n for plan, n in plans(again).items() if plan in known - compared}
    assert sum(repeated.values()) <= 2 * races
    assert not [plan for plan in repeated if len(json.loads(plan)["subgraphs"]) == 1 and
                json.loads(plan)["subgraphs"][0]["stop"] < 6]  # fmt: skip


def test_a_model_that_cannot_be_divided_is_no_error(cli: Cli) -> None:
    mixed = [helper.make_node("Softmax", ["x"], ["y"], axis=0)]
    save(cli.folder / "mixed.onnx", mixed, [4, 3], [4, 3])
    ran = cli("--json", "tune", "mixed.onnx", "--target", "host")
    assert ran.status == 0, ran.err
    line = ran.object
    assert line["chosen"] == "whole batch"
    assert line["trials"] == 0
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

    def broken(change: dict[str, object], message: str) -> None:
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(ScheduleFileError, match=message) as caught:
            autoturbo.load_runner(file)
        assert caught.value.at.file == file
        assert caught.value.at.field

    broken({"schema_version": 2}, "version")
    broken({"chosen": "another"}, "another")
    broken({"model": {**good["model"], "hash": "0"}}, "another model")
    broken({"plans": {}}, "are not whole batch")
    plan = good["plans"]["tuned"]
    short = {**plan, "subgraphs": plan["subgraphs"][:0]}
    broken({"plans": {**good["plans"], "tuned": short}}, "every operator once")
    file.write_text(json.dumps(good))
    assert json.loads(HostSchedule.read(file).text) == good
    with pytest.raises(ScheduleFileError, match=r"its model is not there: none.onnx"):
        autoturbo.load_runner(file, "none.onnx")


def test_without_the_runtime_it_says_how_to_get_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    ran = cli(*TUNE)
    assert ran.status == 1
    assert "pip install 'autoturbo[verify]'" in ran.err


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
