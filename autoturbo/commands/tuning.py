"""What ``tune`` and ``resume`` share: the live line, and the end of a run."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from autoturbo.commands.console import Console
from autoturbo.commands.facts import notes_field
from autoturbo.commands.parser import DEFAULT_DATABASE
from autoturbo.commands.values import wrong
from autoturbo.compiled import CompileProgress, cannot_keep, watched_compiling, where_kept
from autoturbo.config import RUNS
from autoturbo.errors import AutoTurboError, InterruptedRunError
from autoturbo.outputs import NO_OTHERS, Kind, Outputs
from autoturbo.report.lines import Standing, compiling_line, live_line
from autoturbo.report.notebook import REFERENCE
from autoturbo.report.units import percent, plain
from autoturbo.signals import check
from autoturbo.simulate.measurement import Measurement

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from autoturbo.database import RunInfo
    from autoturbo.tuner import Progress, Trial, TuneResult

_EVERY_S = 10.0
"""Seconds between lines where there is no terminal to redraw one on."""

_SHARERS = ("clusters", "units")
"""Who shares out the work, on a target and on a machine."""

_MORE = 4
"""Times the trials that a next run is proposed with."""


class LiveLine:
    """Shows what goes on, on standard error: redrawn on a terminal, else a line now and then.

    That is how a run stands, and while code is compiled how far that is: nothing else moves then.
    A context manager; hand the object itself to the tuner as ``on_progress``. The command line has
    one around every command; of several the innermost shows.
    """

    _open: ClassVar[list[LiveLine]] = []

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr
        self._on = console.progress and console.verbosity >= 0
        self._console = console
        self._clock = clock
        self._last = clock()
        self._standing = ""
        self._compiling = CompileProgress(self._show_compiling)
        self._told = False
        self._held = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._open.append(self)
        if self._on:
            self._held.enter_context(watched_compiling(self._compiling))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.remove(self)
        self._held.close()
        self._redraw(shown=False)

    def __call__(self, progress: Progress) -> None:
        """Show it, if it is time to; what is compiled is shown without being told here."""
        if not progress.to_compile:
            self.update(standing_of(progress))

    def update(self, standing: Standing) -> None:
        """Show a standing, if it is time to."""
        if self._on:
            self._standing = live_line(standing)
            self._show()

    def _show_compiling(self) -> None:
        if not self._told and self._open[:1] == [self]:
            self._told = True
            if line := where_kept():
                with suppress(OSError):
                    print(plain(line), file=self._stream, flush=True)
        self._show()
        if not self._compiling.running:
            check()  # LLVM may have swallowed a Ctrl-C

    def _show(self) -> None:
        if self._open[-1:] != [self]:
            return
        if self._stream.isatty():
            self._redraw(shown=bool(self._line()))
        else:
            self._print_now_and_then(self._line())

    def _line(self) -> str:
        compiling = self._compiling
        if not compiling.running:
            return self._standing
        kept = not cannot_keep()
        return compiling_line(compiling.functions, compiling.total, compiling.left_s, kept=kept)

    def _text(self) -> Text:
        from rich.text import Text

        return Text(self._line(), no_wrap=True, overflow="ellipsis")

    def _redraw(self, *, shown: bool) -> None:
        """Begin to redraw a line, or take it away; what is printed meanwhile stands above it."""
        if shown and self._live is None:
            from rich.live import Live

            terminal = self._console.rich(self._stream)
            self._live = Live(
                console=terminal, get_renderable=self._text, transient=True, refresh_per_second=5,
                redirect_stdout=sys.stdout.isatty(),
            )  # fmt: skip
            self._live.start(refresh=True)
        elif not shown and self._live is not None:
            self._live.stop()
            self._live = None

    def _print_now_and_then(self, line: str) -> None:
        if line and self._clock() - self._last >= _EVERY_S:
            self._last = self._clock()
            try:
                print(line, file=self._stream, flush=True)
            except OSError:  # a search does not end because nobody can watch it
                self._on = False


def standing_of(progress: Progress) -> Standing:
    """What the live line says of the tuner's progress."""
    left = progress.remaining_s
    return Standing(
        model=progress.model,
        target=progress.target,
        done=progress.done,
        total=progress.total,
        best=progress.best_latency,
        best_trial=progress.best_trial,
        default=progress.default_latency,
        bound_fraction=progress.bound_fraction,
        rate=progress.measured_per_s,
        screened=progress.screened,
        infeasible=progress.infeasible,
        elapsed=progress.elapsed_s,
        expected=None if left is None else progress.elapsed_s + left,
        phase=progress.phase,
    )


