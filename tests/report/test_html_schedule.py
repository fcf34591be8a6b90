"""What a report says of a schedule agrees with what the simulator measured."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.report import timeline as timeline_module
from autoturbo.report.facts import OVERHEADS, PARTS, WORKERS, Measured, _covered, time_use
from autoturbo.report.filling import GROUPS
from autoturbo.report.graph_view import (
    _edge_rows,
    graph_layout,
    layer_scopes,
    subgraph_facts,
)
from autoturbo.report.timeline import (
    core_lanes,
    end_of,
    end_of_all,
    engine_bars,
    engine_charts,
    lane_names,
    named,
    occupancy,
    time_charts,
)
from autoturbo.schedule.codegen.instructions import ENGINES
from autoturbo.schedule.place.bind import Scope
from tests.report.report_samples import measured

SPLITS = ("auto", "channel")


@pytest.fixture(params=SPLITS)
def found(request: pytest.FixtureRequest) -> Measured:
    return measured(request.param)


def test_the_parts_of_the_time_add_up(found: Measured) -> None:
    assert set(found.use.exposed) == set(PARTS)
    assert sum(found.use.exposed.values()) == pytest.approx(1.0)
    assert min(found.use.exposed.values()) >= 0


def test_what_is_exposed_is_part_of_what_is_busy(found: Measured) -> None:
    first, *others = found.use.order
    assert found.use.busy[first] == max(found.use.busy.values())
    for name in others:
        # what DDR takes beyond its instructions is exposed and not counted as busy
        assert name == "DDR" or found.use.exposed[name] <= found.use.busy[name] + 1e-12
    assert 0 < found.use.least <= found.use.exposed[first]


def test_busy_is_what_the_measurement_says() -> None:
    """But for movements between kernels, which have a part of their own."""
    found = measured()
    span = max(k.end for k in found.kernels) * found.schedule.share.loops
    for name in ("matrix", "vector"):
        assert found.use.busy[name] * span == pytest.approx(found.measurement.busy[name])


def test_another_order_hides_others(found: Measured) -> None:
    order = tuple(reversed(found.use.order))
    other = time_use(found.schedule, found.kernels, found.measurement.bound,
                     found.measurement.latency, order)  # fmt: skip
    assert other.order == order
    assert other.exposed[order[0]] >= found.use.exposed[order[0]]
    for name in OVERHEADS:
        assert other.exposed[name] == pytest.approx(found.use.exposed[name])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12))
def test_the_union_of_intervals(pairs: list[tuple[int, int]]) -> None:
    begin = np.asarray([b for b, _ in pairs], np.float64)
    end = begin + np.asarray([length for _, length in pairs], np.float64)
    covered = {x for b, length in pairs for x in range(b, b + length)}
    assert _covered(begin, end) == len(covered)


def test_bars_hold_what_engines_work(found: Measured) -> None:
    rows = engine_bars(found.schedule, found.kernels).values
    worked: dict[str, float] = defaultdict(float)
    for lane, begin, end, busy in zip(*(rows[n] for n in ("lane", "begin", "end", "busy")),
                                      strict=True):  # fmt: skip
        assert begin < end
        assert 0 < busy <= 1 + 1e-9
        worked[lane] += (end - begin) * busy
    assert set(worked) <= set(lane_names(found.schedule))
    for kernel in found.kernels:
        where = kernel.program.where[:, 0]
        for engine in range(len(ENGINES)):
            own = where == engine
            title = timeline_module.TITLES[ENGINES[engine]]
            worked[named(found.schedule, kernel.cluster, title)] -= 1e6 * float(
                (kernel.freed - kernel.issued)[own].sum()
            )
    engines = [lane for lane in worked if "kernel" not in lane]
    assert max(abs(worked[lane]) for lane in engines) < 1e-6


def test_passes_after_the_first_are_a_bar_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a batch is on the axis on which two schedules are compared."""
    found = measured(batch=16, passes=4)
    assert found.schedule.share.loops == 4
    assert end_of_all(found) == pytest.approx(1e6 * found.measurement.latency, rel=0.02)

    def further() -> list[tuple[float, float]]:
        (chart,) = engine_charts(found, end_of_all(found), whole=True).values()
        rows = chart.data["bars"].where("group", [GROUPS]).values
        return list(zip(rows["begin"], rows["end"], strict=True))

    span = end_of(found)
    assert further() == [(span * at, span * (at + 1)) for at in (1, 2, 3)]
    monkeypatch.setattr(timeline_module, "MOST_PASSES", 3)
    assert further() == [(span, span * 4)]


def test_lanes_of_all_clusters_are_shown_or_folded_away() -> None:
    """Every bar is in one of the two charts, and each chart has the lanes of its own bars."""
    found = measured("channel")
    charts = time_charts(found)
    every = engine_bars(found.schedule, found.kernels)
    parts = [charts["timeline"], charts["timeline-rest"]]
    assert sum(len(chart.data["bars"]) for chart in parts) == len(every)
    assert [lane for c in parts for lane in c.given["lanes"]] == lane_names(found.schedule)
    for chart in parts:
        assert set(chart.data["bars"].values["lane"]) <= set(chart.given["lanes"])
        assert len(chart.data["bars"])
    assert set(time_charts(measured())) == {"timeline", "cores"}


