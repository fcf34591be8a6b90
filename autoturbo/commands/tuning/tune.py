"""Tune how models are scheduled on targets, every model with every target."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired

from autoturbo.commands.config_flags import add_flags, config_of, execution_of
from autoturbo.commands.console import Console, LiveLine, warn
from autoturbo.commands.loading import (
    DEFAULT_TARGET,
    SIMULATOR,
    AnyPair,
    add_force_option,
    add_model_options,
    add_target_options,
    how_to_load,
    load_pairs,
    outputs_of,
)
from autoturbo.commands.parser import Parser, command_line, whole_number, wrong
from autoturbo.commands.schedules.inspect import model_facts, opaque_sentence, sentence
from autoturbo.commands.scheduling import CheckName, RefusedJson, refused_json, require_libraries
from autoturbo.commands.tuning.bench import TunedHost, tune_on_host
from autoturbo.commands.tuning.space import expected_seconds
from autoturbo.config import RUNS, ExecutionConfig, TuneConfig
from autoturbo.errors import AutoTurboError, InterruptedRunError
from autoturbo.files import Kind, Outputs
from autoturbo.registry import HEURISTICS, HOST
from autoturbo.report.gains import REFERENCE, failed_sentence, gain_sentence, pinned_by_you, unsure
from autoturbo.report.sharing import MixedSamples, mixed_samples, mixed_sentence, sharing
from autoturbo.report.units import (
    clock,
    duration,
    figures_of,
    is_doubted,
    percent,
    range_sentence,
    ratio,
    schedules,
)
from autoturbo.report.views import tight_share
from autoturbo.schedule.knobs import KnobsJson
from autoturbo.schema import Bool, Choice, Natural, Real, TypedDict
from autoturbo.simulator.measurement import Measurement, MeasurementJson, RangeJson
from autoturbo.statistics import CONFIDENCE

if TYPE_CHECKING:
    from autoturbo.database import RunInfo
    from autoturbo.tuning.repeats import Repeats, Spread
    from autoturbo.tuning.result import TuneResult

USAGE = "MODEL... [--target T ...] [options]"
EXAMPLE = "autoturbo tune resnet50 --target stcp920 --trials 500"

_STOPS = ("trials", "time", "space", "no-progress", "bound", "hopeless", "interrupted")
"""Why a search may stop (:class:`autoturbo.search.objectives.Stop`)."""


class FrontPoint(MeasurementJson):
    """A trial that no other one beats in all that was sought."""

    trial: Natural
    knobs: KnobsJson


class ConfidenceJson(TypedDict):
    """How sure the gain over the published heuristic is, where measurements vary.

    Only gains that show are stated, so a small one is too high in the mean: ``gain_corrected`` is
    what it is likeliest to be (null where none is demonstrated, and on this computer).
    """

    demonstrated: Bool
    gain: Real
    gain_corrected: Real | None
    gain_low: Real | None
    gain_high: Real | None
    confidence: Real
    noise: Real


def confidence_json(info: RunInfo) -> ConfidenceJson | None:
    """Return how sure a run's gain is; None where measurements repeat, or nothing is known."""
    from autoturbo.search.selection.racing import corrected_gain

    handed = info.handed_out
    race = None if handed is None or info.gain() is None else handed.race
    if handed is None or race is None:
        return None
    return {
        "demonstrated": race.demonstrated, "gain": race.gain,
        "gain_corrected": corrected_gain(handed), "gain_low": race.low or None,
        "gain_high": race.high, "confidence": race.confidence, "noise": race.noise,
    }  # fmt: skip


class SpreadJson(TypedDict):
    """A geometric mean with its interval at 95 % confidence; null without three figures."""

    mean: Real
    low: Real | None
    high: Real | None


class RepeatsJson(TypedDict):
    """What searches with several seeds found, of which this is the best."""

    seeds: list[Natural]
    runs: list[str]
    latencies_s: list[Real]
    latency_s: SpreadJson
    gain: SpreadJson | None


def _spread_json(spread: Spread) -> SpreadJson:
    low, high = (end if math.isfinite(spread.high) else None for end in (spread.low, spread.high))
    return {"mean": spread.mean, "low": low, "high": high}


