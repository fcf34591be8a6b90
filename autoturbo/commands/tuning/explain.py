"""Say what bounds a schedule, what is above ideal, what would help, and which knobs mattered.

Every gain is that of the schedule built anew with the change and simulated. Knobs are judged by
trials that the judging model has not seen; where it predicts little of them, no importance is
given.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from autoturbo.commands.console import Console
from autoturbo.commands.flag_values import whole_number, wrong
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    SIMULATOR,
    ModelNotes,
    add_shape_options,
    load_given,
    tell_notes,
)
from autoturbo.commands.parser import Parser
from autoturbo.commands.stored_runs import StoredRun, not_of_machines, stored_run
from autoturbo.commands.tuning import host_runs
from autoturbo.commands.tuning.host_runs import ExplainedHost
from autoturbo.report.units import duration, figures_of, origin_of, percent, ratio
from autoturbo.report.views import View, Viewed
from autoturbo.schedule.knobs import AUTO
from autoturbo.schema import DeferredType, Natural, TypedDict

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.report.explanation import Bounds, BoundsJson
    from autoturbo.report.importance import Importance, KnobReport
    from autoturbo.schedule.pipeline import ModelScheduler
    from autoturbo.schedule.schedule import Schedule
    from autoturbo.search.progress import Trial
else:
    BoundsJson = Annotated[Any, DeferredType(of="autoturbo.report.explanation:BoundsJson")]

USAGE = "RUN | FILE --model MODEL [--target T] [options]"
EXAMPLE = "autoturbo explain 4f1c"
_SHOWN = 12
"""Knobs in the table, without --verbose."""


class RunLine(TypedDict):
    """Of a run also which knobs mattered, and how much of each was tried."""

    run: str
    trial: Natural | None
    latency_s: float | None
    objective: str
    bounds: BoundsJson | None
    measured: Natural
    failed: Natural
    explained: float | None
    obstacle: str | None
    knobs: list[
        Annotated[dict[str, Any], DeferredType(of="autoturbo.report.importance:KnobReport")]
    ]


class FileLine(ModelNotes):
    """What bounds a schedule and what would help."""

    schedule: str
    model: str
    target: str
    scheduler: str
    bounds: BoundsJson


ExplainLine = FileLine | RunLine | ExplainedHost
LINES = {"": ExplainLine}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation(Viewed):
    """What bounds a schedule and what would help; of a run also which knobs mattered.

    Attributes:
        title: The model, the target and the schedule.
        bounds: What the latency is made of, and changes that were tried.
        importance: Importance of the knobs, by the trials of a run; None where there is no run.
    """

    title: str
    bounds: Bounds
    importance: Importance | None = None

    def as_json(self) -> BoundsJson:
        """Return the object ``bounds`` of ``explain --json``."""
        return self.bounds.as_json()

    def view(self) -> View:
        """Return what bounds it, and the worst bottlenecks with what would help."""
        from autoturbo.report import explanation

        facts = [("time", explanation.time_sentence(self.bounds))]
        facts += [("", line) for line in explanation.bound_lines(self.bounds)]
        if self.importance is not None:
            facts.append(("knobs", _explained(self.importance)))
        rows = explanation.bottleneck_rows(self.bounds)
        return View(self.title, tuple(facts), explanation.BOTTLENECKS, tuple(rows))

    def __repr__(self) -> str:
        limit = self.bounds.shares.shares.limit.value
        return f"<Explanation of {self.title}: bound by {limit}>"


def importance_in_run(
    info: RunInfo, trials: Sequence[Trial], model_scheduler: ModelScheduler, seed: int
) -> Importance:
    """Return the importance of knobs as the trials of a run tell it.

    Args:
        info: The run.
        trials: Trials of the run.
        model_scheduler: Schedules the run's model on its target.
        seed: Deals the trials out to training and test.
    """
    from autoturbo.report.importance import importance_of
    from autoturbo.search.objectives import find_objectives
    from autoturbo.search.space import space_of_run

    objective = find_objectives(info.settings.get("objective", "latency"))[0]
    return importance_of(space_of_run(info.settings, model_scheduler), trials, objective, seed)


def add_arguments(parser: Parser) -> None:
    """Add the run, or the schedule file with its model and target."""
    text = "id of a run, the start of one, or its run folder; or a schedule file (JSON)"
    parser.add_argument("run", metavar="RUN", help=text)
    text = "the model of a schedule file: ONNX file, or the name of a workload"
    parser.add_argument("--model", metavar="MODEL", help=text)
    add_shape_options(parser)
    text = f"the target of a schedule file (default: {DEFAULT_TARGET})"
    parser.add_argument("--target", metavar="T", help=text)
    text = "say what bounds the schedule, and try no change that may help"
    parser.add_argument("--no-what-if", dest="what_if", action="store_false", help=text)
    seed = "seed that deals the trials out to training and test (default: 0)"
    parser.add_argument("--seed", metavar="N", type=whole_number("--seed", 0), default=0, help=seed)


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the bounds, then the knobs, those that mattered most first."""
    if options.run.endswith(".json") or Path(options.run).is_file():
        return _of_file(options, console)
    return _of_run(options, console)


