"""Compare a schedule of this computer with its baselines once more, measured in turn.

The run is one of 'tune MODEL --target host': its id or the beginning of it, its folder, or a
schedule file. The whole batch is measured twice in each round; what seems to be between these two
is noise.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autoturbo.commands.config_flags import add_flags
from autoturbo.commands.console import Console, LiveLine
from autoturbo.commands.loading import asked_inputs, load_given, model_file, outputs_of
from autoturbo.commands.parser import Parser, wrong
from autoturbo.config import RUNS, ExecutionConfig, TuneConfig, flag_of, options_of
from autoturbo.errors import InterruptedRunError, Location, RunError
from autoturbo.files import Kind
from autoturbo.host.plan import LOOP, PLANS, TUNED, WHOLE
from autoturbo.registry import HOST
from autoturbo.report.units import capacity, duration, many, percent, ratio
from autoturbo.schema import Choice, Natural, Real, Seconds, TypedDict

if TYPE_CHECKING:
    from autoturbo.host.compare import HostComparison
    from autoturbo.host.cpu import Cpu
    from autoturbo.host.files import HostSchedule
    from autoturbo.host.tuning import HostResult
    from autoturbo.statistics import Gain

USAGE = "RUN [--model FILE] [options]"
EXAMPLE = "autoturbo bench 4f1c"

_ALLOWED = frozenset(("trials", "patience", "time_budget", "seed", "runs_folder", "database"))
"""Options of 'tune' that mean something on this computer."""


_REASONS = {
    WHOLE: "the whole batch: the tuned plan is not demonstrably faster",
    LOOP: "the best loop: the tuned plan is not demonstrably faster",
    TUNED: "the tuned plan",
}


class GainJson(TypedDict):
    """How many times as fast one plan is as another, with its interval."""

    ratio: Real
    low: Real
    high: Real
    confidence: Real


class HostPlanJson(TypedDict):
    """A plan, and the median seconds of a batch."""

    plan: str
    seconds: Seconds


class HostLine(TypedDict):
    """Plans on this computer that were measured in turn."""

    model: str
    target: Annotated[str, Choice(of=(HOST,))]
    batch: Natural
    chosen: Annotated[str, Choice(of=PLANS)]
    plans: dict[str, HostPlanJson]
    rounds: Natural
    gains: dict[str, GainJson]
    noise: GainJson
    schedule_file: str


class BenchLine(HostLine):
    """The comparison; 'gains' are those of the chosen plan over each other one."""


class TunedHost(HostLine):
    """What 'tune --target host' found; 'gains' are those of the chosen plan over each other one."""

    run: str
    trials: Natural
    seed: Natural
    verified: list[str]
    notes: list[str]


def add_arguments(parser: Parser) -> None:
    """Add the run, and where it and its model are."""
    text = "id of a run on this computer or the beginning of it, its folder, or a schedule file"
    parser.add_argument("run", metavar="RUN", help=text)
    text = "the model's file (default: where it was, or beside the schedule)"
    parser.add_argument("--model", metavar="FILE", help=text)
    add_flags(parser, ExecutionConfig, "runs_folder")


def run(options: argparse.Namespace, console: Console) -> int:
    """Read everything again, compare, print."""
    from autoturbo.host.files import HostSchedule, divided_model
    from autoturbo.host.tuning import bench_host

    file = _schedule_file(options.run, Path(options.runs_folder or RUNS))
    schedule = HostSchedule.read(file)
    with tempfile.TemporaryDirectory(prefix="autoturbo-") as folder, LiveLine(console) as line:
        model = divided_model(schedule, file, options.model, Path(folder))
        comparison = bench_host(schedule, model, line)
    found: BenchLine = {**_line(schedule, comparison, file)}
    console.emit(found)
    console.say(f"{schedule.model.name} @ host")
    _print(schedule, comparison, console)
    return 0


def _schedule_file(name: str, runs: Path) -> Path:
    """Return the schedule file that a run stands for.

    Raises:
        RunError: There is none, or there are several.
    """
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        return path / "schedule.json"
    found = sorted(runs.glob(f"*-{HOST}-{name}*/schedule.json")) if name.isalnum() else []
    if len(found) == 1:
        return found[0]
    hint = "'autoturbo tune MODEL --target host' makes one"
    if found:
        hint = f"it may be {' or '.join(one.parent.name.rpartition('-')[2] for one in found)}"
    what = "several runs of this computer begin" if found else "no run of this computer begins"
    raise RunError(f"{what} with {name!r}", Location(runs), hint)


# ------------------------------------------------------------------------------------------- tune


def tune_on_host(options: argparse.Namespace, console: Console) -> int:
    """Return the status of ``tune --target host``, carried out for every model.

    Raises:
        InterruptedRunError: In place of ``KeyboardInterrupt``.
    """
    from autoturbo.host.tuning import PATIENCE, TRIALS, HostBudget, tune_host

    _check(options)
    budget = HostBudget(
        trials=options.trials or TRIALS,
        patience=options.patience or PATIENCE,
        time_budget=options.time_budget,
        seed=options.seed or 0,
    )
    outputs = outputs_of(options).reading(*map(model_file, options.models))
    if options.output is not None:
        outputs.check(options.output, Kind.SCHEDULE)
    read = {name: value for name, value in asked_inputs(options).items() if name != "batch"}
    for name in dict.fromkeys(options.models):
        graph = load_given(name, options)
        _introduce(f"{graph.name} @ host", f"{graph.source}, {graph.batch} samples", console)
        try:
            with LiveLine(console) as line:
                result = tune_host(graph, read, budget, options.runs_folder or RUNS, line)
        except KeyboardInterrupt:
            message = "interrupted; all that was measured is saved"
            raise InterruptedRunError(message, hint="the same command goes on") from None
        if options.output is not None:
            outputs.write(options.output, Kind.SCHEDULE, result.schedule.text)
        _finish(result, budget.seed, console)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse options that mean nothing on this computer.

    Raises:
        UsageError: One is given, or other targets, or several models for one file.
    """  # noqa: DOC501  wrong() makes the error
    if set(options.targets) != {HOST}:
        hint = "tune for the others by a command of their own"
        raise wrong("--target", "'host' is measured, and goes with no other target", hint)
    if options.output is not None and len(set(options.models)) > 1:
        raise wrong("--output", "several models would be written to one file", "leave it out")
    for config in (TuneConfig, ExecutionConfig):
        for name, declared in options_of(config).items():
            flag = flag_of(declared)
            if flag and name not in _ALLOWED and getattr(options, name, None) is not None:
                raise wrong(flag, "means nothing for --target host", "leave it out")


