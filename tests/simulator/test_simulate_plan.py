"""Statistics of a plan's kernels, held to the schedule that follows from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.graph.domain import volume
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.context import SchedulingContext, make_context
from autoturbo.schedule.knobs import AUTO, Knobs, SubGraphKnobs, knob_names
from autoturbo.schedule.partition.grouping import GroupRules, SubGraph, group
from autoturbo.schedule.partition.split import Split, sink, split_axes
from autoturbo.schedule.pipeline import ModelScheduler, build_schedule, plan
from autoturbo.schedule.place.instances import PartBook, parts_of
from autoturbo.schedule.stitch.stages import Stage
from autoturbo.simulator import isolated
from autoturbo.simulator.contract import PlanStatistics
from autoturbo.simulator.plan import CAPACITIES, COLUMNS, KernelStatistics, capacities
from autoturbo.verifier.regions import part_needs
from tests.schedule.schedule_checks import as_region
from tests.schedule.schedule_samples import (
    chain,
    networks,
    part_cost,
    scheduler_of,
    settings_of,
    target,
    targets,
)
from tests.schedule.steps import instances_of, steps_of


def statistics_of(
    model_scheduler: ModelScheduler, knobs: Knobs
) -> tuple[np.ndarray, np.ndarray, Mapping[int, SubGraphKnobs]]:
    found = KernelStatistics(model_scheduler).of_plan(knobs)
    assert isinstance(found, PlanStatistics)
    return found.values, found.launches, found.overrides


def column(rows: np.ndarray, name: str) -> list[float]:
    found: list[float] = rows[:, COLUMNS.index(name)].tolist()
    return found


def test_resnet() -> None:
    model_scheduler = scheduler_of("resnet50")
    rows, launches, _ = statistics_of(model_scheduler, Knobs())
    assert rows.shape == (4, len(COLUMNS))
    assert launches.tolist() == [8, 4, 2, 1]
    assert column(rows, "instances") == [8, 4, 2, 1]
    assert column(rows, "loops") == [1] * 4
    assert column(rows, "samples") == [16] * 4
    assert column(rows, "layers") == [19, 17, 25, 8]
    macs = (rows[:, COLUMNS.index("macs")] * launches).sum()
    assert macs * 4 == pytest.approx(model_scheduler.model.macs, rel=1e-6)
    assert (rows[:, COLUMNS.index("footprint_bytes")] <= 8 << 20).all()


@pytest.mark.full
def test_loops() -> None:
    rows, launches, _ = statistics_of(scheduler_of("resnet50"), Knobs(batches_per_cluster=4))
    assert set(column(rows, "loops")) == {4}
    assert launches.sum() % 4 == 0


@settings(max_examples=12, deadline=None)
@given(graph=networks(), machine=targets(), data=st.data())
def test_against_the_schedule(graph: Graph, machine: Target, data: st.DataObject) -> None:
    model_scheduler = ModelScheduler(graph, machine, "float16")
    knobs = data.draw(settings_of((), model_scheduler.share().samples, on=machine))
    rows, launches, _ = statistics_of(model_scheduler, knobs)
    schedule = build_schedule(model_scheduler, knobs)
    context = schedule.context
    assert len(rows) == len(schedule.instances.subgraphs)
    assert (rows >= 0).all()
    runs = np.zeros((schedule.share.clusters, len(rows)), np.int64)
    for instance, subgraph_of in enumerate(schedule.instances.subgraph.tolist()):
        runs[schedule.cluster[instance] if schedule.cluster else 0, subgraph_of] += 1
    assert launches.tolist() == (runs.max(axis=0) * schedule.share.loops).tolist()
    assert column(rows, "instances") == runs.max(axis=0).tolist()
    for subgraph in schedule.instances.subgraphs:
        row = dict(zip(COLUMNS, rows[subgraph.index].tolist(), strict=True))
        parts = [i for i in instances_of(schedule.instances) if i.subgraph == subgraph.index]
        middle = parts[len(parts) // 2]
        outputs = {t: as_region(r) for t, r in middle.outputs.items()}
        needs = part_needs(context, subgraph.layers, outputs)
        regions, boxes = needs.regions, needs.boxes
        element = context.arrays.element
        assert row["layers"] == len(subgraph.layers)
        assert row["output_bytes"] == sum(volume(r) * int(element[t]) for t, r in outputs.items())
        assert row["input_bytes"] == sum(
            volume(regions[t]) * int(element[t]) for t in middle.inputs if t in regions
        )
        macs = sum(
            volume(b) * context.graph.operators[op].work.macs for op, b in boxes.items()
            if context.work.engine[op] == 1
        )  # fmt: skip
        assert row["macs"] == macs
        assert row["footprint_bytes"] >= row["input_bytes"]


@pytest.mark.full
def test_the_footprint_is_that_of_the_split() -> None:
    model_scheduler = scheduler_of("resnet50")
    rows, _, _ = statistics_of(model_scheduler, Knobs())
    schedule = build_schedule(model_scheduler, Knobs())
    for subgraph in schedule.instances.subgraphs:
        row = rows[subgraph.index]
        assert row[COLUMNS.index("footprint_bytes")] == subgraph.split.footprint
    last = schedule.instances.subgraphs[-1]
    assert part_cost(schedule.context, last.layers, -1, 0, 0)[0] == last.split.footprint


def test_weights_are_those_that_kernels_load() -> None:
    schedule = build_schedule(scheduler_of("resnet50"), Knobs())
    rows, launches, _ = statistics_of(scheduler_of("resnet50"), Knobs())
    loaded = sum(
        float(s.template.stages[:, Stage.WEIGHTS].sum()) for s in steps_of(schedule.timeline)
    )
    assert (rows[:, COLUMNS.index("weight_bytes")] * launches).sum() == loaded


def test_a_setting_that_does_not_fit_has_none() -> None:
    model_scheduler = ModelScheduler(chain("conv", "softmax"), target(), "float16")
    unknown = Knobs(overrides=(SubGraphKnobs("nowhere", cores=1),))
    each = [Knobs(), unknown, Knobs(batches_per_cluster=99), Knobs()]
    found = KernelStatistics(model_scheduler).kernels_of(each)
    assert [plan is None for plan in found] == [False, True, True, False]
    assert found[0] is not None
    assert found[3] is not None
    assert found[0].kernels == found[3].kernels


def test_an_override_holds_for_the_kernel_of_its_sub_graph_alone() -> None:
    model_scheduler = ModelScheduler(chain("conv", "softmax", "conv"), target(), "float16")
    names = [
        layer.name for layer in model_scheduler.context(model_scheduler.share().batches).layers
    ]
    cut = SubGraphKnobs(names[0], boundary="cut")
    own = SubGraphKnobs(names[-1], cores=2, scope="DDR")
    statistics = KernelStatistics(model_scheduler)
    knobs = Knobs(prefetch_depth=2, overrides=(cut, own))
    (plan,) = statistics.kernels_of([knobs])
    assert plan is not None
    numbers = [number for _, number in list(statistics.kernels)]
    held = [list(statistics.knobs)[numbers[kernel]] for kernel in plan.kernels]
    assert len(held) > 1
    said = [dict(zip(knob_names("subgraph"), values, strict=True)) for values in held]
    assert {row["prefetch_depth"] for row in said} == {2}
    assert [row["cores"] for row in said] == [*(AUTO for _ in said[1:]), 2]
    assert [row["scope"] for row in said] == [*(AUTO for _ in said[1:]), "DDR"]


def test_whole_tensors_are_those_that_the_next_sub_graph_reads() -> None:
    rows = capacities_of_resnet()
    assert rows[0]["whole_input_bytes"] == 0  # the image is no other sub-graph's
    for before, after in itertools.pairwise(rows):
        assert 0 < before["whole_output_bytes"] <= after["whole_input_bytes"]
    assert rows[-1]["whole_output_bytes"] == 16 * 1000 * 2


def test_capacities_and_rates_are_the_cluster_s() -> None:
    machine = scheduler_of("resnet50").target
    for row in capacities_of_resnet():
        assert row["lb_bytes"] == machine.cores * machine.lb.capacity
        assert row["weight_room_bytes"] == machine.cores * machine.lb.weight_capacity
        assert 0 < row["gb_room_bytes"] < machine.gb.capacity
        assert row["ddr_bandwidth"] == machine.ddr_bandwidth_per_cluster < row["gb_bandwidth"]
        assert row["overhead_s"] == machine.overheads.kernel_launch + machine.overheads.barrier


def capacities_of_resnet() -> list[dict[str, float]]:
    """Of ResNet-50's sub-graphs, 16 samples a cluster."""
    planned = plan(scheduler_of("resnet50"), Knobs())
    context, subgraphs = planned.context, planned.subgraphs
    found = [capacities(context, s.layers) for s in subgraphs]
    return [dict(zip(CAPACITIES, row, strict=True)) for row in found]


