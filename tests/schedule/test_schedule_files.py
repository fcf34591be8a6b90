"""Schedule files: one text per schedule, the way back, and files that are not right."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import ScheduleFileError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.registry import SCHEDULERS
from autoturbo.schedule.by_name import candidates
from autoturbo.schedule.files import load_schedule, schedule_schema
from autoturbo.schedule.knobs import SCHEDULER_VERSION, Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.sequence import simulate
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import (
    STCP920,
    Net,
    block,
    networks,
    scheduler_of,
    target,
    targets,
)
from tests.schedule.steps import steps_of
from tests.schedule.test_schedule_properties import FEW, drawn

MACHINE = target(cores=4, lb=1024, gb=1 << 16, clusters=2)
MODEL = block()


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A schedule of two residual blocks with several sub-graphs and instances."""
    schedule = build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs(max_layers=3))
    assert len(schedule.instances.subgraphs) > 2
    assert len(schedule.order) > len(schedule.instances.subgraphs)
    found: dict[str, Any] = json.loads(schedule.text)
    return found


def reread(schedule: Schedule, folder: Path) -> Schedule:
    path = folder / "schedule.json"
    schedule.save(path)
    return load_schedule(path, schedule.model, schedule.context.target)


@FEW
@given(graph=networks(), machine=targets(), data=st.data())
def test_round_trip_of_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, machine: Target, data: st.DataObject
) -> None:
    schedule = drawn(data, graph, machine)
    again = reread(schedule, tmp_path_factory.mktemp("files"))
    assert again.text == schedule.text
    assert simulate(again) == simulate(schedule)
    check_schedule(again)


@settings(FEW, max_examples=8)
@given(graph=networks(), machine=targets(), name=st.sampled_from(SCHEDULERS.names()))
def test_round_trip_of_baselines(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, machine: Target, name: str
) -> None:
    """A fused group is a layer of the file, though no layer of ours is cut so."""
    schedule = next(candidates(name, ModelScheduler(graph, machine, "float16")))
    again = reread(schedule, tmp_path_factory.mktemp("files"))
    assert again.text == schedule.text
    assert simulate(again) == simulate(schedule)


@pytest.mark.parametrize(
    ("name", "scheduler"),
    [
        ("squeezenet1_1", "graphturbo"),
        pytest.param("resnet50", "graphturbo", marks=pytest.mark.full),
        pytest.param("bert_base_s128", "tvm", marks=pytest.mark.full),
        pytest.param("bert_base_s128", "astitch", marks=pytest.mark.full),
    ],
)
def test_round_trip_of_real_networks(tmp_path: Path, name: str, scheduler: str) -> None:
    schedule = next(candidates(scheduler, scheduler_of(name)))
    again = reread(schedule, tmp_path)
    assert again.text == schedule.text
    assert simulate(again).latency == simulate(schedule).latency


def test_what_was_measured_travels_along(tmp_path: Path) -> None:
    schedule = build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs())
    measured = dataclasses.replace(schedule, expected={"latency_s": 0.1 + 0.2, "batch": 4})
    again = reread(measured, tmp_path)
    assert again.expected == measured.expected
    assert again.text == measured.text
    assert again.text != schedule.text


def test_the_text_is_made_for_reading() -> None:
    """One field a line, one instance a line, a line feed at the end."""
    net = Net(x=(2, 4))
    net.linear("x", 4)
    schedule = build_schedule(
        ModelScheduler(net.graph(), target(), "float16"), Knobs(instance_multiplier=2)
    )
    lines = schedule.text.splitlines()
    assert schedule.text.endswith("}\n")
    assert lines[1] == '"format": "autoturbo-schedule",'
    assert ' {"layers": [0], "axis": 1, "depth": 0, "instances": 2}' in lines
    assert ' {"subgraph": 0, "part": 0, "cores": [1, 4], "scope": "LB"}' in lines
    assert json.loads(schedule.text)["share"] == {"clusters": 1, "samples": 2, "batches": 2}


def test_the_schema_accepts_what_is_written(document: dict[str, Any]) -> None:
    import jsonschema

    schema = schedule_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert set(document) == set(schema["properties"])


