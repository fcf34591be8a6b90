"""Contract tests for plug-ins: measurers, schedulers and cost models.

A plug-in's own suite calls them; nothing here needs pytest. Each check is a function that raises
:class:`ContractError` (an ``AssertionError``) saying what is wrong::

    import pytest
    from autoturbo.testing import MEASURER_CHECKS, MeasurerCase

    @pytest.mark.parametrize("check", MEASURER_CHECKS, ids=lambda check: check.__name__)
    def test_my_measurer_keeps_the_contract(check):
        check(MeasurerCase(MyMeasurer))

or, all at once, ``check_measurer(MyMeasurer)``; :data:`SCHEDULER_CHECKS` with
:class:`SchedulerCase` and :data:`COST_MODEL_CHECKS` with :class:`CostModelCase` likewise. For
samplers, Optuna has tests: ``optuna.testing.pytest_samplers``.
"""

from __future__ import annotations

from autoturbo.testing.contract import ContractError
from autoturbo.testing.cost_models import COST_MODEL_CHECKS, CostModelCase, check_cost_model
from autoturbo.testing.measurers import MEASURER_CHECKS, MeasurerCase, check_measurer
from autoturbo.testing.schedulers import SCHEDULER_CHECKS, SchedulerCase, check_scheduler

__all__ = [
    "COST_MODEL_CHECKS",
    "MEASURER_CHECKS",
    "SCHEDULER_CHECKS",
    "ContractError",
    "CostModelCase",
    "MeasurerCase",
    "SchedulerCase",
    "check_cost_model",
    "check_measurer",
    "check_scheduler",
]
