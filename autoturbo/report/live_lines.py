"""Lines of the progress of runs, as long as the terminal is wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoturbo.report.units import clock, count, duration, percent, plain, ratio

_BAR = 10
"""Characters of the bar."""

WAITING = "waiting"
"""The phase of a run whose turn has not come."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run.

    Attributes:
        model: Name of the model.
        target: Name of the target.
        done: Trials measured or failed.
        total: Trials to make, None where only time limits them.
        best: Least latency in seconds, None where nothing fitted yet.
        best_trial: Number of the trial that has it.
        default: Latency of the published heuristic in seconds, None where it does not fit.
        bound_fraction: Lower bound over ``best``.
        rate: Trials measured per second.
        screened: Candidates that the cost model looked at.
        infeasible: Number of trials that did not fit, by the buffer that overflowed.
        elapsed: Seconds since the start.
        expected: Seconds of the whole run, None while unknown.
        phase: What is done before the first trial.
        ended: Whether no trial follows.
    """

    model: str
    target: str
    done: int
    total: int | None
    best: float | None = None
    best_trial: int | None = None
    default: float | None = None
    bound_fraction: float | None = None
    rate: float = 0.0
    screened: int = 0
    infeasible: Mapping[str, int] = field(default_factory=dict)
    elapsed: float = 0.0
    expected: float | None = None
    phase: str = ""
    ended: bool = False


def live_line(standing: RunStatus, width: int | None = None) -> str:
    """Return the line of a run's progress, without an end of line.

    ``resnet50 @ stcp920 | ####...... 412/1000 trials | best 7.41 ms, 1.45x vs heuristic | 0:38,
    ~0:53 left | 88 % of bound | infeasible 7 % (LB 24, GB 3) | 840 measured/s, 18.4 k screened``

    Args:
        standing: State of the run.
        width: Columns that there are; what does not fit is left out, the last parts first, then
            words, the time since the start, the bar and the names. None for all of it.
    """
    for leaving in range(len(_ONE_LEAVES) + 1):
        line = " | ".join(filter(None, _parts(standing, _ONE_LEAVES[:leaving])))
        if width is None or len(line) <= width:
            break
    return line


def live_lines(
    standings: Sequence[RunStatus], width: int | None = None, height: int | None = None
) -> list[str]:
    """Return a line for each of several runs, their parts below each other.

    Args:
        standings: States of the runs.
        width: Columns that there are, as for :func:`live_line`; all lines leave out the same
            parts, and long names are cut short, not left out.
        height: Lines that there are; where runs are more, the last line sums up those without one:
            of runs that wait first, then of ended ones. None for a line for each.
    """
    left_out: Sequence[RunStatus] = ()
    if height is not None and len(standings) > height:
        ranked = sorted(standings, key=lambda one: _STATES.index(_state(one)))
        left_out = ranked[max(height - 1, 1) :]
        standings = [one for one in standings if one not in left_out]
    for leaving in range(len(_EACH_LEAVES) + 1):
        rows = [_parts(one, _EACH_LEAVES[:leaving]) for one in standings]
        lines = _below_each_other(rows)
        wide = max(map(len, lines))
        if width is None or wide <= width:
            break
    if width is not None and wide > width:
        room = max(max(len(row[0]) for row in rows) - (wide - width), _LEAST_NAME)
        lines = _below_each_other([(_cut(row[0], room), *row[1:]) for row in rows])
    return [*lines, _summed_up(left_out)] if left_out else lines


_EACH_LEAVES = ("rate", "infeasible", "bound", "words", "elapsed", "bar")
"""What lines leave out where the terminal is narrow, in this order."""

_ONE_LEAVES = (*_EACH_LEAVES, "names")
"""What the line of one run leaves out: several could not be told apart without names."""

_STATES = ("under way", "done", WAITING)
"""Runs of the first have a line before those of the others."""

_LEAST_NAME = 8
"""Characters of a name that are shown however narrow the terminal is."""


def _parts(standing: RunStatus, without: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a run's line; those left out are empty."""
    words = "words" not in without
    bar = "" if "bar" in without else _bar(standing)
    parts = {
        "names": f"{plain(standing.model)} @ {plain(standing.target)}",
        "progress": bar + _progress(standing, words=words),
        "best": _best(standing, words=words),
        "time": _time(standing, elapsed="elapsed" not in without),
        "bound": _bound(standing),
        "infeasible": _infeasible(standing),
        "rate": _rate(standing),
    }
    return tuple("" if name in without else part for name, part in parts.items())


