"""Contract tests for plug-ins: measurers, samplers, schedulers, cost models, targets.

A plug-in's own suite calls them; nothing here needs pytest. Each check is a function that raises
:class:`ContractError` (an ``AssertionError``) saying what is wrong::

    import pytest
    from autoturbo.testing import MEASURER_CHECKS, MeasurerCase

    @pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
    def test_my_measurer_keeps_the_contract(check):
        check(MeasurerCase(MyMeasurer))

or, all at once, ``check_measurer(MyMeasurer)``; :data:`SAMPLER_CHECKS` with :class:`SamplerCase`,
:data:`SCHEDULER_CHECKS` with :class:`SchedulerCase`, :data:`COST_MODEL_CHECKS` with
:class:`CostModelCase` and :data:`TARGET_CHECKS` with :class:`TargetCase` likewise.
``examples/plugin`` has one of each but a cost model, which ``docs/own-cost-model.md`` has.
"""

from __future__ import annotations

from autoturbo.testing.contract import ContractError
from autoturbo.testing.cost_models import COST_MODEL_CHECKS, CostModelCase, check_cost_model
from autoturbo.testing.measurers import MEASURER_CHECKS, MeasurerCase, check_measurer
from autoturbo.testing.samplers import SAMPLER_CHECKS, SamplerCase, check_sampler
from autoturbo.testing.schedulers import SCHEDULER_CHECKS, SchedulerCase, check_scheduler
from autoturbo.testing.targets import TARGET_CHECKS, TargetCase, check_target

__all__ = [
    "COST_MODEL_CHECKS",
    "MEASURER_CHECKS",
    "SAMPLER_CHECKS",
    "SCHEDULER_CHECKS",
    "TARGET_CHECKS",
    "ContractError",
    "CostModelCase",
    "MeasurerCase",
    "SamplerCase",
    "SchedulerCase",
    "TargetCase",
    "check_cost_model",
    "check_measurer",
    "check_sampler",
    "check_scheduler",
    "check_target",
]
