"""Our samplers in a tuning run and in any Optuna study: their proposals, and what they survive."""

from __future__ import annotations

import importlib.util
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autoturbo.errors import UsageError
from autoturbo.registry import PROGRAM, SAMPLERS
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.search import make_sampler
from autoturbo.search.encoding import dimension_name
from autoturbo.search.objectives import find_objectives
from autoturbo.search.samplers import SamplerChoice
from autoturbo.search.space import Dimension, Space
from autoturbo.search.study import StudyProposer, quiet_optuna
from autoturbo.search.subgraphs import Block
from autoturbo.simulator.measurement import Failure, LowerBound, Measurement, Outcome
from tests.tiers import tiered

BATCH = 4
"""Trials asked before any of them is told."""

Direction = Literal["minimize", "maximize"]

NEEDS = {"cmaes": "cmaes", "gp": "torch", "qmc": "scipy"}
QUICK = ("cost-model",)
OTHERS = [name for name in SAMPLERS.builtin if name not in (*QUICK, PROGRAM)]


class Case(NamedTuple):
    """One of our samplers, with what is known of it."""

    name: str

    @property
    def floats(self) -> bool:
        """Whether it works on parameters of infinitely many values."""
        return self.name != "grid"

    def make(self, seed: int) -> BaseSampler:
        return make_sampler(self.name, seed).sampler

    def study(self, seed: int = 0, directions: Sequence[Direction] = ("minimize",)) -> Study:
        with quiet_optuna():
            sampler = WatchedSampler(self.make(seed))
            return optuna.create_study(sampler=sampler, directions=directions)

    def proposer(self, space: Space, batch: int) -> StudyProposer:
        """What asks it in a tuning run."""
        sampler = WatchedSampler(make_sampler(self.name, 0, space, batch=batch).sampler)
        choice = SamplerChoice("tested", sampler, self.name in ("cmaes", "qmc"))
        return StudyProposer(choice, space, find_objectives("latency"), 0)


@pytest.fixture(params=tiered(QUICK, OTHERS))
def case(request: pytest.FixtureRequest) -> Case:
    if request.param in NEEDS:
        pytest.importorskip(NEEDS[request.param])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return Case(request.param)


@pytest.mark.parametrize("name", [n for n, m in NEEDS.items() if not importlib.util.find_spec(m)])
def test_a_missing_package_is_one_clear_line(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_sampler(name, 0)
    assert "\n" not in str(caught.value)
    assert "pip install" in str(caught.value)


def test_proposals_lie_in_the_space(case: Case) -> None:
    study = case.study()
    for _ in range(24):
        trial = study.ask(mixed(floats=case.floats))
        study.tell(trial, bowl(trial.params))


def test_a_run_gets_settings_in_their_one_form_and_not_by_chance_alone(case: Case) -> None:
    space = knob_space(large=True)
    proposer = case.proposer(space, 8)
    own_count = 0
    for _ in range(4):
        batch = proposer.ask(8)
        own_count += proposer.own
        for knobs in batch:
            assert space.canonical(knobs) == knobs
            proposer.tell(knobs, outcome_of(knobs))
    assert own_count >= 16  # of 32


def test_a_small_space_is_gone_through_once(case: Case) -> None:
    space, seen = knob_space(), list[str]()
    proposer = case.proposer(space, 7)
    while batch := proposer.ask(7):
        for knobs in batch:
            proposer.tell(knobs, outcome_of(knobs))
            seen.append(knobs.canonical())
    assert len(set(seen)) == len(seen) == space.size


def test_a_small_plain_study_goes_on_without_an_end(case: Case) -> None:
    study, points = case.study(), list[tuple[Any, ...]]()
    for _ in range(9 + 6):
        trial = study.ask(categories(2, 3))
        points.append(tuple(trial.params.values()))
        study.tell(trial, bowl(trial.params))
    if case.name == "grid":
        assert len(set(points[:9])) == 9


def story(study: Study, *, backwards: bool = False) -> list[dict[str, Any]]:
    """The parameters of all trials of a study that is asked and told in batches."""
    found = []
    for _ in range(8):
        batch = [study.ask(categories()) for _ in range(BATCH)]
        found += [dict(trial.params) for trial in batch]
        for trial in reversed(batch) if backwards else batch:
            if trial.number % 5 == 3:  # some do not fit
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, bowl(trial.params))
    return found


def test_seed_and_results_decide_but_not_the_order_of_arrival(case: Case) -> None:
    first = story(case.study(1))
    assert story(case.study(1)) == first
    assert story(case.study(1), backwards=True) == first


def fails(study: Study, trial: optuna.Trial, way: int) -> None:
    """Let a trial fail: broken, pruned, pruned with a value that the study keeps, infinite."""
    if way == 2:
        trial.report(math.nan, step=0)
    if way == 3:
        study.tell(trial, math.inf)
    else:
        study.tell(trial, state=TrialState.PRUNED if way else TrialState.FAIL)


