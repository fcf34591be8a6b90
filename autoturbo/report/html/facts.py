"""All that is known of a run: its records, and its best schedule built and measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autoturbo.database import RunInfo, TrialRecord, Verified
from autoturbo.database.records import no_schedule
from autoturbo.errors import AutoTurboError, RunError
from autoturbo.graph.operators import Graph
from autoturbo.report.html.search import Predictions, predictions
from autoturbo.report.html.time_use import TimeUse, time_use
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.advice import make_advisor
from autoturbo.search.importance import Importance, importance_of
from autoturbo.search.loop import BATCH
from autoturbo.search.names import OURS
from autoturbo.search.objectives import OF_KERNELS, Objective, find_objectives
from autoturbo.search.progress import Trial
from autoturbo.search.space import space_of_run
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.intervals import KernelInterval, pass_intervals
from autoturbo.simulate.measurement import Failure, Measurement
from autoturbo.verify import VERIFIER_VERSION, verify_schedule
from autoturbo.verify.findings import Check

BESIDE = ("tvm", "astitch", "graphturbo")
"""Schedulers that every report shows beside the tuned schedule."""

MOST_JUDGES = 2000
"""Trials that the importance of knobs is judged by: more take long and say the same."""

TITLES = {
    "tvm": "TVM-like",
    "astitch": "AStitch-like",
    "graphturbo": "GraphTurbo's heuristics",
    "default": "trial 0",
    "tuned": "tuned",
}


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A schedule with what it measures.

    Attributes:
        schedule: itself.
        measurement: of it.
        kernels: of one pass.
        use: of its time.
    """

    schedule: Schedule
    measurement: Measurement
    kernels: tuple[KernelInterval, ...]
    use: TimeUse

    @staticmethod
    def of(schedule: Schedule, measurement: Measurement, order: Sequence[str] = ()) -> Measured:
        """Follow its first pass; ``order`` is that of :func:`time_use`."""
        kernels = pass_intervals(schedule)
        use = time_use(schedule, kernels, measurement.bound, measurement.latency, order)
        return Measured(schedule, measurement, kernels, use)


@dataclass(frozen=True, slots=True, eq=False)
class Trust:
    """What speaks for the figures.

    Attributes:
        checks: by name ``"ok"``, ``"failed"`` or ``"not run"``.
        same: the best trial measured the same again, to the bit.
        refused: trials whose schedules failed a check.
        findings: what is wrong, one line each.
    """

    checks: Mapping[str, str]
    same: bool
    refused: int
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing speaks against them."""
        return self.same and "failed" not in self.checks.values()


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A run.

    Attributes:
        info: its record.
        state: what became of it.
        trials: by number.
        objectives: what was sought.
        number: of the fastest trial.
        best: its schedule.
        default: of trial 0; None where it does not fit.
        others: other schedulers by name; a failure where one does not fit.
        trust: what speaks for the figures.
        importance: what the trials tell of the knobs.
        predictions: of the cost model; None where it cannot say anything.
        searched_by_model: its predictions guided the search.
        seconds: from the first trial to the last.
    """

    info: RunInfo
    state: str
    trials: tuple[Trial, ...]
    objectives: tuple[Objective, ...]
    number: int
    best: Measured
    default: Measured | None
    others: Mapping[str, Measured | Failure]
    trust: Trust
    importance: Importance
    predictions: Predictions | None
    searched_by_model: bool
    seconds: float


