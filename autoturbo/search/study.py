"""The Optuna study behind a run: asks a sampler for candidates and tells it the outcomes.

Two studies: the one that a sampler works on may hold a candidate several times (a sampler that
repeats a known candidate is told its known value and asked again); the one handed to the user holds
every trial of the run once, under its number. This module loads Optuna.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.engine import make_url

from autoturbo.database.opening import is_ours
from autoturbo.errors import UsageError
from autoturbo.passwords import masked, without_secrets
from autoturbo.search.constants import SEARCH, Draws
from autoturbo.search.evolution import fresh_points
from autoturbo.simulator.measurement import Failure, Outcome

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from autoturbo.schedule.knobs import Knobs
    from autoturbo.search.objectives import Objective
    from autoturbo.search.samplers import SamplerChoice
    from autoturbo.search.space import Space

_PATIENCE = 8
"""Proposals looked at per one that is new, before chance takes over."""


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna's log lines and its notes on experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@dataclass(eq=False)
class StudyProposer:
    """A sampler asked through a study in memory.

    Attributes:
        choice: The sampler.
        space: Of the knobs.
        objectives: At least one.
        seed: Of what the sampler does not decide.
        initial: Candidates that are proposed first.
        draws: What fills up rounds.
    """

    choice: SamplerChoice
    space: Space
    objectives: tuple[Objective, ...]
    seed: int
    initial: tuple[Knobs, ...] = ()
    draws: Draws = SEARCH.draws
    _known: dict[tuple[int, ...], Outcome] = field(default_factory=dict)
    _open: dict[tuple[int, ...], optuna.Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.distributions = self.space.distributions(ordinal=self.choice.ordinal)
        with quiet_optuna():
            self.study = optuna.create_study(
                sampler=self.choice.sampler, directions=[o.direction for o in self.objectives]
            )

    @property
    def left(self) -> int:
        """Return the number of candidates of the space that were never told."""
        return self.space.size - len(self._known)

    @property
    def own(self) -> int:
        """Return the number of the sampler's own candidates that are asked and not told yet."""
        return len(self._open)

    def ask(self, count: int) -> list[Knobs]:
        """Return new candidates, fewer than asked for only where the space has no more."""
        count = min(count, self.left)
        first = [
            point for k in self.initial if (point := self.space.point_of(k)) not in self._known
        ]
        proposed: dict[tuple[int, ...], optuna.Trial | None] = dict.fromkeys(first[:count])
        with quiet_optuna():
            for _ in range(_PATIENCE * count):
                if len(proposed) == count:
                    break
                self._consider(proposed)
        rng = np.random.default_rng([self.seed, len(self._known), 1])
        taken = {*self._known, *proposed}
        more = fresh_points(self.space, rng, taken, count - len(proposed), self.draws)
        proposed.update(dict.fromkeys(more))
        self._open = {genes: trial for genes, trial in proposed.items() if trial is not None}
        return [self.space.knobs_of(genes) for genes in proposed]

    def _consider(self, proposed: dict[tuple[int, ...], optuna.Trial | None]) -> None:
        trial = self.study.ask(self.distributions)
        genes = self._genes(trial.params)
        if genes in self._known:
            self._finish(trial, self._known[genes])
        elif genes in proposed:
            self.study.tell(trial, state=TrialState.FAIL)
        else:
            proposed[genes] = trial

    def tell(self, knobs: Knobs, outcome: Outcome) -> None:
        """Take the outcome of a candidate, asked for or not."""
        params, genes = self.space.from_knobs(knobs), self.space.point_of(knobs)
        self._known[genes] = outcome
        trial = self._open.pop(genes, None)
        with quiet_optuna():
            if trial is not None:
                self._finish(trial, outcome)
            else:
                values = self._ordinal(genes) if self.choice.ordinal else params
                self.study.add_trial(frozen(values, self.distributions, outcome, self.objectives))
        for ranker in self.choice.rankers:
            ranker.observe(knobs, outcome)

    def params(self, knobs: Knobs) -> dict[str, Any]:
        """Return the parameters of a candidate that was told, every dimension named."""
        return self.space.from_knobs(knobs)

    def _finish(self, trial: optuna.Trial, outcome: Outcome) -> None:
        values = values_of(outcome, self.objectives)
        if values is None:
            self.study.tell(trial, state=_state(outcome))
        else:
            self.study.tell(trial, values)

    def _genes(self, params: dict[str, Any]) -> tuple[int, ...]:
        """Return the canonical encoding of parameters, which samplers may give in any form."""
        dimensions = self.space.dimensions
        if self.choice.ordinal:
            genes = [int(params[d.name]) for d in dimensions]
        else:
            genes = [d.choices.index(params[d.name]) for d in dimensions]
        return tuple(self.space.normal(np.asarray([genes], np.int64))[0].tolist())

    def _ordinal(self, genes: tuple[int, ...]) -> dict[str, int]:
        return {d.name: g for d, g in zip(self.space.dimensions, genes, strict=True)}


