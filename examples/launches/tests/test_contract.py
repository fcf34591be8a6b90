"""The measurer keeps the contract that AutoTurbo asks for, and counts as it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from autoturbo_launches import Launches

from autoturbo.plugin import Knobs, Measurement, ModelScheduler, build_schedule, lower_bound
from autoturbo.testing import MEASURER_CHECKS, MeasurerCase


@pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
def test_measurer(check: Callable[[MeasurerCase], None]) -> None:
    check(MeasurerCase(Launches))


def test_each_kernel_costs_a_launch() -> None:
    import autoturbo

    model = autoturbo.load_model("squeezenet1_1", batch=1)
    target = autoturbo.load_target("goya")
    schedule = build_schedule(ModelScheduler(model, target, "int8"), Knobs(max_layers=1))
    (found,) = Launches().measure([schedule])
    assert isinstance(found, Measurement)
    launches = found.kernels * target.overheads.kernel_launch
    assert found.latency == pytest.approx(lower_bound(model, target, "int8").seconds + launches)