@pytest.mark.parametrize(("every", "ways"), [(2, 4), (1, 3)], ids=["some", "all"])
def test_failures_are_survived(case: Case, every: int, ways: int) -> None:
    """Where all fail, no trial has a value, not even an infinite one."""
    study = case.study()
    for number in range(32):
        trial = study.ask(categories())
        if number % every:
            study.tell(trial, bowl(trial.params))
        else:
            fails(study, trial, number // every % ways)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_plain_studies_with_conditions_queued_trials_and_a_copy(
    case: Case, direction: Direction
) -> None:
    sign = 1.0 if direction == "minimize" else -1.0

    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["short", "long"])
        trial.suggest_int("n", 0, 8)
        if kind == "long":
            trial.suggest_categorical("deep", [1, 2, 3])
        if case.floats:
            trial.suggest_float("x", 0.0, 8.0)
        return sign * bowl(trial.params)

    study = case.study(0, (direction,))
    with quiet_optuna():
        study.enqueue_trial({"kind": "long", "n": 2})
        study.optimize(objective, 16)
        study.sampler = pickle.loads(pickle.dumps(study.sampler))  # noqa: S301  just written
        study.optimize(objective, 8)
    assert len(study.trials) == 16 + 8


def ask_two_objectives(study: Study, count: int) -> None:
    for _ in range(count):
        trial = study.ask(categories())
        study.tell(trial, [bowl(trial.params), float(sum(trial.params.values()))])


def test_several_objectives_are_served_or_refused_in_one_line(case: Case) -> None:
    study = case.study(0, ("minimize", "maximize"))
    if case.name != "cmaes":
        ask_two_objectives(study, 40)
        return
    with pytest.raises(ValueError) as caught:  # noqa: PT011  its text is Optuna's
        ask_two_objectives(study, 12)
    assert "\n" not in str(caught.value)


class WatchedSampler(BaseSampler):
    """A sampler that forwards to another one and checks its proposals.

    Optuna itself draws anew, without a word, where a sampler proposes what is out of range.
    """

    def __init__(self, sampler: BaseSampler) -> None:
        self.sampler = sampler

    def reseed_rng(self) -> None:
        self.sampler.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self.sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        params = self.sampler.sample_relative(study, trial, search_space)
        for name, value in params.items():
            assert lies_in(value, search_space[name]), name
        return params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        value = self.sampler.sample_independent(study, trial, param_name, param_distribution)
        assert lies_in(value, param_distribution), param_name
        return value

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self.sampler.after_trial(study, trial, state, values)


def lies_in(value: Any, distribution: BaseDistribution) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return any(value is c or value == c for c in distribution.choices)
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        return False
    if not isinstance(value, int | float) or not distribution.low <= value <= distribution.high:
        return False
    steps = 0.0 if distribution.step is None else (value - distribution.low) / distribution.step
    return math.isclose(steps, round(steps), abs_tol=1e-6)


def mixed(*, floats: bool) -> dict[str, BaseDistribution]:
    """Parameters of every kind; without ``floats`` only those of finitely many values."""
    parameters: dict[str, BaseDistribution] = {
        "kind": CategoricalDistribution(("a", None, True, 2.5)),
        "n": IntDistribution(0, 20, step=5),
        "large": IntDistribution(1, 4096, log=True),
        "grid": FloatDistribution(-1, 1, step=0.25),
    }
    if floats:
        parameters |= {"x": FloatDistribution(-1, 1), "rate": FloatDistribution(1e-6, 1, log=True)}
    return parameters


def categories(count: int = 4, choices: int = 5) -> dict[str, BaseDistribution]:
    """Parameters of a plain study, like those of a search over knobs."""
    return {f"x{i}": CategoricalDistribution(tuple(range(choices))) for i in range(count)}


def bowl(params: Mapping[str, Any]) -> float:
    """A score that is lowest at 3 in every number; anything else counts as 0."""
    numbers = [v if isinstance(v, int | float) else 0.0 for v in params.values()]
    return sum((float(n) - 3.0) ** 2 for n in numbers)


def knob_space(*, large: bool = False) -> Space:
    """A space with a condition: a sub-graph's depth has no effect if it is the model's.

    Args:
        large: 1,728 forms of 1,296 points, instead of 36 of 27.
    """
    choices: dict[str, tuple[Any, ...]] = {"prefetch_depth": (2, 3), "scope": ("GB",)}
    block = Block(("layer",), choices if large else {"prefetch_depth": (2,)}, {})
    model: dict[str, tuple[Any, ...]] = {"prefetch_depth": (2, 3), "tile_subdivision": (2, 4)}
    if large:
        model |= {"binding": ("always",), "instance_multiplier": (2, 4, 8), "max_layers": (1, 2, 4)}
    else:
        model |= {"binding": ("always",)}
    names = [Dimension(name, (AUTO, *values)) for name, values in model.items()]
    names += [
        Dimension(dimension_name(block, field), (AUTO, *values))
        for field, values in block.choices.items()
    ]
    return Space(tuple(names), blocks=(block,))


def outcome_of(knobs: Knobs) -> Outcome:
    """The outcome of a candidate of :func:`knob_space`; some do not fit."""
    if knobs.prefetch_depth == 3 and knobs.tile_subdivision == 2:
        return Failure("LB", "too full", 200, 100)
    values = [
        knobs.prefetch_depth,
        knobs.tile_subdivision,
        knobs.instance_multiplier,
        knobs.max_layers,
    ]
    figures = [1 if value == AUTO else int(value) for value in values]
    count = sum(len(override.as_dict()) for override in knobs.overrides)
    seconds = 1e-3 * (1 + abs(figures[0] - 2) + figures[2] / figures[1] + 0.1 * count)
    seconds *= 1.0 + 0.01 * figures[3] + (0.05 if knobs.binding == "always" else 0.0)
    bound = LowerBound(1e-6, 1e-7, 1e-7)
    return Measurement(seconds, 8, 1000 * figures[1], 0, 0.5, 0.1, 1, 1, 1, bound)
