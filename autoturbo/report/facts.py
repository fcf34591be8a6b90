"""The facts of a run: its records, and where the time of its best schedule goes.

Figures are those that the run recorded: nothing is measured for a report. How they divide, what is
kept where and when it happens is simulated, whatever measured them.

The time of a schedule is dealt out so that the parts add up to the latency: first what the busiest
engine works, then what each other engine adds while those before it stand idle, then latencies
nobody works in, and what comes between kernels. What is hidden behind a busier engine costs nothing
and counts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from autoturbo.database import HandedOut, RunInfo, TrialRecord, Verified
from autoturbo.database.records import no_schedule
from autoturbo.errors import AutoTurboError, RunError
from autoturbo.graph.operators import Graph
from autoturbo.registry import COST_MODEL, HEURISTIC, HEURISTICS, SIMULATOR
from autoturbo.report.importance import Importance, importance_of
from autoturbo.report.search import Predictions, predictions
from autoturbo.report.units import percent
from autoturbo.schedule.codegen.instructions import (
    DMA_IN,
    DMA_OUT,
    MATRIX_ENGINE,
    TRANSFER,
    VECTOR_ENGINE,
    Column,
)
from autoturbo.schedule.codegen.work import Floats
from autoturbo.schedule.pipeline import build_schedule
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.constants import SEARCH
from autoturbo.search.evolution import make_ranker
from autoturbo.search.objectives import OF_KERNELS, Objective, find_objectives
from autoturbo.search.progress import Trial
from autoturbo.search.space import space_of_run
from autoturbo.simulate.breakdown.intervals import KernelInterval, pass_intervals
from autoturbo.simulate.evaluator import Evaluator
from autoturbo.simulate.measurement import Failure, LowerBound, Measurement
from autoturbo.verify import VERIFIER_VERSION, verify_schedule
from autoturbo.verify.findings import Check

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

WORKERS: Final = {
    "matrix": (MATRIX_ENGINE,),
    "vector": (VECTOR_ENGINE,),
    "DDR": (DMA_IN, DMA_OUT),
    "transfer": (TRANSFER,),
}
"""What may bound a kernel, and the engines that do it."""

OVERHEADS: Final = ("latency", "movements", "launch", "other clusters")
"""Time in which no engine works: latencies of memories and of dependences, movements between
kernels, launches and barriers, and waiting for other clusters."""

PARTS: Final = (*WORKERS, *OVERHEADS)

LEAST: Final = 0.005
"""Share of the time below which a part is not worth a word."""

PART_TITLES = {
    "matrix": "the matrix engines",
    "vector": "the vector engines",
    "DDR": "DDR",
    "transfer": "transfers between GB and LB",
    "latency": "latencies",
    "movements": "movements between kernels",
    "launch": "launches and barriers",
    "other clusters": "waiting for other clusters",
}

PART_COLOURS = {
    "matrix": "g0", "vector": "g2", "DDR": "g1", "transfer": "g3", "latency": "g5",
    "movements": "g4", "launch": "g6", "other clusters": "g7",
}  # fmt: skip
"""Of the parts of the time."""


@dataclass(frozen=True, slots=True)
class TimeUse:
    """The use of the time of one pass, in shares that add up to 1.

    Attributes:
        order: Keys of :data:`WORKERS`: those before hide those behind; the busiest is the first.
        busy: Share of the time that each works, hidden or not.
        exposed: Share that each part costs, by :data:`PARTS`.
        least: Share that the first of the order cannot be without, by the lower bound.
    """

    order: tuple[str, ...]
    busy: Mapping[str, float]
    exposed: Mapping[str, float]
    least: float

    @property
    def busiest(self) -> str:
        """Return the part that is busy for the longest time, where :attr:`order` is its own."""
        return self.order[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """Return all of :data:`PARTS`, those that hide others first."""
        return (*self.order, *OVERHEADS)

    @property
    def unhidden(self) -> list[str]:
        """Return the exposed parts besides the busiest, the largest first; four at most."""
        others = [part for part in PARTS if part != self.busiest and self.exposed[part] > LEAST]
        return sorted(others, key=lambda part: -self.exposed[part])[:4]


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A schedule and its measurement.

    Attributes:
        schedule: Itself.
        measurement: Of it.
        kernels: Of one pass.
        use: Of its time.
    """

    schedule: Schedule
    measurement: Measurement
    kernels: tuple[KernelInterval, ...]
    use: TimeUse

    @staticmethod
    def of(schedule: Schedule, measurement: Measurement, order: Sequence[str] = ()) -> Measured:
        """Return the facts of a schedule's first pass; ``order`` is that of :func:`time_use`."""
        kernels = pass_intervals(schedule)
        use = time_use(schedule, kernels, measurement.bound, measurement.latency, order)
        return Measured(schedule, measurement, kernels, use)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The evidence for the figures.

    Attributes:
        checks: By name ``"ok"``, ``"failed"`` or ``"not run"``.
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
        info: Its record.
        state: What became of it.
        trials: By number.
        objectives: What was sought.
        handed: What the run handed out, or would.
        best: Its schedule.
        default: Of trial 0; None where it does not fit.
        others: Other schedulers by name; a failure where one does not fit.
        trust: What speaks for the figures.
        importance: What the trials tell of the knobs.
        predictions: Of the cost model; None where it cannot say anything.
        searched_by_model: Its predictions guided the search.
        seconds: From the first trial to the last.
    """

    info: RunInfo
    state: str
    trials: tuple[Trial, ...]
    objectives: tuple[Objective, ...]
    handed: HandedOut
    best: Measured
    default: Measured | None
    others: Mapping[str, Measured | Failure]
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
        state: What became of it.
        records: Its trials by number.
        handed: What it handed out, or would.
        verified: Checks of its best schedule that the database knows of.
        graph: Its model.
        evaluator: Of its model and target; simulates, whatever measured the run.

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
    order = best.use.order
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
        default=None if base is None else _of_trial(evaluator, known.get(0), base, order),
        others=_others(evaluator, info, handed, order),
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


def _of_trial(
    evaluator: Evaluator, trial: Trial | None, measured: Measurement, order: Sequence[str] = ()
) -> Measured:
    """Return a trial's schedule, built again, with its measurement.

    Raises:
        RunError: It is not there.
    """
    if trial is None:
        raise RunError("a trial that the run names is not there")
    schedule = build_schedule(evaluator.model_scheduler, trial.knobs)
    return Measured.of(schedule, measured, order)


def _others(
    evaluator: Evaluator, info: RunInfo, handed: HandedOut, order: Sequence[str]
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
        others[name] = (
            outcome if isinstance(outcome, Failure) else Measured.of(schedule, outcome, order)
        )
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


def time_use(
    schedule: Schedule,
    kernels: Sequence[KernelInterval],
    bound: LowerBound,
    latency: float,
    order: Sequence[str] = (),
) -> TimeUse:
    """Return how a schedule uses its time.

    Args:
        schedule: The schedule.
        kernels: Intervals of its kernels in a pass.
        bound: Of the whole batch.
        latency: Likewise, seconds.
        order: What hides what, to compare with another schedule; the busiest first if empty.
    """
    busy = {name: sum(_busy(kernel, name) for kernel in kernels) for name in WORKERS}
    order = tuple(order) or tuple(sorted(WORKERS, key=lambda name: -busy[name]))
    exposed = dict.fromkeys(PARTS, 0.0)
    for kernel in kernels:
        for name, seconds in _exposed(schedule, kernel, order).items():
            exposed[name] += seconds
    clusters = len(schedule.timelines)
    total = clusters * max(kernel.end for kernel in kernels)
    exposed["other clusters"] = max(0.0, total - sum(exposed.values()))
    floor = {"matrix": bound.matrix_s, "vector": bound.vector_s, "DDR": bound.ddr_s}
    least = min(floor.get(order[0], 0.0) / latency, exposed[order[0]] / total)
    return TimeUse(
        order,
        {name: seconds / total for name, seconds in busy.items()},
        {name: seconds / total for name, seconds in exposed.items()},
        least,
    )


def kernel_use(schedule: Schedule, kernel: KernelInterval) -> dict[str, float]:
    """Return the seconds of a kernel that each worker works, and those that none does."""
    busy = {name: _busy(kernel, name) for name in WORKERS}
    exposed = _exposed(schedule, kernel, list(WORKERS))
    return {**busy, **{name: exposed[name] for name in ("latency", "movements", "launch")}}


def _busy(kernel: KernelInterval, name: str) -> float:
    issued = np.isin(kernel.program.where[:, Column.ENGINE], WORKERS[name])
    if len(WORKERS[name]) == 1:
        return float((kernel.freed[issued] - kernel.issued[issued]).sum())
    return _covered(kernel.issued[issued], kernel.freed[issued])


def _covered(begin: Floats, end: Floats) -> float:
    """Return the length of the union of intervals."""
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    before = np.concatenate(([-np.inf], reach[:-1]))
    return float(np.maximum(reach - np.maximum(begin, before), 0.0).sum())


def _exposed(schedule: Schedule, kernel: KernelInterval, order: Sequence[str]) -> dict[str, float]:
    """Return seconds of a kernel by :data:`PARTS`; earlier workers hide later ones."""
    overheads = schedule.context.target.overheads
    exposed_s = dict.fromkeys(PARTS, 0.0)
    exposed_s["movements"] = kernel.launch - kernel.begin
    exposed_s["launch"] = overheads.per_kernel + kernel.ramp
    ended = kernel.end - overheads.barrier
    begin, covered = kernel.issued, 0.0
    engines = kernel.program.where[:, Column.ENGINE]
    chosen = np.zeros(len(engines), np.bool_)
    for name in order:
        chosen |= np.isin(engines, WORKERS[name])
        now = _covered(begin[chosen], kernel.freed[chosen])
        exposed_s[name], covered = now - covered, now
    done = float(kernel.done.max(initial=kernel.body))
    # what is left of the body after its last instruction: rows of DDR that were opened too often
    exposed_s["DDR"] += max(0.0, ended - done)
    exposed_s["latency"] = max(0.0, min(done, ended) - kernel.body - covered)
    return exposed_s