def gather(
    info: RunInfo,
    state: str,
    records: Sequence[TrialRecord],
    verified: Verified | None,
    graph: Graph,
    evaluator: Evaluator,
) -> Facts:
    """Build and measure again what the records name.

    Args:
        info: the run.
        state: what became of it.
        records: its trials by number.
        verified: checks of its best schedule that the database knows of.
        graph: its model.
        evaluator: of its model and target.

    Raises:
        RunError: nothing of it fits the target.
    """
    trials = tuple(Trial(r.number, r.knobs, r.outcome) for r in records)
    known = {trial.number: trial for trial in trials}
    if info.best_trial is None:
        raise no_schedule(info)
    recorded = known[info.best_trial]
    best, again = _measured(evaluator, recorded)
    order = best.use.order
    target = best.schedule.problem.target
    objectives = find_objectives(info.settings.get("objective", "latency"))
    seed = int(info.settings.get("seed", 0))
    space = space_of_run(info.settings, evaluator.bench)
    advisor = make_advisor(evaluator, graph, target, info.key.dtype, seed, _ignored)
    default = known.get(0)
    return Facts(
        info=info,
        state=state,
        trials=trials,
        objectives=objectives,
        number=info.best_trial,
        best=best,
        default=_measured(evaluator, default, order)[0] if _fits(default) else None,
        others=_others(evaluator, info.settings.get("baselines", ()), order),
        trust=_trust(info, recorded, again, best.schedule, verified),
        importance=importance_of(space, trials, objectives[0], most=MOST_JUDGES),
        predictions=predictions(trials, advisor, info.settings.get("round") or BATCH),
        searched_by_model=_guided(info, objectives),
        seconds=_span(records),
    )


def _ignored(_line: str) -> None:
    """Ignore a line that the run's own log has."""


def _fits(trial: Trial | None) -> bool:
    return trial is not None and isinstance(trial.outcome, Measurement)


def _guided(info: RunInfo, objectives: Sequence[Objective]) -> bool:
    alone = len(objectives) == 1 and objectives[0].name in OF_KERNELS
    return alone and info.settings.get("sampler", OURS) == OURS


def _measured(
    evaluator: Evaluator, trial: Trial | None, order: Sequence[str] = ()
) -> tuple[Measured, Measurement]:
    """Build and measure a trial again.

    Raises:
        RunError: it fits no more.
    """
    if trial is None:
        raise RunError("a trial that the run names is not there")
    schedule = evaluator.schedule(trial.knobs)
    outcome = evaluator.measure(schedule)
    if isinstance(outcome, Failure):
        raise RunError(f"trial {trial.number} cannot be measured again: {outcome.message}")
    return Measured.of(schedule, outcome, order), outcome


def _others(
    evaluator: Evaluator, asked: Sequence[str], order: Sequence[str]
) -> dict[str, Measured | Failure]:
    found: dict[str, Measured | Failure] = {}
    for name in dict.fromkeys((*BESIDE, *asked)):
        try:
            schedule, outcome = evaluator.scheduler(name)
        except AutoTurboError as error:  # a scheduler of a package that is not installed here
            found[name] = Failure("raised", error.message)
            continue
        if isinstance(outcome, Failure):
            found[name] = outcome
        else:
            found[name] = Measured.of(schedule, outcome, order)
    return found


def _trust(
    info: RunInfo,
    recorded: Trial,
    again: Measurement,
    schedule: Schedule,
    verified: Verified | None,
) -> Trust:
    same = again.as_dict() == recorded.outcome.as_dict()
    if verified is not None and verified.verifier == VERIFIER_VERSION:
        checks = {c.value: "ok" if c in verified.checks else "not run" for c in Check}
        return Trust(checks, same, len(info.refused), ())
    now = verify_schedule(schedule, numbers=False)
    checks = {
        Check.REGIONS.value: "failed" if now.regions else "ok",
        Check.MEMORY.value: "failed" if now.memory else "ok",
        Check.NUMBERS.value: "not run",
    }
    lines = tuple(finding.message for finding in now.findings[:5])
    return Trust(checks, same, len(info.refused), lines)


def _span(records: Sequence[TrialRecord]) -> float:
    """Return the seconds between the first record and the last."""
    times = [datetime.fromisoformat(record.created) for record in (records[0], records[-1])]
    return (times[1] - times[0]).total_seconds()