def test_buffers_and_expectations_may_be_left_out(document: dict[str, Any], tmp_path: Path) -> None:
    """A vendor's file says what it decided; where buffers end up follows."""
    short = {k: v for k, v in document.items() if k not in ("buffers", "expected")}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(short))
    assert json.loads(load_schedule(path, MODEL, MACHINE).text) == document


def test_saving_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"format": "autoturbo-schedule"}')
    build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs()).save(path)
    assert load_schedule(path, MODEL, MACHINE).scheduler == "graphturbo"
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_saving_into_nowhere(tmp_path: Path) -> None:
    schedule = build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs())
    with pytest.raises(ScheduleFileError):
        schedule.save(tmp_path / "none" / "s.json")


Edit = Callable[[dict[str, Any]], None]


def swap_order(d: dict[str, Any]) -> None:
    d["order"][0], d["order"][-1] = d["order"][-1], d["order"][0]


def spread(d: dict[str, Any]) -> None:
    d["order"][0]["cores"] = [4, 1, 2, 1]


def repeat(d: dict[str, Any]) -> None:
    d["order"][1] = dict(d["order"][0])


def merge_layers(d: dict[str, Any]) -> None:
    first, second = d["layers"][0], d["layers"].pop(1)
    first["operators"] = sorted(first["operators"] + second["operators"])
    d["subgraphs"] = [
        {"layers": [i], "axis": -1, "depth": 0, "instances": 1} for i in range(len(d["layers"]))
    ]


def leak(d: dict[str, Any]) -> None:
    """The first ReLU, which two others read, is swallowed by a layer that ends further down."""
    d["layers"][0]["operators"].remove(0)
    d["layers"].append({"name": "late", "operators": [0]})


def unsplit_batch(d: dict[str, Any]) -> None:
    d["share"]["batches"] = 3


