"""The contract of samplers in a tuning run and in any Optuna study.

A sampler is an Optuna ``BaseSampler``. Every check is a function of a :class:`SamplerCase`; all of
them are in :data:`SAMPLER_CHECKS`. They are small: seconds for a sampler that proposes within
milliseconds.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from autoturbo.testing.contract import ContractError, bounded, check_all, within

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.space import Space
    from autoturbo.search.study import StudyProposer

BATCH = 4
"""Trials asked before any of them is told."""


@dataclass(frozen=True, slots=True)
class SamplerCase:
    """A sampler under test, with its claims.

    Attributes:
        make: Builds one from a seed.
        in_run: Builds one for a tuning run, from a seed, its space and its batch size; like
            ``make`` if None.
        ordinal: In a tuning run it wants choices as integers, not as categories.
        several: It works on several objectives; otherwise it must refuse them by a ``ValueError``.
        floats: It works on parameters of infinitely many values.
        fresh: It never proposes a point again while there are others.
        deadline_s: Seconds after which a check is said never to end.
    """

    make: Callable[[int], BaseSampler]
    in_run: Callable[[int, Space, int], BaseSampler] | None = None
    ordinal: bool = False
    several: bool = True
    floats: bool = True
    fresh: bool = False
    deadline_s: float = 120.0


def check_sampler(make: Callable[[int], BaseSampler], **claims: Any) -> None:
    """Run every check of :data:`SAMPLER_CHECKS`.

    Args:
        make: Builds a sampler from a seed.
        claims: Further attributes of :class:`SamplerCase`.

    Raises:
        ContractError: The first thing that is wrong.
    """
    check_all(SAMPLER_CHECKS, SamplerCase(make, **claims))


@bounded("proposals")
def proposals_lie_in_the_space(case: SamplerCase) -> None:
    """Check that every proposed value is one that its parameter takes, of any kind."""
    from autoturbo.testing.watched import bowl, mixed

    study = _study(case.make(0))
    for _ in range(24):
        trial = study.ask(mixed(floats=case.floats))
        study.tell(trial, bowl(trial.params))


@bounded("a tuning run")
def settings_can_be_built(case: SamplerCase) -> None:
    """Check that a tuning run gets canonical candidates, and not random ones alone."""
    from autoturbo.testing.watched import knob_space, outcome_of

    space = knob_space(large=True)
    proposer = _proposer(case, space, 8)
    own_count = 0
    for _ in range(4):
        batch = proposer.ask(8)
        own_count += proposer.own
        for knobs in batch:
            if space.canonical(knobs) != knobs:
                raise ContractError(f"not in its one form: {knobs.canonical()}")
            proposer.tell(knobs, outcome_of(knobs))
    if own_count < 16:  # noqa: PLR2004  half
        raise ContractError(f"only {own_count} of 32 settings are its own, the others are chance's")


@bounded("an exhausted space")
def nothing_is_proposed_twice(case: SamplerCase) -> None:
    """Check that a small space is gone through once and then ends, in runs and in plain studies."""
    from autoturbo.testing.watched import bowl, categories, knob_space, outcome_of

    space, seen = knob_space(), list[str]()
    proposer = _proposer(case, space, 7)
    while batch := proposer.ask(7):
        seen += [_told(proposer, knobs, outcome_of(knobs)) for knobs in batch]
    if sorted(set(seen)) != sorted(seen) or len(seen) != space.size:
        raise ContractError(f"{len(seen)} settings of a space of {space.size}")
    plain = categories(2, 3)
    asked = _asked(_study(case.make(0)), plain, 9 + 6, bowl)
    points = [tuple(params.values()) for params in asked][:9]
    if case.fresh and len(set(points)) < len(points):
        raise ContractError(f"it proposes a point again although others are left: {points}")


@bounded("two studies of one seed")
def the_seed_decides(case: SamplerCase) -> None:
    """Check that the same seed and the same results give the same proposals."""
    first, second = (_story(case.make(1), _in_order) for _ in range(2))
    if first != second:
        raise ContractError(f"the same seed differs {_where(first, second)}")


@bounded("two orders of arrival")
def order_of_arrival_does_not_matter(case: SamplerCase) -> None:
    """Check that results of a batch may be told in any order."""
    forwards, backwards = (_story(case.make(1), order) for order in (_in_order, _backwards))
    if forwards != backwards:
        raise ContractError(
            f"results told backwards change proposals {_where(forwards, backwards)}"
        )


def failures_are_survived(case: SamplerCase) -> None:
    """Check that trials may fail, be pruned or give infinity, even all of them."""
    deadline = case.deadline_s
    within(deadline, "a study of which one in 2 trials fails", lambda: _fail(case, 2))
    within(deadline, "a study of which all trials fail", lambda: _fail(case, 1))


def plain_studies_are_served(case: SamplerCase) -> None:
    """Check ``study.optimize``: conditional parameters, both directions, queued trials, a copy."""
    deadline = case.deadline_s
    within(deadline, "a study that minimises", lambda: _optimize(case, "minimize"))
    within(deadline, "a study that maximises", lambda: _optimize(case, "maximize"))


@bounded("several objectives")
def several_objectives_are_served_or_refused(case: SamplerCase) -> None:
    """Check that several objectives work, or are refused by a ``ValueError`` of one line."""
    from autoturbo.testing.watched import bowl, categories

    study, space = _study(case.make(0), ("minimize", "maximize")), categories()

    def ask(count: int) -> None:
        for _ in range(count):
            trial = study.ask(space)
            study.tell(trial, [bowl(trial.params), float(sum(trial.params.values()))])

    if case.several:
        ask(40)
        return
    try:
        ask(12)
    except ValueError as error:
        if len(str(error).splitlines()) != 1:
            raise ContractError(f"refused in {len(str(error).splitlines())} lines") from error
        return
    raise ContractError("they are neither served (several=True) nor refused by a ValueError")


SAMPLER_CHECKS: Sequence[Callable[[SamplerCase], None]] = (
    proposals_lie_in_the_space,
    settings_can_be_built,
    nothing_is_proposed_twice,
    the_seed_decides,
    order_of_arrival_does_not_matter,
    failures_are_survived,
    plain_studies_are_served,
    several_objectives_are_served_or_refused,
)
"""Every check of a sampler."""


Direction = Literal["minimize", "maximize"]


def _study(sampler: BaseSampler, directions: Sequence[Direction] = ("minimize",)) -> optuna.Study:
    import optuna

    from autoturbo.search.study import quiet_optuna
    from autoturbo.testing.watched import WatchedSampler

    with quiet_optuna():
        return optuna.create_study(sampler=WatchedSampler(sampler), directions=directions)


def _proposer(case: SamplerCase, space: Space, batch: int) -> StudyProposer:
    """Return the proposer of a tuning run."""
    from autoturbo.search.objectives import find_objectives
    from autoturbo.search.samplers import SamplerChoice
    from autoturbo.search.study import StudyProposer
    from autoturbo.testing.watched import WatchedSampler

    sampler = case.make(0) if case.in_run is None else case.in_run(0, space, batch)
    choice = SamplerChoice("tested", WatchedSampler(sampler), case.ordinal)
    return StudyProposer(choice, space, find_objectives("latency"), 0)


def _told(proposer: StudyProposer, knobs: Knobs, outcome: Any) -> str:
    proposer.tell(knobs, outcome)
    return knobs.canonical()


def _asked(
    study: optuna.Study,
    space: dict[str, BaseDistribution],
    count: int,
    value: Callable[[dict[str, Any]], float],
) -> list[dict[str, Any]]:
    """Return the parameters of trials asked and told one by one."""
    asked = []
    for _ in range(count):
        trial = study.ask(space)
        asked.append(dict(trial.params))
        study.tell(trial, value(trial.params))
    return asked


Order = Callable[[list[Any]], list[Any]]


def _in_order(batch: list[Any]) -> list[Any]:
    return batch


def _backwards(batch: list[Any]) -> list[Any]:
    return batch[::-1]


def _story(sampler: BaseSampler, order: Order) -> list[dict[str, Any]]:
    """Return the parameters of all trials of a study that is asked and told in batches."""
    import optuna

    from autoturbo.testing.watched import bowl, categories

    study, story, space = _study(sampler), [], categories()
    for _ in range(8):
        batch = [study.ask(space) for _ in range(BATCH)]
        story += [dict(trial.params) for trial in batch]
        for trial in order(batch):
            if trial.number % 5 == 3:  # noqa: PLR2004  some do not fit
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(trial, bowl(trial.params))
    return story


def _where(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    number = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return f"from trial {number} on: {one[number]} and {other[number]}"


def _fail(case: SamplerCase, share: int) -> None:
    """Run a study in which every ``share``-th trial fails, in each way in turn.

    Where all do, no trial has a value, not even an infinite one.
    """
    from autoturbo.testing.watched import bowl, categories

    study, space = _study(case.make(0)), categories()
    ends = _BAD_ENDS if share > 1 else _BAD_ENDS[:-1]
    for number in range(32):
        trial = study.ask(space)
        if number % share:
            study.tell(trial, bowl(trial.params))
        else:
            ends[number // share % len(ends)](study, trial)


def _breaks(study: optuna.Study, trial: optuna.Trial) -> None:
    from optuna.trial import TrialState

    study.tell(trial, state=TrialState.FAIL)


def _is_pruned(study: optuna.Study, trial: optuna.Trial) -> None:
    from optuna.trial import TrialState

    study.tell(trial, state=TrialState.PRUNED)


def _is_pruned_late(study: optuna.Study, trial: optuna.Trial) -> None:
    """Prune with an intermediate value, which the study keeps as the trial's."""
    trial.report(math.nan, step=0)
    _is_pruned(study, trial)


def _is_infinite(study: optuna.Study, trial: optuna.Trial) -> None:
    study.tell(trial, math.inf)


_BAD_ENDS = (_breaks, _is_pruned, _is_pruned_late, _is_infinite)


def _optimize(case: SamplerCase, direction: Direction) -> None:
    from autoturbo.search.study import quiet_optuna
    from autoturbo.testing.watched import bowl

    sign = 1.0 if direction == "minimize" else -1.0

    def objective(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["short", "long"])
        trial.suggest_int("n", 0, 8)
        if kind == "long":
            trial.suggest_categorical("deep", [1, 2, 3])
        if case.floats:
            trial.suggest_float("x", 0.0, 8.0)
        return sign * bowl(trial.params)

    study = _study(case.make(0), (direction,))
    with quiet_optuna():
        study.enqueue_trial({"kind": "long", "n": 2})
        study.optimize(objective, 16)
        study.sampler = pickle.loads(pickle.dumps(study.sampler))  # noqa: S301  just written
        study.optimize(objective, 8)
    if len(study.trials) != 16 + 8:
        raise ContractError(f"{len(study.trials)} trials of 24")
