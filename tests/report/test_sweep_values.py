"""Points of a sweep: the Pareto front, tables, files and pictures of them."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.errors import UsageError
from autoturbo.extras import how_to_install
from autoturbo.files import Kind
from autoturbo.hardware import load_target
from autoturbo.hardware.grid import Axis, Cost, Value, cost_of, grid_of, neighbours
from autoturbo.report import sweep as sweep_module
from autoturbo.report.sweep import (
    Course,
    Sweep,
    SweepPoint,
    front_sentences,
    plot,
    points_table,
    require_matplotlib,
)
from tests.search.search_doubles import measurement


def sweep_of(axes: Mapping[str, tuple[Value, ...]], latencies: list[float | None]) -> Sweep:
    found = tuple(
        SweepPoint(
            values, f"t{number}", f"run{number}", 4,
            None if latency is None else measurement(latency), 2e-3,
            "too large" if latency is None else None,
        )
        for number, (values, latency) in enumerate(
            zip(itertools.product(*axes.values()), latencies, strict=True)
        )
    )  # fmt: skip
    return Sweep("net", "npu", "float16", tuple(Axis(p, v) for p, v in axes.items()), found)


SIZES = {"lb.capacity_kib": (256, 512, 1024), "ddr.bandwidth_gb_s": (60, 120)}
LATENCIES = [3e-3, 2e-3, 2.5e-3, 2e-3, 2.6e-3, None]


def values(points: tuple[SweepPoint, ...]) -> list[tuple[Value, ...]]:
    return [point.values for point in points]


def test_the_front_is_what_nothing_else_is_as_good_as() -> None:
    found = sweep_of(SIZES, [*LATENCIES[:4], 2.5e-3, None])
    assert values(found.front) == [(256, 60), (256, 120), (512, 60)]


def test_what_the_search_missed_strikes_no_point_and_is_marked() -> None:
    found = sweep_of(SIZES, LATENCIES)
    assert values(found.front) == [(256, 60), (256, 120), (512, 60), (1024, 60)]
    assert {key[0]: one.target for key, one in lesser_of(found).items()} == {1024: "t2"}
    told = [point["slower_than"] for point in found.as_json()["points"]]
    assert told == [None, None, None, None, "t2", None]


def lesser_of(found: Sweep) -> dict[tuple[Value, ...], SweepPoint]:
    lesser = found.faster_lesser
    return {point.values: lesser[id(point)] for point in found.points if id(point) in lesser}


def test_a_faster_point_that_is_cheaper_otherwise_still_strikes() -> None:
    """Two clusters at 512 are above one at 256, but what they could be is above one at 128."""
    axes: Mapping[str, tuple[Value, ...]] = {"lb.capacity_kib": (256, 512), "clusters": (1, 2)}
    found = sweep_of(axes, [1e-3, 3e-3, 1e-3, 4e-3])
    assert values(found.front) == [(256, 1)]
    assert set(lesser_of(found)) == {(512, 2)}


@pytest.mark.parametrize(
    ("path", "helps"),
    [
        ("lb.capacity_kib", 1), ("gb.bandwidth_gb_s", 1), ("engines[matrix].rate.float16", 1),
        ("engines[vector].special_lanes", 1), ("clock_mhz", 1), ("ddr.latency_ns", -1),
        ("overheads.barrier_us", -1), ("engines[matrix].startup_cycles", -1), ("clusters", 0),
        ("engines[matrix].rows", 0), ("energy.static_w", 0),
    ],
)  # fmt: skip
def test_of_some_fields_more_only_helps(path: str, helps: int) -> None:
    assert Axis(path, (1, 2)).only_helps == helps
    assert Axis(path, ("a", "b")).only_helps == 0


def test_neighbours_differ_by_one_step_of_a_field_that_has_an_order() -> None:
    axes = (Axis("lb.capacity_kib", (512, 128, 256)), Axis("matrix.dataflow", ("a", "b")))
    assert list(neighbours(axes, (256, "a"))) == [(128, "a"), (512, "a")]
    assert list(neighbours(axes, (128, "b"))) == [(256, "b")]


def test_more_of_a_delay_is_the_cheaper_target() -> None:
    axes: Mapping[str, tuple[Value, ...]] = {"overheads.barrier_us": (1, 2)}
    assert values(sweep_of(axes, [1e-3, 1e-3]).front) == [(2,)]
    assert values(sweep_of(axes, [1e-3, 2e-3]).front) == [(1,), (2,)]


def test_words_are_compared_with_themselves_only() -> None:
    axes: Mapping[str, tuple[Value, ...]] = {
        "engines[matrix].dataflow": ("ideal", "weight_stationary"), "clusters": (1, 2)
    }  # fmt: skip
    found = sweep_of(axes, [1e-3, 1e-3, 3e-3, 2e-3]).front
    assert values(found) == [("ideal", 1), ("weight_stationary", 1), ("weight_stationary", 2)]


@given(st.lists(st.none() | st.integers(1, 4), min_size=6, max_size=6))
@settings(max_examples=60)
def test_fronts_are_those_of_the_definition(drawn: list[int | None]) -> None:
    found = sweep_of(SIZES, [None if d is None else d * 1e-3 for d in drawn])
    front = values(found.front)
    known = [p for p in found.points if p.best is not None]
    for one in known:
        others = [
            two for two in known if two is not one
            and all(float(a) <= float(b) for a, b in zip(two.values, one.values, strict=True))
            and two.best is not None and one.best is not None
            and two.best.latency <= one.best.latency
        ]  # fmt: skip
        slower = one.values in lesser_of(found)  # both fields only help
        assert (one.values in front) == (slower or not others)
    assert bool(front) == bool(known)


def priced(found: Sweep, cost: Cost) -> Sweep:
    grid = grid_of(load_target("stcp920"), found.axes)
    points = tuple(
        point.costing(cost, at.target) for point, at in zip(found.points, grid, strict=True)
    )
    return dataclasses.replace(found, points=points, cost=cost)


def test_a_cost_is_the_sum_of_weights_times_values() -> None:
    target = load_target("stcp920")
    cost = cost_of("lb.capacity_kib=0.5, engines[matrix].rows=2,matrix.rate.int8=1", [target])
    assert cost.of(target) == 0.5 * 1024 + 2 * 64 + 2.0
    assert str(cost) == "0.5 * lb.capacity_kib + 2 * matrix.rows + 1 * matrix.rate.int8"
    assert cost_of({"engines[matrix].rows": 2}, [target]).weights == {"matrix.rows": 2.0}
    assert cost_of("clusters", [target]).of(target) == 4.0


def test_what_a_target_has_not_costs_nothing() -> None:
    target = load_target("stcp920")
    without = load_target("ipu-mk2")
    cost = cost_of("gb.capacity_kib=1", [target, without])
    assert cost.of(target) == 8192.0
    assert cost.of(without) == 0.0


@pytest.mark.parametrize(
    ("stated", "error", "hint"),
    [
        ("lb.capacity_kb=1", "'lb.capacity_kb' is not a number of the", "did you mean 'lb.capaci"),
        ("ddr.share=1", "'ddr.share' is not a number of the target", ""),
        ("energy", "'energy' is neither a column nor a number of the target", "did you mean 'ene"),
        ("lb.capacity_kib=", "'lb.capacity_kib=' is not a field with its weight", "write "),
        ("lb.capacity_kib=x", "'lb.capacity_kib=x' is not a field with its weight", "write "),
        ("clusters=1,clusters=2", "'clusters' has two weights", "give the sum"),
        ({"clusters": math.nan}, "nan is not a weight", "give a finite number"),
        ({}, "no weights", "write "),
    ],
)
def test_what_is_no_cost_is_refused(
    stated: Mapping[str, float] | str, error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cost_of(stated, [load_target("stcp920")], ["energy_j"])
    assert refused.value.message.startswith(error)
    assert (refused.value.hint or "").startswith(hint)


def test_the_front_over_a_cost_is_of_two_figures_alone() -> None:
    """Bandwidth costs far more than the buffer: what the fields leave open, the cost decides."""
    found = sweep_of(SIZES, LATENCIES)
    cost = Cost({"lb.capacity_kib": 0.1, "ddr.bandwidth_gb_s": 10.0})
    told = priced(found, cost)
    assert [point.cost for point in told.points[:2]] == [0.1 * 256 + 600, 0.1 * 256 + 1200]
    assert values(told.front) == [(256, 60), (256, 120), (512, 60)]
    cheap = Cost({"lb.capacity_kib": 10.0, "ddr.bandwidth_gb_s": 1.0})
    assert values(priced(found, cheap).front) == [(256, 60), (256, 120)]


def test_points_that_cost_the_same_and_are_as_fast_are_both_in_the_front() -> None:
    found = priced(sweep_of({"clusters": (1, 2)}, [1e-3, 1e-3]), Cost({"gb.capacity_kib": 1.0}))
    assert len(found.front) == 2


def test_a_column_can_be_the_cost() -> None:
    found = priced(sweep_of(SIZES, LATENCIES), Cost({}, "default_s"))
    assert {point.cost for point in found.points} == {2e-3}
    assert values(found.front) == [(256, 120), (512, 120)]
    blind = dataclasses.replace(measurement(1e-3), energy=None)
    points = tuple(dataclasses.replace(p, best=p.best and blind) for p in found.points)
    unknown = priced(dataclasses.replace(found, points=points), Cost({}, "energy_j"))
    assert unknown.front == ()
    assert any("5 of 5 points have no cost" in line for line in front_sentences(unknown))


def test_a_cost_is_in_files_and_in_the_table() -> None:
    found = priced(sweep_of(SIZES, LATENCIES), Cost({"lb.capacity_kib": 1.0}))
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert [float(row["cost"]) for row in rows] == [256, 256, 512, 512, 1024, 1024]
    assert Kind.TABLE.begins(found.csv().encode())
    assert [point["cost"] for point in found.as_json()["points"]][:2] == [256.0, 256.0]
    assert str(next(iter(points_table(found).columns[2].cells))) == "256"
    assert front_sentences(found)[0] == "cost: 1 * lb.capacity_kib"


def test_a_front_of_all_points_is_said_in_words() -> None:
    axes: Mapping[str, tuple[Value, ...]] = {"lb.capacity_kib": (256, 512, 1024)}
    found = sweep_of(axes, [3e-3, 2e-3, 1e-3])
    said = front_sentences(found)[-1]
    assert said.startswith("all 3 points are in the Pareto front: none that offers less is as fast")
    assert "--cost" in said
    told = front_sentences(priced(found, Cost({"lb.capacity_kib": 1.0})))[-1]
    assert told == "all 3 points are in the Pareto front: each that costs less is slower"
    assert "all" not in front_sentences(sweep_of(axes, [3e-3, 2e-3, 2e-3]))[-1].split()
    fits = front_sentences(sweep_of(axes, [None, 2e-3, 1e-3]))[-1]
    assert fits.startswith("all 2 points that fit are in the Pareto front: ")


def test_a_file_has_a_line_a_point() -> None:
    found = sweep_of(SIZES, LATENCIES)
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert [(int(r["lb.capacity_kib"]), int(r["ddr.bandwidth_gb_s"])) for r in rows] == values(
        found.points
    )
    assert [float(r["latency_s"]) if r["latency_s"] else None for r in rows] == LATENCIES
    assert [r["front"] for r in rows] == ["1", "1", "1", "0", "1", "0"]
    assert [r["slower_than"] for r in rows] == ["", "", "", "", "t2", ""]
    assert rows[0]["run"] == "run0"


def test_a_table_marks_the_front_and_what_does_not_fit() -> None:
    made = points_table(sweep_of(SIZES, LATENCIES))
    assert [str(c) for c in made.columns[-1].cells] == ["*", "*", "*", "", "?", ""]
    assert str(list(made.columns[2].cells)[-1]) == "does not fit"


def svg_texts(content: bytes) -> list[str]:
    return [e.text or "" for e in ET.fromstring(content).iter() if e.tag.endswith("text")]  # noqa: S314


def test_the_picture_shows_fields_values_and_the_front() -> None:
    texts = svg_texts(plot(sweep_of(SIZES, LATENCIES)))
    assert {"256", "512", "1024", "lb.capacity_kib", "Pareto front"} <= set(texts)
    assert "slower than a lesser target" in texts
    assert {"ddr.bandwidth_gb_s 60", "ddr.bandwidth_gb_s 120"} <= set(texts)
    assert "net @ npu, float16" in texts


def test_the_same_sweep_is_the_same_picture() -> None:
    assert plot(sweep_of(SIZES, LATENCIES)) == plot(sweep_of(SIZES, LATENCIES))
    assert plot(sweep_of(SIZES, LATENCIES), "png").startswith(b"\x89PNG")


def test_names_and_words_are_shown_as_text() -> None:
    axes: Mapping[str, tuple[Value, ...]] = {"engines[matrix].dataflow": ("ideal", "<b>$x^2$</b>")}
    found = sweep_of(axes, [1e-3, 2e-3])
    hostile = Sweep("$\\frac{1}{2}$<script>", found.target, "int8", found.axes, found.points)
    texts = svg_texts(plot(hostile))
    assert "$\\frac{1}{2}$<script> @ npu, int8" in texts
    assert "<b>$x^2$</b>" in texts


def test_nothing_that_fits_is_an_empty_picture() -> None:
    assert b"</svg>" in plot(sweep_of({"clusters": (1, 2)}, [None, None]))


def test_without_matplotlib_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        require_matplotlib()
    assert caught.value.hint == how_to_install("plots")


@pytest.mark.parametrize(
    ("latencies", "course"),
    [
        ([4.0, 2.0, 1.0, 1.0], Course(1, 0.5)),
        ([2.0, 3.0, 2.0, 4.0], Course(3, 0.0)),
        ([math.inf, math.inf, 2.0, 3.0], Course(1, 1.0)),
        ([1.0], Course(0, 0.0)),
        ([math.inf], None),
        ([], None),
    ],
)
def test_a_point_tells_how_far_its_search_has_converged(
    latencies: list[float], course: Course | None
) -> None:
    assert Course.of(latencies) == course