def _introduce(title: str, model: str, console: Console) -> None:
    """Say what is tuned on what."""
    from autoturbo.host.cpu import this_cpu
    from autoturbo.host.runner import runtime_version

    console.say(title)
    console.say(f"  model   {model}")
    console.say(f"  target  {described(this_cpu())}")
    console.say(f"  search  measured by {runtime_version()} on this computer: leave it idle")


def described(cpu: Cpu) -> str:
    """Return a processor's description, for people."""
    caches = ", ".join(
        f"{name} {capacity(size)}"
        for name, size in (("L2", cpu.l2_bytes), ("L3", cpu.l3_bytes))
        if size
    )
    rates = f"{cpu.macs_per_s / 1e9:.0f} GMAC/s, {cpu.bandwidth / 1e9:.0f} GB/s"
    cores = "1 core" if cpu.cores == 1 else f"{cpu.cores} cores"
    return ", ".join(part for part in (cpu.name, cores, caches, rates) if part)


def _finish(result: HostResult, seed: int, console: Console) -> None:
    """Print the result."""
    schedule, file = result.schedule, result.folder.schedule_file
    notes = []
    if result.obstacle:
        notes.append(f"samples do not run apart: {result.obstacle}")
    if result.weights_drawn:
        notes.append("the model's weights are not there: they were drawn at random")
    line: TunedHost = {
        **_line(schedule, schedule.comparison, file), "run": result.run,
        "trials": result.trials, "seed": seed, "verified": ["numbers"], "notes": notes,
    }  # fmt: skip
    console.emit(line)
    _print(schedule, schedule.comparison, console)
    rows = {
        "verified": "numbers",
        "schedule": str(file),
        "next": f"autoturbo bench {result.run}",
    }
    for note in notes:
        console.say(f"{'note':<13}{note}")
    for name, value in rows.items():
        console.say(f"{name:<13}{value}")
    console.say()


def _line(schedule: HostSchedule, comparison: HostComparison, file: Path) -> HostLine:
    """Return a comparison as commands print it."""
    gains = _gains(schedule, comparison)
    return {
        "model": schedule.model.name, "target": HOST, "batch": schedule.model.batch,
        "chosen": schedule.chosen, "rounds": len(next(iter(comparison.seconds.values()))),
        "plans": {
            name: {"plan": plan.sentence, "seconds": comparison.median(name)}
            for name, plan in schedule.plans.items()
        },
        "gains": {name: _gain_json(gain) for name, gain in gains.items()},
        "noise": _gain_json(comparison.noise), "schedule_file": str(file),
    }  # fmt: skip


def _gains(schedule: HostSchedule, comparison: HostComparison) -> Mapping[str, Gain]:
    """Return the gains of the chosen plan over the simpler ones."""
    simpler = [name for name in schedule.plans if name != schedule.chosen]
    return {name: comparison.gain(name, schedule.chosen) for name in simpler}


def _gain_json(gain: Gain) -> GainJson:
    return {
        "ratio": gain.ratio, "low": gain.low, "high": gain.high, "confidence": gain.confidence,
    }  # fmt: skip


def _print(schedule: HostSchedule, comparison: HostComparison, console: Console) -> None:
    """Print a comparison for people."""
    batch, whole_s = schedule.model.batch, comparison.median(WHOLE)
    rows = []
    for name, plan in schedule.plans.items():
        took = comparison.median(name)
        rate = many(round(batch / took)) if schedule.model.agreed else "-"
        rates = rate, ratio(whole_s / took)
        rows.append((name, plan.sentence, duration(took), *rates))
    headers = ("plan", "samples at once", "a batch", "samples/s", "gain")
    console.say()
    console.table(headers, rows, words=2, close=True)
    console.say()
    gains = _gains(schedule, comparison)
    shown = [
        f"{ratio(gain.ratio)} over the {name} ({_interval(gain)})"
        for name, gain in gains.items()
        if name != TUNED and gain.demonstrated
    ]
    none = "none on this computer: nothing is demonstrably faster than the whole batch"
    rounds = len(comparison.seconds[WHOLE])
    facts = [
        *zip(("gain", ""), shown or [none], strict=False),
        ("noise", f"the whole batch against itself: {_interval(comparison.noise)}"),
        ("figures", f"measured on this computer, medians of {rounds} rounds in turn"),
        ("handed out", _REASONS[schedule.chosen]),
    ]
    for name, value in facts:
        console.say(f"{name:<13}{value}")


def _interval(gain: Gain) -> str:
    return f"{ratio(gain.low)} to {ratio(gain.high)} at {percent(gain.confidence)} confidence"
