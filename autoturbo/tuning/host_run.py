"""Runs on this computer: plans of batches that ONNX Runtime carries out, measured, kept, resumed.

They stand in the database as all runs do: each plan that was measured is a trial, and what was
handed out is recorded with the comparison by which it was chosen.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoturbo.config import RUNS, ExecutionConfig, ResumeConfig, TuneConfig, flag_of, options_of
from autoturbo.database import (
    Database,
    HandedOut,
    PairKey,
    Race,
    RefusedTrial,
    RunFolder,
    RunInfo,
    RunState,
    run_id,
)
from autoturbo.errors import AutoTurboError, Location, UsageError
from autoturbo.graph.operators import Graph
from autoturbo.hardware.fields import DTYPES
from autoturbo.host.compare import CONTROL, HostComparison, Stopwatch
from autoturbo.host.cpu import Cpu, this_cpu
from autoturbo.host.divided import DividedModel, with_weights_drawn
from autoturbo.host.files import HostModel, HostSchedule
from autoturbo.host.ledger import HostLedger
from autoturbo.host.runner import runtime_version
from autoturbo.host.search import Timed, baselines_of
from autoturbo.host.tuning import PATIENCE, TRIALS, HostBudget, HostFound, feeds_of, find_plan
from autoturbo.registry import HOST
from autoturbo.report.host import HostAnswer, host_view
from autoturbo.report.trials import TrialTable
from autoturbo.report.views import View, Viewed
from autoturbo.schedule.host_plan import LOOP, TUNED, WHOLE
from autoturbo.schedule.knobs import Knobs
from autoturbo.search.journal import now
from autoturbo.search.progress import Progress, Trial
from autoturbo.search.stopping import Stop
from autoturbo.simulator.measurement import Measurement, Outcome
from autoturbo.tuning.keys import hashes, refuse_changed, register, versions_here

if TYPE_CHECKING:
    from autoturbo.report.plots import Plot

HOST_VERSION: Final = "1"
"""Raised whenever the same plan would run another way; part of the key of every run."""

ALLOWED: Final = frozenset(
    ("trials", "patience", "time_budget", "seed", "runs_folder", "database", "on_begin",
     "on_progress", "began")
)  # fmt: skip
"""Options of :func:`autoturbo.tune` that mean something on this computer."""

_READ = ("batch_dim", "shapes", "dims", "values")
"""Settings that say how the model's file is read."""


@dataclass(frozen=True, slots=True)
class HostBest:
    """The plan that is handed out.

    Attributes:
        trial: Number of the trial that measured it.
        knobs: The knobs that hold the plan.
        measurement: Measurement of the comparison; of the trial where there was no time for one.
        schedule: The schedule that is written.
        verified: Checks that it passed.
    """

    trial: int
    knobs: Knobs
    measurement: Measurement
    schedule: HostSchedule
    verified: tuple[str, ...] = ("numbers",)


