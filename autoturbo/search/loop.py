"""Rounds of proposing, measuring, recording and learning.

Rounds have a fixed size whatever the number of workers, outcomes enter by the number of their
proposal, and a proposal follows from the seed and the outcomes before its round. So the result does
not depend on workers, and a resumed run goes on from its records as if it had never stopped.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from autoturbo.errors import KnobsError, RunError, UsageError
from autoturbo.registry import ANNEALING, COST_MODEL, PROGRAM
from autoturbo.schedule.chip_part import WHOLE, ChipPart
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.allocation import SearchState
from autoturbo.search.constants import SEARCH, Climbing, SearchConstants
from autoturbo.search.executors.base import Answer, Task
from autoturbo.search.objectives import OF_KERNELS, figures
from autoturbo.search.progress import Progress, Trial, program_of
from autoturbo.search.stopping import EarlyStopping, OutcomeIntervals, Stop
from autoturbo.simulator.measurement import Failure, Measurement, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoturbo.cost_models.ranker import Ranker
    from autoturbo.search.objectives import Objective
    from autoturbo.search.proposer import Proposer
    from autoturbo.search.space import Space


class Journal(Protocol):
    """The journal of outcomes: the loop records before it proposes again."""

    @property
    def recorded(self) -> Mapping[int, Trial]:
        """Return the trials of an earlier part of the run, by number."""
        ...

    def add(self, trial: Trial) -> None:
        """Record a trial, durable at the next :meth:`flush` or before."""
        ...

    def flush(self) -> None:
        """Make all recorded trials durable."""
        ...

    def log(self, line: str) -> None:
        """Write a line for people."""
        ...


MOST_RACED = 1 / 3
"""Share of a time budget that is kept back for a race at most."""


@dataclass(frozen=True, slots=True)
class Search:
    """The definition of a search: its space, objectives and limits.

    Attributes:
        run: Id of the run.
        model: Its name.
        target: Its name.
        space: Of the knobs.
        objectives: At least one; the first decides which trial is the best.
        sampler: Name of it.
        seed: Of all chance.
        trials: Schedules in total; None where only time or the space limits them.
        time_budget: Seconds; no measurement begins that would not end within them, but for one.
        began: When these began, by the monotonic clock; with the search if 0.
        after: Measurements after the last round, where they take as long as others.
        race_after: Measurements of a race after these; it gets a third of the time at most.
        checks_s: Seconds of the time budget that go after the last round, besides these.
        cost_s: Seconds that a measurement takes by what its measurer says; 0 if it says nothing.
        starts: Candidates that are measured in the first round, with the published heuristic.
        storage: An Optuna storage URL that mirrors the trials.
        patience: Trials without a better one after which it stops, checked between rounds.
        bound_gap: It stops once the best is at most this share above the lower bound, likewise.
        round: Trials proposed at a time.
        proposer: Asked for candidates in place of the sampler, which then is its name.
        heuristic: Trial 0.
        initial: Candidates of the next trials, whatever the sampler.
        here: Measures trial 0 in this process, where none is measured once the time is up.
        climbs: Schedules measured beside these trials where it climbs; infinite where time ends it.
            The sampler proposes them where the constants have no climb.
        extended: Trials that were recorded when the run ended with other limits, and of how many
            that was the budget.
        reference: Whether trial 0 is measured to compare with only: it is not as people have fixed
            it.
        program: Digest of a candidate's programs, built in this process, where measuring it again
            is dearer than that; None where the measurement tells.
        constants: Of its mechanisms; what made its space is not made anew.
    """

    run: str
    model: str
    target: str
    space: Space
    objectives: tuple[Objective, ...]
    sampler: str
    seed: int
    trials: int | None
    time_budget: float | None = None
    began: float = 0.0
    after: float = 0.0
    race_after: int = 0
    checks_s: float = 0.0
    cost_s: float = 0.0
    starts: tuple[Knobs, ...] = ()
    storage: str | None = field(default=None, repr=False)
    patience: int | None = None
    bound_gap: float | None = None
    round: int = SEARCH.rounds.round_trials
    proposer: Proposer | None = None
    heuristic: Knobs = field(default_factory=Knobs)
    initial: tuple[Knobs, ...] = ()
    here: Callable[[Knobs], Outcome] | None = None
    climbs: float = 0
    extended: tuple[int, int] = (0, 0)
    reference: bool = False
    program: Callable[[Knobs], str | None] | None = None
    constants: SearchConstants = SEARCH


class SearchLoop:
    """A search under way: rounds are opened, filled and closed by :mod:`autoturbo.tuning.campaign`.

    Args:
        search: What is looked for.
        journal: Where outcomes are kept.
        rankers: Kernel models for our sampler, one for each objective.
        on_progress: Called after every outcome, and when the search has stopped.

    Attributes:
        trials: Settings whose outcomes entered, by number.
        schedules: How many different schedules they are.
        best: By the first objective, of equals by the next ones, then the earliest.
        stopped: Why it ended; None before that.
        mirror: Every trial once, for the Optuna study that the user sees.
        cut: Whether its time was up within a round, which then is its last one.
    """

    def __init__(
        self,
        search: Search,
        journal: Journal,
        rankers: Sequence[Ranker] = (),
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        from autoturbo.search.proposer import proposer_of
        from autoturbo.search.samplers import make_sampler
        from autoturbo.search.study import StudyMirror, open_mirror

        self.search = search
        self.trials: list[Trial] = []
        self.schedules = 0
        self._programs: dict[str, Outcome] = {}
        self._repeats: dict[int, list[int]] = {}
        self._fruitless = 0
        self._left_over: list[Knobs] = []
        self.best: Trial | None = None
        self._journal, self._on_progress = journal, on_progress
        self._recorded = dict(journal.recorded)
        self._rankers: Sequence[Ranker] = ()
        self._proposer: Proposer
        if search.proposer is not None:
            self._proposer = search.proposer
        else:
            choice = make_sampler(
                search.sampler, search.seed, search.space,
                batch=search.round, rankers=rankers, objectives=len(search.objectives),
                constants=search.constants,
            )  # fmt: skip
            self._rankers = choice.rankers
            self._proposer = proposer_of(
                choice, search.space, search.objectives, search.seed, search.initial,
                search.constants,
            )  # fmt: skip
        study = open_mirror(search.storage, search.run, search.objectives)
        self.mirror = StudyMirror(study, search.space, search.objectives, search.storage)
        self._failures: Counter[str] = Counter()
        self._early_stopping = EarlyStopping()
        self.stopped: Stop | None = None
        self.cut = False
        self._batch: list[tuple[int, Knobs]] = []
        self._outcomes: dict[int, Outcome] = {}
        self._figures: list[float | None] = []
        self._started = time.monotonic()
        self._measured = 0
        self._gaps = OutcomeIntervals()
        self._warm: tuple[float, int] | None = None

    @property
    def pair(self) -> str:
        """Return the name by which the executor knows the search's model and target."""
        return self.search.run

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C ended the search before anything else did."""
        return self.stopped is Stop.INTERRUPTED

    @property
    def total(self) -> int:
        """Return the number of schedules to measure; the space may have fewer."""
        return int(min(self._wanted + self.search.climbs, self._most))

    @property
    def _most(self) -> int:
        """Return the number of different trials there are, that on the whole chip among them."""
        return self.search.space.size + (self._part != WHOLE)

    @property
    def _wanted(self) -> float:
        """Return the number of trials asked for, even if the space is smaller."""
        return math.inf if self.search.trials is None else self.search.trials

    @property
    def course(self) -> SearchState:
        """Return the best scores per round, for the allocation of rounds to searches."""
        outcome = self.best.outcome if self.best else None
        if isinstance(outcome, Measurement) and self.search.objectives[0].name in OF_KERNELS:
            return SearchState(tuple(self._figures), outcome.bound.seconds)
        return SearchState(tuple(self._figures))

    @property
    def _figure(self) -> float | None:
        """Return the incumbent's figure, positive and lower is better; None while nothing fits."""
        outcome, objective = self.best.outcome if self.best else None, self.search.objectives[0]
        if not isinstance(outcome, Measurement):
            return None
        figure = outcome.latency if objective.name in OF_KERNELS else objective.value(outcome)
        return None if figure is None else abs(figure)

    @property
    def missing(self) -> int:
        """Return the number of trials of the open round without an outcome."""
        return len(self._batch) - len(self._outcomes)

    @property
    def complete(self) -> bool:
        """Return whether the open round can be closed."""
        return not self.missing

    def open(self, *, stopping: bool = False) -> list[Task] | None:
        """Begin a round.

        Args:
            stopping: Nothing new is to be measured; only what is recorded still enters.

        Returns:
            The tasks to measure, none where all of the round is recorded; None where the search has
            stopped.

        Raises:
            RunError: A recorded trial is not what is proposed now.
        """
        self.stopped = self._reason(stopping=stopping)
        if self.stopped is not None:
            self._report({})
            return None
        first = len(self.trials)
        proposed = self._left_over or self._replayed(first) or self._proposed(first)
        room = max(self.total - self.schedules, sum(n >= first for n in self._recorded))
        # what is proposed beyond the budget is next, should some of these repeat schedules
        self._batch, self._left_over = list(enumerate(proposed[:room], first)), proposed[room:]
        if not self._batch:
            self.stopped = Stop.SPACE
            self._report({})
            return None
        known = self._recorded
        self._outcomes = {n: known[n].outcome for n, _ in self._batch if n in known}
        self._gaps.begin(time.monotonic())
        unknown = [(n, knobs) for n, knobs in self._batch if n not in known]
        tasks = [Task(self.pair, n, knobs) for n, knobs in self._unmeasured(unknown)]
        if len(tasks) > 1 and self.late():  # one is always measured
            self._batch = self._batch[: tasks[0].number - first + 1]
            self._outcomes = {n: known[n].outcome for n, _ in self._batch if n in known}
            self.cut = True
        return tasks[:1] if self.cut else tasks

    def _unmeasured(self, proposed: Sequence[tuple[int, Knobs]]) -> list[tuple[int, Knobs]]:
        """Return the settings to measure: of each new schedule one; others are known, or will be.

        Args:
            proposed: Settings by number, that are not recorded.
        """
        if self.search.program is None:
            return list(proposed)
        first, unmeasured = dict[str, int](), list[tuple[int, Knobs]]()
        for number, knobs in proposed:
            program = self.search.program(knobs)
            if program in self._programs:
                self._note(number, self._programs[program])
            elif program in first:
                self._repeats.setdefault(first[program], []).append(number)
            else:
                unmeasured.append((number, knobs))
                first |= {program: number} if program else {}
        return unmeasured

    def take(self, answer: Answer) -> None:
        """Take an outcome of the open round, durable at the next :meth:`save` or :meth:`close`."""
        for number in (answer.number, *self._repeats.pop(answer.number, ())):
            self._note(number, answer.outcome)
        self._measured += 1
        self._gaps.note(time.monotonic())
        self._report(self._outcomes)

    def _note(self, number: int, outcome: Outcome) -> None:
        """Record the outcome of a setting of the open round."""
        knobs = self._batch[number - len(self.trials)][1]
        self._outcomes[number] = outcome
        self._journal.add(Trial(number, knobs, outcome))

    def late(self, width: int = 1) -> bool:
        """Return whether one more measurement, with what follows the last, would end too late.

        Args:
            width: Candidates that are measured at a time.
        """
        search, trial_s = self.search, self._gaps.seconds
        if search.time_budget is None:
            return False
        if not trial_s and search.after:  # nothing is compiled then
            trial_s = self._gaps.first or search.cost_s
        race_s = min(search.race_after * width * trial_s, MOST_RACED * search.time_budget)
        ahead_s = (1 + search.after) * width * trial_s + race_s + search.checks_s
        return self._elapsed + ahead_s > search.time_budget

    @property
    def over(self) -> bool:
        """Return whether measurements under way must end, since the time left is for checks alone.

        What takes longer than was expected has until then: a worker that is ended is replaced
        first, where something is to be measured again, and that takes seconds.
        """
        budget = self.search.time_budget
        return budget is not None and self._elapsed + self.search.checks_s > budget

    @property
    def begun(self) -> bool:
        """Return whether trial 0 is measured, and any trial in this part of the run."""
        return bool(self._measured and (self.trials or 0 in self._outcomes))

    def save(self) -> None:
        """Make the outcomes so far durable."""
        self._journal.flush()

    def close(self) -> None:
        """Learn from the round's outcomes, up to the first that is missing.

        After Ctrl-C, or where the time was up within the round, some are missing; later outcomes
        are recorded for the next time.
        """
        if self.cut and self._batch and self._batch[0][0] == 0 and 0 not in self._outcomes:
            self._measure_here()
        self._journal.flush()
        batch, outcomes, self._batch, self._outcomes = self._batch, self._outcomes, [], {}
        self._repeats.clear()
        known = self.schedules
        for number, knobs in batch:
            if number not in outcomes:
                return
            self._enter(Trial(number, knobs, outcomes[number]))
        self._fruitless = self._fruitless + len(batch) if self.schedules == known else 0
        if not self._left_over:
            self._figures.append(self._figure)
        if self._warm is None and self._measured >= self.search.round:
            self._warm = self._looping, self._measured
        best = "nothing fits yet" if self.best is None else f"best #{self.best.number}"
        self._journal.log(f"{self.schedules}/{self.total} trials, {best}")
        if self.search.storage is not None:
            self._fill_mirror()

    def _measure_here(self) -> None:
        """Measure trial 0 in this process, if it can: it has done so before."""
        number, knobs = self._batch[0]
        if self.search.here is not None:
            self.take(Answer(self.pair, number, self.search.here(knobs)))

    def conclude(self) -> None:
        """Set the reason of the stop, and bring the study that the user sees up to date."""
        if self.stopped is None:
            self.stopped = self._reason() or Stop.INTERRUPTED
        self._fill_mirror()

    def _reason(self, *, stopping: bool = False) -> Stop | None:
        """Return why to stop; recorded trials are entered whatever the rules say."""
        if len(self.trials) >= len(self._recorded) and self.schedules >= self.total:
            return Stop.SPACE if self._wanted > self._most else Stop.TRIALS
        if self._fruitless >= self.search.constants.rounds.repeated_rounds * self.search.round:
            return Stop.SPACE
        if self.cut:
            return Stop.TIME
        if self._hopeless:
            return Stop.HOPELESS
        rule = None if len(self.trials) < len(self._recorded) else self._rule
        return rule or (Stop.INTERRUPTED if stopping else None)

    @property
    def _rule(self) -> Stop | None:
        """Return the stopping rule that holds; none before the published heuristic is measured."""
        if not self.trials:
            return None
        search, best = self.search, self.best.outcome if self.best else None
        if search.bound_gap is not None and isinstance(best, Measurement):
            allowed = best.bound.seconds * (1.0 + search.bound_gap)
            if best.latency <= allowed:
                return Stop.BOUND
        if search.patience is not None and self._early_stopping.length >= search.patience:
            return Stop.NO_PROGRESS
        return Stop.TIME if self._measured and self.late() else None  # one is always measured

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - (self.search.began or self._started)

    @property
    def _looping(self) -> float:
        return time.monotonic() - self._started

    @property
    def _hopeless(self) -> bool:
        if (
            self.best is not None
            or len(self.trials) <= self.search.constants.rounds.hopeless_trials
        ):
            return False
        failures = [t.outcome for t in self.trials if isinstance(t.outcome, Failure)]
        return not any(failure.infeasible for failure in failures)

    def _replayed(self, first: int) -> list[Knobs] | None:
        """Return a round that is recorded whole, where the sampler need not propose it again."""
        size = self.search.round if first else 1 + len(self.search.starts)
        numbers = range(first, first + size)
        if self.search.sampler not in (COST_MODEL, ANNEALING, PROGRAM):
            return None
        if all(number in self._recorded for number in numbers):
            return [self._recorded[number].knobs for number in numbers]
        return None

    def _proposed(self, first: int) -> list[Knobs]:
        begin = [self.search.heuristic, *self.search.starts]
        if first and self.search.sampler == PROGRAM:
            return self._proposed_beside(first)
        proposed = self._asked() if first else begin
        for number, knobs in enumerate(proposed, first):
            record = self._recorded.get(number)
            if record is not None and record.knobs != knobs:
                if before := self._before(first):
                    return before
                message = f"run {self.search.run}: trial {number} would be another one now"
                hint = "the versions it was begun with are in its manifest; start a new run"
                raise RunError(message, hint=hint)
        return proposed

    def _before(self, first: int) -> list[Knobs]:
        """Return the trials at the end of a smaller budget, where a number is one of them.

        With another budget the end of the search began elsewhere, or it did not climb, and what it
        tried there stands.
        """
        covered, budget = self.search.extended
        ended = self._climbing or self.schedules >= budget - self._reverted(budget)
        ending = first < covered and ended
        numbers = range(first, covered)
        if not ending or any(number not in self._recorded for number in numbers):
            return []
        return [self._recorded[number].knobs for number in numbers]

    def _asked(self) -> list[Knobs]:
        """Return the sampler's next round; once it climbs, or at the end, what is near the best."""
        from autoturbo.search.proposer import CostModelProposer

        near, size, ours = list[Knobs](), self.search.round, self._proposer
        if not isinstance(ours, CostModelProposer):
            return ours.ask(size)
        left = self._wanted - self.schedules
        if climbing := self._climbing:
            count = min(size, climbing.at_once)
            near = ours.near(count)
            if len(near) == count:
                return near
        elif not self.search.climbs and left <= min(self._reverted(self._wanted), size):
            near = ours.near(size, reverting=True)
        if len(near) == size:
            return near
        # rounds are whole, so that a resumed run has the same ones
        return list(dict.fromkeys([*near, *ours.ask(size)]))[:size]

    @property
    def _climbing(self) -> Climbing | None:
        """Return the constants of the climb once models have proposed the trials; else None."""
        climbs = self.search.climbs and self.schedules >= self._wanted
        return self.search.constants.climbing if climbs else None

    def _reverted(self, trials: float) -> float:
        """Return how many of so many trials take choices back, where there is no climb."""
        reversions = self.search.constants.reversions
        return 0.0 if reversions is None else reversions.reverted_share * trials

    def _proposed_beside(self, first: int) -> list[Knobs]:
        """Return a round with its recorded trials: a program need not repeat its proposals."""
        numbers = range(first, first + self.search.round)
        known = {n: self._recorded[n].knobs for n in numbers if n in self._recorded}
        new = self._proposer.ask(len(numbers) - len(known))
        others = iter([knobs for knobs in new if knobs not in known.values()])
        proposed = [known[n] if n in known else next(others, None) for n in numbers]
        return list(itertools.takewhile(bool, proposed))  # type: ignore[arg-type]

    def _enter(self, trial: Trial) -> None:
        """Learn from a trial's outcome."""
        self.trials.append(trial)
        program = program_of(trial.outcome)
        again = program in self._programs
        if program:
            self._programs.setdefault(program, trial.outcome)
        self.schedules += not again
        if self._is_inside(trial):
            self._proposer.tell(trial.knobs, trial.outcome)
        if isinstance(trial.outcome, Failure):
            self._failures[trial.outcome.reason] += 1
        elif self.search.reference and trial.number == 0:
            pass
        elif self.best is None or self._score(trial) < self._score(self.best):
            self.best = trial
        failed = isinstance(trial.outcome, Failure)
        if isinstance(trial.outcome, Measurement):
            self._refuse_unmeasured(trial.outcome)
            self._early_stopping.noise = trial.outcome.noise or 0.0
        if not again:
            self._early_stopping.enter(None if failed else self._score(trial))

    @property
    def _part(self) -> ChipPart:
        """Return the part of the chip that the search takes place on; trial 0 has all of it."""
        return ChipPart.of(self.search.space.starts[0])

    def _is_inside(self, trial: Trial) -> bool:
        """Return whether a trial's candidate is in the space.

        What people give need not be, nor what is on another part of the chip.
        """
        if ChipPart.of(trial.knobs) != self._part:
            return False
        if trial.number > len(self.search.starts):
            return True
        try:
            self._proposer.params(trial.knobs)
        except KnobsError:
            return False
        return True

    def _refuse_unmeasured(self, outcome: Measurement) -> None:
        """Refuse an objective that the measurer says nothing of.

        Raises:
            UsageError: There is one.
        """
        for objective in self.search.objectives:
            if objective.score(outcome) is None:
                hint = f"{' or '.join(OF_KERNELS)} follow from a latency alone"
                raise UsageError(f"the measurer does not give {objective.name}", hint=hint)

    def _score(self, trial: Trial) -> tuple[float, ...]:
        """Return the scores of all objectives, the first one first; lower is better."""
        return figures(self.search.objectives, trial.outcome)

    def _fill_mirror(self) -> None:
        """Bring the study that the user sees up to date; a storage is written at once."""
        for trial in self.trials[self.mirror.entered :]:
            params = self._proposer.params(trial.knobs) if self._is_inside(trial) else {}
            self.mirror.enter(trial.number, params, trial.outcome)
        if self.search.storage is not None:
            self.mirror.write()

    def _report(self, outcomes: Mapping[int, Outcome]) -> None:
        if self._on_progress is not None:
            self._on_progress(self._progress(outcomes))

    def _progress(self, outcomes: Mapping[int, Outcome]) -> Progress:
        """Return how the run stands; outcomes of the open round count as done."""
        default = self.trials[0].outcome if self.trials else outcomes.get(0)
        tried = [Trial(n, knobs, outcomes[n]) for n, knobs in self._batch if n in outcomes]
        fitting = [
            one
            for one in tried
            if isinstance(one.outcome, Measurement)
            and not (self.search.reference and one.number == 0)
        ]
        incumbent = min(
            [*([self.best] if self.best else []), *fitting], key=self._score, default=None
        )
        best = incumbent.outcome if incumbent else None
        reasons = Counter(o.reason for o in outcomes.values() if isinstance(o, Failure))
        new = [o for o in outcomes.values() if program_of(o) not in self._programs]
        done = self.schedules + len(new)
        measured = best if isinstance(best, Measurement) else None
        return Progress(
            model=self.search.model,
            target=self.search.target,
            done=done,
            total=None if self.search.trials is None else self.total,
            best_latency=measured.latency if measured else None,
            default_latency=default.latency if isinstance(default, Measurement) else None,
            best_trial=incumbent.number if incumbent else None,
            bound_fraction=measured.bound_fraction if measured else None,
            measured_per_s=self._measured / max(self._looping, 1e-9),
            screened=self._rankers[0].screened if self._rankers else 0,
            infeasible=dict(self._failures + reasons),
            elapsed_s=self._elapsed,
            remaining_s=self._remaining(done),
            ended=self.stopped is not None,
        )

    def _remaining(self, done: int) -> float | None:
        """Return the estimated seconds to go; the first round, which may compile, is left out."""
        budget = self.search.time_budget
        by_budget_s = None if budget is None else max(budget - self._elapsed, 0.0)
        warm_s, warm_trials = self._warm or (0.0, self._measured)
        if self.search.trials is None or self._measured == warm_trials:
            return by_budget_s
        trial_s = (self._looping - warm_s) / (self._measured - warm_trials)
        by_trials_s = (self.total - done) * trial_s
        return by_trials_s if by_budget_s is None else min(by_budget_s, by_trials_s)
