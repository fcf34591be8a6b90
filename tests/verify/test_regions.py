"""The region check on tilings by hand, and on schedules of random networks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_samples import bench, chain, networks, settings_of, target, targets

from autoturbo.errors import KnobsError
from autoturbo.schedule.knobs import Knobs, SubGraphKnobs
from autoturbo.schedule.pipeline import Workbench, build_schedule
from autoturbo.verify.regions import _tiling, check_regions, made_regions, needs_of, read_regions

if TYPE_CHECKING:
    from autoturbo.graph.operators import Graph
    from autoturbo.hardware import Target
    from autoturbo.schedule.schedule import Schedule


def cut_schedule() -> Schedule:
    """Convolutions and rectifiers of (2, 4, 8, 8), in four parts along the rows."""
    graph = chain("conv", "relu", "conv", "relu")
    knobs = Knobs(overrides=(SubGraphKnobs("conv1", dim=1, factor=4),))
    return build_schedule(Workbench(graph, target(lb=1 << 16), "float16"), knobs)


def kinds(boxes: list[list[tuple[int, int]]]) -> list[str]:
    """Kinds of what is found about boxes that should tile the last tensor of (2, 4, 8, 8)."""
    schedule = cut_schedule()
    tensor = schedule.problem.graph.outputs[0]
    table = np.asarray(boxes, np.int64)
    return [f.kind for f in _tiling(schedule, tensor, table, np.arange(len(table)))]


WHOLE = [(0, 2), (0, 4), (0, 8), (0, 8)]


def rows(*bounds: tuple[int, int]) -> list[list[tuple[int, int]]]:
    return [[*WHOLE[:2], bound, WHOLE[3]] for bound in bounds]


@pytest.mark.parametrize(
    ("boxes", "wanted"),
    [
        ([WHOLE], []),
        (rows((0, 3), (3, 8)), []),
        (rows((3, 8), (0, 3)), []),
        (rows((0, 3), (3, 3), (3, 8)), []),
        (rows((0, 3), (4, 8)), ["gap"]),
        (rows((0, 4), (3, 8)), ["overlap"]),
        (rows((0, 4), (3, 7)), ["gap", "overlap"]),
        (rows((0, 4), (4, 9)), ["outside"]),
        (rows((-1, 4), (4, 8)), ["outside"]),
        (rows((0, 8), (0, 8)), ["overlap"]),
        (rows((0, 0)), ["gap"]),
    ],
)
def test_tilings_by_hand(boxes: list[list[tuple[int, int]]], wanted: list[str]) -> None:
    assert kinds(boxes) == wanted


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_grid_tiles_and_no_part_of_it_may_be_missing(data: st.DataObject) -> None:
    cuts = [
        sorted({low, high, *data.draw(st.lists(st.integers(low, high), max_size=2))})
        for low, high in WHOLE
    ]
    boxes = [list(box) for box in itertools.product(*(itertools.pairwise(c) for c in cuts))]
    assert kinds(boxes) == []
    left = data.draw(st.integers(0, len(boxes) - 1))
    assert kinds([*boxes, boxes[left]]) == ["overlap"]
    if len(boxes) > 1:
        assert kinds(boxes[:left] + boxes[left + 1 :]) == ["gap"]


def test_a_gap_is_said_where_it_is() -> None:
    schedule = cut_schedule()
    tensor = schedule.problem.graph.outputs[0]
    table = np.asarray(rows((0, 3), (4, 8)), np.int64)
    (found,) = _tiling(schedule, tensor, table, np.asarray([0, 1]))
    name = schedule.problem.graph.tensors[tensor].name
    assert found.message == f"no part makes {name} from [0, 0, 3, 0] on, next to {found.instance}"


def test_parts_read_the_halo_that_their_rows_need() -> None:
    """Two convolutions of 3x3 need two rows on each side, as far as there are some."""
    schedule = cut_schedule()
    (source,) = schedule.problem.graph.inputs
    index = schedule.instances.count - 3
    (made,) = made_regions(schedule, index).values()
    first = next(i for i in range(schedule.instances.count) if source in needs_of(schedule)[i])
    read = read_regions(schedule, first)[source]
    assert needs_of(schedule)[first][source] == read
    assert made[0] == (0, 2)
    assert check_regions(schedule) == ()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=networks(), machine=targets(), data=st.data())
def test_random_schedules_have_no_findings(
    graph: Graph, machine: Target, data: st.DataObject
) -> None:
    knobs = data.draw(settings_of())
    schedule = build_schedule(Workbench(graph, machine, "float16"), knobs)
    assert check_regions(schedule) == ()


@pytest.mark.parametrize("split", ["auto", "spatial", "channel", "pipeline"])
@pytest.mark.parametrize("name", ["resnet50", "shufflenet_v2", "dlrm", "unet"])
def test_workloads_have_no_findings(name: str, split: str) -> None:
    try:
        schedule = build_schedule(bench(name), Knobs(cluster_split=split))
    except KnobsError:
        pytest.skip("the model cannot be shared out so")
    assert check_regions(schedule) == ()