def _of_file(options: argparse.Namespace, console: Console) -> int:
    """Explain a schedule file, which has no trials: what bounds it, and what would help."""
    from autoturbo.hardware import load_target
    from autoturbo.report.explanation import bounds_of
    from autoturbo.schedule.files import load_schedule

    if options.model is None:
        raise wrong("--model", f"{options.run} is a schedule file", "name the model that it is of")
    model = load_given(options.model, options)
    target = load_target(options.target or DEFAULT_TARGET)
    schedule = load_schedule(options.run, model, target)
    found = bounds_of(schedule, what_if=options.what_if)
    line: FileLine = {
        "schedule": options.run, "model": model.name, "target": target.name,
        "scheduler": schedule.scheduler, "bounds": found.as_json(), **tell_notes(model, console),
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        console.answer(f"{options.run}: {model.name} @ {target.name}, {schedule.scheduler}")
        _print_bounds(found, console)
    return 0


def _of_run(options: argparse.Namespace, console: Console) -> int:
    from autoturbo.report.explanation import bounds_of
    from autoturbo.search.objectives import find_objectives
    from autoturbo.search.progress import Trial

    flags = ("model", "target", "batch", "batch_dim", "dim", "shape", "value")
    flag = next((name for name in flags if getattr(options, name)), None)
    if flag is not None:
        raise wrong(
            f"--{flag.replace('_', '-')}",
            "the run has its own",
            "leave it out: it is for schedule files",
        )
    run = stored_run(options.run, options.db, host=True)
    if run.info.on_host:
        return host_runs.explain(run, options, console)
    info = run.info
    trials = [Trial(t.number, t.knobs, t.outcome) for t in run.trials]
    objective = find_objectives(info.settings.get("objective", "latency"))[0]
    found = importance_in_run(info, trials, _scheduler(run), options.seed)
    schedule = _schedule(run, console)
    bounds = None if schedule is None else bounds_of(schedule, what_if=options.what_if)
    line: RunLine = {
        "run": info.id, "trial": info.best_trial, "latency_s": info.best_latency,
        "objective": objective.name,
        "bounds": None if bounds is None else bounds.as_json(),
        "measured": found.measured, "failed": found.failed, "explained": found.explained,
        "obstacle": found.obstacle, "knobs": [dataclasses.asdict(knob) for knob in found.knobs],
    }  # fmt: skip
    console.emit(line)
    if not console.json:
        _print(info, objective.name, found, bounds, console)
    return 0


def _schedule(run: StoredRun, console: Console) -> Schedule | None:
    """Build the best schedule; None where nothing fits, or another version made it."""
    from autoturbo.schedule.pipeline import build_schedule
    from autoturbo.simulator.measurement import VERSION

    best = run.trial(run.info.best_trial)
    if best is None:
        return None
    if run.info.key.scheduler_version.partition("+")[0] != VERSION:
        console.say("no bounds: another version of the scheduler made the run")
        return None
    return build_schedule(run.simulating("explain").model_scheduler, best.knobs)


def _scheduler(run: StoredRun) -> ModelScheduler:
    """Return the scheduler of a run's model on its target.

    Raises:
        RunError: It is on a machine, or its model or its target is not known any more.
    """  # noqa: DOC501  not_of_machines() makes the error
    from autoturbo.schedule.pipeline import ModelScheduler

    pair = run.pair("explain").on_target()
    if pair is None:
        raise not_of_machines(run.info)
    return ModelScheduler(pair.model, pair.target, run.info.settings["dtype"])


def _print(
    info: RunInfo, objective: str, found: Importance, bounds: Bounds | None, console: Console
) -> None:
    from autoturbo.report.facts import is_simulated
    from autoturbo.tuning.keys import recorded_error

    console.answer(f"run {info.id}: {info.model} @ {info.target}, objective {objective}")
    console.answer(f"{found.measured} trials measured, {found.failed} failed")
    if info.best_latency is not None:
        console.answer(_handed_out(info, info.best_latency))
        if is_simulated(info):
            console.answer(figures_of(SIMULATOR, recorded_error(info), info.gain()))
    if bounds is not None:
        _print_bounds(bounds, console, told=is_simulated(info))
        console.say()
    console.answer(_explained(found))
    shown = _shown(found, console.verbosity > 0)
    headers = ("knob", "of the layer", "best", "importance", "tried")
    console.say()
    if shown:
        rows = [_row(knob, {} if bounds is None else bounds.labels) for knob in shown]
        console.table(headers, rows, words=3, close=True)
    if len(shown) < len(found.knobs):
        why = "are auto in the best trial" if found.obstacle else "matter less"
        console.say(f"{len(found.knobs) - len(shown)} more knobs {why}; -v shows them")
    console.say()
    for line in _advice(found.knobs):
        console.answer(line)


def _handed_out(info: RunInfo, latency_s: float) -> str:
    """Return which trial is explained, what it takes and what that gains."""
    from autoturbo.report.facts import is_simulated

    gain = info.gain()
    faster = "" if gain is None else f", {ratio(gain)} the heuristic's speed"
    taken = f"trial {info.best_trial}: {duration(latency_s)}"
    if is_simulated(info):
        return f"{taken}{faster}"
    origin = origin_of(info.settings["measurer"])
    return f"{taken} ({origin}){faster}; how its time divides is simulated"


def _print_bounds(bounds: Bounds, console: Console, *, told: bool = False) -> None:
    from autoturbo.report import explanation

    everything = console.verbosity > 0
    console.answer(explanation.time_sentence(bounds, told=told))
    for line in explanation.bound_lines(bounds):
        console.answer(line)
    console.say()
    console.show(explanation.gap_table(bounds))
    console.say()
    console.show(explanation.subgraph_table(bounds, everything=everything))
    console.say()
    console.show(explanation.layer_table(bounds, everything=everything))
    console.say()
    console.show(explanation.bottleneck_table(bounds))
    if bounds.model_knobs:
        console.say()
        console.answer(explanation.model_knob_sentence(bounds))


def _shown(found: Importance, everything: bool) -> list[KnobReport]:
    """Return the knobs that mattered most; if that is not known, those that the best trial sets."""
    ordered = sorted(found.knobs, key=lambda k: -(k.share or 0.0))
    if everything:
        return ordered
    if found.obstacle:
        return [k for k in ordered if k.best not in (None, AUTO)]
    return ordered[:_SHOWN]


def _explained(found: Importance) -> str:
    if found.obstacle:
        return f"importance: {found.obstacle}"
    share = percent(max(found.explained or 0.0, 0.0))
    return f"knob importance: knobs explain {share} of the variance of the trials held out"


def _row(knob: KnobReport, labels: Mapping[str, str]) -> tuple[str, ...]:
    from autoturbo.report.search_course import owner_title

    share = "-" if knob.share is None else percent(round(max(knob.share, 0.0), 2))
    owner = owner_title(knob, labels)
    return knob.knob, owner, knob.told, share, f"{knob.tried}/{knob.offered}"


def _advice(knobs: Sequence[KnobReport]) -> list[str]:
    """Return lines on which knobs are best at a border, and how much was tried at all."""
    lines = [
        f"{k.knob}: the best value, {k.told}, is the {k.border} that was offered"
        for k in knobs
        if k.border
    ]
    model, own = ([k for k in knobs if bool(k.layers) == of_layers] for of_layers in (False, True))
    for name, some in (("the model's knobs", model), ("sub-graphs' own knobs", own)):
        if some:
            tried, offered = sum(k.tried for k in some), sum(k.offered for k in some)
            lines.append(f"values tried of {name}: {tried} of {offered}")
    return lines