def finish_all(
    ended: Sequence[TuneResult | AutoTurboError],
    console: Console,
    database: str,
    output: Path | None = None,
    outputs: Outputs = NO_OTHERS,
) -> int:
    """Print what became of several pairs, as :func:`finish` does of one; the worst exit status.

    Raises:
        InterruptedRunError: some were stopped before their end.
        AutoTurboError: the first of those that have no result; the others are told before it.
    """
    status, failures = 0, [e for e in ended if isinstance(e, AutoTurboError)]
    results = [e for e in ended if not isinstance(e, AutoTurboError)]
    for result in results:
        status = max(status, _tell(result, console, database, write_copy(result, output, outputs)))
    for failure in failures[1:]:
        print(f"error: {plain(str(failure))}", file=sys.stderr, flush=True)
    stopped = [r for r in results if r.state == "interrupted"]
    if stopped:
        trials = sum(result.trials for result in stopped)
        together = " --all" if len(ended) > 1 else ""
        raise _interrupted(trials, f"{_resume(stopped[0], database)}{together}")
    if failures:
        raise failures[0]
    return status


def _interrupted(trials: int, command: str) -> InterruptedRunError:
    message = f"interrupted after {trials} trials; all of them are saved"
    return InterruptedRunError(message, hint=f"go on with '{command}'")


def finish(
    result: TuneResult, console: Console, database: str, written: Sequence[Path] = ()
) -> int:
    """Print the table, the files and what to do next; the object of ``tune --json``.

    The exit status is 1 where a schedule failed a check, although the next best is handed out, or
    where one could not be run that was to be run.

    Raises:
        InterruptedRunError: the run was stopped before its end.
    """
    status = _tell(result, console, database, written)
    if result.state == "interrupted":
        raise _interrupted(result.trials, _resume(result, database))
    return status


def _tell(result: TuneResult, console: Console, database: str, written: Sequence[Path]) -> int:
    console.emit(as_json(result))
    if not console.json:
        _print(result, console, database, written)
    complaints = _complaints(result)
    for line in complaints:
        print(f"error: {plain(line)}", file=sys.stderr, flush=True)
    return 1 if complaints else 0


def write_copy(result: TuneResult, path: Path | None, outputs: Outputs) -> list[Path]:
    """Write the best schedule where the user wants it too; the files written.

    Raises:
        UsageError: the file cannot be written, or what is there may not be replaced.
    """
    if path is None:
        return []
    outputs.write(path, Kind.SCHEDULE, result.best.schedule.text)
    return [path]


def _complaints(result: TuneResult) -> list[str]:
    """What was wrong with schedules, a line for each."""
    name = f"{result.model} @ {result.target}"
    end = f"it is not handed out, trial {result.best.trial} is"
    lines = [
        f"{name}: trial {refused.trial} fails a check: {refused.failures[0]}; {end}"
        for refused in result.refused
    ]
    skipped = _skipped(result)
    return [*lines, f"{name}: its numbers were not checked: {skipped}"] if skipped else lines


def _verified(result: TuneResult) -> str:
    """The checks that all that is handed out has passed."""
    checks = ", ".join(result.best.verified)
    count = len(result.front)
    return f"{checks} (all {count} of the front)" if checks and count > 1 else checks


def _skipped(result: TuneResult) -> str | None:
    """Why the best schedule was not run, where it was to be."""
    verification = result.best.verification
    numbers = None if verification is None else verification.numbers
    return None if numbers is None else numbers.skipped


def as_json(result: TuneResult) -> dict[str, Any]:
    """The object of ``tune --json``."""
    value = {
        "model": result.model,
        "target": result.target,
        "run": result.run,
        "trials": result.trials,
        "seed": result.seed,
        "default": None if result.default is None else result.default.as_json(),
        "best": result.best.measurement.as_json(),
        "best_trial": result.best.trial,
        "baselines": {name: m.as_json() for name, m in result.baselines.items()},
        "schedule_file": str(result.schedule_file),
        "state": result.state,
        "stopped": result.stopped.value,
        "begun_with": ["the heuristic", *result.origins],
        "mixed_samples": _mixed(result),
        "verified": [check.value for check in result.best.verified],
        "refused": [trial.as_dict() for trial in result.refused],
    }
    value |= notes_field((*result.best.schedule.model.notes, *result.notes))
    if _skipped(result):
        value["numbers_skipped"] = _skipped(result)
    if result.front:
        value["front"] = [_point(trial) for trial in result.front]
    return value


def _mixed(result: TuneResult) -> dict[str, Any] | None:
    """Why samples of the model cannot be told apart; units of a machine do not share them out."""
    from autoturbo.report.lines import mixed_samples
    from autoturbo.schedule.schedule import Schedule

    best = result.best.schedule
    if not isinstance(best, Schedule):
        return None
    return mixed_samples(best.model, {result.target: best.problem.target.clusters})


