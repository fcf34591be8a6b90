"""What the plug-in brings keeps the contracts of AutoTurbo, and its sampler that of Optuna."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autoturbo_example.board import Board
from autoturbo_example.measurer import Roofline
from autoturbo_example.sampler import HillClimb
from autoturbo_example.scheduler import ungrouped
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase

from autoturbo.testing import (
    MEASURER_CHECKS,
    SCHEDULER_CHECKS,
    MeasurerCase,
    SchedulerCase,
)


@pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
def test_measurer(check: Callable[[MeasurerCase], None]) -> None:
    check(MeasurerCase(Roofline))
    check(MeasurerCase(Board))


class TestSampler(BasicSamplerTestCase, RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: HillClimb(0)


@pytest.mark.parametrize("check", SCHEDULER_CHECKS, ids=lambda check: check.__name__)
def test_scheduler(check: Callable[[SchedulerCase], None]) -> None:
    check(SchedulerCase(ungrouped))


def test_the_target_is_found_by_name() -> None:
    import autoturbo

    assert autoturbo.load_target("example-npu").name == "example-npu"
