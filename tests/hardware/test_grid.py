"""Grids of targets: how they are written, and that each point is a target as its file would be."""

from __future__ import annotations

import json

import pytest

from autoturbo.errors import AutoTurboError, TargetError, UsageError
from autoturbo.hardware import Target, load_target, with_field
from autoturbo.hardware.grid import MOST_POINTS, Axis, axes_of, grid_of, parse_axis
from tests.tiers import spread

STCP920 = load_target("stcp920")


@pytest.mark.parametrize(
    ("text", "values"),
    spread(
        [
            ("lb.capacity_kib=256..4096", (256, 512, 1024, 2048, 4096)),
            ("lb.capacity_kib=256..1000", (256, 512)),
            ("ddr.bandwidth_gb_s=0.5..4", (0.5, 1, 2, 4)),
            ("ddr.bandwidth_gb_s=10..20:5", (10, 12.5, 15, 17.5, 20)),
            ("ddr.bandwidth_gb_s=1,2.5,1e2", (1, 2.5, 100)),
            ("lb.capacity_kib=1..4,3,2", (1, 2, 4, 3)),
            ("transfer.broadcast=true,false", (True, False)),
            ("matrix.dataflow=ideal,weight_stationary", ("ideal", "weight_stationary")),
        ],
        3,
    ),
)
def test_values_as_they_are_written(text: str, values: tuple[object, ...]) -> None:
    found = parse_axis(text).values
    assert found == values
    assert [type(v) for v in found] == [type(v) for v in values]


@pytest.mark.parametrize(
    ("text", "message"),
    spread(
        [
            ("lb.capacity_kib", "'lb.capacity_kib' is not a field with values"),
            ("=1,2", "'=1,2' is not a field with values"),
            ("a=4..2", "'4..2' does not go up"),
            ("a=0..8", "0 cannot be doubled"),
            ("a=1..8:1", "1 values from 1 to 8 cannot be"),
            (f"a=1..8:{MOST_POINTS + 1}", f"{MOST_POINTS + 1} values from 1 to 8 cannot be"),
            ("a=1,,2", "a value is missing"),
        ],
        3,
    ),
)
def test_what_is_no_axis_is_told_how_to_write_one(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_axis(text)
    assert caught.value.message == message
    assert "lb.capacity_kib=256..4096" in (caught.value.hint or "")


def test_engines_may_be_named_by_kind() -> None:
    assert parse_axis("matrix.rows=32").path == "engines[matrix].rows"
    assert parse_axis("engines[matrix].rows=32").short == "matrix.rows"
    assert axes_of({"matrix.rows": [32]}) == axes_of(["engines[matrix].rows=32"])


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ([], "nothing is varied"),
        (["lb.capacity_kib=1", "lb.capacity_kib=2"], "'lb.capacity_kib' is varied twice"),
        (["matrix.rows=1", "engines[matrix].rows=2"], "'engines[matrix].rows' is varied twice"),
    ],
)
def test_axes_are_some_and_each_once(vary: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        axes_of(vary)
    assert caught.value.message == message


def test_points_are_targets_with_these_fields_the_last_axis_fastest() -> None:
    axes = axes_of(["lb.capacity_kib=256,512", "matrix.rows=16,32"])
    grid = grid_of(STCP920, axes)
    assert [point.values for point in grid] == [(256, 16), (256, 32), (512, 16), (512, 32)]
    for point in grid:
        by_hand = with_field(STCP920, "lb.capacity_kib", point.values[0])
        by_hand = with_field(by_hand, "engines[matrix].rows", point.values[1])
        assert point.target.hash == by_hand.hash
        read = Target.from_dict(json.loads(json.dumps(point.target.as_dict())))
        assert (read, read.name) == (point.target, point.target.name)
    assert grid[1].target.name == "stcp920-lb.capacity_kib-256-matrix.rows-32"
    assert len({point.target.name for point in grid}) == 4


def test_names_stay_names_however_much_is_varied() -> None:
    fields = ("lb.capacity_kib", "gb.capacity_kib", "ddr.bandwidth_gb_s", "overheads.barrier_us")
    grid = grid_of(STCP920, axes_of({field: [64.5, 128] for field in fields}))
    names = {point.target.name for point in grid}
    assert len(names) == len(grid) == 16
    assert max(map(len, names)) <= 64
    assert {Target.from_dict(point.target.as_dict()).name for point in grid} == names


@pytest.mark.parametrize(
    ("vary", "error"),
    spread(
        [
            ("lb.capacity_kb=1", "lb.capacity_kb: unknown field; did you mean 'capacity_kib'?"),
            ("ldb.capacity_kib=1", "ldb.capacity_kib: unknown field; did you mean 'lb'?"),
            ("clusters=1,2.5", "clusters: must be a whole number, not 2.5"),
            ("lb.capacity_kib=-1", "lb.capacity_kib: must be at least 1, not -1"),
            ("matrix.rows=16,true", "engines[0].rows: must be a whole number, not true"),
        ],
        3,
    ),
)
def test_a_field_or_value_that_is_none_is_one_line(vary: str, error: str) -> None:
    with pytest.raises(TargetError) as caught:
        grid_of(STCP920, axes_of([vary]))
    assert str(caught.value) == error


def test_a_grid_that_nobody_waits_for_is_refused() -> None:
    vary = {"lb.capacity_kib": range(1, 52), "ddr.bandwidth_gb_s": range(1, 22)}
    with pytest.raises(AutoTurboError, match="1071"):
        grid_of(STCP920, axes_of(vary))


def test_less_costs_less_but_of_delays_and_energies() -> None:
    assert Axis("lb.capacity_kib", (1, 2)).cost(1) < Axis("lb.capacity_kib", (1, 2)).cost(2)
    for path in ("overheads.barrier_us", "ddr.latency_ns", "engines[vector].startup_cycles"):
        assert Axis(path, (1, 2)).cost(1) > Axis(path, (1, 2)).cost(2)
    assert not Axis("engines[transfer].broadcast", (True, False)).is_numeric
