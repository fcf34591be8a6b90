"""Pages of runs by what the database holds: the index of all, and a light page of one.

They need no model, no target and no plotting library, and take a moment: figures are those that
were recorded, drawings are SVG of our own (:mod:`autoturbo.report.sparklines`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from markupsafe import Markup

from autoturbo.database import RunInfo, TrialRecord
from autoturbo.registry import HEURISTIC, SIMULATOR
from autoturbo.report.filling import rendered
from autoturbo.report.policy import policy
from autoturbo.report.sparklines import Course
from autoturbo.report.units import clock, counted, duration, origin_of
from autoturbo.schedule.host_plan import WHOLE
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.simulator.measurement import Failure
from autoturbo.version import __version__

RUNNING: Final = "running"
"""State of a run that a process works on."""

MOST_RUNS: Final = 50
"""Runs that a page lists; older ones are folded away."""

MOST_WATCHED: Final = 12
"""Runs of which the dashboard draws a curve."""

MOST_LATEST: Final = 12
"""Trials that a page of a run lists, the latest ones."""

MOST_STEPS: Final = 30
"""Improvements that it lists, the latest ones."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list of runs.

    Attributes:
        info: The run.
        state: What has become of it.
        report: Address of its page, relative to the list's; None where there is none.
        course: Latencies of the run, in the order of its trials.
        climb: Schedules that it measures at most after the trials that were asked for.
    """

    info: RunInfo
    state: str
    report: str | None = None
    course: Course = field(default=Course())
    climb: int = 0

    @property
    def known(self) -> str:
        """Return how its figures are known: simulated, or measured by what."""
        return origin_of(str(self.info.settings.get("measurer", SIMULATOR)))

    @property
    def pair(self) -> tuple[str, str, int, str, str]:
        """Return what its latency is comparable within: model, target, batch, type and origin."""
        info = self.info
        return info.model, info.target, info.batch, info.key.dtype, self.known

    @property
    def on_machine(self) -> bool:
        """Return whether it is on a machine of several units, of which there is no whole report."""
        return "units" in (self.info.settings.get("target_description") or {})

    @property
    def base(self) -> str:
        """Return what a gain is over: trial 0."""
        return WHOLE if self.info.on_host else HEURISTIC

    @property
    def going(self) -> bool:
        """Return whether a process works on it."""
        return self.state == RUNNING

    @property
    def asked(self) -> int | None:
        """Return the trials that were asked for; None where something else limits them."""
        trials: int | None = self.info.asked.get("trials")
        return trials

    @property
    def waiting(self) -> int:
        """Return how many are about to come: settings with the same schedule count once."""
        if not self.going or self.asked is None:
            return 0
        return max(0, self.asked + self.climb - len(self.course.trials))

    @property
    def progress(self) -> str:
        """Return what was asked for and what came of it, in words."""
        limit = self.info.asked.get("time_budget")
        asked = [] if self.asked is None else [f"{counted(self.asked, 'trial')} asked for"]
        asked += [f"{self.climb} more by climbing at most"] if self.climb else []
        asked += [] if limit is None else [f"{clock(limit)} at most"]
        done = [f"{self.course.measured} measured", f"{self.course.failed} failed"]
        if self.waiting:
            done.append(f"about {self.waiting} to go")
        if self.info.schedules < self.info.trials:
            done.append(f"{counted(self.info.schedules, 'schedule')} among them")
        return f"{', '.join(asked) or 'no limit'}: {', '.join(done)}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A model on a target: its fastest run, and how many there are.

    Attributes:
        best: The run of the least latency.
        runs: All runs of the pair that found a schedule.
    """

    best: ListedRun
    runs: int


def pairs_of(runs: Sequence[ListedRun]) -> list[Pair]:
    """Return the pairs of runs that found a schedule, in the order of their first runs."""
    found: dict[tuple[object, ...], list[ListedRun]] = {}
    for run in runs:
        if run.info.best_latency is not None:
            found.setdefault(run.pair, []).append(run)
    return [Pair(min(some, key=_latency), len(some)) for some in found.values()]


def _latency(run: ListedRun) -> float:
    return run.info.best_latency or math.inf


def index(runs: Sequence[ListedRun], database: str) -> str:
    """Return a page of all runs: a row for every model on a target, then one for each run.

    Args:
        runs: The oldest first.
        database: Name of what they are in.
    """
    sorting = _own_script("sort.js")
    shown = {"pairs": pairs_of(runs), "database": database, **_listed(runs)}
    return rendered("index.html", policy=policy(sorting), code=sorting, **shown) + "\n"


def dashboard_part(runs: Sequence[ListedRun], database: str, ended: Collection[str]) -> Markup:
    """Return what the dashboard shows, without what surrounds it.

    Args:
        runs: The oldest first.
        database: Name of what they are in.
        ended: Ids of runs that have ended while the dashboard looked on: they stay in view.
    """
    watched = [run for run in reversed(runs) if run.going or run.info.id in ended]
    watched.sort(key=lambda run: not run.going)
    shown = {
        "database": database, "watched": watched[:MOST_WATCHED],
        "unwatched": sum(run.going for run in watched[MOST_WATCHED:]), **_listed(runs),
    }  # fmt: skip
    return Markup(rendered("dashboard.html", **shown))  # noqa: S704  a template made it


