"""Our sampler in studies of other people: conditions, changing ranges, nonsense, constraints."""

from __future__ import annotations

import logging
import math
import pickle
import threading
from collections.abc import Callable, Sequence

import numpy as np
import optuna
import plain_studies
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, create_trial

from autoturbo.search import CostModelSampler
from autoturbo.search.optuna_trials import (
    common_parameters,
    feasible_first,
    violation_of,
    without_nonsense,
)

Objective = Callable[[optuna.Trial], float]
MINIMIZE = [StudyDirection.MINIMIZE]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def bowl(trial: optuna.Trial) -> float:
    x, n = trial.suggest_float("x", -4, 4), trial.suggest_int("n", 0, 9)
    return (x - 1) ** 2 + (n - 4) ** 2


def other(trial: optuna.Trial) -> float:
    """Return another study's, with the same names but other ranges."""
    x, n = trial.suggest_float("x", 10, 20), trial.suggest_int("n", 0, 3)
    return (x - 19) ** 2 + n


def branching(trial: optuna.Trial) -> float:
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        return trial.suggest_float("only_a", 0, 1)
    return 1 - trial.suggest_float("only_b", 0, 1)


def params(study: optuna.Study) -> list[dict[str, object]]:
    return [trial.params for trial in study.trials]


def ran(objective: Objective, sampler: CostModelSampler, trials: int = 14) -> optuna.Study:
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, trials)
    return study


WIDE: BaseDistribution = FloatDistribution(0, 4)
NARROW: BaseDistribution = FloatDistribution(0, 2)
FIXED: BaseDistribution = IntDistribution(1, 1)


@pytest.mark.parametrize(
    ("one", "two", "obstacle"),
    [
        ({"x": WIDE}, {"x": WIDE}, ""),
        ({"x": WIDE, "fixed": FIXED}, {"x": WIDE}, ""),
        ({"x": WIDE, "y": WIDE}, {"x": WIDE}, "trial 1 has no 'y', which others have"),
        ({"x": WIDE}, {"x": WIDE, "y": WIDE}, "trial 0 has no 'y', which others have"),
        ({"x": WIDE}, {"x": NARROW}, "the range of 'x' is another in trial 1"),
        ({"n": FIXED}, {"n": IntDistribution(1, 2)}, "the range of 'n' is another in trial 1"),
    ],
)
def test_it_is_found_which_trials_cannot_be_modelled(
    one: dict[str, BaseDistribution], two: dict[str, BaseDistribution], obstacle: str
) -> None:
    found = common_parameters(completed(one, two))
    assert found.obstacle == obstacle
    assert [*found.distributions] == ([] if obstacle else ["x"])


def completed(*asked: dict[str, BaseDistribution]) -> list[FrozenTrial]:
    trials = list[FrozenTrial]()
    for number, own in enumerate(asked):
        trial = create_trial(params=dict.fromkeys(own, 1), distributions=own, value=0.0)
        trial.number = number
        trials.append(trial)
    return trials


def test_a_range_that_somebody_changes_is_the_latest() -> None:
    trials = completed(*[{"x": WIDE}] * 9, {"x": NARROW})
    assert common_parameters(trials[::-1]) == ({"x": NARROW}, "", False)
    assert common_parameters(trials[1:]).obstacle


def dependent(trial: optuna.Trial) -> float:
    total = trial.suggest_int("total", 2, 9)
    return abs(trial.suggest_int("part", 1, total) - 4)