def _repeats_json(repeats: Repeats) -> RepeatsJson:
    return {
        "seeds": list(repeats.seeds), "runs": list(repeats.runs),
        "latencies_s": list(repeats.latencies), "latency_s": _spread_json(repeats.latency),
        "gain": None if repeats.gain is None else _spread_json(repeats.gain),
    }  # fmt: skip


def _repeats_sentence(result: TuneResult) -> str:
    """Return what searches with several seeds found; empty for one."""
    repeats = result.repeats
    if repeats is None:
        return ""
    parts = [f"{_spread(repeats.latency, duration)} in the mean"]
    if repeats.gain is not None:
        parts.append(f"{_spread(repeats.gain, ratio)} over the heuristic")
    sure = f" at {percent(CONFIDENCE)} confidence" if math.isfinite(repeats.latency.high) else ""
    count = len(repeats.seeds)
    return f"{count}: {', '.join(parts)}{sure}; the best is of seed {result.seed}"


def _spread(spread: Spread, written: Callable[[float], str]) -> str:
    """Return a mean, with its interval where there is one."""
    if not math.isfinite(spread.high):
        return written(spread.mean)
    return f"{written(spread.mean)} ({written(spread.low)} to {written(spread.high)})"


class TunedPair(TypedDict):
    """An object for each model on each target, in the order in which they were given.

    A pair that has no schedule has none, and the first of these is the error.
    """

    model: str
    target: str
    run: str
    trials: Natural
    settings: Natural
    seed: Natural
    default: MeasurementJson | None
    best: MeasurementJson
    best_trial: Natural
    baselines: dict[str, MeasurementJson]
    schedule_file: str
    state: Annotated[str, Choice(of=("done", "interrupted"))]
    stopped: Annotated[str, Choice(of=_STOPS)]
    warm_starts: list[str]
    mixed_samples: MixedSamples | None
    verified: list[CheckName]
    refused: list[RefusedJson]
    known_error: Real | None
    latency_range: RangeJson | None
    confidence: NotRequired[ConfidenceJson]
    lacking: NotRequired[dict[str, str]]
    failures: NotRequired[dict[str, Natural]]
    numbers_skipped: NotRequired[str]
    notes: NotRequired[list[str]]
    front: NotRequired[list[FrontPoint]]
    repeats: NotRequired[RepeatsJson]


TuneLine = TunedPair | TunedHost


def add_arguments(parser: Parser) -> None:
    """Add models and targets, the budget, how to search, on what, and where files go."""
    add_model_options(parser, several=True)
    add_target_options(parser, several=True)
    add_flags(parser, TuneConfig)
    add_flags(parser, ExecutionConfig)
    text = "write the best schedule there as well"
    add = parser.group("what is kept").add_argument
    add("-o", "--output", metavar="FILE", type=Path, help=text)
    add_force_option(parser)
    seeds = "repeat each search with K seeds, from --seed on; the best one is handed out"
    add = parser.group("how to search").add_argument
    add("--seeds", metavar="K", type=whole_number("--seeds", 1), default=1, help=seeds)


def run(options: argparse.Namespace, console: Console) -> int:
    """Load everything, then tune all pairs on one pool of workers."""
    began = time.monotonic()
    if HOST in options.targets:
        return tune_on_host(options, console)
    from autoturbo.tuning import tuner

    require_libraries(options)
    check_places(options)
    pairs = load_pairs(options, options.models, options.targets or [DEFAULT_TARGET])
    outputs = outputs_of(options).reading(*(pair.model.source for pair in pairs))
    _check_output(options.output, len(pairs), outputs)
    config, execution = config_of(TuneConfig, options), execution_of(options, began=began)
    expected = [_introduce(pair, config, execution, console, options.seeds) for pair in pairs]
    if len(expected) * options.seeds > 1 and all(expected):
        whole = options.seeds * math.fsum(expected)
        console.say(f"time: about {clock(whole)} for all {len(expected) * options.seeds} runs")
    kept = how_to_load(options)
    if options.output is not None and (options.output.is_file() or not options.output.exists()):
        kept["output"] = str(options.output.absolute())  # resuming writes the copy anew
    gc.freeze()  # what is loaded by now lives as long as the run: collecting walks the rest alone
    chosen = [tuner.Pair(p.model, p.target, p.model.source, kept) for p in pairs]

    def told(info: RunInfo) -> None:
        pair = f"{info.model} @ {info.target}: " if len(pairs) > 1 else ""
        seed = f"seed {info.settings['seed']}: " if options.seeds > 1 else ""
        tell_start(info, console, options.db, pair + seed)

    with LiveLine(console) as line:
        for pair in pairs:
            line.expect(pair.model.name, pair.target.name)
        execution = dataclasses.replace(execution, on_progress=line, on_begin=told)
        ended = tuner.tune_repeatedly(chosen, config, execution, seeds=options.seeds)
    return finish(ended, console, options.db, partial(write_copy, options.output, outputs))