def _listed(runs: Sequence[ListedRun]) -> dict[str, Any]:
    """Return the values of every page that lists runs."""
    gains = (run.info.gain() for run in runs)
    return {
        "runs": runs,
        "newest": runs[::-1][:MOST_RUNS],
        "older": runs[::-1][MOST_RUNS:],
        "most_gain": max((gain for gain in gains if gain is not None), default=1.0),
    }


@dataclass(frozen=True, slots=True)
class RunPage:
    """What a light page of a run shows.

    Attributes:
        run: The run.
        records: Trials by number, as :func:`wanted` names them.
        whole: Address at which the whole report is made; empty for a file.
        note: Why there can be no whole report; empty where there can.
    """

    run: ListedRun
    records: Mapping[int, TrialRecord]
    whole: str = ""
    note: str = ""


def wanted(info: RunInfo, course: Course) -> list[int]:
    """Return the trials whose records a light page of a run needs."""
    latest = [number for number, _ in course.trials[-MOST_LATEST:]]
    best = [] if info.best_trial is None else [info.best_trial]
    return sorted({*latest, *best, *_visible(course)})


def light_page(page: RunPage) -> str:
    """Return a page of a run by its record alone: its gain, its course, its latest trials."""
    title = f"{page.run.info.model} on {page.run.info.target}"
    return shell(light_part(page), title)


def light_part(page: RunPage) -> Markup:
    """Return what the light page of a run shows, without what surrounds it."""
    run, info, records = page.run, page.run.info, page.records
    known = [] if info.best_trial is None else [info.best_trial]
    best = next((records[n].knobs for n in known if n in records), None)
    latest = [records[n] for n, _ in reversed(run.course.trials[-MOST_LATEST:]) if n in records]
    steps = [records[n] for n in _visible(run.course) if n in records]
    befores = [None, *(step.knobs for step in steps)]
    shown = {
        "run": run, "info": info, "note": page.note, "whole": page.whole, "gain": info.gain(),
        "best": best and knob_words(best, most=None),
        "latest": [_row(info, record, best) for record in latest],
        "steps": [_row(info, *pair) for pair in zip(steps, befores, strict=False)][::-1],
        "commands": _commands(run), "version": __version__,
    }  # fmt: skip
    return Markup(rendered("run.html", **shown))  # noqa: S704  a template made it


def _visible(course: Course) -> list[int]:
    """Return the latest trials that were better than all before by what three digits show."""
    shown: dict[str, int] = {}
    for number, seconds in course.steps:
        shown.setdefault(duration(seconds), number)
    return list(shown.values())[-MOST_STEPS:]


def _row(
    info: RunInfo, record: TrialRecord, base: Knobs | None
) -> tuple[int, float | None, float | None, str]:
    """Return a trial's number, its seconds, how many times as fast it is, and its setting."""
    if isinstance(record.outcome, Failure):
        return record.number, None, None, f"{record.outcome.reason}: {record.outcome.message}"
    seconds, heuristic = record.outcome.latency, info.default_latency
    gain = heuristic / seconds if heuristic else None
    return record.number, seconds, gain, knob_words(record.knobs, base)


def shell(part: Markup, title: str, events: str = "") -> str:
    """Return a page of one part.

    Args:
        part: What it shows.
        title: Title of the page.
        events: Address at which a server tells what the part is by now; empty for a file.
    """
    code = _own_script("sort.js", "follow.js") if events else Markup()
    rules = policy(code, live=True) if events else policy()
    return rendered("shell.html", policy=rules, code=code, part=part, title=title, events=events)


def _commands(run: ListedRun) -> list[str]:
    """Return command lines that tell more of a run, or go on with it."""
    info = run.info
    verbs = ["show"] if run.on_machine else ["show", "report", "explain"]
    lines = [f"autoturbo {verb} {info.id}" for verb in verbs]
    if info.best_trial is not None and not info.on_host:
        lines.append(f"autoturbo replay {info.id} {info.best_trial}")
    if run.state not in ("running", "done"):
        lines.append(f"autoturbo resume {info.id}")
    return lines


def knob_words(knobs: Knobs, base: Knobs | None = None, most: int | None = 4) -> str:
    """Return what a candidate does otherwise than another one, in a line.

    Args:
        knobs: The candidate.
        base: The other one; None for the heuristic.
        most: Knobs of the model that are named; None for all.
    """
    if knobs.host is not None:
        return f"samples at once: {knobs.host.sentence}"
    mine, other = knobs.as_dict(), {} if base is None else base.as_dict()
    own = _differing(mine.pop("overrides", ()), other.pop("overrides", ()))
    units = mine.pop("units", None) != other.pop("units", None)
    otherwise = "" if base is None else " otherwise"
    words = [f"{n}={v}" for n, v in mine.items() if other.get(n) != v]
    words += [f"{name}={AUTO}" for name in other if name not in mine]
    if most is not None and len(words) > most:
        words[most:] = [counted(len(words) - most, "more knob")]
    words += [f"work shared out between units{otherwise}"] if units else []
    words += [f"knobs of {counted(own, 'sub-graph')}"] if own else []
    return ", ".join(words) or ("as the heuristic" if base is None else "the same setting")


def _differing(mine: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many sub-graphs have other knobs of their own."""
    one, two = ({own["layer"]: own for own in some} for some in (mine, other))
    return sum(one.get(layer) != two.get(layer) for layer in {**one, **two})


def _own_script(*names: str) -> Markup:
    """Return scripts of the page as one text."""
    return Markup("\n").join(Markup(rendered(name)) for name in names)  # noqa: S704  our own code
