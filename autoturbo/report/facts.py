"""The facts of a run: its records, and where the time of its best schedule goes.

Figures are those that the run recorded: nothing is measured for a report. How they divide, what is
kept where and when it happens is simulated, whatever measured them.

Where the time of a schedule goes is what ``explain`` says: its critical path, attributed to the
resources that limit it (:mod:`autoturbo.simulator.breakdown.attribution`), and what lies between
the lower bound and the latency (:mod:`autoturbo.simulator.gap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from autoturbo.database import HandedOut, RunInfo, TrialRecord, Verified
from autoturbo.database.records import no_schedule
from autoturbo.errors import AutoTurboError, RunError
from autoturbo.graph.operators import Graph
from autoturbo.registry import COST_MODEL, HEURISTIC, HEURISTICS, SIMULATOR
from autoturbo.report.importance import Importance, importance_of
from autoturbo.report.search_course import Predictions, predictions
from autoturbo.report.units import percent
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.constants import SEARCH
from autoturbo.search.objectives import OF_KERNELS, Objective, find_objectives
from autoturbo.search.openings import make_ranker
from autoturbo.search.progress import Trial
from autoturbo.search.space import space_of_run
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.breakdown.shares import ScheduleShares, schedule_shares
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.gap import gap_parts
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.sequence import KernelMemory, pass_intervals, simulate
from autoturbo.simulator.whole_pass import KernelInterval
from autoturbo.verifier import VERIFIER_VERSION, verify_schedule
from autoturbo.verifier.findings import Check

BESIDE = ("tvm", "astitch")
"""Schedulers that every report of a simulated run shows beside the tuned schedule."""

MOST_JUDGES = 2000
"""Trials that the importance of knobs is judged by: more take long and say the same."""

TITLES = {
    "tvm": "TVM-like",
    "astitch": "AStitch-like",
    "default": HEURISTIC,
    "tuned": "tuned",
}

LEAST: Final = 0.005
"""Share of the time below which a part is not worth a word."""

LIMIT_TITLES: Final = {
    Limit.MATRIX: "the matrix engines",
    Limit.VECTOR: "the vector engines",
    Limit.DDR: "DDR",
    Limit.GB: "the global buffers (GB)",
    Limit.TRANSFER: "the cores' links",
    Limit.LB: "the local buffers (LB)",
    Limit.LATENCY: "latencies",
    Limit.LAUNCH: "launches and barriers",
}
"""What bounds the time, as readers are told, in the order of charts."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A schedule and its measurement.

    Attributes:
        schedule: The schedule.
        measurement: Measurement of the schedule.
        kernels: Kernels of one pass, with their times.
        found: Simulated latency, attributed to limits, sub-graphs and layers.
    """

    schedule: Schedule
    measurement: Measurement
    kernels: tuple[KernelInterval, ...]
    found: ScheduleShares

    @staticmethod
    def of(schedule: Schedule, measurement: Measurement) -> Measured:
        """Return a schedule with its measurement, its first pass and where its time goes."""
        memory = KernelMemory()
        kernels = pass_intervals(schedule, memory)
        return Measured(schedule, measurement, kernels, schedule_shares(schedule, memory))

    def share(self, limit: Limit) -> float:
        """Return the share of the time that something limits."""
        return self.found.shares.part(limit)

    def seconds(self, limit: Limit) -> float:
        """Return that share of the latency, simulated or measured, in seconds."""
        return self.share(limit) * self.measurement.latency

    @property
    def limits(self) -> list[Limit]:
        """Return what limits it for a time worth a word, the longest first."""
        told = [limit for limit in LIMIT_TITLES if self.share(limit) > LEAST]
        return sorted(told, key=lambda limit: -self.share(limit))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The evidence for the figures.

    Attributes:
        checks: Outcome of each check by name: ``"ok"``, ``"failed"`` or ``"not run"``.
        same: The best trial simulates the same again, to the bit; None where it was measured.
        again: What is known of measuring it more than once, in words; empty for nothing.
        refused: Trials whose schedules failed a check.
        findings: What is wrong, one line each.
    """

    checks: Mapping[str, str]
    same: bool | None
    again: str
    refused: int
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether nothing speaks against the figures."""
        return self.same is not False and "failed" not in self.checks.values()


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The facts of a run.

    Attributes:
        info: Record of the run.
        state: State of the run now.
        trials: Trials of the run by number.
        objectives: Objectives that were sought, in their order.
        handed: What the run handed out, or would.
        best: The schedule that the run handed out.
        default: The published heuristic's schedule, trial 0; None where it does not fit.
        others: Other schedulers by name; a failure where one does not fit.
        gap: What lies between the lower bound and the best schedule's simulated latency: shares of
            that latency by cause, in the order of :func:`autoturbo.simulator.gap.gap_parts`.
        trust: Evidence for the figures.
        importance: Importance of the knobs, by the trials.
        predictions: Predictions of the cost model; None where it cannot say anything.
        searched_by_model: Whether predictions of the cost model guided the search.
        seconds: Seconds from the first trial to the last.
    """

    info: RunInfo
    state: str
    trials: tuple[Trial, ...]
    objectives: tuple[Objective, ...]
    handed: HandedOut
    best: Measured
    default: Measured | None
    others: Mapping[str, Measured | Failure]
    gap: Mapping[str, float]
    trust: Evidence
    importance: Importance
    predictions: Predictions | None
    searched_by_model: bool
    seconds: float


