"""The one line that says how a tuning run stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoturbo.report.units import change, clock, count, duration, percent, plain


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands.

    Attributes:
        model: its name.
        target: its name.
        done: trials measured or failed.
        total: trials to make, None where only time limits them.
        best: least latency in seconds, None where nothing fitted yet.
        best_trial: number of the trial that has it.
        default: latency of the published heuristic in seconds, None where it does not fit.
        bound_fraction: lower bound over ``best``.
        rate: trials measured per second.
        screened: candidates that the cost model looked at.
        infeasible: trials that did not fit, by the buffer that overflowed.
        elapsed: seconds since the start.
        expected: seconds of the whole run, None while unknown.
        phase: what comes before the first trial.
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


def live_line(standing: Standing) -> str:
    """Return the line that says how a run stands, without an end of line.

    ``resnet50 @ stcp920 | 412/1000 | best 7.41 ms (-31 % vs default, 88 % of bound) at #288 |
    840 measured/s, 18.4 k screened | infeasible 7 % (LB 24, GB 3) | 0:38 / ~1:31``
    """
    parts = (
        f"{plain(standing.model)} @ {plain(standing.target)}",
        _progress(standing),
        _best(standing),
        f"{count(standing.rate)} measured/s, {count(standing.screened)} screened",
        _infeasible(standing),
        _time(standing),
    )
    return " | ".join(parts)


def compiling_line(functions: int, total: int, left: float, *, kept: bool = True) -> str:
    """Return the line that says how far compiling is, without an end of line.

    ``compiling 12 of 55 functions, once per installation, about 20 s``

    Args:
        functions: compiled so far.
        total: those and the others.
        left: seconds that the others take; nobody knows them well, so they are told in fives.
        kept: whether they are kept for the next command.
    """
    seconds = max(5, 5 * round(left / 5))
    when = "once per installation" if kept else "every time anew"
    return f"compiling {functions} of {total} functions, {when}, about {seconds} s"


def _progress(standing: Standing) -> str:
    return str(standing.done) if standing.total is None else f"{standing.done}/{standing.total}"


def _best(standing: Standing) -> str:
    if standing.best is None:
        return "nothing fits yet" if standing.done else plain(standing.phase) or "starting"
    text = f"best {duration(standing.best)}"
    notes = []
    if standing.default is not None:
        notes.append(f"{change(standing.best, standing.default)} vs default")
    if standing.bound_fraction is not None:
        notes.append(f"{percent(standing.bound_fraction)} of bound")
    if notes:
        text += f" ({', '.join(notes)})"
    return text if standing.best_trial is None else f"{text} at #{standing.best_trial}"


def _infeasible(standing: Standing) -> str:
    failed = {reason: number for reason, number in standing.infeasible.items() if number}
    text = f"infeasible {percent(sum(failed.values()) / max(1, standing.done))}"
    if not failed:
        return text
    # the most frequent first; of equals by name, so that the line does not flicker
    ordered = sorted(failed.items(), key=lambda item: (-item[1], item[0]))
    return f"{text} ({', '.join(f'{reason} {number}' for reason, number in ordered)})"


def _time(standing: Standing) -> str:
    if standing.expected is None:
        return clock(standing.elapsed)
    return f"{clock(standing.elapsed)} / ~{clock(standing.expected)}"