def _introduce(
    pair: AnyPair, config: TuneConfig, execution: ExecutionConfig, console: Console, seeds: int
) -> float:
    """Say what was loaded and what is assumed; then, measured and compiled, how long it takes.

    Returns:
        About how many seconds a search takes; 0 where that is not known, or nothing is said.
    """
    again = f", and of the next {seeds - 1}" if seeds > 1 else ""
    if console.verbosity < 0:
        return 0.0
    model, target = pair.model, pair.target
    facts = model_facts(model)
    lines = [
        ("model", f"{model.source}: {sentence(facts)}"),
        ("whole", opaque_sentence(facts)),
        ("work", "" if model.uncounted is None else model.uncounted.sentence),
        ("samples", _mixed(pair)),
        ("target", f"{target.name}: {target.description}; {pair.dtype}"),
        ("search", _search(pair, config) + again),
        *(("note", note) for note in model.notes),
    ]
    console.say(f"{model.name} @ {target.name}")
    for name, line in lines:
        if line:
            console.say(f"  {name:<8}{line}")
    # whatever compiles comes after all that can be said without
    expected, seconds = _expected(pair, config, execution)
    if expected:
        console.say(f"  time    {expected}{' for each seed' if seeds > 1 else ''}")
    return seconds


def _mixed(pair: AnyPair) -> str:
    """Return why samples cannot be told apart, and what that costs; empty where they can."""
    if (on := pair.on_target()) is None:
        return ""
    return mixed_sentence(mixed_samples(on.model, {on.target.name: on.target.clusters}))


def _search(pair: AnyPair, config: TuneConfig) -> str:
    """Return what the search will do, in words."""
    asked = config.resolved(pair.target)
    over = "" if pair.on_target() else " over units and cuts"
    how = f"{_early(asked)}sampler {asked.sampler}{over}, seed {asked.seed}"
    if asked.measurer != SIMULATOR:
        how += f", measured by {asked.measurer}"
    if asked.time_budget:
        return f"{clock(asked.time_budget)} of time; {how}"
    effort = "" if config.trials else f"effort {config.effort}: "
    return f"{effort}{asked.total or 0} trials; {how}"


def _expected(pair: AnyPair, config: TuneConfig, execution: ExecutionConfig) -> tuple[str, float]:
    """Return how long the search takes, in words and seconds; empty and 0 where nobody knows."""
    asked, on = config.resolved(pair.target), pair.on_target()
    if asked.time_budget or on is None:
        return "", 0.0
    if asked.measurer != SIMULATOR:  # a board is not tried just to say how long it takes
        return _said(asked, execution), 0.0
    seconds, trials = expected_seconds(on, asked, execution)
    took = f"about {clock(seconds)}"
    return took if trials == asked.total else f"{took}: the space has {trials} settings", seconds


def _said(config: TuneConfig, execution: ExecutionConfig) -> str:
    """Return how long a search takes by what its measurer says; empty if it says nothing."""
    from autoturbo.simulator.measurers import declared

    info = declared(config.measurer)
    if info is None or info.cost_s is None:
        return ""
    at_once = min(execution.workers or 1, info.at_once or math.inf)
    return (
        f"about {clock((config.total or 0) * info.cost_s / at_once)} by what {config.measurer} says"
    )


