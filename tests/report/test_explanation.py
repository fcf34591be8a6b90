"""What bounds a schedule and what would help: every gain is that of really making the change."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from autoturbo.errors import TargetError
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.report.bottlenecks import (
    Bottleneck,
    Remedy,
    Trials,
    bottlenecks_of,
    field_of,
    paddings,
    with_knob,
)
from autoturbo.report.explanation import (
    Advice,
    Bounds,
    bottleneck_table,
    bounds_of,
    layer_table,
    model_knob_sentence,
    subgraph_table,
    time_sentence,
)
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.shares import Shares, schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Failure, Measurement
from tests.schedule.schedule_samples import STCP920, Net


def network(first: int, second: int = 129) -> Graph:
    """Three convolutions, with some channels after the first and others after the second."""
    net = Net(x=(4, 64, 14, 14))
    deep = net.relu(net.conv(net.relu(net.conv("x", first)), second))
    net.conv(net.pool(deep), 64, 1)
    return net.graph()


KNOBS = Knobs(max_layers=2)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return Evaluator(network(129), STCP920, "float16").schedule(KNOBS)


@pytest.fixture(scope="module")
def bounds(schedule: Schedule) -> Bounds:
    return bounds_of(schedule)


def latency(graph: Graph, target: Target, knobs: Knobs) -> float:
    outcome = Evaluator(graph, target, "float16").evaluate(knobs)
    assert isinstance(outcome, Measurement)
    return outcome.latency


def tried(bounds: Bounds, kind: str) -> list[Remedy]:
    return [r for advice in bounds.advice for r in advice.remedies if r.kind == kind]


def test_gains_of_the_target_are_those_of_editing_its_file(bounds: Bounds) -> None:
    remedies = {r.text: r for r in tried(bounds, "target")}.values()
    assert len(remedies) > 1
    for remedy in remedies:
        document = json.loads(json.dumps(STCP920.as_dict()))
        path = remedy.change["field"]
        section, name = path.rsplit(".", 1)
        owner = document.get(section)
        if owner is None:
            owner = next(e for e in document["engines"] if f"engines[{e['kind']}]" == section)
        assert owner[name] == remedy.change["was"]
        owner[name] = remedy.change["value"]
        edited = latency(network(129), Target.from_dict(document), KNOBS)
        assert remedy.latency == edited
        assert remedy.gain == bounds.shares.latency - edited


def test_gains_of_padding_are_those_of_a_model_with_as_many_channels(bounds: Bounds) -> None:
    remedies = {r.text: r for r in tried(bounds, "model")}.values()
    assert remedies
    for remedy in remedies:
        assert remedy.change["extent"] == 129
        extents = [129, 129]
        extents[remedy.change["tensor"] in ("conv1", "relu1")] = remedy.change["padded"]
        edited = latency(network(*extents), STCP920, KNOBS)
        assert remedy.latency == edited
        assert remedy.gain == bounds.shares.latency - edited


def test_channels_that_just_miss_the_array_are_worth_padding(bounds: Bounds) -> None:
    """129 channels on arrays of 32 columns: the last column block is nearly empty."""
    assert max(r.gain or 0.0 for r in tried(bounds, "model")) > 0


def test_gains_of_knobs_are_those_of_setting_them(bounds: Bounds) -> None:
    remedies = tried(bounds, "knob")
    assert remedies
    evaluator = Evaluator(network(129), STCP920, "float16")
    for remedy in remedies:
        change = remedy.change
        value = {change["knob"]: change["value"]}
        own = tuple(SubGraphKnobs(layer, **value) for layer in change["layers"])
        changes = {"overrides": own} if own else value
        outcome = evaluator.evaluate(dataclasses.replace(KNOBS, **changes))
        found = outcome.latency if isinstance(outcome, Measurement) else None
        assert remedy.latency == found
        assert (remedy.failure is None) == (found is not None)


def test_remedies_come_most_gained_first_and_what_does_not_fit_last(bounds: Bounds) -> None:
    for advice in bounds.advice:
        gains = [-math.inf if r.gain is None else r.gain for r in advice.remedies]
        assert gains == sorted(gains, reverse=True)
        helpful = advice.helpful(0.0)
        assert len({r.kind for r in helpful}) == len(helpful)
        assert all(r.gain is not None and r.gain > 0 for r in helpful)


def test_spots_are_the_worst_first_and_need_no_more_than_they_take(schedule: Schedule) -> None:
    found = bottlenecks_of(schedule, schedule_shares(schedule))
    assert 1 < len(found) <= 5
    lost = [bottleneck.lost for bottleneck in found]
    assert lost == sorted(lost, reverse=True)
    for bottleneck in found:
        assert (
            bottleneck.needs == 0
            if bottleneck.part == "between"
            else 0 < bottleneck.needs < bottleneck.seconds
        )
        assert bottleneck.lost == bottleneck.seconds - bottleneck.needs
        assert bottleneck.shares.total == pytest.approx(bottleneck.seconds)
    assert len(bottlenecks_of(schedule, schedule_shares(schedule), 1)) == 1


def test_spots_together_are_all_of_the_latency(schedule: Schedule) -> None:
    """But for layers that lose nothing, of which there is none here."""
    found = bottlenecks_of(schedule, schedule_shares(schedule), 1000)
    assert sum(s.seconds for s in found) == pytest.approx(schedule_shares(schedule).latency)


def test_alike_sub_graphs_are_one_spot() -> None:
    net = Net(x=(1, 32, 16, 16))
    at = "x"
    for _ in range(4):
        at = net.conv(at, 32)
    schedule = Evaluator(net.graph(), STCP920, "float16").schedule(Knobs(max_layers=1))
    bottlenecks = bottlenecks_of(schedule, schedule_shares(schedule))
    assert {bottleneck.part for bottleneck in bottlenecks} == {"layer", "between"}
    (bottleneck,) = (bottleneck for bottleneck in bottlenecks if bottleneck.part == "layer")
    assert bottleneck.layers == bottleneck.anchors == ("conv0", "conv1", "conv2", "conv3")
    assert bottleneck.label == "4 x Conv 3x3 32->32, 16x16 (conv0, ...)"
    remedy = Trials(schedule, 1.0).knob(bottleneck.anchors, "prefetch_depth", 1)
    assert remedy.text == "prefetch_depth=1 of conv0 and 3 alike"


def test_a_baselines_schedule_has_spots_and_no_remedies() -> None:
    schedule, _ = Evaluator(network(64), STCP920, "float16").scheduler("tvm")
    found = bounds_of(schedule)
    assert found.advice
    assert {advice.remedies for advice in found.advice} == {()}


def test_what_if_can_be_left_out(schedule: Schedule) -> None:
    assert {advice.remedies for advice in bounds_of(schedule, what_if=False).advice} == {()}


def test_json_says_the_same(bounds: Bounds) -> None:
    value: dict[str, Any] = json.loads(json.dumps(bounds.as_json(), allow_nan=False))
    assert value["latency_s"] == bounds.shares.latency
    assert sum(value["shares_s"].values()) == pytest.approx(value["latency_s"])
    assert value["limit"] == bounds.shares.shares.limit
    assert [k["layer"] for k in value["subgraphs"]] == [s.layer for s in bounds.shares.subgraphs]
    for kernel in value["kernels"]:
        assert sum(kernel["shares_s"].values()) == pytest.approx(kernel["seconds"])
    assert len(value["layers"]) == len(bounds.labels)
    assert len(value["bottlenecks"]) == len(bounds.advice)
    assert all(bottleneck["remedies"] for bottleneck in value["bottlenecks"])


def test_tables_show_every_spot_and_the_heaviest_layers(bounds: Bounds) -> None:
    assert time_sentence(bounds).count("%") >= 2
    told = [member for line in bounds.subgraphs for member in line.members]
    assert sorted(told) == [one.subgraph for one in bounds.shares.subgraphs]
    assert subgraph_table(bounds, everything=True).row_count == len(bounds.subgraphs)
    assert layer_table(bounds, everything=False).row_count == min(10, len(bounds.layers))
    for lines, parts in ((bounds.subgraphs, bounds.shares.subgraphs),
                         (bounds.layers, bounds.shares.layers)):  # fmt: skip
        seconds = [line.seconds for line in lines]
        assert seconds == sorted(seconds, reverse=True)
        assert sum(seconds) == pytest.approx(sum(part.seconds for part in parts))
    assert bottleneck_table(bounds).row_count >= 2 * len(bounds.advice)


def test_a_spot_that_nothing_helps_says_so(bounds: Bounds) -> None:
    advice = bounds.advice[0]
    worse = tuple(dataclasses.replace(r, gain=-1.0) for r in advice.remedies)
    alone = dataclasses.replace(bounds, advice=(Advice(advice.bottleneck, worse),))
    cells = list(bottleneck_table(alone).columns[0].cells)
    assert str(cells[1]).strip() == f"no change helps ({len(worse)} tried)"


def test_a_remedy_of_several_spots_is_told_once(bounds: Bounds) -> None:
    advice = bounds.advice[0]
    (helpful, *_) = (dataclasses.replace(r, gain=1.0) for r in advice.remedies)
    twice = dataclasses.replace(bounds, advice=(Advice(advice.bottleneck, (helpful,)),) * 2)
    cells = [str(cell).strip() for cell in bottleneck_table(twice).columns[0].cells]
    assert cells[1] == f"{helpful.kind}: {helpful.text}"
    assert cells[3] == "what helps 1"
    assert len(cells) == 4


def test_every_value_of_the_models_knobs_is_tried_alone(bounds: Bounds) -> None:
    evaluator = Evaluator(network(129), STCP920, "float16")
    names = {r.change["knob"] for r in bounds.model_knobs}
    assert {"max_layers", "cluster_partitioning", "prefetch_depth"} <= names
    for remedy in bounds.model_knobs:
        value = {remedy.change["knob"]: remedy.change["value"]}
        outcome = evaluator.evaluate(dataclasses.replace(KNOBS, **value))
        assert remedy.latency == (outcome.latency if isinstance(outcome, Measurement) else None)
    best = bounds.model_knobs[0]
    assert model_knob_sentence(bounds).startswith(
        f"of the model's knobs, changed alone, {best.text} saves"
    )
    worse = tuple(dataclasses.replace(r, gain=0.0) for r in bounds.model_knobs)
    nothing = dataclasses.replace(bounds, model_knobs=worse)
    assert (
        model_knob_sentence(nothing)
        == f"no change of a single knob of the model helps ({len(worse)} tried)"
    )


def test_a_change_that_does_not_fit_is_a_failure_with_its_reason(schedule: Schedule) -> None:
    remedy = Trials(schedule, 1.0).field("lb.capacity_kib", 1)
    assert (remedy.latency, remedy.gain) == (None, None)
    assert "LB" in (remedy.failure or "")
    with pytest.raises(TargetError) as caught:
        Trials(schedule, 1.0).field("lb.capacity_kb", 1)
    assert caught.value.at.field == "lb.capacity_kb"


def test_fields_are_read_as_files_have_them() -> None:
    assert field_of(STCP920, "lb.capacity_kib") == STCP920.lb.capacity / 1024
    assert field_of(STCP920, "engines[matrix].rows") == STCP920.matrix.rows
    assert field_of(STCP920, "cores_per_cluster") == STCP920.cores
    assert field_of(STCP920, "lb.nothing") is None


def test_paddings_fill_the_array_and_are_not_much_more() -> None:
    array = dataclasses.replace(STCP920.matrix, rows=64, columns=32)
    target = dataclasses.replace(STCP920, matrix=array, cores=3)
    assert paddings(100, target) == (102, 128)
    assert paddings(192, target) == ()
    assert paddings(3, target) == ()


def test_knobs_that_sub_graphs_have_already_stay() -> None:
    knobs = Knobs(overrides=(SubGraphKnobs("a", factor=2), SubGraphKnobs("b", scope="GB")))
    found = with_knob(knobs, ("a", "c"), "cores", 4)
    assert {own.layer: own.as_dict() for own in found.overrides} == {
        "a": {"layer": "a", "factor": 2, "cores": 4},
        "b": {"layer": "b", "scope": "GB"},
        "c": {"layer": "c", "cores": 4},
    }


def test_shares_of_nothing_are_none() -> None:
    nothing = Shares((0.0,) * 8)
    assert nothing.part(nothing.limit) == 0.0


def test_a_spot_never_loses_less_than_nothing() -> None:
    shares = Shares((1.0, *[0.0] * 7))
    assert Bottleneck("layer", "a", ("a",), (0,), ("a",), 1.0, shares, 2.0).lost == 0.0


def test_failures_are_no_gain() -> None:
    failed = Remedy("knob", "x", {}, None, Failure("LB", "too much").message, None)
    bottleneck = Bottleneck("layer", "a", ("a",), (0,), ("a",), 1.0, Shares((1.0, *[0.0] * 7)), 0.0)
    assert Advice(bottleneck, (failed,)).helpful(0.0) == ()
