"""The library's functions: what they take as models, targets and options, and what they refuse."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import onnx
import pytest

import autoturbo
from autoturbo.commands.schedules.simulate import Simulation
from autoturbo.config import ExecutionConfig, ExecutionOptions, options_of
from autoturbo.datasets import workloads
from autoturbo.errors import ModelError, ScheduleFileError, TargetError, UsageError
from autoturbo.hardware import load_target
from autoturbo.library.given import as_model, as_target
from autoturbo.report.trials import TrialTable
from autoturbo.schedule.knobs import SubGraphKnobs
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Failure
from autoturbo.tuning.result import TuneResult

FILE = workloads.get("squeezenet1_1").file


class Network:
    """Stands in for a network of PyTorch."""

    def eval(self) -> Network:
        return self


def with_torch(monkeypatch: pytest.MonkeyPatch, export: Callable[..., None]) -> None:
    """Let a module stand in for PyTorch, which the tests do without."""
    onnx_part = SimpleNamespace(export=export)
    torch = SimpleNamespace(nn=SimpleNamespace(Module=Network), onnx=onnx_part)
    monkeypatch.setitem(sys.modules, "torch", torch)


def copied(_: Network, given: tuple[object, ...], file: str) -> None:
    assert given == ("image",)
    Path(file).write_bytes(FILE.read_bytes())


MODELS: dict[str, Callable[[], Any]] = {
    "a name": lambda: "squeezenet1_1",
    "a path": lambda: FILE,
    "a text of a path": lambda: str(FILE),
    "bytes": FILE.read_bytes,
    "a file": lambda: io.BytesIO(FILE.read_bytes()),
    "an ONNX model": lambda: onnx.load(FILE, load_external_data=False),
    "a network of PyTorch": Network,
}


@pytest.mark.parametrize("kind", MODELS)
def test_all_kinds_of_models_are_the_same_model(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch(monkeypatch, copied)
    found = as_model(MODELS[kind](), "image", batch=2)
    wanted = autoturbo.load_model("squeezenet1_1", batch=2)
    assert (found.tensors, found.operators, found.batch) == (wanted.tensors, wanted.operators, 2)
    assert as_model(found) is found


def test_a_search_from_names_and_texts_is_that_of_what_they_stand_for() -> None:
    model, target = autoturbo.load_model("squeezenet1_1", batch=1), load_target("mlu100")
    known = autoturbo.tune(model, target, trials=2, seed=1, warm_starts=False)
    found = autoturbo.tune(
        "squeezenet1_1",
        "mlu100",
        batch=1,
        trials=2,
        seed=1,
        warm_starts=False,
        time_budget="1h",
        bound_gap="0.1 %",
    )
    assert found.best.measurement == known.best.measurement
    assert found.info.settings["model_batch"] == 1
    assert found.info.asked["time_budget"] == 3600.0
    assert found.info.asked["bound_gap"] == 0.001


def refused(**arguments: Any) -> str:
    model, target = arguments.pop("model", "squeezenet1_1"), arguments.pop("target", "mlu100")
    with pytest.raises((UsageError, TargetError, ModelError)) as caught:
        autoturbo.tune(model, target, **arguments)
    return str(caught.value)


def failing(*_: object) -> None:
    raise RuntimeError("an operator of no version\nand more")


def test_what_is_refused_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(trails=3)
    assert said == "tune has no argument 'trails'; did you mean 'trials'?"
    assert refused(trials=2.5) == "trials: 2.5 is not a whole number"
    assert "is not a duration" in refused(time_budget="soon")
    assert "timeout: 0 is not above 0" in refused(timeout=0)
    assert "mlu100" in refused(target="mlu10")
    assert refused(model=3).startswith("int objects are no models; a path, a workload's name")
    assert "open it with 'rb'" in refused(model=io.StringIO("text"))
    graph = autoturbo.load_model("squeezenet1_1")
    assert "has its extents already" in refused(model=graph, batch=4)
    with_torch(monkeypatch, failing)
    assert "needs example inputs" in refused(model=Network())
    said = refused(model=Network(), inputs="image")
    assert said.startswith("torch.onnx.export: RuntimeError: an operator of no version; ")
    assert "\n" not in said


def test_names_from_before_are_still_taken() -> None:
    assert "timeout: 0 is not above 0" in refused(timeout_s=0)


LOOKS = ["simulate", "verify", "explain", "compare", "inspect"]


@pytest.mark.parametrize("name", LOOKS)
def test_functions_that_look_take_names_and_refuse_in_one_line(name: str) -> None:
    function = getattr(autoturbo, name)
    assert repr(function("squeezenet1_1", "mlu100", batch=4)).startswith("<")
    with pytest.raises(UsageError, match="'bacht'"):
        function("squeezenet1_1", bacht=4)
    with pytest.raises(UsageError) as caught:
        function("squeezenet1_1", "mlu100", dtype="int3")
    assert caught.value.at.field == "dtype"
    with pytest.raises(UsageError):
        function(3)


def settings_of(simulation: Simulation, folder: Path) -> dict[str, Any]:
    """The setting of a simulation by knobs in all forms that are taken."""
    knobs, schedule = simulation.schedule.knobs, folder / "schedule.json"
    simulation.schedule.save(schedule)
    (folder / "knobs.json").write_text(json.dumps(knobs.as_dict()))
    return {
        "knobs": knobs, "a mapping": knobs.as_dict(), "a schedule": simulation.schedule,
        "a schedule file": schedule, "a knobs file": str(folder / "knobs.json"),
    }  # fmt: skip


@pytest.mark.full
def test_a_setting_is_the_same_in_all_forms(tmp_path: Path) -> None:
    pair = "squeezenet1_1", "mlu100"
    first = autoturbo.simulate(*pair, {"prefetch_depth": 3})
    assert first.latency == first.measurement.latency != autoturbo.simulate(*pair).latency
    assert autoturbo.simulate(*pair, "tvm").latency > first.latency
    for setting in settings_of(first, tmp_path).values():
        assert autoturbo.simulate(*pair, setting).measurement == first.measurement
        assert autoturbo.verify(*pair, setting, numbers=False).ok
        assert autoturbo.explain(*pair, setting, what_if=False).bounds.shares.latency == (
            first.latency
        )


def test_a_setting_that_is_none_is_refused() -> None:
    pair = "squeezenet1_1", "mlu100"
    with pytest.raises(UsageError, match="'tmv'"):
        autoturbo.simulate(*pair, "tmv")
    with pytest.raises(UsageError):
        autoturbo.simulate(*pair, 3)  # type: ignore[arg-type]
    schedule = autoturbo.simulate(*pair).schedule
    with pytest.raises(ScheduleFileError) as caught:
        autoturbo.simulate("squeezenet1_1", "stcp920", schedule)
    assert caught.value.at.field == "target.hash"


def test_numbers_are_compared_where_onnx_runtime_is_installed() -> None:
    pytest.importorskip("onnxruntime")
    found = autoturbo.verify("squeezenet1_1", "mlu100", batch=2)
    assert repr(found) == "<Verification: regions ok, memory ok, numbers ok>"


def test_targets_are_inspected_alone_together_or_all() -> None:
    one = autoturbo.inspect("squeezenet1_1", load_target("mlu100"))
    two = autoturbo.inspect("squeezenet1_1", ["mlu100", "stcp920"])
    every = autoturbo.inspect("squeezenet1_1", dtype="int8")
    assert list(one.bounds) == ["mlu100"]
    assert list(two.bounds) == ["mlu100", "stcp920"]
    assert "goya" in every.bounds
    assert set(every.dtypes.values()) == {"int8"}
    assert one.facts["macs"] == two.model.macs


@pytest.mark.parametrize("name", ["tune", "resume", "sweep"])
def test_signatures_show_what_a_user_may_set(name: str) -> None:
    function = getattr(autoturbo, name)
    shown = inspect.signature(function).parameters
    plumbing = options_of(ExecutionConfig).keys() - options_of(ExecutionOptions).keys()
    assert plumbing == {"evaluator", "verifier", "began"}
    assert not shown.keys() & {*plumbing, "settings", "timeout_s"}
    assert {"trials", "time_budget", "timeout", "on_progress"} <= shown.keys()


def test_targets_are_names_paths_or_loaded(tmp_path: Path) -> None:
    target = load_target("mlu100")
    assert as_target("mlu100") == target
    assert as_target(target) is target
    with pytest.raises(TargetError):
        as_target(tmp_path / "none.yaml")


@pytest.fixture(scope="module")
def result() -> TuneResult:
    return autoturbo.tune("squeezenet1_1", "mlu100", trials=3, warm_starts=False)


def test_what_is_printed_at_a_prompt_fits_a_line(result: TuneResult) -> None:
    model, target = autoturbo.load_model("resnet18", batch=4), load_target("stcp920")
    for value in (model, target, result, result.best.measurement, result.best.knobs):
        assert "\n" not in repr(value)
        assert len(repr(value)) < 160
    own = SubGraphKnobs("a", factor=2)
    knobs = autoturbo.Knobs(prefetch_depth=3, overrides=(own,))
    assert repr(knobs) == "Knobs(prefetch_depth=3, overrides: 1)"
    assert repr(autoturbo.Knobs()) == "Knobs()"


def test_trials_are_a_table(result: TuneResult) -> None:
    pandas = pytest.importorskip("pandas")
    trials = result.trials
    assert [trial.number for trial in trials] == list(range(result.settings))
    assert len({id(trial) for trial in trials}) >= result.measured == 3
    frame = trials.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.latency_s[result.best.trial] == result.best.measurement.latency
    assert list(frame.columns) == [
        "latency_s", "ddr_bytes", "energy_j", "predicted_s", "failure", "knobs",
    ]  # fmt: skip
    assert 0.5 < (frame.predicted_s / frame.latency_s).median() < 2
    assert trials.to_frame(predicted=False).predicted_s.isna().all()
    assert repr(trials) == f"<TrialTable: {len(trials)} trials, 0 failed>"
    assert trials.view().rows[0][0] == str(result.best.trial)


def test_a_failed_trial_says_why() -> None:
    trials = TrialTable.of([Trial(0, autoturbo.Knobs(), Failure("lb", "does not fit"))])
    (row,) = trials.rows()
    assert (row["failure"], row["latency_s"], row["predicted_s"]) == ("does not fit", None, None)
    assert trials.view().title == "1 trials, 1 failed, the fastest 0"


def test_without_pandas_rows_are_named(result: TuneResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError):
        result.trials.to_frame()


RUN_PLOTS = ["convergence", "speed", "timeline", "breakdown", "roofline"]


@pytest.mark.parametrize("kind", RUN_PLOTS)
def test_a_run_has_the_charts_of_its_report(kind: str, result: TuneResult, tmp_path: Path) -> None:
    plot = result.plot(kind)
    assert repr(plot) == f"<Plot: {kind} of squeezenet1_1 @ mlu100, run {result.run}>"
    plot.save(tmp_path / "plot.svg", 400)
    drawn = ET.parse(tmp_path / "plot.svg")  # noqa: S314  our own
    assert 400 < int(drawn.getroot().attrib["width"]) < 600
    text = " ".join(part for part in drawn.getroot().itertext() if part.strip())
    titles = {
        "convergence": "times as fast as the heuristic", "speed": "samples per second",
        "timeline": "microseconds", "breakdown": "share of its own time",
        "roofline": "multiply-accumulates per byte of DDR",
    }  # fmt: skip
    assert titles[kind] in text
    if kind in ("speed", "breakdown", "roofline"):
        assert "heuristic" in text
        assert "tuned" in text
    assert "var(" not in plot.svg()


def test_plots_are_written_as_pictures_or_refused(result: TuneResult, tmp_path: Path) -> None:
    result.plot().save(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError) as caught:
        result.plot().save(tmp_path / "plot.pdf")
    assert caught.value.at.file == tmp_path / "plot.pdf"
    with pytest.raises(UsageError):
        result.plot("convergense")
    with pytest.raises(UsageError):
        autoturbo.simulate("squeezenet1_1", "mlu100").plot("speed")


def test_a_simulation_is_drawn_with_a_legend_that_fits() -> None:
    drawn = autoturbo.simulate("squeezenet1_1", "mlu100").plot("breakdown").svg(200)
    height = int(drawn.partition('height="')[2].partition('"')[0])
    below = [int(y) for y in re.findall(r'<text x="[\d.]+" y="(\d+)" fill', drawn)]
    assert len(set(below)) > 1  # more than one line of so narrow a picture
    assert max(below) < height


def test_a_notebook_shows_a_result_with_its_picture(
    result: TuneResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "<svg" in result._repr_html_()
    assert "<table" in result._repr_html_()
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert "<svg" not in result._repr_html_()
    assert "<table" in result._repr_html_()


def test_the_logger_gets_what_the_runs_log_gets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="autoturbo"):
        found = autoturbo.tune("squeezenet1_1", "mlu100", trials=1, warm_starts=False)
    lines = (found.run_folder / "log.txt").read_text().splitlines()
    said = [record.getMessage() for record in caplog.records if record.name == "autoturbo"]
    folder = found.run_folder.name
    assert said == [f"{folder}: {line.partition(' ')[2]}" for line in lines]
    assert said


def test_a_run_is_explained_with_its_knobs(result: TuneResult) -> None:
    found = autoturbo.explain(result, what_if=False)
    assert found.bounds.shares.latency == result.best.measurement.latency
    assert found.importance is not None
    assert found.importance.measured == result.measured
    assert repr(found).startswith(f"<Explanation of squeezenet1_1 @ mlu100, run {result.run}: bou")


def test_a_result_can_be_pickled(result: TuneResult) -> None:
    again = pickle.loads(pickle.dumps(result))  # noqa: S301  our own
    assert again.best.measurement == result.best.measurement
    assert again.trials.rows() == result.trials.rows()
    assert again.best.schedule.text == result.best.schedule.text
    assert [t.value for t in again.study.trials] == [t.value for t in result.study.trials]
    assert pickle.loads(pickle.dumps(again)).study.best_value == again.study.best_value  # noqa: S301


def test_progress_is_shown_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    autoturbo.tune("squeezenet1_1", "mlu100", trials=1, warm_starts=False)
    assert capsys.readouterr().err == ""
    seen: list[object] = []
    autoturbo.tune(
        "squeezenet1_1",
        "mlu100",
        trials=1,
        warm_starts=False,
        progress=True,
        on_progress=seen.append,
    )
    assert seen