def _early(config: TuneConfig) -> str:
    """Return what may end the search before its budget is used up."""
    rules = []
    if config.patience is not None:
        rules.append(f"{config.patience} trials without a better one")
    if config.bound_gap is not None:
        rules.append(f"{percent(config.bound_gap)} above the lower bound")
    return f"or {' or '.join(rules)}; " if rules else ""


def _check_output(path: Path | None, pairs: int, outputs: Outputs) -> None:
    """Say before a long run what would fail after it.

    Raises:
        UsageError: The file cannot be written, or would be written several times.
    """  # noqa: DOC501  wrong() makes the error
    if path is None:
        return
    if pairs > 1:
        hint = "leave it out: every run folder holds its schedule.json"
        raise wrong("-o", f"one file cannot hold the schedules of {pairs} runs", hint)
    outputs.check(path, Kind.SCHEDULE)


# The end of a run, for tune and resume

_SHARERS = ("clusters", "units")
"""Who shares out the work, on a target and on a machine."""

_ABREAST = 4
"""Targets that a table of 80 columns has beside each other."""

_MORE = 4
"""Times the trials that a next run is proposed with."""


def finish(
    ended: Sequence[TuneResult | AutoTurboError],
    console: Console,
    database: str,
    copied: Callable[[TuneResult], list[Path]] | None = None,
) -> int:
    """Print the table, the files and what to do next; of several pairs, a line for each.

    Under ``--json`` that is the object of ``tune --json``; ``-v`` prints all of each pair.

    Args:
        ended: What became of each pair.
        console: Where it is printed.
        database: Where runs are kept.
        copied: Writes the best schedule where the user wants it too, and gives the files.

    Returns:
        The worst exit status. 1 where a schedule failed a check, although the next best is handed
        out, or where one could not be run that was to be run.

    Raises:
        InterruptedRunError: Some were stopped before their end.
        AutoTurboError: The first of those that have no result; the others are told before it.
    """
    status, failures = 0, [e for e in ended if isinstance(e, AutoTurboError)]
    results = [e for e in ended if not isinstance(e, AutoTurboError)]
    brief = len(ended) > 1 and console.verbosity <= 0
    copies: list[Path] = []
    for result in results:
        written = copied(result) if copied else []
        copies += written
        titled = len(ended) > 1 or console.verbosity < 0  # else it stands above already
        console.emit(as_json(result))
        if not console.json and not brief:
            _print(result, console, database, written, titled=titled)
        status = max(status, _complain(result))
    if results and brief and not console.json:
        _lines(results, console, database, copies)
    if len(results) > 1 and not console.json:
        _matrix(results, console)
    if len(ended) > 1 and not console.json and any(map(_is_doubted, results)):
        console.say(f"{_DOUBTED}: gain below the known error of the simulation of that target")
    for failure in failures[1:]:
        warn(f"error: {failure}")
    stopped = [r for r in results if r.state == "interrupted"]
    if stopped:
        trials = sum(result.measured for result in stopped)
        together = " --all" if len(ended) > 1 else ""
        command = command_line(database, "resume", stopped[0].run) + together
        message = f"interrupted after {trials} trials; all of them are saved"
        raise InterruptedRunError(message, hint=f"go on with '{command}'")
    if failures:
        raise failures[0]
    return status


def _complain(result: TuneResult) -> int:
    """Say what was wrong with schedules or the database; return the exit status."""
    complaints = _complaints(result)
    for line in complaints:
        warn(f"error: {line}")
    return 1 if complaints else 0


def write_copy(path: Path | None, outputs: Outputs, result: TuneResult) -> list[Path]:
    """Write the best schedule where the user wants it too.

    Returns:
        The file as a list of one; an empty list where ``path`` is None.

    Raises:
        UsageError: The file cannot be written, or what is there may not be replaced.
    """
    if path is None:
        return []
    outputs.write(path, Kind.SCHEDULE, result.best.schedule.text)
    return [path]


