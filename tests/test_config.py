"""Every option of a run is reachable from everywhere, recorded and hashed by its field alone."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import inspect
import itertools
import json
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import reference_pages

import autoturbo
from autoturbo.commands.config_flags import config_of
from autoturbo.commands.parser import parse
from autoturbo.commands.pin_flags import READERS
from autoturbo.commands.registry import build_parser
from autoturbo.config import (
    ExecutionConfig,
    ExecutionOptions,
    ResumeConfig,
    SweepConfig,
    TuneConfig,
    config_schema,
    flag_of,
    option_of,
    options_of,
)
from autoturbo.database import Database, RunInfo
from autoturbo.errors import UsageError
from autoturbo.hardware import load_target
from autoturbo.registry import COST_MODEL, MEASURERS, PROGRAM, SIMULATOR
from autoturbo.tuning import sweeping, tuner
from tests.schedule.schedule_samples import chain
from tests.search.search_doubles import landscape, toy_graph, toy_target
from tests.tiers import spread

BOTH = {**options_of(TuneConfig), **options_of(ExecutionConfig)}
COMMANDS: dict[str, tuple[type, list[str]]] = {
    "tune": (TuneConfig, ["model"]),
    "sweep": (SweepConfig, ["model"]),
    "resume": (ResumeConfig, ["run"]),
}
CASES = [
    (command, config, name)
    for command, (tuned, _) in COMMANDS.items()
    for config in (tuned, ExecutionConfig)
    for name, declared in options_of(config).items()
    if flag_of(declared)
]


def value_of(name: str) -> Any:
    """Another value than the default of an option."""
    own: dict[str, Any] = {
        "dtype": "int8", "effort": "standard", "sampler": "random", "objective": "ddr-bytes",
        "measurer": "other", "baselines": ("astitch",), "transfer": False, "verify": True,
        "began": 3.5, "on_progress": print, "on_begin": print, "evaluator": landscape,
        "verifier": print, "runtime_env": {"pip": ["x"]}, "bound_gap": 0.05,
        "fixed": {"prefetch_depth": 3, "conv1.factor": 4}, "allowed": {"split_dims": ["batch"]},
        "keep": (("conv0", "conv1"), ("conv2", "conv3")), "cut": ["conv0", "conv2"],
        "warm_starts": False,
        "begin": ({"prefetch_depth": 3},),
    }  # fmt: skip
    kinds = {"count": 7, "seconds": 90.0, "text": "there", "path": "there"}
    return own[name] if name in own else kinds[option_of(BOTH[name]).kind]


def words_of(command: str, name: str, folder: Path) -> tuple[list[str], Any]:
    """The words that set an option to another value, and that value."""
    config = COMMANDS[command][0]
    declared = {**options_of(ExecutionConfig), **options_of(config)}[name]
    flag, value, kind = flag_of(declared), value_of(name), option_of(declared).kind
    if kind == "switch":
        return [flag], declared.default is not True
    if kind == "mapping":
        (folder / "env.json").write_text(json.dumps(value))
        return [flag, str(folder / "env.json"), "--ray", "there"], value
    if kind in READERS:
        (folder / "knobs.json").write_text('{"prefetch_depth": 3}')
        words = TuneConfig(**{name: value}).words(load_target("stcp920"))
        words = [w for pair in itertools.pairwise(words) if pair[0] == flag for w in pair]
        return [str(folder / "knobs.json") if w == "FILE" else w for w in words], value
    names = value if isinstance(value, tuple) else (value,)
    texts = {"seconds": "1m30s", "share": "5%"}
    given = names if kind == "names" else value
    return [flag, texts.get(kind, ",".join(map(str, names)))], given


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_its_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    board = [EntryPoint("other", "boards:Board", MEASURERS.group)]

    def entry_points(**asked: Any) -> EntryPoints:
        return EntryPoints(board).select(**asked)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    for config, name in [(config, name) for of, config, name in CASES if of == command]:
        words, expected = words_of(command, name, tmp_path)
        options = parse(build_parser(), [command, *COMMANDS[command][1], *words])
        found: Any = config_of(config, options)
        assert getattr(found, name) == expected
        assert getattr(config(), name) != expected
        others = {"ray"} if name in ("runtime_env", "ray_resource") else set()
        for other in options_of(config).keys() - {name, "database", *others}:
            assert getattr(found, other) == getattr(config(), other), (name, other)


def test_only_functions_and_the_clock_have_no_flag() -> None:
    without = {name for name, declared in BOTH.items() if not flag_of(declared)}
    assert without == {"on_begin", "on_progress", "evaluator", "verifier", "began"}


class CallSeen(Exception):  # noqa: N818  not an error
    """Ends a call once it is known what it asks for."""


def seen(kept: list[dict[str, Any]], _: object, *configs: object, **more: object) -> None:
    """Stand in for ``tune_all`` or ``resume_all``."""
    found = [one for one in (*configs, *more.values()) if dataclasses.is_dataclass(one)]
    kept.append({f.name: getattr(one, f.name) for one in found for f in dataclasses.fields(one)})
    raise CallSeen


def asked_by(call: str, values: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a public function hands on when it is called with values."""
    kept: list[dict[str, Any]] = []
    stand_in = functools.partial(seen, kept)
    for module, name in ((tuner, "tune_all"), (tuner, "resume_all"), (sweeping, "tune_all")):
        monkeypatch.setattr(module, name, stand_in)
    for module, name in ((tuner, "pair_key"), (sweeping, "pair_key"), (sweeping, "pins_of_run")):
        monkeypatch.setattr(module, name, lambda *_: None)
    graph, target = toy_graph(), load_target("stcp920")
    calls: dict[str, Callable[[], object]] = {
        "tune": lambda: autoturbo.tune(graph, target, **values),
        "resume": lambda: autoturbo.resume("a", **values),
        "sweep": lambda: autoturbo.sweep(graph, target, ["lb.capacity_kib=512"], **values),
    }
    with pytest.raises(CallSeen):
        calls[call]()
    return kept[0]


