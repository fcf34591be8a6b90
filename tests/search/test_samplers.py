from __future__ import annotations

import dataclasses
import math
import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import optuna
import pytest
from numpy.typing import NDArray
from optuna.study import StudyDirection

from autoturbo.cost_models.predictions import Prediction
from autoturbo.errors import UsageError
from autoturbo.registry import PROGRAM, SAMPLERS
from autoturbo.schedule.knobs import Knobs
from autoturbo.search import CostModelSampler, make_sampler
from autoturbo.search.constants import SEARCH, Evolution
from autoturbo.search.encoding import Genes
from autoturbo.search.evolution import Advice, fresh_points, propose
from autoturbo.search.objectives import find_objectives
from autoturbo.search.optuna_trials import scores_of
from autoturbo.search.samplers import check_sampler
from autoturbo.search.space import Dimension, Space
from autoturbo.search.study import StudyProposer, frozen, open_mirror, quiet_optuna
from autoturbo.search.surrogates.surrogate import ChoiceSurrogate, ScoredCandidate
from autoturbo.simulator.measurement import Measurement
from tests.search.search_doubles import Landscape, small_space, toy_space
from tests.search.space_samples import block, space_of

Objective = Callable[[optuna.Trial], float]
LATENCY = find_objectives("latency")
"""Less is looked at for a proposal, which makes it quicker and a little worse."""

EACH = [
    pytest.param(name, marks=() if name in ("cost-model", "tpe", "grid") else pytest.mark.full)
    for name in SAMPLERS.builtin
    if name != PROGRAM
]
"""The fast tier's are ours, one that learns and one that does not."""