@dataclass(frozen=True, slots=True, eq=False)
class HostResult(Viewed):
    """The result of tuning for this computer; names are those of :class:`TuneResult`.

    Attributes:
        run: Id of the run, for :func:`resume`.
        model: Name of the model.
        measured: Plans that were measured, the baselines among them.
        seed: Seed of all chance in the run.
        default: The faster one of the whole batch and the best loop.
        best: The plan that is handed out.
        baselines: Plans that were compared with it, by name.
        schedule_file: Written for :func:`autoturbo.load_runner`.
        run_folder: Manifest, schedule, log.
        trials: All of them by number, as a table.
        notes: Notes on steps that could not be done, and why.
        stopped: Why it ended.
        target: Always this computer.
        state: Always done.
        objective: Name of the objective.
        measurer: Name of the measurer.
        refused: Trials that failed a check: none.
        front: Trials that none beats in several objectives: none.
        scratch: Keeps the temporary folder.
    """

    run: str
    model: str
    measured: int
    seed: int
    default: Measurement
    best: HostBest
    baselines: dict[str, Measurement]
    schedule_file: Path
    run_folder: Path
    trials: TrialTable
    notes: tuple[str, ...]
    stopped: Stop
    target: str = HOST
    state: RunState = "done"
    objective: str = "latency"
    measurer: str = HOST
    refused: tuple[RefusedTrial, ...] = ()
    front: tuple[Trial, ...] = ()
    scratch: object = None

    @property
    def answer(self) -> HostAnswer:
        """Return the lines on the plans that were compared."""
        return HostAnswer.of_schedule(self.best.schedule)

    @property
    def comparison(self) -> HostComparison:
        """Return the comparison by which the plan was chosen."""
        return self.best.schedule.comparison

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes to compare, the best one last."""
        return {**self.baselines, "best": self.best.measurement}

    def plot(self, kind: str = "convergence") -> Plot:
        """Return a chart of the report; a notebook shows it, ``save(path)`` writes it.

        Args:
            kind: ``"convergence"`` (plans in the order of measuring), or ``"speed"`` (the time of
                those that were compared).

        Raises:
            UsageError: There is no such plot.
        """
        from autoturbo.report import plots
        from autoturbo.report.host_page import compared_chart, course_chart

        plots.check_kind(kind, plots.HOST_PLOTS)
        of = f"{self.model} @ {self.target}, run {self.run}"
        if kind == "speed":
            return plots.Plot(kind, of, compared_chart(self.answer))
        timed = [(trial.number, getattr(trial.outcome, "latency", None)) for trial in self.trials]
        return plots.Plot(kind, of, course_chart(timed, self.answer))

    def picture(self) -> str:
        """Return the first picture of the report; empty where it cannot be drawn."""
        with suppress(UsageError):
            return self.plot("speed").svg()
        return ""

    def __repr__(self) -> str:
        of = f"{self.model!r} on {self.target!r}"
        return f"<HostResult {self.run}: {of}, {self.best.measurement.latency!r} s>"

    def view(self) -> View:
        """Return the view of the compared plans, and the places of the files."""
        return host_view(self.answer, {"run": self.run, "schedule": str(self.schedule_file)})


def check(config: TuneConfig, execution: ExecutionConfig) -> None:
    """Refuse options that mean nothing on this computer.

    Raises:
        UsageError: One is given.
    """
    for given in (config, execution):
        for name, declared in options_of(type(given)).items():
            if name not in ALLOWED and getattr(given, name) != declared.default:
                at = Location(field=flag_of(declared) or name)
                raise UsageError("means nothing for --target host", at, "leave it out")
    config.check()
    execution.check()


def tune_on_host(
    graph: Graph,
    model_file: str,
    settings: Mapping[str, Any],
    config: TuneConfig,
    execution: ExecutionConfig,
    store: Database,
) -> HostResult:
    """Return the plan under which batches of a model run fastest on this computer.

    Args:
        graph: The model with its batch.
        model_file: The file as the user named it.
        settings: How its file was read: ``batch_dim``, ``shapes``, ``dims`` and ``values``, where
            they were given; more to keep with the run.
        config: Limits and options of the search.
        execution: Places that things are written to, and listeners.
        store: The database.

    Returns:
        The plan that is handed out, with all trials of the run.

    Raises:
        UnrunnableError: ONNX Runtime is not installed, or does not run the model.
        RefusedError: The plan computes something else than the model.
        UsageError: An option that means nothing on this computer.
        InterruptedRunError: Interrupted; the run can be resumed.
    """
    check(config, execution)
    cpu = this_cpu()
    key = host_key(graph, cpu)
    baselines = baselines_of(DividedModel.of(Path(graph.source), graph), cpu)
    limits = {
        # The baselines are trials of the run, but not of what the user allows.
        "trials": baselines + (config.trials or TRIALS),
        "patience": config.patience or PATIENCE,
        "time_budget": config.time_budget,
    }
    asked = {**hashes(key), **limits, "seed": config.seed, "batch": graph.batch}
    kept = {
        **settings, "measurer": HOST, "target_description": asdict(cpu), "objective": "latency",
        **asked, "baselines_first": baselines, "runs_folder": str(execution.runs_folder or RUNS),
    }  # fmt: skip
    versions = {**versions_here(), **dict([runtime_version().split()])}
    draft = RunInfo(
        "", key, graph.name, model_file or graph.source, graph.batch, HOST, kept, versions, now()
    )
    info = register(draft, run_id({**asked, "shapes": settings.get("shapes")}), store)
    return _carried_out(info, graph, cpu, execution, store)


def resume_on_host(
    info: RunInfo, graph: Graph, config: ResumeConfig, execution: ExecutionConfig, store: Database
) -> HostResult:
    """Go on with a run on this computer, for longer where limits are given.

    Returns:
        The result of the whole run.

    Raises:
        UsageError: An option that means nothing on this computer.
        RunError: The model, the processor or ONNX Runtime has changed, or another process works on
            the run.
        AutoTurboError: Whatever :func:`tune_on_host` raises.
    """
    cpu = this_cpu()
    refuse_changed(info, host_key(graph, cpu))
    names = ("trials", "patience", "time_budget")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    for name in ("bound_gap", "verify"):
        if getattr(config, name) is not None:
            flag = flag_of(options_of(ResumeConfig)[name])
            at = Location(field=flag)
            raise UsageError("means nothing for a run on this computer", at, "leave it out")
    if "trials" in given:
        given["trials"] += info.settings["baselines_first"]
    if execution.runs_folder is not None:
        given["runs_folder"] = str(execution.runs_folder)
    if given:
        store.set_limits(info.id, given)
    return _carried_out(store.run(info.id), graph, cpu, execution, store)


def host_key(graph: Graph, cpu: Cpu) -> PairKey:
    """Return the key under which measurements of a model on this computer hold.

    What was measured of the processor is no part of it: a rate is another one each time.
    """
    facts = {n: v for n, v in asdict(cpu).items() if isinstance(v, str | int)}
    text = json.dumps(facts, sort_keys=True)
    first = next((op.inputs[0] for op in graph.operators if op.macs), None)
    dtype = "float32" if first is None else str(graph.tensors[first].dtype)
    version = f"host.{HOST_VERSION}+{runtime_version().replace(' ', '@')}"
    return PairKey(
        graph.hash, hashlib.sha256(text.encode()).hexdigest(),
        dtype if dtype in DTYPES else "float32", version,
    )  # fmt: skip


def _carried_out(
    info: RunInfo, graph: Graph, cpu: Cpu, execution: ExecutionConfig, store: Database
) -> HostResult:
    from autoturbo.tuning.run import resumable

    with resumable(store, [info.id], execution), store.holding(info.id):
        store.set_state(info.id, "running")
        if execution.on_begin is not None:
            execution.on_begin(info)
        run = _HostRun(info, graph, cpu, execution, store)
        with run.told_of_failures():
            return run.result(run.found())


@dataclass(eq=False)
class _HostRun:
    """A run on this computer, from its first plan to its result."""

    info: RunInfo
    graph: Graph
    cpu: Cpu
    execution: ExecutionConfig
    store: Database

    def __post_init__(self) -> None:
        info, asked = self.info, self.info.asked
        self.folder = RunFolder.create(asked["runs_folder"], info.model, HOST, info.id)
        values = info.as_dict()
        values.pop("state")
        self.folder.write_manifest(values)
        self.file = Path(self.graph.source)
        self.path = with_weights_drawn(self.file, self.folder.path)
        self.model = DividedModel.of(self.path, self.graph, self.cpu.bytes_per_mac)
        self.budget = HostBudget(
            trials=asked["trials"] - asked["baselines_first"], patience=asked["patience"],
            time_budget=asked["time_budget"], seed=asked["seed"], began=self.execution.began,
        )  # fmt: skip
        batch = self.graph.batch if self.graph.agreed else None
        self.ledger = HostLedger(batch, self.graph.batch, self.store, info.id)

    @contextmanager
    def told_of_failures(self) -> Iterator[None]:
        """Record that the run failed where it does."""
        try:
            yield
        except AutoTurboError as error:
            with suppress(AutoTurboError):
                self.store.set_state(self.info.id, "failed")
                self.folder.log(f"failed: {type(error).__name__}: {error}")
            raise

    def found(self) -> HostFound:
        """Return the plans that the search ends with."""
        stopwatch = Stopwatch(self.model, feeds_of(self.model))
        with ExitStack() as ending:
            ending.callback(stopwatch.close)
            return find_plan(stopwatch, self.cpu, self.ledger, self.budget, self._told)

    def _told(self, phase: str, done: int, best: Timed | None) -> None:
        if self.execution.on_progress is None:
            return
        elapsed = time.monotonic() - self.execution.began
        self.execution.on_progress(Progress(
            self.graph.name, HOST, done, self.info.asked["trials"],
            None if best is None else best.seconds,
            best_trial=None if best is None else best.number, elapsed_s=elapsed, phase=phase,
        ))  # fmt: skip

    def result(self, found: HostFound) -> HostResult:
        """Write and record what is handed out, and return the result."""
        asked, chosen = self.info.asked, found.chosen
        given = {name: asked[name] for name in _READ if asked.get(name)}
        place = str(self.file.absolute())
        about = HostModel(
            self.graph.name, place, self.graph.hash, self.graph.batch, agreed=self.graph.agreed,
            **given,
        )  # fmt: skip
        seconds = found.comparison.seconds
        runtime = runtime_version()
        schedule = HostSchedule(about, self.cpu, runtime, chosen, found.plans, seconds)
        file = self.folder.write_schedule(schedule.text)
        handed = handed_out(found, self.ledger)
        self.store.hand_out(self.info.id, handed, "done")
        self.folder.log(f"done: {chosen}, trial {handed.trial}, {handed.measurement.latency!r} s")
        trials = self.ledger.trials
        best = HostBest(handed.trial, trials[handed.trial].knobs, handed.measurement, schedule)
        return HostResult(
            run=self.info.id, model=self.info.model, measured=len(trials), seed=self.budget.seed,
            default=handed.heuristic or handed.measurement, best=best,
            baselines=dict(handed.baselines), schedule_file=file, run_folder=self.folder.path,
            trials=TrialTable.of(Trial(t.number, t.knobs, t.outcome) for t in trials),
            notes=tuple(self._notes(found.comparison)),
            stopped=Stop.TIME if self._is_late else Stop.TRIALS,
        )  # fmt: skip

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self.budget.deadline

    def _notes(self, comparison: HostComparison) -> Iterator[str]:
        """Return notes on steps that could not be done, and why."""
        if self.model.obstacle:
            yield f"samples do not run apart: {self.model.obstacle}"
        if self.path != self.file:
            yield "the model's weights are not there: they were drawn at random"
        if not comparison.made:
            yield NO_TIME


NO_TIME: Final = "there was no time for a comparison, so that no gain is stated"


def handed_out(found: HostFound, ledger: HostLedger) -> HandedOut:
    """Return the record of what a run handed out, and of the comparison."""
    comparison, chosen, base = found.comparison, found.chosen, found.comparison.baseline
    noise = comparison.deviation
    measured = {
        name: ledger.measurement(
            found.plans[WHOLE if name == CONTROL else name], comparison.typical(name, chosen),
            figures, noise,
        )
        for name, figures in comparison.seconds.items()
    }  # fmt: skip
    numbers = {name: ledger.number(plan) for name, plan in found.plans.items()}
    return HandedOut(
        numbers[chosen], len(ledger.trials), measured[chosen], measured[base],
        {name: one for name, one in measured.items() if name != chosen},
        race=_race(found, numbers, base, noise), doubt="" if comparison.made else NO_TIME,
        varies=True, entrants=numbers,
    )  # fmt: skip


def _race(
    found: HostFound, numbers: Mapping[str, int], base: str, noise: float | None
) -> Race | None:
    """Return the comparison of the tuned plan, or of the slower baseline, with the base."""
    comparison = found.comparison
    others = [name for name in (TUNED, LOOP, WHOLE) if name in numbers and name != base]
    if not comparison.made or not others:
        return None
    gain, chosen = comparison.gain(base, others[0]), found.chosen
    # The search had found it about the fastest; measured in turn with the others it was not.
    refuted = (numbers[TUNED],) if TUNED in numbers and chosen != TUNED else ()
    made = sum(map(len, comparison.seconds.values()))
    return Race(
        "latency", numbers[base], numbers[chosen], gain.ratio, gain.low,
        gain.high if math.isfinite(gain.high) else None,
        gain.confidence, noise or 0.0, made, comparison.rounds, refuted,
    )  # fmt: skip