@pytest.mark.parametrize("call", COMMANDS)
def test_every_option_is_an_argument_of_every_public_function(
    call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = {**options_of(COMMANDS[call][0]), **options_of(ExecutionOptions)}
    values = {**{name: value_of(name) for name in names}, "database": str(tmp_path / "a.db")}
    if call == "sweep":
        values["transfer"] = True
        values["time_budget"] = 5.0
    handed = asked_by(call, values, monkeypatch)
    own = options_of(ExecutionConfig).keys() - names.keys()
    assert {name: value for name, value in handed.items() if name not in own} == values
    function = getattr(autoturbo, call)
    assert names.keys() <= inspect.signature(function).parameters.keys()
    assert not own & inspect.signature(function).parameters.keys()
    assert all(f"\n        {name}: " in function.__doc__ for name in names)


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, **values: Any) -> RunInfo:
    """The record of a run that ends before its first trial."""
    monkeypatch.setattr(tuner, "carry_out", lambda *_: [])
    monkeypatch.setattr(tuner, "pool_of", lambda *_: SimpleNamespace(close=lambda: None))
    given = {
        "evaluator": landscape, "runs_folder": folder, "database": folder / "a.db", **values
    }  # fmt: skip
    config = TuneConfig(**{k: given.pop(k) for k in options_of(TuneConfig) if k in given})
    graph = chain(*["conv"] * 4)  # with layers, for what people pin
    tuner.tune_all([tuner.Pair(graph, toy_target())], config, ExecutionConfig(**given))
    with Database.open(given["database"], read_only=True) as store:
        return store.runs()[-1]


@pytest.mark.parametrize("name", spread(options_of(TuneConfig), 4))
def test_what_decides_is_hashed_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("autoturbo.simulator.measurers.measurer_version", lambda _: "1")
    monkeypatch.setattr("autoturbo.simulator.measurers.declared", lambda _: None)
    monkeypatch.setattr("autoturbo.cost_models.pretrained.read_card", lambda _: {})
    other = dataclasses.replace(TuneConfig(), **{name: value_of(name)})
    assert other.hash != TuneConfig().hash
    usual = begun(tmp_path, monkeypatch)
    info = begun(tmp_path, monkeypatch, **{name: value_of(name)})
    recorded = info.settings[name]
    assert recorded == json.loads(json.dumps(value_of(name)))
    assert info.settings["config_hash"] != usual.settings["config_hash"]
    assert info.id.split("-")[0] != usual.id
    assert TuneConfig.of_run(info).record() == other.resolved(toy_target()).record()