def _below_each_other(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines whose parts begin in the same columns; a part that all lack takes none."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        " | ".join(part.ljust(wide) for part, wide in zip(row, widths, strict=True) if wide)
        for row in rows
    )
    return [line.rstrip(" |") for line in lines]


def _cut(name: str, room: int) -> str:
    return name if len(name) <= room else name[: room - 2] + ".."


def _state(standing: RunStatus) -> str:
    if standing.ended:
        return "done"
    return "under way" if standing.done or standing.phase != WAITING else WAITING


def _summed_up(standings: Sequence[RunStatus]) -> str:
    """Return how many runs have no line of their own, and their states."""
    states = [_state(one) for one in standings]
    counts = [f"{states.count(state)} {state}" for state in _STATES if state in states]
    return f"{len(states)} more pair{'s' if len(states) > 1 else ''}: {', '.join(counts)}"


def _bar(standing: RunStatus) -> str:
    """Return how much of a run is done, by trials or by time; empty where no end is known."""
    if standing.total:
        done = standing.done / standing.total
    elif standing.expected:
        done = standing.elapsed / standing.expected
    else:
        return ""
    full = round(_BAR * min(done, 1.0))
    return "#" * full + "." * (_BAR - full) + " "


def compiling_line(functions: int, total: int, left: float, *, kept: bool = True) -> str:
    """Return the line of the progress of compiling, without an end of line.

    ``compiling 12 of 55 functions, once per installation, about 20 s``

    Args:
        functions: Functions compiled so far.
        total: All functions that have to be compiled.
        left: Seconds that the others take; nobody knows them well, so they are told in fives.
        kept: Whether they are kept for the next command.
    """
    seconds = max(5, 5 * round(left / 5))
    when = "once per installation" if kept else "every time anew"
    return f"compiling {functions} of {total} functions, {when}, about {seconds} s"


def _progress(standing: RunStatus, *, words: bool) -> str:
    """Return how many trials are through; nothing of a run that waits and has no number yet."""
    if standing.total is None and _state(standing) == WAITING:
        return ""
    through = str(standing.done) if standing.total is None else f"{standing.done}/{standing.total}"
    return f"{through} trials" if words else through


def _best(standing: RunStatus, *, words: bool) -> str:
    if standing.best is None:
        return "nothing fits yet" if standing.done else plain(standing.phase) or "starting"
    text = f"best {duration(standing.best)}"
    if standing.default is None:
        return text
    gain = ratio(standing.default / standing.best)
    return f"{text}, {gain} vs heuristic" if words else f"{text}, {gain}"


def _bound(standing: RunStatus) -> str:
    if standing.best is None or standing.bound_fraction is None:
        return ""
    return f"{percent(standing.bound_fraction)} of bound"


def _infeasible(standing: RunStatus) -> str:
    failed = {reason: number for reason, number in standing.infeasible.items() if number}
    if not failed:
        return ""
    text = f"infeasible {percent(sum(failed.values()) / max(1, standing.done))}"
    # the most frequent first; of equals by name, so that the line does not flicker
    ordered = sorted(failed.items(), key=lambda item: (-item[1], item[0]))
    return f"{text} ({', '.join(f'{reason} {number}' for reason, number in ordered)})"


def _rate(standing: RunStatus) -> str:
    if _state(standing) == WAITING or not (standing.rate or standing.screened or standing.done):
        return ""
    return f"{count(standing.rate)} measured/s, {count(standing.screened)} screened"


def _time(standing: RunStatus, *, elapsed: bool = True) -> str:
    since = clock(standing.elapsed) if elapsed and _state(standing) != WAITING else ""
    if standing.ended:
        left = "done"
    elif standing.expected is None:
        left = ""
    else:
        about = "" if standing.total is None else "~"  # a limit of time is exact
        left = f"{about}{clock(max(standing.expected - standing.elapsed, 0.0))} left"
    return ", ".join(filter(None, (since, left)))
