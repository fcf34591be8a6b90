"""The vendor's published schedule of ResNet-50 (graphturbo.md 4.5): a file that loads and runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import autoturbo
from autoturbo.errors import ScheduleFileError
from autoturbo.schedule.files import load_schedule
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule
from autoturbo.schedule.place.bind import Scope
from autoturbo.simulator.sequence import simulate
from tests.schedule.concats import MovementKind, concats
from tests.schedule.schedule_checks import check_schedule
from tests.schedule.schedule_samples import STCP920
from tests.schedule.steps import instance_of, instances_of, names_of, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from autoturbo.graph.operators import Graph
    from autoturbo.schedule.schedule import Schedule

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "schedules" / "resnet50-vendor.json"


@pytest.fixture(scope="module")
def model() -> Graph:
    return autoturbo.load_model(EXAMPLES / "models" / "resnet50.onnx", batch=64)


@pytest.fixture(scope="module")
def vendor(model: Graph) -> Schedule:
    return load_schedule(FILE, model, STCP920)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    place = EXAMPLES / "schedules" / "resnet50_vendor.py"
    spec = importlib.util.spec_from_file_location("resnet50_vendor", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def label(schedule: Schedule, index: int) -> str:
    instance = instance_of(schedule.instances, index)
    return f"G{instance.subgraph}[{instance.part}]"


def test_the_file_is_what_the_published_decisions_give(
    model: Graph, vendor: Schedule, script: ModuleType
) -> None:
    """After a change of the file format or of the scheduler's version: run the script again."""
    made = script.schedule(model, STCP920)
    assert script.text(made) == FILE.read_text(encoding="utf-8")
    assert vendor.text == made.text


def test_order_and_scopes_are_the_published_ones(vendor: Schedule) -> None:
    """The first of two parts waits in LLB, the second in L1; the result leaves to DDR."""
    order = [f"{label(vendor, i)} {vendor.placement.scopes[i].name}" for i in vendor.order]
    assert order == [
        "G0[0] GB", "G0[1] LB", "G1[0] GB", "G0[2] GB", "G0[3] LB", "G1[1] LB", "G2[0] GB",
        "G0[4] GB", "G0[5] LB", "G1[2] GB", "G0[6] GB", "G0[7] LB", "G1[3] LB", "G2[1] LB",
        "G3[0] DDR",
    ]  # fmt: skip


def test_groups_parts_and_cores_are_the_published_ones(vendor: Schedule) -> None:
    context, graph = vendor.context, vendor.instances
    sums = [
        sum(
            context.graph.operators[op].kind == "Add"
            for layer in subgraph.layers
            for op in context.layers[layer].operators
        )
        for subgraph in graph.subgraphs
    ]
    assert sums == [4, 4, 6, 2]
    assert [s.split.instances for s in graph.subgraphs] == [8, 4, 2, 1]
    cores = {i.subgraph: vendor.placement.bindings[i.index] for i in instances_of(graph)}
    assert cores == {0: (2, 1, 4, 1), 1: (4, 1, 2, 1), 2: (8, 1, 1, 1), 3: (8, 1)}


def test_the_published_grouping_is_what_our_algorithms_find(model: Graph, vendor: Schedule) -> None:
    """Algorithms 1, 2 and 4 give the vendor's groups, parts and cores; the order is mirrored."""
    ours = build_schedule(ModelScheduler(model, STCP920, "float16"), Knobs())
    assert [s.layers for s in ours.instances.subgraphs] == [
        s.layers for s in vendor.instances.subgraphs
    ]
    assert ours.placement.bindings == vendor.placement.bindings
    assert [instance_of(ours.instances, i).subgraph for i in ours.order][:3] == [0, 0, 1]


def test_what_waits_in_llb_is_copied_and_what_is_in_l1_redistributed(vendor: Schedule) -> None:
    """Seven concatenations in L1, as published, each of one part from either memory."""
    every = (
        c for step in steps_of(vendor.timeline) for c in concats(vendor.timeline, step.instance)
    )
    joined = [c for c in every if len(c.pieces) > 1]
    assert len(joined) == 7
    for concat in joined:
        first, second = concat.pieces
        assert first.movement is MovementKind.COPY
        assert second.movement in (MovementKind.REDISTRIBUTE, None)
    kept = {i: Scope(s) for i, s in enumerate(vendor.placement.scopes)}
    for name, scope in zip(
        names_of(vendor.timeline), vendor.timeline.buffers.scope.tolist(), strict=True
    ):
        last = vendor.instances.subgraphs[instance_of(vendor.instances, name.instance).subgraph]
        if name.tensor in vendor.context.layers[last.layers[-1]].outputs and name.kind == "tensor":
            assert Scope(scope) is kept[name.instance]


def test_it_is_a_valid_schedule(vendor: Schedule) -> None:
    check_schedule(vendor)
    assert len(steps_of(vendor.timeline)) == 15
    assert (vendor.share.samples, vendor.share.batches, vendor.share.loops) == (16, 16, 1)


@pytest.mark.full
def test_it_is_within_a_few_percent_of_ours(model: Graph, vendor: Schedule) -> None:
    """Published: 8.00 times TVM for the vendor's schedule, 7.97 for GraphTurbo's (figure 14)."""
    ours = simulate(build_schedule(ModelScheduler(model, STCP920, "float16"), Knobs()))
    theirs = simulate(vendor)
    assert theirs.latency == pytest.approx(ours.latency, rel=0.05)
    assert theirs.ddr_bytes == pytest.approx(ours.ddr_bytes, rel=0.01)
    assert theirs.tensors["DDR"] == 1


def _move_behind(document: dict[str, Any]) -> None:
    document["order"].append(document["order"].pop(0))


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a part that comes too late": (_move_behind, "order[1]"),
    "more cores": (lambda d: d["order"][0].update(cores=[4, 1, 4, 1]), "order[0].cores"),
    "another batch": (lambda d: d["model"].update(hash="0"), "model.hash"),
    "a quarter of the images": (lambda d: d["share"].update(batches=4), "subgraphs[0].instances"),
}


@pytest.mark.full
@pytest.mark.parametrize(("edit", "field"), EDITS.values(), ids=EDITS)
def test_a_changed_file_is_refused(
    tmp_path: Path, model: Graph, edit: Callable[[dict[str, Any]], object], field: str
) -> None:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    edit(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ScheduleFileError) as caught:
        load_schedule(path, model, STCP920)
    assert caught.value.at.field == field