@pytest.mark.parametrize("name", spread(options_of(ExecutionConfig), 4))
def test_how_it_is_carried_out_is_not_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given = {"database": tmp_path / "b.db", name: value_of(name)}
    if name in ("database", "runs_folder"):
        given[name] = tmp_path / "other"
    if name in ("runtime_env", "ray_resource"):
        given["ray"] = "local"
    if name == "storage":
        given[name] = f"sqlite:///{tmp_path / 'study.db'}"
    asked: dict[str, Any] = {}
    if name == "proposer":
        asked, given[name] = {"sampler": PROGRAM, name: "sh"}, "cat"
    usual = begun(tmp_path, monkeypatch, **asked)
    info = begun(tmp_path, monkeypatch, **{**asked, **given})
    assert info.id == usual.id
    assert info.settings["config_hash"] == usual.settings["config_hash"]


def test_a_default_spelt_out_leaves_the_id_as_it_is() -> None:
    target = toy_target()
    usual = TuneConfig().identity(target)
    assert TuneConfig(subgraphs=8, dtype=target.default_dtype).identity(target) == usual
    assert TuneConfig(objective=["latency"], trials=64).identity(target) == usual
    assert TuneConfig(subgraphs=3).identity(target) != usual


@pytest.mark.parametrize(
    "name", spread([name for name in options_of(TuneConfig) if name != "dtype"], 4)
)
def test_the_command_of_a_report_asks_for_the_same(name: str) -> None:
    asked = dataclasses.replace(TuneConfig(), **{name: value_of(name)})
    target = load_target("stcp920")
    if name == "measurer":
        assert asked.words(target) == ["--effort", "quick", "--measurer", "other"]
        return
    if name == "begin":  # the record has the settings, not the names of the files
        assert asked.words(target) == ["--effort", "quick", "--begin", "FILE"]
        return
    options = parse(build_parser(), ["tune", "model", *asked.words(target)])
    again = config_of(TuneConfig, options)
    assert again.resolved(target).record() == asked.resolved(target).record()


def test_a_run_keeps_the_folder_that_it_goes_on_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = begun(tmp_path, monkeypatch)
    autoturbo_values: dict[str, Any] = {
        "database": tmp_path / "a.db", "runs_folder": tmp_path / "new", "evaluator": landscape,
    }  # fmt: skip
    tuner.resume_all(
        [info.id],
        execution=ExecutionConfig(**autoturbo_values),
        load_graph=lambda _: chain(*["conv"] * 4),
    )
    with Database.open(tmp_path / "a.db") as store:
        again = store.run(info.id)
    assert (again.asked["runs_folder"], again.asked["trials"]) == (str(tmp_path / "new"), 64)
    assert (tmp_path / "new").is_dir()


def test_the_schema_describes_what_a_run_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = config_schema()
    kept = begun(tmp_path, monkeypatch, time_budget=9.0, bound_gap=0.1).settings
    jsonschema.validate(kept, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**kept, "patience": 0}, schema)


def test_names_known_without_loading_what_they_name() -> None:
    assert (TuneConfig.sampler, TuneConfig.measurer) == (COST_MODEL, SIMULATOR)


def test_the_page_of_options_has_all_of_them() -> None:
    page = reference_pages.options()
    for name, declared in BOTH.items():
        assert f"| `{name}` | {f'`{flag_of(declared)}`' if flag_of(declared) else ''} |" in page


@pytest.mark.parametrize(
    ("config", "message"),
    spread(
        [
            (TuneConfig(trials=0), "trials: 0 is too few; at least 1"),
            (TuneConfig(seed=-1), "seed: -1 is too few; at least 0"),
            (TuneConfig(time_budget=0.0), "time_budget: 0.0 is not above 0 seconds"),
            (TuneConfig(effort="heroic"), "no effort 'heroic'; one of quick, standard, thorough"),
            (TuneConfig(round=10**9), "round: 1000000000 trials are too many; the limit is"),
            (ExecutionConfig(jobs=0), "jobs: 0 is too few; at least 1"),
            (ExecutionConfig(jobs=10**9), "jobs: 1000000000 processes are too many; the limit is"),
            (ExecutionConfig(runtime_env={"pip": []}), "is for workers of Ray; add --ray"),
        ],
        3,
    ),
)
def test_values_out_of_bounds_are_refused(
    config: TuneConfig | ExecutionConfig, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        config.check()
    assert message in str(caught.value)


def test_workers_follow_from_ray_where_none_are_named() -> None:
    found = [ExecutionConfig(**v) for v in ({}, {"ray": "local"}, {"ray": "local", "jobs": 3})]
    assert [one.workers for one in found] == [1, 0, 3]
    ExecutionConfig(ray="local", jobs=0).check()