def _complaints(result: TuneResult) -> list[str]:
    """Return what was wrong with schedules or the database, a line for each."""
    name = f"{result.model} @ {result.target}"
    end = f"it is not handed out, trial {result.best.trial} is"
    lines = [
        f"{name}: {_named(refused.trial)} fails a check: {refused.failures[0]}; {end}"
        for refused in result.refused
    ]
    lines += [result.unsaved] if result.unsaved else []
    skipped = _skipped(result)
    return [*lines, f"{name}: its numbers were not checked: {skipped}"] if skipped else lines


def _named(trial: int) -> str:
    """Return how people are told of a trial."""
    return f"trial {trial}" if trial else "the heuristic"


def _skipped(result: TuneResult) -> str | None:
    """Return why the best schedule was not run, where it was to be."""
    verification = result.best.verification
    numbers = None if verification is None else verification.numbers
    return None if numbers is None else numbers.skipped


def as_json(result: TuneResult) -> TunedPair:
    """Return the line of ``tune --json``."""
    best, default = result.best, result.default
    line: TunedPair = {
        "model": result.model, "target": result.target, "run": result.run,
        "trials": result.measured, "settings": result.settings, "seed": result.seed,
        "default": None if default is None else default.as_json(),
        "best": best.measurement.as_json(), "best_trial": best.trial,
        "baselines": {name: m.as_json() for name, m in result.baselines.items()},
        "schedule_file": str(result.schedule_file), "state": result.state,
        "stopped": result.stopped.value, "warm_starts": ["the heuristic", *result.origins],
        "mixed_samples": _mixed_samples(result), "known_error": result.known_error,
        "latency_range": None if result.latency_range is None else result.latency_range.as_json(),
        "verified": [check.value for check in best.verified],
        "refused": refused_json(result.refused),
    }  # fmt: skip
    if notes := [*result.best.schedule.model.notes, *result.notes]:
        line["notes"] = notes
    if (confidence := confidence_json(result.info)) is not None:
        line["confidence"] = confidence
    if lacking := result.info.lacking:
        line["lacking"] = dict(lacking)
    if failures := result.failures():
        line["failures"] = dict(failures)
    if skipped := _skipped(result):
        line["numbers_skipped"] = skipped
    if result.repeats is not None:
        line["repeats"] = _repeats_json(result.repeats)
    if result.front:
        line["front"] = [
            {"trial": t.number, "knobs": t.knobs.as_dict(), **t.outcome.as_json()}
            for t in result.front
            if isinstance(t.outcome, Measurement)
        ]
    return line


def _mixed_samples(result: TuneResult) -> MixedSamples | None:
    """Return why samples cannot be told apart; None on a machine, whose units do not share them."""
    from autoturbo.schedule.schedule import Schedule

    best = result.best.schedule
    if not isinstance(best, Schedule):
        return None
    return mixed_samples(best.model, {result.target: best.context.target.clusters})


def _print(
    result: TuneResult, console: Console, database: str, written: Sequence[Path], *, titled: bool
) -> None:
    from autoturbo.report.tables import front

    console.say()
    if titled:
        console.answer(f"{result.model} @ {result.target}")
    console.compare(result.outcomes(), REFERENCE, unsure(result.info))
    console.say()
    if result.front:
        console.show(front((t.number, t.outcome) for t in result.front))
        console.say()
    best, checks, points = result.best, ", ".join(result.best.verified), len(result.front)
    trials = ((trial.knobs, trial.outcome) for trial in result.trials)
    files = {
        "gain": gain_sentence(result.info),
        "seeds": _repeats_sentence(result),
        "bound": tight_share(result.best.measurement),
        "figures": _figures(result),
        "range": range_sentence(result.best.measurement.latency, result.latency_range),
        "note": "; ".join(filter(None, (_overtaken(result), *result.best.notes))),
        "unconfirmed": result.best.doubt,
        "pinned": pinned_by_you(result.info.settings),
        "warm starts": origins(result.origins, on_machine=result.on_machine),
        _SHARERS[result.on_machine]: sharing(best.knobs, best.measurement, trials),
        "stopped": _stopped(result),
        "failed": _failed(result),
        "verified": f"{checks} (all {points} of the Pareto front)"
        if checks and points > 1
        else checks,
        "schedule": result.schedule_file,
        "copy": ", ".join(map(str, written)),
        "run folder": result.run_folder,
        "database": database,
    }
    for name, value in files.items():
        if str(value):
            console.say(f"{name:<13}{value}")
    names = ("show", "resume") if result.on_machine else ("show", "report", "resume")
    further = [command_line(database, name, result.run) for name in names]
    # of the trials that were asked for: a run that climbs measures more, and so would the next
    budget = result.info.asked.get("trials") or result.measured
    more = f" --trials {_MORE * budget}" if result.state == "done" else ""
    console.say(f"{'next':<13}{further[0]}")
    for command in (*further[1:-1], further[-1] + more):
        console.say(f"{'':<13}{command}")
    console.say()