EDITS: dict[str, tuple[Edit, str]] = {
    "format": (
        lambda d: d.update(format="something"),
        "format: not a schedule file; it says 'autoturbo-schedule' in ours",
    ),
    "other version": (
        lambda d: d.update(schema_version=2),
        (
            "schema_version: format version 2; this release reads version 1; tune again or use "
            "the other release"
        ),
    ),
    "other scheduler": (
        lambda d: d.update(scheduler_version="0"),
        (
            f"scheduler_version: made by scheduler 0, this is {SCHEDULER_VERSION};"
            " tune again with this release"
        ),
    ),
    "other model": (
        lambda d: d["model"].update(hash="0" * 64, name="vgg", batch=7),
        (
            "model.hash: made for vgg at batch 7, not for net at batch 4; give the model, batch "
            "and shapes that it was tuned with"
        ),
    ),
    "other target": (
        lambda d: d["target"].update(hash="0" * 64, name="big"),
        (
            "target.hash: made for target big as it was described then, not for small; give the "
            "target file that it was tuned with"
        ),
    ),
    "other type": (
        lambda d: d.update(dtype="float32"),
        "dtype: small does not compute in float32; it has float16, int8",
    ),
    "unknown field": (
        lambda d: d.update(colour="red"),
        (
            "colour: unknown field; known fields: format, schema_version, scheduler_version, "
            "scheduler, model, target, dtype, knobs, share, layers, subgraphs, order, buffers, "
            "expected"
        ),
    ),
    "missing field": (lambda d: d.pop("order"), "order: missing field; add it"),
    "wrong kind": (
        lambda d: d["order"][0].update(part="first"),
        "order[0].part: must be a whole number, not 'first'",
    ),
    "fractional index": (
        lambda d: d["subgraphs"][0].update(instances=2.5),
        "subgraphs[0].instances: must be a whole number, not 2.5",
    ),
    "unknown scope": (
        lambda d: d["order"][0].update(scope="L2"),
        "order[0].scope: unknown scope 'L2'; known scopes: LB, GB, DDR",
    ),
    "bad knob": (
        lambda d: d.update(knobs={"lb_occupancy_limit": 7}),
        "knobs.lb_occupancy_limit: 7 is out of range; from 0.05 to 1",
    ),
    "clusters": (
        lambda d: d["share"].update(clusters=4),
        "share: 2 clusters share out the batch, 2 samples each",
    ),
    "batches": (unsplit_batch, "share.batches: a cluster has 2 samples"),
    "missing layer": (
        lambda d: d["layers"].pop(),
        "layers: every operator must be in exactly one layer",
    ),
    "operator twice": (
        lambda d: d["layers"][0]["operators"].append(5),
        "layers: every operator must be in exactly one layer",
    ),
    "empty layer": (
        lambda d: d["layers"].append({"name": "none", "operators": []}),
        "layers[8].operators: a layer has an operator",
    ),
    "layers in another order": (
        lambda d: d["layers"].reverse(),
        "layers: layers are not in topological order",
    ),
    "two products in a layer": (
        merge_layers,
        "layers[0].operators: 2 operators of the matrix engine; a layer has at most one",
    ),
    "missing sub-graph": (
        lambda d: d["subgraphs"].pop(),
        "subgraphs: every layer must be in exactly one sub-graph",
    ),
    "empty sub-graph": (
        lambda d: d["subgraphs"].append({"layers": [], "axis": -1, "depth": 0, "instances": 1}),
        "subgraphs[4].layers: a sub-graph has a layer",
    ),
    "sub-graphs in another order": (
        lambda d: d["subgraphs"].reverse(),
        "subgraphs: sub-graphs are not in topological order",
    ),
    "sub-graph that is read in the middle": (
        lambda d: d["subgraphs"].__setitem__(
            slice(None),
            [
                {
                    "layers": list(range(len(d["layers"]))[::-1]),
                    "axis": -1,
                    "depth": 0,
                    "instances": 1,
                }
            ],
        ),
        "subgraphs[0].layers: only the last layer of a sub-graph may be read from outside",
    ),
    "more parts than steps": (
        lambda d: d["subgraphs"][0].update(axis=0, instances=99),
        "subgraphs[0].instances: cannot be split into 99 along axis 0",
    ),
    "an axis that is not there": (
        lambda d: d["subgraphs"][0].update(axis=77, instances=2),
        "subgraphs[0].instances: cannot be split into 2 along axis 77",
    ),
    "instance left out": (
        lambda d: d["order"].pop(),
        "order: every instance must run exactly once",
    ),
    "instance twice": (repeat, "order: every instance must run exactly once"),
    "dependence broken": (swap_order, "order[0]: runs before an instance whose output it reads"),
    "too few cores": (
        lambda d: d["order"][0].update(cores=[1]),
        "order[0].cores: needs one factor of at least 1 for each of 4 dimensions",
    ),
    "no core": (
        lambda d: d["order"][0].update(cores=[1, 1, 0, 1]),
        "order[0].cores: needs one factor of at least 1 for each of 4 dimensions",
    ),
    "more cores than there are": (spread, "order[0].cores: spreads over 8 cores, a cluster has 4"),
    "buffers moved": (
        lambda d: d["buffers"][0].update(address=1 << 20),
        "buffers: buffers are not where these decisions put them",
    ),
    "buffer left out": (
        lambda d: d["buffers"].pop(),
        "buffers: buffers are not where these decisions put them",
    ),
}


LIKE_OTHERS = (
    "other version", "missing field", "fractional index", "unknown scope", "batches",
    "operator twice", "empty layer", "missing sub-graph", "empty sub-graph",
    "sub-graphs in another order", "an axis that is not there", "instance twice",
    "too few cores", "no core", "buffer left out",
)  # fmt: skip
"""Edits that break rules of the same kind as others do."""


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in EDITS if name not in LIKE_OTHERS),
        *(pytest.param(name, marks=pytest.mark.full) for name in LIKE_OTHERS),
    ],
)
def test_edited_files(document: dict[str, Any], tmp_path: Path, name: str) -> None:
    edit, message = EDITS[name]
    edited = json.loads(json.dumps(document))
    edit(edited)
    path = tmp_path / "s.json"
    path.write_text(json.dumps(edited))
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, MODEL, MACHINE)
    assert str(caught.value) == f"{path}: {message}"
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)