def gather(
    info: RunInfo,
    state: str,
    records: Sequence[TrialRecord],
    handed: HandedOut | None,
    verified: Verified | None,
    graph: Graph,
    evaluator: Evaluator,
) -> Facts:
    """Return what is recorded, with its schedules built again to say how they use their time.

    Args:
        info: The run.
        state: State of the run now.
        records: Trials of the run by number.
        handed: What it handed out, or would.
        verified: Checks of the best schedule that the database knows of.
        graph: Model of the run.
        evaluator: Simulates on the run's model and target, whatever measured the run.

    Returns:
        All that a report says of the run.

    Raises:
        RunError: Nothing of it fits the target.
    """  # noqa: DOC501  no_schedule() makes the error
    trials = tuple(Trial(r.number, r.knobs, r.outcome) for r in records)
    known = {trial.number: trial for trial in trials}
    if handed is None:
        raise no_schedule(info)
    best = _of_trial(evaluator, known.get(handed.trial), handed.measurement)
    target = best.schedule.context.chip
    objectives = find_objectives(info.settings.get("objective", "latency"))
    seed = int(info.settings.get("seed", 0))
    space = space_of_run(info.settings, evaluator.model_scheduler)
    ranker = make_ranker(evaluator, graph, target, info.key.dtype, seed, lambda _: None)
    base = handed.heuristic
    alone = len(objectives) == 1 and objectives[0].name in OF_KERNELS
    times = [datetime.fromisoformat(record.created) for record in (records[0], records[-1])]
    return Facts(
        info=info,
        state=state,
        trials=trials,
        objectives=objectives,
        handed=handed,
        best=best,
        default=None if base is None else _of_trial(evaluator, known.get(0), base),
        others=_others(evaluator, info, handed),
        gap=gap_shares(best.schedule),
        trust=_trust(info, handed, best, evaluator, verified),
        importance=importance_of(space, trials, objectives[0], most=MOST_JUDGES),
        predictions=predictions(
            trials, ranker, info.settings.get("round") or SEARCH.rounds.round_trials
        ),
        searched_by_model=alone and info.settings.get("sampler", COST_MODEL) == COST_MODEL,
        seconds=(times[1] - times[0]).total_seconds(),
    )


def is_simulated(info: RunInfo) -> bool:
    """Return whether the simulator gave the figures of a run."""
    return bool(info.settings.get("measurer", SIMULATOR) == SIMULATOR)


def gap_shares(schedule: Schedule) -> dict[str, float]:
    """Return what lies between the lower bound and the simulated latency, in shares of that."""
    simulated = simulate(schedule)
    parts = gap_parts(schedule, simulated)
    return {cause: seconds / simulated.latency for cause, seconds in parts.items()}


def _of_trial(evaluator: Evaluator, trial: Trial | None, measured: Measurement) -> Measured:
    """Return a trial's schedule, built again, with its measurement.

    Raises:
        RunError: It is not there.
    """
    if trial is None:
        raise RunError("a trial that the run names is not there")
    schedule = build_schedule(evaluator.model_scheduler, trial.knobs)
    return Measured.of(schedule, measured)


def _others(
    evaluator: Evaluator, info: RunInfo, handed: HandedOut
) -> dict[str, Measured | Failure]:
    """Return other schedulers: what was measured with the run; simulated ones also otherwise."""
    asked = info.settings.get("baselines", ())
    simulated = is_simulated(info)
    names = dict.fromkeys((*BESIDE, *asked) if simulated else handed.baselines)
    others: dict[str, Measured | Failure] = {}
    for name in names:
        if name in HEURISTICS:
            continue  # trial 0 has a row of its own
        try:
            schedule, outcome = evaluator.scheduler(name)
        except AutoTurboError as error:  # a scheduler of a package that is not installed here
            others[name] = Failure("raised", error.message)
            continue
        if not simulated:
            outcome = handed.baselines[name]
        others[name] = outcome if isinstance(outcome, Failure) else Measured.of(schedule, outcome)
    absent = {name: Failure("raised", why) for name, why in info.lacking.items()}
    return others if simulated else {**others, **absent}


def _trust(
    info: RunInfo,
    handed: HandedOut,
    best: Measured,
    evaluator: Evaluator,
    verified: Verified | None,
) -> Evidence:
    same = None
    if is_simulated(info):
        # the simulator has no noise, so anything but the same bits is a fault
        same = evaluator.measure(best.schedule) == handed.measurement
    again, refused = _again(handed, same), len(info.refused)
    if verified is not None and verified.verifier == VERIFIER_VERSION:
        checks = {c.value: "ok" if c in verified.checks else "not run" for c in Check}
        return Evidence(checks, same, again, refused, ())
    now = verify_schedule(best.schedule, numbers=False)
    checks = {
        Check.REGIONS.value: "failed" if now.regions else "ok",
        Check.MEMORY.value: "failed" if now.memory else "ok",
        Check.NUMBERS.value: "not run",
    }
    lines = tuple(finding.message for finding in now.findings[:5])
    return Evidence(checks, same, again, refused, lines)


def _again(handed: HandedOut, same: bool | None) -> str:
    """Return what is known of measuring the best schedule more than once, in words."""
    if same is not None:
        return "the same, to the bit" if same else "other numbers than the run recorded"
    if handed.race is not None:
        return f"raced {handed.race.rounds} rounds, noise {percent(handed.race.noise)}"
    return f"no: {handed.doubt}" if handed.doubt else ""
