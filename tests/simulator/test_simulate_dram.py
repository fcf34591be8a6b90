"""What short runs cost the off-chip memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoturbo.hardware import DramTiming, Target
from autoturbo.hardware.dram import dram_efficiency
from tests.simulator.simulate_samples import PRESETS, target_of

TIMED = [name for name in PRESETS if target_of(name).dram is not None]


def timed(**changes: Any) -> Target:
    """A chip whose memory has eight channels of 32 GB/s and no losses but those of its rows."""
    timing = DramTiming(
        channels=8, burst=64, page=1024, interleave=1024, banks=16, row_cycle=48e-9,
        four_activates=30e-9, groups=4, group_gap=1.0, group_interleave=False,
        turnaround=20e-9, write_batch=1024, queue=4096,
    )  # fmt: skip
    base = target_of()
    ddr = dataclasses.replace(base.ddr, bandwidth=256e9, efficiency=1.0)
    return dataclasses.replace(base, ddr=ddr, dram=dataclasses.replace(timing, **changes))


def test_one_burst_a_row_is_bound_by_the_activates() -> None:
    # four rows in 30 ns and channel: 64 bytes each 7.5 ns where 2 ns would do
    busy = 512 / (512 + 7)  # 8 x 4096 / 64 runs wait for eight channels
    assert dram_efficiency(timed(), 64) == pytest.approx(2 / 7.5 * busy)


def test_a_bank_opens_one_row_in_its_cycle() -> None:
    slow = timed(banks=2)
    assert dram_efficiency(slow, 64) == pytest.approx(2 / 24 * 512 / 519)


@pytest.mark.full
def test_less_than_a_burst_costs_a_burst() -> None:
    assert dram_efficiency(timed(), 16) < dram_efficiency(timed(), 64) / 2


def test_long_runs_reach_what_the_memory_gives() -> None:
    assert dram_efficiency(timed(), 1 << 20) == pytest.approx(1.0)


@pytest.mark.full
def test_neighbouring_bursts_in_different_groups_open_more_rows() -> None:
    spread = timed(group_interleave=True, interleave=256)
    # 1 KiB is 16 bursts in 4 groups of 4 channels: no two in one row
    assert dram_efficiency(spread, 1024) == pytest.approx(2 / 7.5 * 32 / (32 + 1))
    assert dram_efficiency(timed(), 1024) > 0.8


@pytest.mark.full
def test_one_bank_group_is_slower_until_other_runs_fill_in() -> None:
    slow = timed(
        channels=1, page=8192, interleave=8192, group_gap=2.0, queue=512,
        four_activates=0.0, row_cycle=0.0,
    )  # fmt: skip
    alone = dram_efficiency(slow, 8192, streams=1)
    assert alone == pytest.approx(1 / (1 + (8192 - 1024) / 8192))
    assert alone < dram_efficiency(slow, 8192, streams=2) < dram_efficiency(slow, 8192, streams=4)
    assert dram_efficiency(slow, 1024, streams=1) == pytest.approx(1.0)


def test_writes_in_between_turn_the_bus_around() -> None:
    mixed = dram_efficiency(timed(), 1 << 20, write_share=0.5)
    # for each 1024 bytes written and 1024 read, 64 ns of data and 20 ns of turning
    assert mixed == pytest.approx(64 / 84)
    assert dram_efficiency(timed(), 1 << 20, write_share=1.0) == pytest.approx(1.0)
    assert dram_efficiency(timed(), 1 << 20, write_share=0.1) > mixed


def test_without_timing_only_the_efficiency_counts() -> None:
    plain = dataclasses.replace(timed(), dram=None)
    assert dram_efficiency(plain, 3, write_share=0.5) == 1.0
    assert dram_efficiency(target_of("ipu-mk2"), 3) == pytest.approx(0.85)


@settings(max_examples=30)
@given(
    name=st.sampled_from(TIMED),
    run=st.integers(1, 1 << 20),
    streams=st.integers(1, 64),
    share=st.floats(0, 1),
)
def test_never_more_than_the_efficiency(name: str, run: int, streams: int, share: float) -> None:
    found = dram_efficiency(target_of(name), run, streams=streams, write_share=share)
    assert 0 < found <= target_of(name).ddr.efficiency * (1 + 1e-12)


@settings(max_examples=30)
@given(name=st.sampled_from(TIMED), run=st.integers(1, 1 << 14))
def test_whole_bursts_are_best(name: str, run: int) -> None:
    """Rounding a run up to whole bursts costs nothing."""
    target = target_of(name)
    assert target.dram is not None
    whole = -(-run // target.dram.burst) * target.dram.burst
    assert dram_efficiency(target, run) <= dram_efficiency(target, whole) * (1 + 1e-12) + 0.02


@pytest.mark.full
def test_long_runs_beat_short_ones_on_every_preset() -> None:
    for name in TIMED:
        target = target_of(name)
        short, medium, long = (dram_efficiency(target, run) for run in (16, 256, 1 << 16))
        assert short < 0.6 * long
        assert medium < long
