"""Optuna's own tests for samplers, on ours: it works in any Optuna study."""

from __future__ import annotations

from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler

import autoturbo

pytest.importorskip("optuna.testing.pytest_samplers", reason="Optuna 5 has it")

from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
)

pytestmark = pytest.mark.full


class TestCostModelSampler(
    BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase
):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        return lambda: autoturbo.CostModelSampler(0)
