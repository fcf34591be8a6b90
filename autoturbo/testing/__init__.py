"""Contract tests for plug-ins: measurers, samplers, schedulers, targets.

A plug-in's own suite calls them; nothing here needs pytest. Each check is a function that raises
:class:`ContractError` (an ``AssertionError``) saying what is wrong::

    import pytest
    from autoturbo.testing import MEASURER_CHECKS, MeasurerCase

    @pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
    def test_my_measurer_keeps_the_contract(check):
        check(MeasurerCase(MyMeasurer))

or, all at once, ``check_measurer(MyMeasurer)``; :data:`SAMPLER_CHECKS` with :class:`SamplerCase`,
:data:`SCHEDULER_CHECKS` with :class:`SchedulerCase` and :data:`TARGET_CHECKS` with
:class:`TargetCase` likewise. ``examples/plugin`` has one of each.
"""

from __future__ import annotations

from autoturbo.testing.contract import ContractError
from autoturbo.testing.measurers import MEASURER_CHECKS, MeasurerCase, check_measurer
from autoturbo.testing.samplers import SAMPLER_CHECKS, SamplerCase, check_sampler
from autoturbo.testing.schedulers import SCHEDULER_CHECKS, SchedulerCase, check_scheduler
from autoturbo.testing.targets import TARGET_CHECKS, TargetCase, check_target

__all__ = [
    "MEASURER_CHECKS",
    "SAMPLER_CHECKS",
    "SCHEDULER_CHECKS",
    "TARGET_CHECKS",
    "ContractError",
    "MeasurerCase",
    "SamplerCase",
    "SchedulerCase",
    "TargetCase",
    "check_measurer",
    "check_sampler",
    "check_scheduler",
    "check_target",
]
