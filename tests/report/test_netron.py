"""Files for Netron: every entry is of a node of the model, and says what the schedule says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest

from autoturbo.datasets import workloads
from autoturbo.graph.onnx_import import import_model
from autoturbo.report.netron import annotated, facts_of, write_annotated, write_attachment
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from tests.schedule.schedule_samples import STCP920, Net

SQUEEZENET = workloads.get("squeezenet1_1").file


@pytest.fixture(
    scope="module", params=[Knobs(), Knobs(cluster_partitioning="channel", max_layers=3)]
)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    graph = import_model(SQUEEZENET, batch=4)
    return Evaluator(graph, STCP920, "float16").schedule(request.param)


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def small(folder: Path, *, named: bool = True) -> Schedule:
    net = Net(x=(2, 8, 6, 6))
    net.relu(net.conv(net.relu(net.conv("x", 8)), 8))
    proto = net.proto()
    if not named:
        for node in proto.graph.node[1:]:
            node.name = "same"
    file = folder / "small.onnx"
    onnx.save(proto, file)
    return Evaluator(import_model(file), STCP920, "float16").schedule(Knobs(max_layers=1))


def test_a_side_car_names_nodes_of_the_model_and_every_entry_once(
    schedule: Schedule, tmp_path: Path
) -> None:
    """What Netron drops in silence: unknown nodes, names on several lines, repeated entries."""
    shown = write_attachment(schedule, tmp_path / "n.json")
    found = read(tmp_path / "n.json")
    assert found["signature"] == "netron:attachment"
    names = {node.name for node in onnx.load(str(SQUEEZENET), load_external_data=False).graph.node}
    entries = [(part, e) for part in ("metadata", "metrics") for e in found[part]]
    assert {e["target"] for _, e in entries if e["kind"] == "node"} <= names
    assert all(e["target"] == "" for _, e in entries if e["kind"] == "model")
    keys = Counter((part, e["kind"], e["target"], e["name"]) for part, e in entries)
    assert max(keys.values()) == 1
    assert not any("\n" in e["target"] or "\n" in e["name"] for _, e in entries)
    assert shown.unnamed == 0
    assert shown.nodes == len({e["target"] for _, e in entries if e["kind"] == "node"})


def test_times_are_those_of_the_layers(schedule: Schedule, tmp_path: Path) -> None:
    write_attachment(schedule, tmp_path / "n.json")
    found = schedule_shares(schedule)
    metrics = read(tmp_path / "n.json")["metrics"]
    times = {e["target"]: e["value"] for e in metrics if e["name"] == "time_us"}
    layers = schedule.context.layers
    assert times == {
        layers[one.layer].name: pytest.approx(one.seconds * 1e6, abs=1e-4) for one in found.layers
    }
    parts = [e["value"] for e in metrics if e["name"] == "percent_of_latency"]
    assert sum(parts) <= 100


def test_every_operator_says_where_it_runs(schedule: Schedule) -> None:
    facts, graph = facts_of(schedule), schedule.context.graph
    assert len(facts) == len(graph.operators)
    anchors = {layer.anchor: layer.name for layer in schedule.context.layers}
    for index, one in enumerate(facts):
        assert {"sub-graph", "parts", "cluster", "cores", "layer's output in"} <= set(one.metadata)
        assert ("computed with" in one.metadata) == (index not in anchors)
        assert bool(one.metrics) == (index in anchors)
    said = {one.metadata["cluster"] for one in facts}
    assert said == ({"each of 4"} if not schedule.cluster else said)


def test_scopes_are_those_of_the_buffers(tmp_path: Path) -> None:
    schedule = small(tmp_path)
    ddr = Evaluator(schedule.model, STCP920, "float16").schedule(
        Knobs(max_layers=1, output_scope="DDR")
    )
    near = [one.metadata["layer's output in"] for one in facts_of(schedule) if one.metrics]
    far = [one.metadata["layer's output in"] for one in facts_of(ddr)]
    assert "LB" in " ".join(near)
    assert set(far) == {"DDR"}


def test_an_annotated_copy_is_valid_small_and_says_the_same(
    schedule: Schedule, tmp_path: Path
) -> None:
    shown = write_annotated(schedule, tmp_path / "n.onnx")
    onnx.checker.check_model(str(tmp_path / "n.onnx"), full_check=True)
    model = onnx.load(tmp_path / "n.onnx")
    assert not model.graph.initializer
    assert (tmp_path / "n.onnx").stat().st_size < 300_000
    original = onnx.load(str(SQUEEZENET), load_external_data=False)
    assert [(n.op_type, *n.output) for n in model.graph.node] == [
        (n.op_type, *n.output) for n in original.graph.node
    ]
    by_name = {o.name: f for o, f in zip(
        schedule.context.graph.operators, facts_of(schedule), strict=True
    )}  # fmt: skip
    told = 0
    for node in model.graph.node:
        props = {entry.key: entry.value for entry in node.metadata_props}
        mine = {k: v for k, v in props.items() if k.startswith("autoturbo.")}
        if mine:
            told += 1
            facts = by_name[node.name]
            assert mine["autoturbo.sub-graph"] == facts.metadata["sub-graph"]
            times = facts.metrics
            assert ("autoturbo.time_us" in mine) == bool(times)
            if times:
                assert float(mine["autoturbo.time_us"]) == times["time_us"]
    assert (told, shown.unnamed) == (shown.nodes, 0)
    assert {e.key: e.value for e in model.metadata_props}["autoturbo.target"] == "stcp920"


def test_nodes_without_a_name_of_their_own_are_counted_and_shown_in_the_copy(
    tmp_path: Path,
) -> None:
    schedule = small(tmp_path, named=False)
    shown = write_attachment(schedule, tmp_path / "n.json")
    assert (shown.nodes, shown.unnamed) == (1, 3)
    model, copied = annotated(schedule)
    assert (copied.nodes, copied.unnamed) == (4, 0)
    onnx.checker.check_model(model)