def test_a_layer_whose_inner_output_is_read_outside(tmp_path: Path) -> None:
    net = Net(x=(2, 4))
    first = net.relu("x")
    net.sum(net.softmax(net.softmax(first)), first)
    model = net.graph()
    schedule = build_schedule(ModelScheduler(model, target(), "float16"), Knobs(max_layers=1))
    edited = json.loads(schedule.text)
    edited["layers"] = [{"name": "a", "operators": [0, 1, 2]}, {"name": "b", "operators": [3]}]
    edited["subgraphs"] = [
        {"layers": [i], "axis": -1, "depth": 0, "instances": 1} for i in range(2)
    ]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(edited))
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, model, target())
    assert str(caught.value).endswith(
        "layers[0].operators: only the last operator of a layer may be read from outside"
    )


def test_a_batch_that_stays_whole(tmp_path: Path) -> None:
    net = Net(x=(4, 8))
    net.softmax("x", 0)
    model = net.graph()
    schedule = build_schedule(ModelScheduler(model, target(), "float16"), Knobs())
    edited = json.loads(schedule.text)
    edited["share"]["batches"] = 2
    path = tmp_path / "s.json"
    path.write_text(json.dumps(edited))
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, model, target())
    assert str(caught.value) == (
        f"{path}: share.batches: the batch stays whole: softmax0 (Softmax) works across the batch"
    )


@pytest.mark.parametrize("keep", [0.0, 0.7])
def test_truncated_files(document: dict[str, Any], tmp_path: Path, keep: float) -> None:
    text = json.dumps(document)
    path = tmp_path / "s.json"
    path.write_text(text[: int(len(text) * keep)])
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, MODEL, MACHINE)
    assert str(caught.value).startswith(f"{path}:1:")
    assert str(caught.value).endswith("; is it the file that 'autoturbo tune' wrote, whole?")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\xff", "not a schedule file"),
        (b"[]", "format: not a schedule file; it says 'autoturbo-schedule' in ours"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, MODEL, MACHINE)
    assert str(caught.value) == f"{path}: {message}"


def test_a_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, MODEL, MACHINE)
    assert (caught.value.at.line, caught.value.at.column) == (1, 1)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(tmp_path / "none.json", MODEL, MACHINE)
    assert str(caught.value) == f"{tmp_path / 'none.json'}: cannot read: No such file or directory"


def test_a_schedule_for_a_changed_target_is_refused(tmp_path: Path) -> None:
    schedule = build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs())
    path = tmp_path / "s.json"
    schedule.save(path)
    renamed = dataclasses.replace(MACHINE, name="other", description="the same machine")
    assert steps_of(load_schedule(path, MODEL, renamed).timeline)
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, MODEL, dataclasses.replace(MACHINE, clock=MACHINE.clock / 2))
    assert caught.value.at.field == "target.hash"
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, other_model(), MACHINE)
    assert caught.value.at.field == "model.hash"


def other_model() -> Graph:
    net = Net(x=(4, 2))
    net.relu("x")
    return net.graph()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_edit_of_one_value_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    check_edited(tmp_path_factory, data)


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_edit_of_any_value_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    check_edited(tmp_path_factory, data)


def check_edited(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Replace any one value by any other: the file loads as something valid or is refused."""
    schedule = build_schedule(ModelScheduler(MODEL, MACHINE, "float16"), Knobs(max_layers=3))
    edited = json.loads(schedule.text)
    edited.pop("buffers")
    at: Any = edited
    path = []
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        path.append(key)
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.integers(0, 4)) == 0:
            break
        at = at[key]
    at[key] = data.draw(
        st.sampled_from(
            [None, True, -1, 0, 1, 2, 3, 7, 10**30, 1.5, 2.0, "", "x", [], {}, [0], [[0]]]
        )
    )
    file = tmp_path_factory.mktemp("edited") / "s.json"
    file.write_text(json.dumps(edited))
    try:
        loaded = load_schedule(file, MODEL, MACHINE)
    except ScheduleFileError:
        return
    check_schedule(loaded)


def test_schedules_of_other_presets_do_not_mix(tmp_path: Path) -> None:
    schedule = build_schedule(scheduler_of("squeezenet1_1"), Knobs())
    path = tmp_path / "s.json"
    schedule.save(path)
    smaller = dataclasses.replace(STCP920, cores=4)
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, schedule.model, smaller)
    assert caught.value.at.field == "target.hash"