NEEDS = {"cmaes": "cmaes", "gp": "torch", "qmc": "scipy"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def bowl(trial: optuna.Trial) -> float:
    """Best at 3 in each of five dimensions."""
    return sum((trial.suggest_categorical(f"x{i}", range(8)) - 3) ** 2 for i in range(5))


Direction = Literal["minimize", "maximize"]


def run(
    objective: Objective,
    seed: int = 0,
    trials: int = 60,
    direction: Direction = "minimize",
    sampler: optuna.samplers.BaseSampler | None = None,
) -> optuna.Study:
    study = optuna.create_study(sampler=sampler or CostModelSampler(seed), direction=direction)
    study.optimize(objective, trials)
    return study


def params(study: optuna.Study) -> list[dict[str, object]]:
    return [trial.params for trial in study.trials]


@pytest.mark.full
def test_it_works_in_a_plain_study_better_than_chance() -> None:
    wins = sum(
        run(bowl, seed).best_value
        < run(bowl, trials=120, sampler=optuna.samplers.RandomSampler(seed)).best_value
        for seed in range(4)
    )
    assert wins >= 3


def test_it_maximises_where_the_study_does() -> None:
    study = run(lambda trial: -bowl(trial), direction="maximize")
    assert study.best_value >= -3


def test_the_same_seed_goes_the_same_way_another_one_elsewhere() -> None:
    once = params(run(bowl, 1, 16))
    assert once == params(run(bowl, 1, 16))
    assert once != params(run(bowl, 2, 16))


def test_without_a_seed_it_draws_one() -> None:
    one, other = CostModelSampler(), CostModelSampler()
    assert params(run(bowl, trials=5, sampler=one)) != params(run(bowl, trials=5, sampler=other))


def test_parameters_of_all_kinds_and_conditional_ones() -> None:
    def mixed(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", None, True, 2.5])
        x = trial.suggest_float("x", 1e-3, 10, log=True)
        n = trial.suggest_int("n", 0, 20, step=5)
        single = trial.suggest_categorical("single", ["only"])
        assert single == "only"
        if kind == "a":
            return x + trial.suggest_categorical("deep", [1, 2, 3])
        return x + n

    study = run(mixed, trials=30)
    assert all(t.state == optuna.trial.TrialState.COMPLETE for t in study.trials)
    assert len(study.trials) == 30


@pytest.mark.full
def test_failed_pruned_and_infinite_trials_do_not_stop_the_search() -> None:
    def walled(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.params["x0"] < 3:
            raise optuna.TrialPruned
        if trial.params["x1"] == 0:
            return float("inf")
        if trial.params["x2"] == 0:
            raise ValueError("wall")
        return value

    study = optuna.create_study(sampler=CostModelSampler(0))
    study.optimize(walled, 80, catch=ValueError)
    states = {trial.state for trial in study.trials}
    assert len(states) == 3
    assert study.best_value <= 1  # at random 2 to 13, over twenty seeds


def test_several_threads_do_not_repeat_each_other() -> None:
    study = optuna.create_study(sampler=CostModelSampler(0))
    study.optimize(bowl, 40, n_jobs=2)
    assert len(study.trials) == 40
    relative = [tuple(p.values()) for p in params(study)][8:]  # the first have nothing to go by
    assert len(set(relative)) >= len(relative) - 2


def test_a_copy_goes_on_alone() -> None:
    study = optuna.create_study(sampler=CostModelSampler(0))
    study.optimize(bowl, 10)
    study.sampler = pickle.loads(pickle.dumps(study.sampler))  # noqa: S301  our own
    study.optimize(bowl, 10)
    assert len(study.trials) == 20


@pytest.mark.full
def test_several_objectives_cover_a_front_better_than_chance() -> None:
    """Two bowls with their bottoms apart: the front lies between them, mean distance 0."""

    def two(trial: optuna.Trial) -> tuple[float, float]:
        x = [trial.suggest_categorical(f"x{i}", range(8)) for i in range(5)]
        return sum((v - 2) ** 2 for v in x), -sum((v - 5) ** 2 for v in x)

    def front(sampler: optuna.samplers.BaseSampler, trials: int) -> list[list[float]]:
        study = optuna.create_study(sampler=sampler, directions=["minimize", "maximize"])
        study.optimize(two, trials)
        return [trial.values for trial in study.best_trials]

    for seed in range(2):
        mine = front(CostModelSampler(seed), 64)
        theirs = front(optuna.samplers.RandomSampler(seed), 128)
        assert np.mean([a - b for a, b in mine]) < np.mean([a - b for a, b in theirs])
        assert min(a for a, _ in mine) <= 8  # both ends; the middle is at 11
        assert max(b for _, b in mine) >= -8


def numbers(trial: optuna.Trial) -> float:
    """Best in the middle of ranges of every kind."""
    x = trial.suggest_float("x", -5, 5) - 1
    n = trial.suggest_int("n", 0, 1000) / 100 - 3
    rate = math.log10(trial.suggest_float("rate", 1e-6, 1, log=True)) + 3
    step = trial.suggest_float("step", -2, 2, step=0.25) - 0.5
    return x**2 + n**2 + rate**2 + step**2


@pytest.mark.full
def test_numbers_are_learned_too() -> None:
    def median(make: Callable[[int], optuna.samplers.BaseSampler]) -> float:
        return float(np.median([run(numbers, 0, 64, sampler=make(s)).best_value for s in range(3)]))

    ours = median(CostModelSampler)
    assert ours < median(optuna.samplers.RandomSampler) / 2


def test_an_exhausted_plain_study_goes_on_at_random() -> None:
    study = run(lambda trial: float(trial.suggest_categorical("x", [1, 2])), trials=5)
    assert {t.params["x"] for t in study.trials} == {1, 2}


def test_reseeding_goes_another_way() -> None:
    sampler = CostModelSampler(0)
    sampler.reseed_rng()
    assert params(run(bowl, trials=12, sampler=sampler)) != params(run(bowl, 0, 12))


@pytest.mark.parametrize("name", EACH)
def test_every_sampler_proposes_new_points_of_the_space(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    proposer = StudyProposer(make_sampler(name, 0, toy_space(), batch=8), toy_space(), LATENCY, 0)
    land, seen = Landscape(), [Knobs()]
    proposer.tell(Knobs(), land.evaluate(Knobs()))
    for _ in range(4):
        batch = proposer.ask(8)
        assert len(batch) == 8
        for knobs in batch:
            proposer.tell(knobs, land.evaluate(knobs))
        seen += batch
    assert len({k.id for k in seen}) == 33


@pytest.mark.parametrize("name", EACH)
def test_every_sampler_gives_out_a_small_space_once(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    space = small_space()
    proposer = StudyProposer(make_sampler(name, 0, space, batch=7), space, LATENCY, 0)
    land, seen = Landscape(walls=False), []
    while batch := proposer.ask(7):
        for knobs in batch:
            proposer.tell(knobs, land.evaluate(knobs))
        seen += batch
    assert len({k.id for k in seen}) == len(seen) == space.size
    assert proposer.left == 0


@pytest.mark.parametrize("name", EACH)
def test_every_sampler_copes_with_conditions(name: str) -> None:
    """Those that know none propose several forms of one point; no point is measured twice."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    space = conditional_space()
    proposer = StudyProposer(make_sampler(name, 0, space, batch=7), space, LATENCY, 0)
    land, seen = Landscape(walls=False), []
    while batch := proposer.ask(7):
        for knobs in batch:
            assert space.canonical(knobs) == knobs
            proposer.tell(knobs, land.evaluate(knobs))
        seen += batch
    assert len({k.id for k in seen}) == len(seen) == space.size == (1 + 3) * (2 + 1)
    assert proposer.left == 0


@pytest.mark.parametrize("name", ["random", "tpe", "gp", "nsgaii", "grid"])
def test_samplers_that_know_categories_are_not_told_that_choices_are_ordered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))  # no first proposal needs it
    proposer = StudyProposer(make_sampler(name, 0), toy_space(), LATENCY, 0)
    proposer.ask(1)
    (trial,) = proposer.study.trials
    kinds = {type(distribution) for distribution in trial.distributions.values()}
    assert kinds == {optuna.distributions.CategoricalDistribution}


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(UsageError):
        check_sampler("annealing")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(UsageError, match="needs cmaes"):
        make_sampler("cmaes", 0)


def test_one_objective_samplers_are_refused_for_several() -> None:
    with pytest.raises(UsageError):
        make_sampler("grid", 0, objectives=2)


@dataclass
class Told:
    """Stands in for a kernel model: knows a figure of every candidate."""

    figure: Callable[[Knobs], float]
    least: float = 0.0
    asked: int = 0

    def rank(self, settings: Sequence[Knobs]) -> Any:
        self.asked += len(settings)
        return np.log([self.figure(knobs) for knobs in settings])

    def look(self, settings: Sequence[Knobs]) -> Prediction:
        scores = self.rank(settings)
        return Prediction(scores, scores, [knobs.canonical() for knobs in settings])


def test_ours_is_advised_on_each_of_several_objectives() -> None:
    """Two that pull apart: what is proposed has few of one, few of the other, or both."""

    def first(knobs: Knobs) -> float:
        return 1.0 + (0 if knobs.prefetch_depth == 1 else 1)

    def second(knobs: Knobs) -> float:
        return 1.0 + (0 if knobs.tile_subdivision == 2 else 1)

    space = toy_space()
    models: Any = [Told(first), Told(second)]
    choice = make_sampler("cost-model", 0, space, batch=16, rankers=models, objectives=2)
    assert isinstance(choice.sampler, CostModelSampler)
    assert choice.rankers == tuple(models)
    points = [tuple(point) for point in space.random(np.random.default_rng(0), 30).tolist()]
    knobs = [space.knobs_of(point) for point in points]
    told = [(p, (first(k), second(k))) for p, k in zip(points, knobs, strict=True)]
    directions = [StudyDirection.MINIMIZE] * 2
    proposed = [
        space.knobs_of(point)
        for number in range(30, 70, 4)
        for point in choice.sampler.batch_of(number, told, set(), directions)
    ]
    either = [1.0 in (first(one), second(one)) for one in proposed]
    assert all(model.asked for model in models)
    assert np.mean(either) > np.mean([1.0 in values for _, values in told])


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_a_percent_of_each_objective_counts_alike(scale: float) -> None:
    told = [(1.0, 2 * scale), (2.0, scale), (1.1, 1.1 * scale), (1e6, scale), None]
    directions = [StudyDirection.MINIMIZE] * 2
    scores = scores_of(told, directions, np.asarray([0.5, 0.5]))
    assert scores[4] is None
    known = [score for score in scores if score is not None]
    assert known.index(min(known)) == 2
    assert known[0] == pytest.approx(known[1])
    signed = scores_of([(-1.0, 1.0), (2.0, -3.0), (0.0, 0.0)], directions, np.asarray([0.9, 0.1]))
    assert signed.index(min(s for s in signed if s is not None)) == 0


def conditional_space() -> Space:
    """Two orders, and a sub-graph's priority where it matters; depths that may be the model's."""
    return space_of(
        {"instance_order": ("priority",), "prefetch_depth": (2,)},
        block(priority=(1, 9), prefetch_depth=(2,)),
    )


def history(count: int, seed: int = 0) -> list[ScoredCandidate]:
    land, space = Landscape(seed), toy_space()
    points = space.random(np.random.default_rng(seed), count).tolist()
    found = []
    for point in points:
        outcome = land.evaluate(space.knobs_of(point))
        score = outcome.latency if isinstance(outcome, Measurement) else None
        found.append(ScoredCandidate(tuple(point), score))
    return found


@pytest.mark.parametrize("tried", [0, 3, 100])
def test_proposals_are_new_and_follow_from_seed_and_history(tried: int) -> None:
    past = history(tried)

    def proposed(seed: int) -> list[tuple[int, ...]]:
        rng = np.random.default_rng(seed)
        return propose(toy_space(), rng, past, {(0,) * 18}, count=16)

    assert proposed(1) == proposed(1)
    assert len(set(proposed(1))) == 16
    assert not set(proposed(1)) & {t.genes for t in past}


def test_a_kernel_model_ranks_in_place_of_the_model_of_choices() -> None:
    constants = dataclasses.replace(SEARCH, evolution=Evolution(mutants=10))
    asked: list[int] = []

    def proposed(answer: float | None) -> list[tuple[int, ...]]:
        def rank(genes: Genes) -> NDArray[np.float64] | None:
            asked.append(len(genes))
            return None if answer is None else answer * genes.sum(axis=1)

        rng, advice = np.random.default_rng(0), Advice(rank)
        return propose(
            toy_space(), rng, history(100), set(), count=16, advice=advice, constants=constants
        )

    assert proposed(1.0) != proposed(-1.0)
    assert asked == [22, 22]  # twelve parents and ten mutants
    rng = np.random.default_rng(0)
    alone = propose(toy_space(), rng, history(100), set(), count=16, constants=constants)
    assert proposed(None) == alone


def test_the_choice_model_knows_walls() -> None:
    past = history(300)
    model = ChoiceSurrogate.of(toy_space(), past)
    assert model is not None
    assert model.trees.feasible is not None
    assert ChoiceSurrogate.of(toy_space(), past[:5]) is None
    failed = np.asarray([t.genes for t in past if t.score is None])
    fine = np.asarray([t.genes for t in past if t.score is not None])
    assert np.median(model.predict(failed)) > np.median(model.predict(fine))


def test_the_choice_model_asks_for_dimensions_that_were_tried_only() -> None:
    space, past = toy_space(), history(60)
    still = [ScoredCandidate((*t.genes[:-1], 0), t.score) for t in past]
    model = ChoiceSurrogate.of(space, still)
    assert model is not None
    assert len(space.dimensions) - 1 not in model.trees.columns.tolist()
    genes = space.random(np.random.default_rng(0), 20)
    moved = genes.copy()
    moved[:, -1] = 1
    assert model.predict(genes).tolist() == model.predict(moved).tolist()
    measured = next(tried for tried in past if tried.score is not None)
    same = ChoiceSurrogate.of(space, [measured] * 9)  # a study may hold a point several times
    assert same is not None
    assert len(set(same.predict(genes).tolist())) == 1


def test_scores_of_any_sign_can_be_learned() -> None:
    past = [ScoredCandidate(t.genes, None if t.score is None else -t.score) for t in history(50)]
    model = ChoiceSurrogate.of(toy_space(), past)
    assert model is not None
    assert np.isfinite(model.predict(toy_space().random(np.random.default_rng(0), 9))).all()


def test_fresh_points_run_out() -> None:
    space = Space((Dimension("x", (0, 1, 2)),))
    rng = np.random.default_rng(0)
    assert sorted(fresh_points(space, rng, {(1,)}, 5)) == [(0,), (2,)]
    assert fresh_points(space, rng, set(), 0) == []


def best_of(sampler: str, seed: int, trials: int) -> float:
    land = Landscape(seed % 3)
    space = toy_space()
    proposer = StudyProposer(make_sampler(sampler, seed, space, batch=16), space, LATENCY, seed)
    best = float("inf")
    while trials > 0:
        for knobs in proposer.ask(min(16, trials)):
            outcome = land.evaluate(knobs)
            proposer.tell(knobs, outcome)
            if isinstance(outcome, Measurement):
                best = min(best, outcome.latency)
        trials -= 16
    return best


@pytest.mark.full
def test_ours_beats_random_search_with_twice_the_trials() -> None:
    seeds = range(8)
    wins = sum(best_of("cost-model", s, 96) < best_of("random", s, 192) for s in seeds)
    assert wins >= 7


def test_optuna_is_quiet_inside_and_as_it_was_outside(capfd: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    with quiet_optuna(), warnings.catch_warnings():
        optuna.create_study()
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert capfd.readouterr().err == ""


def test_a_failed_trial_says_why() -> None:
    outcome = Landscape().evaluate(Knobs(prefetch_depth=3, weight_residency="GB"))
    trial = frozen({}, {}, outcome, LATENCY, 7)
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.user_attrs == {"trial": 7, "reason": "LB", "message": "too full"}


def test_a_storage_that_cannot_be_used_is_one_line() -> None:
    with pytest.raises(UsageError, match="'nonsense://x'") as caught:
        open_mirror("nonsense://x", "run", LATENCY)
    assert "\n" not in str(caught.value)
