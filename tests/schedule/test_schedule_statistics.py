"""Statistics of a plan, held to the schedule that follows from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import KnobsError
from autoturbo.graph.domain import volume
from autoturbo.graph.operators import Graph
from autoturbo.hardware import Target
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.schedule.statistics import STATISTICS, statistics_of
from autoturbo.schedule.stitch import Stage
from autoturbo.verify.regions import part_needs
from tests.schedule.schedule_checks import as_region
from tests.schedule.schedule_samples import bench, networks, part_cost, settings_of, targets


def column(rows: np.ndarray, name: str) -> list[float]:
    found: list[float] = rows[:, STATISTICS.index(name)].tolist()
    return found


def test_resnet() -> None:
    workbench = bench("resnet50")
    rows, launches, _ = statistics_of(workbench, Knobs())
    assert rows.shape == (4, len(STATISTICS))
    assert launches.tolist() == [8, 4, 2, 1]
    assert column(rows, "instances") == [8, 4, 2, 1]
    assert column(rows, "loops") == [1] * 4
    assert column(rows, "samples") == [16] * 4
    assert column(rows, "layers") == [19, 17, 25, 8]
    macs = (rows[:, STATISTICS.index("macs")] * launches).sum()
    assert macs * 4 == pytest.approx(workbench.model.macs, rel=1e-6)
    assert (rows[:, STATISTICS.index("footprint_bytes")] <= 8 << 20).all()


@pytest.mark.full
def test_loops() -> None:
    rows, launches, _ = statistics_of(bench("resnet50"), Knobs(batches_per_cluster=4))
    assert set(column(rows, "loops")) == {4}
    assert launches.sum() % 4 == 0


@settings(max_examples=12, deadline=None)
@given(graph=networks(), machine=targets(), data=st.data())
def test_against_the_schedule(graph: Graph, machine: Target, data: st.DataObject) -> None:
    workbench = Workbench(graph, machine, "float16")
    knobs = data.draw(settings_of((), workbench.share().samples))
    rows, launches, _ = statistics_of(workbench, knobs)
    schedule = build_schedule(workbench, knobs)
    problem = schedule.problem
    assert len(rows) == len(schedule.instances.subgraphs)
    assert (rows >= 0).all()
    runs = np.zeros((schedule.share.clusters, len(rows)), np.int64)
    for instance, subgraph_of in enumerate(schedule.instances.subgraph.tolist()):
        runs[schedule.cluster[instance] if schedule.cluster else 0, subgraph_of] += 1
    assert launches.tolist() == (runs.max(axis=0) * schedule.share.loops).tolist()
    assert column(rows, "instances") == runs.max(axis=0).tolist()
    for subgraph in schedule.instances.subgraphs:
        row = dict(zip(STATISTICS, rows[subgraph.index].tolist(), strict=True))
        parts = [i for i in schedule.instances.instances if i.subgraph == subgraph.index]
        middle = parts[len(parts) // 2]
        outputs = {t: as_region(r) for t, r in middle.outputs.items()}
        needs = part_needs(problem, subgraph.layers, outputs)
        regions, boxes = needs.regions, needs.boxes
        element = problem.arrays.element
        assert row["layers"] == len(subgraph.layers)
        assert row["output_bytes"] == sum(volume(r) * int(element[t]) for t, r in outputs.items())
        assert row["input_bytes"] == sum(
            volume(regions[t]) * int(element[t]) for t in middle.inputs if t in regions
        )
        macs = sum(
            volume(b) * problem.graph.operators[op].work.macs for op, b in boxes.items()
            if problem.work.engine[op] == 1
        )  # fmt: skip
        assert row["macs"] == macs
        assert row["footprint_bytes"] >= row["input_bytes"]


@pytest.mark.full
def test_the_footprint_is_that_of_the_split() -> None:
    workbench = bench("resnet50")
    rows, _, _ = statistics_of(workbench, Knobs())
    schedule = build_schedule(workbench, Knobs())
    for subgraph in schedule.instances.subgraphs:
        row = rows[subgraph.index]
        assert row[STATISTICS.index("footprint_bytes")] == subgraph.split.footprint
    last = schedule.instances.subgraphs[-1]
    assert part_cost(schedule.problem, last.layers, -1, 0, 0)[0] == last.split.footprint


def test_weights_are_those_that_kernels_load() -> None:
    schedule = build_schedule(bench("resnet50"), Knobs())
    rows, launches, _ = statistics_of(bench("resnet50"), Knobs())
    loaded = sum(float(s.template.stages[:, Stage.WEIGHTS].sum()) for s in schedule.timeline.steps)
    assert (rows[:, STATISTICS.index("weight_bytes")] * launches).sum() == loaded


def test_a_setting_that_does_not_fit_is_refused() -> None:
    with pytest.raises(KnobsError):
        statistics_of(bench("resnet50"), Knobs(batches_per_cluster=99))