def _point(trial: Trial) -> dict[str, Any]:
    measured = trial.outcome.as_json() if isinstance(trial.outcome, Measurement) else {}
    return {"trial": trial.number, "knobs": trial.knobs.as_dict(), **measured}


def _print(result: TuneResult, console: Console, database: str, written: Sequence[Path]) -> None:
    from autoturbo.report.lines import sharing
    from autoturbo.report.tables import comparison, front

    if console.verbosity < 0:  # else it stands above already
        console.answer(f"{result.model} @ {result.target}")
    console.say()
    console.show(comparison(result.outcomes(), REFERENCE))
    console.say()
    if result.front:
        console.show(front((t.number, t.outcome) for t in result.front))
    best = result.best
    trials = ((trial.knobs, trial.outcome) for trial in result.history)
    files = {
        "note": _overtaken(result),
        "begun with": origins(result.origins, on_machine=result.on_machine),
        _SHARERS[result.on_machine]: sharing(best.knobs, best.measurement, trials),
        "stopped": _stopped(result),
        "verified": _verified(result),
        "schedule": result.schedule_file,
        "copy": ", ".join(map(str, written)),
        "run folder": result.run_folder,
        "database": database,
    }
    for name, value in files.items():
        if str(value):
            console.say(f"{name:<12}{value}")
    for index, command in enumerate(_further(result, database)):
        console.say(f"{'' if index else 'next:':<12}{command}")
    console.say()


def _further(result: TuneResult, database: str) -> list[str]:
    """Command lines to go on with."""
    on = _resume(result, database)
    looks = ("show",) if result.on_machine else ("show", "report")
    return [
        *(_command(name, result, database) for name in looks),
        f"{on} --trials {_MORE * result.trials}" if result.state == "done" else on,
    ]


def _overtaken(result: TuneResult) -> str:
    """Return which schedulers no trial equals or beats; what they decide is no setting here.

    With several objectives, in none of them. Empty where there is no such scheduler.
    """
    from autoturbo.search.objectives import figures, find_objectives

    objectives = find_objectives(result.objective)
    tried = [figures(objectives, trial.outcome) for trial in result.history]
    found = [
        name
        for name, measured in result.baselines.items()
        if not any(
            all(a <= b for a, b in zip(one, figures(objectives, measured), strict=True))
            for one in tried
        )
    ]
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
        found: origins of its starts, besides the heuristic.
        on_machine: it is on a machine of several units.
    """
    counts = Counter(found)
    if on_machine:
        return "every unit alone and what published schedulers decide"
    more = [f"{number} x {text}" if number > 1 else text for text, number in counts.items()]
    return "; ".join(["the heuristic", *more])


def starting_lines(info: RunInfo, database: str, pair: str = "") -> Iterator[str]:
    """Yield lines that say which run it is, what it starts from and what it leaves out.

    Args:
        info: the run.
        database: where it is kept.
        pair: stands before each, where several are tuned together.
    """
    settings = info.settings
    on_machine = "units" in settings["target_description"]
    yield f"  run     {pair}{info.id} of {database}"
    yield f"  starts  {pair}{origins(settings.get('origins', ()), on_machine=on_machine)}"
    for note in settings.get("notes", ()):
        yield f"  note    {pair}{note}"


def check_places(options: argparse.Namespace) -> None:
    """Refuse a database and a folder of runs that cannot be written, before the work.

    Raises:
        InputError: one cannot.
    """
    from autoturbo.database import Database

    Database.check_place(options.db)
    runs = Path(options.runs_folder or RUNS)
    if runs.exists() and not runs.is_dir():
        raise wrong("--runs-folder", f"{runs} is a file", "name a folder")


def _stopped(result: TuneResult) -> str:
    """Why the run ended."""
    from autoturbo.search.stopping import Stop

    best, trials = result.best, f"{result.trials} trial{'s' if result.trials != 1 else ''}"
    gap = percent(1 / best.measurement.bound_fraction - 1)
    once = "; there was none to measure the best again" if best.once else ""
    since = "" if result.front or result.refused else f" than trial {best.trial}"
    reasons: dict[Stop, str] = {
        Stop.TRIALS: f"{trials} made, as asked for",
        Stop.TIME: f"its time is up, after {trials}{once}",
        Stop.SPACE: f"every setting of the space is tried: {trials}",
        Stop.NO_PROGRESS: f"nothing better{since} was found for a while, after {trials}",
        Stop.BOUND: f"{gap} above the lower bound, after {trials}",
    }
    return reasons.get(result.stopped, f"{result.stopped}, after {trials}")


def _resume(result: TuneResult, database: str) -> str:
    return _command("resume", result, database)


def _command(name: str, result: TuneResult, database: str) -> str:
    """A command line on the run, to be copied."""
    words = ["autoturbo", name, result.run]
    if database != DEFAULT_DATABASE:
        words += ["--db", database]
    return shlex.join(words)