def _figures(result: TuneResult) -> str:
    """Return how the figures are known, and what the target's known error says of the gain."""
    return figures_of(result.measurer, result.known_error, result.info.gain())


_DOUBTED = "*"
"""Marks a gain that is smaller than the simulation's known error."""


def _lines(
    results: Sequence[TuneResult], console: Console, database: str, copies: Sequence[Path]
) -> None:
    """Print a line for each pair, then what holds for all and where there is more."""
    headers = ("model", "target", "latency", "vs heuristic", "% of bound", "run")
    rows = (
        (
            *(result.model, result.target, duration(result.best.measurement.latency)),
            *(_gain(result) or "-", percent(result.best.measurement.bound_fraction), result.run),
        )
        for result in results
    )
    console.say()
    console.table(headers, rows, words=2, close=True)
    console.say()
    said = {
        "figures": _shared((figures_of(r.measurer, r.known_error), r.target) for r in results),
        "seeds": _shared((_repeats_sentence(r), _pair(r)) for r in results),
        "unconfirmed": _shared((r.best.doubt, _pair(r)) for r in results),
        "pinned": _shared((pinned_by_you(r.info.settings), _pair(r)) for r in results),
        "failed": _shared((_failed(r), _pair(r)) for r in results),
    }
    for name, lines in said.items():
        for line in lines:
            console.say(f"{name:<13}{line}")
    if copies:
        console.say(f"{'copy':<13}{', '.join(map(str, copies))}")
    show = command_line(database, "show", "RUN")
    console.say(f"{'next':<13}'{show}' tells the rest of a pair, as -v does of all")
    console.say()


def _shared(said: Iterable[tuple[str, str]]) -> list[str]:
    """Return sentences, each once, after whom they are said of; not what is empty.

    Args:
        said: Each sentence, and of whom; nobody is named where one sentence holds for all.
    """
    of: dict[str, list[str]] = {}
    for one, whom in said:
        of.setdefault(one, []).append(whom)
    if len(of) == 1:
        return [one for one in of if one]
    return [f"{', '.join(dict.fromkeys(names))}: {one}" for one, names in of.items() if one]


def _pair(result: TuneResult) -> str:
    return f"{result.model} @ {result.target}"


def _failed(result: TuneResult) -> str:
    """Return how many trials failed, and of what; empty where none did."""
    return failed_sentence(trial.outcome for trial in result.trials)


def _matrix(results: Sequence[TuneResult], console: Console) -> None:
    """Print the tuned latency and the gain of every model on every target."""
    cells = {(r.model, r.target): _cell(r) for r in results}
    targets = list(dict.fromkeys(r.target for r in results))
    console.answer("tuned latency and gain over the heuristic")
    for first in range(0, len(targets), _ABREAST):
        shown = targets[first : first + _ABREAST]
        rows = [
            (model, *(cells.get((model, target), "-") for target in shown))
            for model in dict.fromkeys(r.model for r in results)
        ]
        console.table(("model", *shown), rows, close=True)
        console.say()


def _cell(result: TuneResult) -> str:
    return " ".join(filter(None, (duration(result.best.measurement.latency), _gain(result))))


def _gain(result: TuneResult) -> str:
    """Return the gain over the heuristic, marked where it is doubted; empty where none is known."""
    gain = result.info.gain()
    return "" if gain is None else f"{ratio(gain)}{_DOUBTED if _is_doubted(result) else ''}"


