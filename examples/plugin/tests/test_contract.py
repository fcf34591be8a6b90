"""What the plug-in brings keeps the contracts that AutoTurbo asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autoturbo_example.board import Board
from autoturbo_example.measurer import Roofline
from autoturbo_example.sampler import HillClimb
from autoturbo_example.scheduler import ungrouped
from autoturbo_example.target import example_npu

from autoturbo.testing import (
    MEASURER_CHECKS,
    SAMPLER_CHECKS,
    SCHEDULER_CHECKS,
    TARGET_CHECKS,
    MeasurerCase,
    SamplerCase,
    SchedulerCase,
    TargetCase,
)


@pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
def test_measurer(check: Callable[[MeasurerCase], None]) -> None:
    check(MeasurerCase(Roofline))
    check(MeasurerCase(Board))


@pytest.mark.parametrize("check", SAMPLER_CHECKS, ids=lambda check: check.__name__)
def test_sampler(check: Callable[[SamplerCase], None]) -> None:
    check(SamplerCase(HillClimb, several=False))


@pytest.mark.parametrize("check", SCHEDULER_CHECKS, ids=lambda check: check.__name__)
def test_scheduler(check: Callable[[SchedulerCase], None]) -> None:
    check(SchedulerCase(ungrouped))


@pytest.mark.parametrize("check", TARGET_CHECKS, ids=lambda check: check.__name__)
def test_target(check: Callable[[TargetCase], None]) -> None:
    check(TargetCase(example_npu()))


def test_the_target_is_found_by_name() -> None:
    import autoturbo

    assert autoturbo.load_target("example-npu").name == "example-npu"
