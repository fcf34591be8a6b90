"""A kernel's ramp: what it costs, and that all ways to look at a schedule count it once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoturbo.hardware import with_field
from autoturbo.hardware.parts import Overheads
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.breakdown.shares import schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.kernels import Quantity
from autoturbo.simulator.plan import COLUMNS
from autoturbo.simulator.sequence import KernelMemory, launched_seconds, pass_intervals, simulate
from tests.simulator.simulate_samples import evaluator, target_of

RAMP = 5e-6
WITH = Overheads(3e-6, 0.5e-6, RAMP)


@pytest.fixture(scope="module")
def plain() -> Schedule:
    return build_schedule(evaluator("squeezenet1_1").model_scheduler, Knobs())


@pytest.fixture(scope="module")
def ramped(plain: Schedule) -> Schedule:
    target = with_field(target_of(), "overheads.kernel_ramp_us", RAMP * 1e6)
    return dataclasses.replace(plain, context=dataclasses.replace(plain.context, target=target))


def work(schedule: Schedule) -> np.ndarray:
    """Seconds of the kernels of a pass at rate."""
    memory = KernelMemory()
    _, rows = memory.rows(schedule)
    found: np.ndarray = memory.totals.rows[rows][:, Quantity.SECONDS]
    return found


@given(st.floats(1e-9, 1e-1), st.floats(1.0, 10.0))
def test_a_ramp_is_part_of_the_work_and_of_the_whole_ramp(seconds: float, longer: float) -> None:
    ramp = WITH.ramp(seconds)
    assert 0 < ramp <= min(seconds, RAMP) * (1 + 1e-9)
    assert WITH.ramp(seconds * longer) >= ramp


def test_engines_begin_at_half_the_rate_and_a_long_kernel_pays_all() -> None:
    assert WITH.ramp(1e-10) == pytest.approx(1e-10, rel=1e-4)
    assert WITH.ramp(RAMP) == pytest.approx((1 - np.exp(-1)) * RAMP)
    assert WITH.ramp(1e-3) == pytest.approx(RAMP)


def test_of_many_kernels_it_is_that_of_each() -> None:
    many = np.asarray([1e-7, 5e-6, 1e-3])
    assert WITH.around(many) == pytest.approx([WITH.around(one) for one in many.tolist()])


def test_without_one_nothing_changes() -> None:
    bare = Overheads(3e-6, 0.5e-6)
    assert bare.around(1e-5) == bare.per_kernel
    assert bare.around(np.asarray([1e-5])).tolist() == [bare.per_kernel]


def test_every_kernel_of_a_schedule_pays_its_own(plain: Schedule, ramped: Schedule) -> None:
    lost = launched_seconds(ramped, KernelMemory()) - launched_seconds(plain, KernelMemory())
    assert lost == pytest.approx(WITH.ramp(work(plain)), rel=1e-6)
    ramps = lost.sum() * plain.share.loops
    assert simulate(ramped).latency - simulate(plain).latency == pytest.approx(ramps, rel=1e-6)


def test_intervals_and_shares_add_up(ramped: Schedule) -> None:
    latency = simulate(ramped).latency
    kernels = pass_intervals(ramped)
    end = max(kernel.end for kernel in kernels) * ramped.share.loops
    assert end == pytest.approx(latency, rel=1e-12)
    launches = [kernel.body - kernel.launch - WITH.kernel_launch for kernel in kernels]
    assert launches == pytest.approx(WITH.ramp(work(ramped)).tolist())
    assert sum(schedule_shares(ramped).shares.seconds) == pytest.approx(latency)


def test_what_a_report_counts_as_launch_has_the_ramp(plain: Schedule, ramped: Schedule) -> None:
    launches = [
        schedule_shares(schedule).kernels[0].shares.part(Limit.LAUNCH)
        * schedule_shares(schedule).kernels[0].seconds
        for schedule in (plain, ramped)
    ]
    lost = float(WITH.ramp(work(plain))[0])
    assert launches[1] - launches[0] == pytest.approx(lost, rel=1e-6)


@pytest.mark.parametrize("name", ["far_s", "near_s"])
def test_kernels_in_isolation_pay_it(name: str) -> None:
    plain = evaluator("squeezenet1_1")
    target = with_field(target_of(), "overheads.kernel_ramp_us", RAMP * 1e6)
    with_ramp = Evaluator(plain.model_scheduler.model, target, "float16")
    base, other = (one.statistics(Knobs()) for one in (plain, with_ramp))
    assert base is not None
    assert other is not None
    lost = (other.values - base.values)[:, COLUMNS.index(name)]
    assert (lost > 0).all()
    assert (lost <= RAMP * (1 + 1e-9)).all()
