"""Our samplers keep the contract that we ask of others'; samplers that break it are found out."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

import autoturbo
from autoturbo.registry import PROGRAM, SAMPLERS
from autoturbo.search import CostModelSampler, Space, make_sampler
from autoturbo.search.study import quiet_optuna
from autoturbo.testing import SAMPLER_CHECKS, ContractError, SamplerCase, check_sampler
from autoturbo.testing import samplers as checks
from tests.tiers import tiered

NEEDS = {"cmaes": "cmaes", "gp": "torch", "qmc": "scipy"}
ORDINAL = ("cmaes", "qmc")
ONE_OBJECTIVE = ("cmaes",)
FINITE = ("grid",)
FRESH = ("grid",)

QUICK = ("cost-model",)
OTHERS = [name for name in SAMPLERS.builtin if name not in (*QUICK, PROGRAM)]
"""Ours."""

Check = Callable[[SamplerCase], None]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def case_of(name: str) -> SamplerCase:
    """One of our samplers, with what is known of it."""

    def make(seed: int) -> BaseSampler:
        return make_sampler(name, seed).sampler

    def in_run(seed: int, space: Space, batch: int) -> BaseSampler:
        return make_sampler(name, seed, space, batch=batch).sampler

    return SamplerCase(
        make, in_run, name in ORDINAL, name not in ONE_OBJECTIVE, name not in FINITE, name in FRESH
    )


@pytest.mark.parametrize("check", SAMPLER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", tiered(QUICK, OTHERS))
def test_our_samplers_keep_the_contract(name: str, check: Check) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    with quiet_optuna():
        check(case_of(name))


@pytest.mark.parametrize("name", [n for n, m in NEEDS.items() if not importlib.util.find_spec(m)])
def test_a_missing_package_is_one_clear_line(name: str) -> None:
    with pytest.raises(autoturbo.errors.UsageError, match=f"needs {NEEDS[name]}") as caught:
        make_sampler(name, 0)
    assert "\n" not in str(caught.value)
    assert "pip install" in str(caught.value)


class Broken(RandomSampler):
    """Right but for what a test spoils."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.known = IntersectionSearchSpace()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del trial
        return self.known.calculate(study)


class OutOfRange(Broken):
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial
        return {"n": 17} if "n" in search_space else {}


class Uninvited(Broken):
    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial
        return {"m": 1} if search_space else {}


class Stubborn(Broken):
    """The first choice of everything, always."""

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        del study, trial, param_name
        return getattr(param_distribution, "choices", (getattr(param_distribution, "low", 0),))[0]


class Seedless(Broken):
    def __init__(self, seed: int) -> None:
        del seed
        super().__init__(None)  # type: ignore[arg-type]


class ByArrival(Broken):
    """Goes on from whatever was told last."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.last: dict[str, Any] = {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del study, trial
        return {n: v for n, v in self.last.items() if n in search_space}

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        del study, state, values
        self.last = dict(trial.params)


class Optimist(Broken):
    """Believes that every trial has a value."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del trial
        min([t.values[0] for t in study.get_trials() if t.state.is_finished()], default=0)
        return {}


class AllFail(Broken):
    """Believes that some trial has a value."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del trial
        if len(study.trials) > 20 and len(study.directions) == 1:
            _ = study.best_trial
        return {}


class Minimiser(Broken):
    """Takes every parameter for one that all trials have."""

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del trial
        _ = [t.params["deep"] for t in study.trials if "kind" in t.params and "n" in t.params][:0]
        done = [t for t in study.trials if "kind" in t.params and t.state.is_finished()]
        _ = [t.params["deep"] for t in done if len(t.params) < 6]
        return {}


class Locked(Broken):
    """Cannot be copied to another process."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lock = threading.Lock()


class OneObjective(Broken):
    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del trial
        _ = study.best_trials if len(study.directions) == 1 else study.direction
        return {}


class Endless(Broken):
    """Draws until it finds what is new."""

    stop = threading.Event()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if len(study.trials) > 9:
            self.stop.wait(20)
        return super().infer_relative_search_space(study, trial)


@pytest.mark.parametrize(
    ("make", "check", "message"),
    [
        (OutOfRange, checks.proposals_lie_in_the_space, "n=17, which is not in IntDistribution"),
        (Uninvited, checks.proposals_lie_in_the_space, "'m', which was not asked for"),
        (Stubborn, checks.settings_can_be_built, "of 32 settings are its own"),
        (Seedless, checks.the_seed_decides, "the same seed differs from trial 0 on"),
        (ByArrival, checks.order_of_arrival_does_not_matter, "told backwards change proposals"),
        (Optimist, checks.failures_are_survived, "one in 2 trials fails: raised TypeError"),
        (AllFail, checks.failures_are_survived, "all trials fail: raised ValueError"),
        (Minimiser, checks.plain_studies_are_served, "raised KeyError: 'deep'"),
        (Locked, checks.plain_studies_are_served, "raised TypeError: cannot pickle"),
        (OneObjective, checks.several_objectives_are_served_or_refused, "raised RuntimeError"),
    ],
)
def test_what_is_broken_is_found(make: type[Broken], check: Check, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check(SamplerCase(make))
    with pytest.raises(ContractError):
        check_sampler(make)


def test_claims_are_checked() -> None:
    with pytest.raises(ContractError, match="proposes a point again although others are left"):
        checks.nothing_is_proposed_twice(SamplerCase(Broken, fresh=True))
    with pytest.raises(ContractError, match="neither served"):
        checks.several_objectives_are_served_or_refused(SamplerCase(Broken, several=False))


def test_a_refusal_is_one_line() -> None:
    class Wordy(Broken):
        def infer_relative_search_space(
            self, study: Study, trial: FrozenTrial
        ) -> dict[str, BaseDistribution]:
            del trial
            if len(study.directions) > 1:
                raise ValueError("not\nhere")
            return {}

    with pytest.raises(ContractError, match="refused in 2 lines"):
        checks.several_objectives_are_served_or_refused(SamplerCase(Wordy, several=False))


def test_what_never_ends_is_found() -> None:
    try:
        with pytest.raises(ContractError, match=r"an exhausted space: no end after 0\.5 s"):
            checks.nothing_is_proposed_twice(SamplerCase(Endless, deadline_s=0.5))
    finally:
        Endless.stop.set()


def test_a_good_sampler_of_others_passes() -> None:
    check_sampler(Broken)


def test_it_is_reached_from_the_package() -> None:
    assert autoturbo.testing.check_sampler is check_sampler
    assert autoturbo.CostModelSampler is CostModelSampler