def test_many_bars_become_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured()
    whole = engine_bars(found.schedule, found.kernels)
    monkeypatch.setattr(timeline_module, "MOST_BARS", len(whole) * 3 // 4)
    fewer = engine_bars(found.schedule, found.kernels)
    assert len(fewer) <= len(whole) * 3 // 4
    assert f"in {len(fewer)} bars" in fewer.note
    monkeypatch.setattr(timeline_module, "MOST_BARS", 1)  # fewer than there are kernels
    assert len(engine_bars(found.schedule, found.kernels)) < len(fewer)


def test_cores_have_parts_while_their_kernel_runs(found: Measured) -> None:
    names, columns = core_lanes(found.schedule, found.kernels)
    rows = columns.values
    assert len(names) == found.schedule.context.target.cores * len(found.schedule.timelines)
    assert set(rows["lane"]) <= set(names)
    for lane in names:
        own = sorted((b, e) for at, b, e in zip(rows["lane"], rows["begin"], rows["end"],
                                                strict=True) if at == lane)  # fmt: skip
        assert all(one[1] <= two[0] + 1e-9 for one, two in itertools.pairwise(own))


def test_many_cores_that_work_alike_share_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured()
    names, every = core_lanes(found.schedule, found.kernels)
    monkeypatch.setattr(timeline_module, "MOST_CORES", 4)
    monkeypatch.setattr(timeline_module, "MOST_KERNELS", 1)
    shared, columns = core_lanes(found.schedule, found.kernels)
    assert len(shared) < len(names)
    assert shared[0].startswith("cores 0-")
    drawn = max(columns.values["end"])
    assert drawn == pytest.approx(max(every.values["end"]))
    groups = len(found.schedule.instances.subgraphs)
    assert len(columns) <= len(shared) * max(groups, len(found.kernels))


@pytest.mark.parametrize("scope", [Scope.LB, Scope.GB])
def test_a_buffer_is_as_full_as_was_measured(found: Measured, scope: Scope) -> None:
    clusters = range(len(found.schedule.timelines))
    held = [occupancy(found.schedule, found.kernels, scope, cluster) for cluster in clusters]
    peak = {Scope.LB: found.measurement.peak_lb_bytes, Scope.GB: found.measurement.peak_gb_bytes}
    # what was measured is the highest address in use, gaps below it included
    highest = max((high for one in held for high in one.boxes.values["high"]), default=0)
    assert round(1024 * highest) == peak[scope]
    assert max(one.peak for one in held) <= peak[scope]
    for one in held:
        assert sum(size for *_, size in one.fillers) <= one.peak
        if not one.more:
            assert sum(size for *_, size in one.fillers) == one.peak
        assert round(max(one.used.values["KiB"]) * 1024) == one.peak
        assert all(high * 1024 <= one.zone for high in one.boxes.values["high"])


def test_boxes_of_a_buffer_do_not_overlap() -> None:
    """No two tensors at one place at one time: what the memory check proves, as it is drawn."""
    found = measured()
    rows = occupancy(found.schedule, found.kernels, Scope.LB).boxes.values
    boxes = list(zip(rows["begin"], rows["end"], rows["low"], rows["high"], strict=True))
    assert len(boxes) > 10
    for one, two in itertools.combinations(boxes, 2):
        # a step's first instruction may run before its last of the step before: equal edges touch
        apart = one[1] <= two[0] or two[1] <= one[0] or one[3] <= two[2] or two[3] <= one[2]
        assert apart


def test_subgraphs_share_the_time(found: Measured) -> None:
    groups = subgraph_facts(found.schedule, found.kernels)
    assert sum(g.share for g in groups) == pytest.approx(1.0)
    assert sorted(x for g in groups for x in g.layers) == list(
        range(len(found.schedule.context.layers))
    )
    assert {g.bound for g in groups} <= set(PARTS)
    copies = found.schedule.share.copies
    assert sum(g.macs for g in groups) == found.schedule.context.graph.macs * copies
    moved = sum(g.ddr_bytes for g in groups) * found.schedule.share.loops
    assert moved == pytest.approx(found.measurement.ddr_bytes, rel=1e-6)
    assert max(WORKERS) in PARTS


def test_layers_lie_in_their_subgraph_below_what_they_read(found: Measured) -> None:
    plan = graph_layout(found.schedule)
    groups = {box.number: box for box in plan.groups}
    layers = {box.number: box for box in plan.layers}
    assert set(layers) == set(range(len(found.schedule.context.layers)))
    for subgraph in found.schedule.instances.subgraphs:
        home = groups[subgraph.index]
        for layer in subgraph.layers:
            box = layers[layer]
            assert home.top < box.top
            assert box.bottom <= home.bottom <= plan.rows
            assert home.left - 1e-9 <= box.left < box.right <= home.right + 1e-9
    assert plan.edges
    assert all(0 <= left <= 1 for _, _, left, _ in _edge_rows(plan))
    for maker, reader in plan.edges:
        assert layers[maker].bottom <= layers[reader].top


def test_scopes_of_layers(found: Measured) -> None:
    scopes = layer_scopes(found.schedule)
    leaving = {found.schedule.context.producer[t] for t in found.schedule.context.graph.outputs}
    assert {scopes[layer] for layer in leaving} == {Scope.DDR}