@pytest.mark.full
@settings(max_examples=30, deadline=None)
@given(graph=networks(8), data=st.data())
def test_the_representative_is_the_first_part_of_the_class_that_has_most(
    graph: Graph, data: st.DataObject
) -> None:
    context = make_context(graph, target(lb=512), "float16")
    for subgraph in group(context, GroupRules.of(Knobs())):
        parts = parts_of(PartBook(context), subgraph.recut(data.draw(cuts(context, subgraph))))
        classes = parts.shapes.tolist()
        most = max(classes.count(c) for c in classes)
        first = next(at for at, c in enumerate(classes) if classes.count(c) == most)
        assert isolated.representative(parts).tolist() == [first]


@st.composite
def cuts(draw: st.DrawFn, context: SchedulingContext, subgraph: SubGraph) -> Split:
    """Any split of a sub-graph, along up to two axes."""
    axes, extents = split_axes(context, subgraph.layers), sink(context, subgraph.layers).axes
    if not axes:
        return Split(-1, 1, 0, 0, 0)
    chosen = draw(st.lists(st.sampled_from(axes), min_size=1, max_size=2, unique=True))
    parts = [draw(st.integers(1, min(extents[axis].extent, 6))) for _, axis in chosen]
    inner = (chosen[1][1], parts[1]) if len(chosen) > 1 else (-1, 1)
    return Split(chosen[0][1], parts[0], chosen[0][0], 0, 0, *inner)