@pytest.mark.parametrize("objective", [branching, dependent])
def test_what_it_cannot_model_it_hands_over_saying_so_once(
    objective: Objective, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    whole = optuna.samplers.TPESampler.sample_relative

    def counted(self: object, study: object, trial: FrozenTrial, space: object) -> object:
        asked.append(trial.number)
        return whole(self, study, trial, space)  # type: ignore[arg-type]

    monkeypatch.setattr(optuna.samplers.TPESampler, "sample_relative", counted)
    study = ran(objective, CostModelSampler(0), 20)
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert repr(study.study_name) in said
    assert "TPESampler takes over" in said
    assert asked == [*range(asked[0], 20)]
    assert asked[0] < 10
    assert params(study) == params(ran(objective, CostModelSampler(0), 20))


@pytest.mark.parametrize("ending", [optuna.TrialPruned, ValueError])
def test_a_trial_that_ends_early_is_no_condition(
    ending: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def walled(trial: optuna.Trial) -> float:
        if trial.suggest_int("n", 0, 9) > 7:
            raise ending
        return trial.suggest_float("x", 0, 1)

    study = optuna.create_study(sampler=CostModelSampler(0))
    study.optimize(walled, 14, catch=ValueError)
    assert not caplog.records


def test_studies_of_one_sampler_know_nothing_of_each_other() -> None:
    one = CostModelSampler(3)
    studies = [optuna.create_study(sampler=one) for _ in range(3)]
    for _ in range(14):
        for study, objective in zip(studies, (bowl, other, branching), strict=True):
            study.optimize(objective, 1)
    alone = [ran(objective, CostModelSampler(3)) for objective in (bowl, other, branching)]
    assert [*map(params, studies)] == [*map(params, alone)]


def test_nor_do_they_from_several_threads() -> None:
    one = CostModelSampler(3)
    studies = [optuna.create_study(sampler=one) for _ in range(2)]
    pairs = zip(studies, (bowl, other), strict=True)
    threads = [threading.Thread(target=study.optimize, args=(o, 14)) for study, o in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = [ran(objective, CostModelSampler(3)) for objective in (bowl, other)]
    assert [*map(params, studies)] == [*map(params, alone)]


def test_nonsense_teaches_what_a_failure_does() -> None:
    def nonsense(trial: optuna.Trial) -> float:
        value = bowl(trial)
        return 1e9 if trial.params["x"] < -1 else value

    def failed(trial: optuna.Trial) -> float:
        value = bowl(trial)
        return math.inf if trial.params["x"] < -1 else value

    # before four values are known, nothing can be far from them
    late = [params(ran(o, CostModelSampler(1), 30))[20:] for o in (nonsense, failed)]
    assert late[0] == late[1]


@pytest.mark.parametrize(
    ("figures", "dropped"),
    [
        ([1.0, 1.5, 2.0, 3.0, 1e9], [4]),
        ([-1.0, 1.5, -2.0, 3.0, 1e9, 1e9], [4, 5]),
        ([1e6, 1e6 + 0.5, 1e6 + 1.0, 1e6 + 2.0, 1e9], [4]),
        ([1.0, 1.5, 2.0, 3.0, -1e9], []),  # a value that is so much better is what is sought
        ([1.0, 1.5, 1e9], []),
        ([1.0, 1.0, 1.0, 1.0, 2.0], []),
        ([10.0**power for power in range(8)], []),
        ([1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3], []),
    ],
)
def test_nonsense_is_far_above_all_other_values(
    figures: Sequence[float], dropped: Sequence[int]
) -> None:
    told = without_nonsense([None, *([own] for own in figures)], MINIMIZE)[1:]
    assert [i for i, own in enumerate(told) if own is None] == dropped
    turned = without_nonsense([[-own] for own in figures], [StudyDirection.MAXIMIZE])
    assert [i for i, own in enumerate(turned) if own is None] == dropped
    beside = without_nonsense([[0.0, own] for own in figures], MINIMIZE * 2)
    assert [i for i, own in enumerate(beside) if own is None] == dropped


SCORED = st.tuples(st.none() | st.floats(-1e6, 1e6), st.just(0.0) | st.floats(1e-6, 1e6))


@given(st.lists(SCORED, min_size=1, max_size=12))
def test_feasible_trials_come_first_then_those_that_break_less(
    trials: list[tuple[float | None, float]],
) -> None:
    scores, violations = zip(*trials, strict=True)
    found = feasible_first(scores, violations)
    assert [own is None for own in found] == [own is None for own in scores]
    known = [index for index, own in enumerate(found) if own is not None]

    def wanted(index: int) -> tuple[float, float]:
        return violations[index], 0.0 if violations[index] else scores[index] or 0.0

    for one in known:
        for two in known:
            if wanted(one) < wanted(two):
                assert (found[one] or 0.0) <= (found[two] or 0.0)
            if violations[one] < violations[two] and not violations[one]:
                assert (found[one] or 0.0) < (found[two] or 0.0)


def limits(trial: FrozenTrial) -> tuple[float, ...]:
    return 2 - trial.params["x"], trial.params["n"] - 3.0


def test_constraints_are_kept_where_optunas_samplers_keep_theirs() -> None:
    sampler = pickle.loads(pickle.dumps(CostModelSampler(0, constraints_func=limits)))  # noqa: S301  our own
    study = ran(bowl, sampler, 6)
    kept = [trial.system_attrs["constraints"] for trial in study.trials]
    assert kept == [limits(trial) for trial in study.trials]
    assert [violation_of(trial) for trial in study.trials] == [
        sum(max(own, 0) for own in limits(trial)) for trial in study.trials
    ]


def feasible(study: optuna.Study, last: int) -> float:
    return float(np.mean([violation_of(trial) == 0 for trial in study.trials[-last:]]))


def test_feasible_trials_are_preferred() -> None:
    """A fortieth of the space is feasible, on the wrong side of the bowl."""

    def tight(trial: FrozenTrial) -> tuple[float]:
        return (abs(trial.params["x"] + 2) + trial.params["n"] - 1.5,)

    study = ran(bowl, CostModelSampler(0, constraints_func=tight), 40)
    assert feasible(study, 15) > 0.5
    assert min(t.value or 0 for t in study.trials if not violation_of(t)) < (1.5 + 0.2) ** 2 + 16


def test_feasible_trials_are_preferred_for_several_objectives_too() -> None:
    def two(trial: optuna.Trial) -> tuple[float, float]:
        return bowl(trial), -trial.params["x"]

    sampler = CostModelSampler(0, constraints_func=limits)
    study = optuna.create_study(sampler=sampler, directions=["minimize", "maximize"])
    study.optimize(two, 40)
    assert feasible(study, 20) > 0.6


@pytest.mark.skipif(not hasattr(optuna.Trial, "set_constraint"), reason="Optuna 5 has it")
def test_constraints_that_an_objective_sets_count_likewise() -> None:
    def constrained(trial: optuna.Trial) -> float:
        value = bowl(trial)
        for index, own in enumerate(limits(trial)):  # type: ignore[arg-type]
            trial.set_constraint(str(index), own)
        return value

    own = ran(constrained, CostModelSampler(0), 16)
    assert params(own) == params(ran(bowl, CostModelSampler(0, constraints_func=limits), 16))


def test_the_benchmark_prints_a_row_for_each_study(capsys: pytest.CaptureFixture[str]) -> None:
    plain_studies.main(["--seeds", "2", "--trials", "2", "--samplers", "ours;random"])
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["study", "ours", "random"]
    assert len(rows) == len(plain_studies.STUDIES)


@pytest.mark.full
@pytest.mark.parametrize(
    "study", ["branches", "layers", "dependent", "narrowed", "outliers", "edge"]
)
def test_it_is_not_behind_tpe_in_the_mean(study: str) -> None:
    ours, theirs = (
        np.asarray([plain_studies.best_of(study, name, seed, 50) for seed in range(10)])
        for name in ("ours", "tpe")
    )
    spread = math.hypot(ours.std(), theirs.std()) / math.sqrt(10)
    assert ours.mean() < theirs.mean() + spread
