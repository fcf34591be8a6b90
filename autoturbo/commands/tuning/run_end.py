"""The end of a run, for tune and resume: a table, the files, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoturbo.commands.console import Console, warn
from autoturbo.commands.loading import SIMULATOR
from autoturbo.commands.parser import command_line
from autoturbo.commands.tuning.run_start import origins
from autoturbo.commands.tuning.tuned_pairs import as_json, numbers_skipped
from autoturbo.errors import AutoTurboError, InterruptedRunError
from autoturbo.files import Kind, Outputs
from autoturbo.registry import HEURISTICS
from autoturbo.report.gains import REFERENCE, failed_sentence, gain_sentence, pinned_by_you, unsure
from autoturbo.report.sharing import sharing
from autoturbo.report.units import (
    duration,
    figures_of,
    is_doubted,
    percent,
    range_sentence,
    ratio,
    schedules,
)
from autoturbo.report.views import tight_share
from autoturbo.statistics import CONFIDENCE

if TYPE_CHECKING:
    from autoturbo.tuning.repeated_searches import Spread
    from autoturbo.tuning.result import TuneResult


_SHARERS = ("clusters", "units")
"""Who shares out the work, on a target and on a machine."""

_ABREAST = 4
"""Targets that a table of 80 columns has beside each other."""

_MORE = 4
"""Times the trials that a next run is proposed with."""

_DOUBTED = "*"
"""Marks a gain that is smaller than the simulation's known error."""


def finish(
    ended: Sequence[TuneResult | AutoTurboError],
    console: Console,
    database: str,
    copied: Callable[[TuneResult], list[Path]] | None = None,
) -> int:
    """Print the table, the files and what to do next; of several pairs, a line for each.

    Under ``--json`` that is the object of ``tune --json``; ``-v`` prints all of each pair.

    Args:
        ended: Result or error of each pair.
        console: Console on which it is printed.
        database: Path of the database that keeps the runs.
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
    skipped = numbers_skipped(result)
    return [*lines, f"{name}: its numbers were not checked: {skipped}"] if skipped else lines


def _named(trial: int) -> str:
    """Return a trial as sentences name it: ``trial 12``, or the heuristic."""
    return f"trial {trial}" if trial else "the heuristic"


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
    # to be continued with more trials, unless it ended early and has some left
    for command in (*further[1:-1], further[-1] + more):
        console.say(f"{'':<13}{command}")
    console.say()


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


def _figures(result: TuneResult) -> str:
    """Return how the figures are known, and what the target's known error says of the gain."""
    return figures_of(result.measurer, result.known_error, result.info.gain())


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
    """Return each sentence once, behind the names that it holds for; leave out empty ones.

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


def _stopped(result: TuneResult) -> str:
    """Return why the run ended."""
    from autoturbo.search.stopping import Stop

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