def frozen(
    params: dict[str, Any],
    distributions: dict[str, BaseDistribution],
    outcome: Outcome,
    objectives: Sequence[Objective],
    number: int | None = None,
) -> FrozenTrial:
    """Return a finished trial for a study; a failed one says why in its user attributes.

    Args:
        params: Choices by name.
        distributions: Of the choices, by name.
        outcome: Of the trial.
        objectives: What the values are of, in this order.
        number: Of the trial in our run, kept in the user attributes; None for none.
    """
    attributes: dict[str, Any] = {} if number is None else {"trial": number}
    if isinstance(outcome, Failure):
        attributes |= {"reason": outcome.reason, "message": outcome.message}
    return create_trial(
        params=params,
        distributions=distributions,
        values=values_of(outcome, objectives),
        state=_state(outcome),
        user_attrs=attributes,
    )


def values_of(outcome: Outcome, objectives: Sequence[Objective]) -> list[float] | None:
    """Return the objectives' figures of an outcome; None for a failure."""
    if isinstance(outcome, Failure):
        return None
    return [float(value) for o in objectives if (value := o.value(outcome)) is not None]


def _state(outcome: Outcome) -> TrialState:
    """Return the trial's state: pruned if infeasible, which samplers learn from, else failed."""
    if isinstance(outcome, Failure):
        return TrialState.PRUNED if outcome.infeasible else TrialState.FAIL
    return TrialState.COMPLETE


def open_mirror(storage: str | None, name: str, objectives: Sequence[Objective]) -> optuna.Study:
    """Return the study that the user sees, in memory or in a storage.

    Raises:
        UsageError: The storage cannot be used.
    """  # noqa: DOC501  _unusable() makes the error
    directions = [o.direction for o in objectives]
    with quiet_optuna():
        if storage is None:
            return optuna.create_study(study_name=name, directions=directions)
        try:
            return optuna.create_study(
                study_name=name, storage=storage, directions=directions, load_if_exists=True
            )
        except Exception as error:  # noqa: BLE001  whatever a storage back end raises
            raise _unusable(storage, error, "for example sqlite:///study.db") from None


def check_storage(storage: str, database: str | Path) -> None:
    """Refuse a storage that cannot be opened, or whose file is a database of ours.

    Args:
        storage: Its URL.
        database: The file in which trials and schedules are kept.

    Raises:
        UsageError: Before any work, with the remedy.
    """  # noqa: DOC501  _unusable() makes the error
    hint = "for example sqlite:///study.db"
    try:
        url = make_url(storage)
        file = Path(url.database or "") if url.drivername.startswith("sqlite") else Path()
        ours = file.absolute() == Path(database).absolute() or is_ours(file)
    except Exception as error:  # noqa: BLE001  whatever a storage back end raises
        raise _unusable(storage, error, hint) from None
    if ours:
        message = f"storage {masked(storage)!r} is the database of tuned schedules"
        raise UsageError(message, hint=f"give Optuna a file of its own, {hint}")
    with quiet_optuna():
        try:
            optuna.storages.get_storage(storage)
        except Exception as error:  # noqa: BLE001  whatever a storage back end raises
            raise _unusable(storage, error, hint) from None


def _unusable(storage: str, error: Exception, hint: str) -> UsageError:
    """Return the error of a storage that fails, without its password."""
    reason = without_secrets(str(error), storage) or type(error).__name__
    return UsageError(f"storage {masked(storage)!r}: {reason.splitlines()[0]}", hint=hint)


@dataclass(frozen=True, eq=False)
class WrittenStudy:
    """The study of a search that was pickled, which nothing is added to any more."""

    study: optuna.Study


class StudyMirror:
    """The study that the user sees; trials are written to it when it is read.

    Args:
        study: Of :func:`open_mirror`; it may hold the first trials already.
        space: Of the trials' parameters.
        objectives: Of the study.
        storage: The study's URL; None for one in memory.

    Raises:
        UsageError: The storage cannot be used.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        objectives: Sequence[Objective],
        storage: str | None = None,
    ) -> None:
        self._study, self._space, self._objectives = study, space, objectives
        self._storage = storage
        with self._explained():
            self._entered = len(study.get_trials(deepcopy=False))
        self._new: list[tuple[int, dict[str, Any], Outcome]] = []

    def __reduce__(self) -> tuple[type[WrittenStudy], tuple[optuna.Study]]:
        """Return what is pickled: the study as it is, in memory, without any storage's password."""
        with quiet_optuna():
            copy = optuna.create_study(directions=self.study.directions)
            copy.add_trials(self.study.get_trials(deepcopy=False))
        return WrittenStudy, (copy,)

    @property
    def entered(self) -> int:
        """Return the number of trials that it has."""
        return self._entered

    def enter(self, number: int, params: dict[str, Any], outcome: Outcome) -> None:
        """Add the next trial.

        Args:
            number: Of the trial.
            params: Every dimension named.
            outcome: Of the trial.
        """
        self._new.append((number, self._space.sparse(params), outcome))
        self._entered += 1

    @property
    def study(self) -> optuna.Study:
        """Return the study with every trial once."""
        self.write()
        return self._study

    def write(self) -> None:
        """Write the trials entered since to the study.

        Raises:
            UsageError: The storage cannot be used any more.
        """
        new, self._new = self._new, []
        distributions = self._space.distributions() if new else {}
        trials = [
            frozen(params, {n: distributions[n] for n in params}, outcome, self._objectives, number)
            for number, params, outcome in new
        ]
        with quiet_optuna(), self._explained():
            self._study.add_trials(trials)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise a storage's exceptions as an error without its password."""
        if self._storage is None:
            yield
            return
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever a storage back end raises
            hint = "all that was measured is in the database: mend the storage and resume"
            raise _unusable(self._storage, error, hint) from None