def _is_doubted(result: TuneResult) -> bool:
    """Return whether a simulated gain is below the simulation's known error."""
    gain = result.info.gain()
    if gain is None or result.measurer != SIMULATOR:
        return False
    return is_doubted(gain, result.known_error)


def _overtaken(result: TuneResult) -> str:
    """Return which schedulers no trial equals or beats; what they decide is no setting here.

    With several objectives, in none of them. Empty where there is no such scheduler.
    """
    from autoturbo.search.objectives import figures, find_objectives

    objectives = find_objectives(result.objective)
    tried = [figures(objectives, trial.outcome) for trial in result.trials]
    bases = {
        name: figures(objectives, measured)
        for name, measured in result.baselines.items()
        if name not in HEURISTICS  # that is trial 0
    }
    found = [
        name for name, base in bases.items()
        if not any(all(a <= b for a, b in zip(one, base, strict=True)) for one in tried)
    ]  # fmt: skip
    if not found:
        return ""
    ahead = "faster than all that was tried"
    if result.objective != "latency":
        ahead = f"ahead of all that was tried in {' or '.join(o.name for o in objectives)}"
    verb = "is" if len(found) == 1 else "are"
    return f"{', '.join(found)} {verb} {ahead} ('autoturbo simulate -h')"


def origins(found: Sequence[str], *, on_machine: bool) -> str:
    """Return in words what a search begins with.

    Args:
        found: Origins of its starts, besides the heuristic.
        on_machine: Whether the search is on a machine of several units.
    """
    counts = Counter(found)
    if on_machine:
        return "every unit alone, and the schedules of published schedulers"
    more = [f"{number} x {text}" if number > 1 else text for text, number in counts.items()]
    return ", ".join(["the heuristic", *more])


def tell_start(info: RunInfo, console: Console, database: str, pair: str = "") -> None:
    """Say which run it is and what resumes it, what it starts from and what it leaves out.

    Args:
        info: The run.
        console: Where it is said.
        database: Where the run is kept.
        pair: Stands before each line, where several are tuned together.
    """
    settings = info.settings
    on_machine = "units" in settings["target_description"]
    console.say(f"  run     {pair}{info.id} of {database}")
    if console.verbosity >= 0:  # on standard error: whoever keeps the output must still see it
        resume = command_line(database, "resume", info.id)
        with suppress(OSError):  # a search does not end because nobody can read it
            warn(f"run {info.id}: if it ends early, go on with: {resume}")
    console.say(f"  starts  {pair}{origins(settings.get('origins', ()), on_machine=on_machine)}")
    for note in settings.get("notes", ()):
        console.say(f"  note    {pair}{note}")


def check_places(options: argparse.Namespace) -> None:
    """Refuse a database and a folder of runs that cannot be written, before the work.

    Raises:
        InputError: One cannot.
    """  # noqa: DOC501  wrong() makes the error
    from autoturbo.database import Database

    Database.check_place(options.db)
    runs = Path(options.runs_folder or RUNS)
    if runs.exists() and not runs.is_dir():
        raise wrong("--runs-folder", f"{runs} is a file", "name a folder")


def _stopped(result: TuneResult) -> str:
    """Return why the run ended."""
    from autoturbo.search.objectives import Stop

    asked = result.info.asked.get("trials")
    best, trials = result.best, schedules(result.measured, result.settings, asked)
    gap = percent(1 / best.measurement.bound_fraction - 1)
    once = "; no time to measure the best again" if best.doubt else ""
    since = "" if result.front or result.refused else f" than trial {best.trial}"
    reasons: dict[Stop, str] = {
        Stop.TRIALS: f"trial budget reached ({trials})",
        Stop.TIME: f"time budget reached, after {trials}{once}",
        Stop.SPACE: f"all {trials} of the search space are tried",
        Stop.NO_PROGRESS: f"nothing better{since} was found for a while, after {trials}",
        Stop.BOUND: f"{gap} above the lower bound, after {trials}",
    }
    return reasons.get(result.stopped, f"{result.stopped}, after {trials}")
