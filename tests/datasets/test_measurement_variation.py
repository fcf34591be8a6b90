from __future__ import annotations

import pytest

from autoturbo.datasets.measurements import varied_targets
from autoturbo.datasets.measurements.varied_targets import CLOCKS, HALVES, RATES, is_physical
from autoturbo.hardware import Target, load_target, preset_names, with_field
from tests.tiers import spread

PRESETS = ("ascend-910", "goya", "ipu-mk2", "mlu100", "stcp920", "tpu-v4i")


@pytest.mark.parametrize("name", spread(PRESETS, 5))
def test_every_preset_can_be_varied(name: str) -> None:
    target = load_target(name)
    found = varied_targets(target, 20, seed=0)
    assert [t.name for t in found] == [f"{name}-v0.{number}" for number in range(1, 21)]
    assert len({target.hash, *(t.hash for t in found)}) == 21
    for one in found:
        assert is_physical(one)
        assert one.dtypes == target.dtypes
        assert one.energy is None
        assert Target.from_dict(one.as_dict()) == one


@pytest.mark.parametrize("name", spread(PRESETS, 5))
def test_figures_stay_near(name: str) -> None:
    target = load_target(name)
    for one in varied_targets(target, 20, seed=1):
        for low, high, figure in (
            (*CLOCKS, one.clock / target.clock),
            (*RATES, one.ddr.bandwidth / target.ddr.bandwidth),
            (*RATES, one.transfer.latency / target.transfer.latency),
            (*RATES, one.overheads.kernel_launch / target.overheads.kernel_launch),
            (*RATES, one.lb.capacity / target.lb.capacity),
        ):
            assert low * 0.97 <= figure <= high * 1.03
        assert one.matrix.rows / target.matrix.rows in HALVES
        assert one.lb.capacity % 16384 == 0
        assert (one.gb.capacity > 0) == (target.gb.capacity > 0)


def test_they_follow_from_the_seed_and_more_change_none() -> None:
    target = load_target("goya")
    assert varied_targets(target, 5, seed=3) == varied_targets(target, 9, seed=3)[:5]
    other = varied_targets(target, 5, seed=4)
    assert {t.hash for t in other}.isdisjoint(t.hash for t in varied_targets(target, 5, seed=3))
    assert varied_targets(target, 0, seed=3) == []


def test_no_memory_is_slower_than_what_it_feeds() -> None:
    target = load_target("stcp920")
    assert is_physical(target)
    assert not is_physical(with_field(target, "lb.bandwidth_gb_s", 32))
    assert not is_physical(with_field(target, "gb.bandwidth_gb_s", 16))


def test_the_presets_of_these_tests_are_all() -> None:
    assert tuple(n for n in preset_names() if n in PRESETS) == PRESETS
