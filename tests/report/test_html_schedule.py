"""What a report says of a schedule agrees with what the simulator measured."""

from __future__ import annotations

import html
import itertools
import re
from collections import defaultdict

import pytest

from autoturbo.report import timeline as timeline_module
from autoturbo.report.explanation import GAP_TITLES
from autoturbo.report.facts import LIMIT_TITLES, Measured, gap_shares
from autoturbo.report.filling import group_colours
from autoturbo.report.graph_view import (
    layer_scopes,
    layers_picture,
    subgraph_facts,
    subgraph_rows,
    subgraphs_picture,
)
from autoturbo.report.names import layer_labels
from autoturbo.report.schedule_charts import ticks
from autoturbo.report.timeline import (
    FURTHER,
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
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.place.bind import Scope
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.measurement import Measurement
from tests.report.report_samples import fetching, measured
from tests.schedule.schedule_samples import STCP920, Net

SPLITS = ("auto", "channel")


@pytest.fixture(params=SPLITS)
def found(request: pytest.FixtureRequest) -> Measured:
    return measured(request.param)


def test_the_parts_of_the_time_are_those_of_explain_and_add_up(found: Measured) -> None:
    shares = schedule_shares(found.schedule).shares
    assert {limit: found.share(limit) for limit in Limit} == {
        limit: shares.part(limit) for limit in Limit
    }
    assert set(LIMIT_TITLES) == set(Limit)
    assert sum(map(found.seconds, Limit)) == pytest.approx(found.measurement.latency)
    longest = found.limits[0]
    assert found.share(longest) == max(map(found.share, Limit))


def test_what_could_be_won_is_what_lies_above_the_bound(found: Measured) -> None:
    gap = gap_shares(found.schedule)
    above = 1 - found.measurement.bound.seconds / found.measurement.latency
    assert sum(gap.values()) == pytest.approx(above)
    assert set(gap) == set(GAP_TITLES)


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
        rows = chart.data["bars"].where("group", [FURTHER]).values
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
    groups = subgraph_facts(found)
    inside = sum(one.seconds for one in found.found.subgraphs) / found.found.latency
    assert sum(g.share for g in groups) == pytest.approx(inside)
    assert inside <= 1 + 1e-9
    assert sorted(x for g in groups for x in g.layers) == list(
        range(len(found.schedule.context.layers))
    )
    share = found.schedule.share
    passes = share.copies * share.loops
    assert sum(g.macs for g in groups) == found.schedule.context.graph.macs * passes
    moved = sum(g.ddr_bytes for g in groups)
    assert moved == pytest.approx(found.measurement.ddr_bytes, rel=1e-6)


def test_loads_lie_beside_tensors_and_each_other() -> None:
    """What is fetched ahead has room in GB from its fetch until its kernel has it."""
    found = fetching()
    held = occupancy(found.schedule, found.kernels, Scope.GB)
    rows = held.loads.values
    boxes = list(zip(*(rows[name] for name in ("begin", "end", "low", "high")), strict=True))
    assert len(boxes) > 10
    assert all(b < e and 0 <= low < high <= held.capacity / 1024 for b, e, low, high in boxes)
    assert all("fetched ahead for" in what for what in rows["what"])
    tensors = held.boxes.values
    others = zip(*(tensors[name] for name in ("begin", "end", "low", "high")), strict=True)
    for one, two in [*itertools.combinations(boxes, 2), *itertools.product(boxes, others)]:
        apart = one[1] <= two[0] + 1e-6 or two[1] <= one[0] + 1e-6
        assert apart or one[3] <= two[2] or two[3] <= one[2]
    assert held.is_used
    assert not len(occupancy(found.schedule, found.kernels, Scope.LB).loads)


def test_isomorphic_subgraphs_are_one_row() -> None:
    net = Net(x=(1, 32, 16, 16))
    at = "x"
    for _ in range(4):
        at = net.conv(at, 32)
    evaluator = Evaluator(net.graph(), STCP920, "float16")
    schedule = evaluator.schedule(Knobs(max_layers=1))
    outcome = evaluator.measure(schedule)
    assert isinstance(outcome, Measurement)
    facts = subgraph_facts(Measured.of(schedule, outcome))
    (row,) = subgraph_rows(schedule, facts)
    assert row.label == "4 x Conv 3x3 32->32, 16x16 (conv0, ...)"
    assert row.layers == row.parts == 1
    assert row.share == pytest.approx(sum(one.share for one in facts))


@pytest.mark.parametrize(
    ("low", "high", "numbers"),
    [(3.0, 70.0, [5, 10, 20, 50]), (0.02, 300.0, [0.1, 1, 10, 100]), (90.0, 110.0, [100])],
)
def test_an_axis_has_round_numbers_of_its_decades(
    low: float, high: float, numbers: list[float]
) -> None:
    assert ticks(low, high) == numbers


def test_pictures_have_a_box_per_layer_and_per_subgraph(found: Measured) -> None:
    facts = subgraph_facts(found)
    drawn = layers_picture(found, facts)
    told = re.findall(r"<title>(.*?)</title>", drawn)
    assert sorted(html.unescape(text).partition(": ")[0] for text in told) == sorted(
        layer_labels(found.schedule).values()
    )
    assert all("core" in text for text in re.findall(r'class="below">(.*?)<', drawn))
    assert subgraphs_picture(found, facts).count("<title>sub-graph") == len(facts)


def test_colours_of_many_subgraphs_differ() -> None:
    colours = group_colours(200)
    assert len(set(colours)) == 200
    assert colours[:2] == group_colours(2)


def test_scopes_of_layers(found: Measured) -> None:
    scopes = layer_scopes(found.schedule)
    leaving = {found.schedule.context.producer[t] for t in found.schedule.context.graph.outputs}
    assert {scopes[layer] for layer in leaving} == {Scope.DDR}
