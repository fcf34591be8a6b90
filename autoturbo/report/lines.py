"""Lines for people: the progress of a run, and how clusters or units share its work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autoturbo.graph.operators import Graph
from autoturbo.registry import HEURISTIC, HEURISTICS, Printer
from autoturbo.report.units import (
    capacity,
    clock,
    count,
    duration,
    known_size,
    macs,
    percent,
    plain,
    ratio,
    size,
    speed,
    traffic,
    vector_sentence,
)
from autoturbo.schedule.knobs import AUTO, Knobs
from autoturbo.schedule.knobs.pins import Pins
from autoturbo.schema import Natural, TypedDict
from autoturbo.simulator.measurement import Failure, Measurement, Outcome

if TYPE_CHECKING:
    from autoturbo.database.records import HandedOut, Race, RunInfo
    from autoturbo.hardware.target import Target
    from autoturbo.schedule.schedule import Schedule

_WHAT = {
    "spatial": "rows or columns of every output",
    "channel": "channels of every output",
    "either": "rows or channels of every output, whichever looks faster",
    "pipeline": "sub-graphs, in a pipeline",
    "branches": "sub-graphs that run side by side",
}

_REFERENCE = "TVM-like (not TVM's own kernels)"
"""What people read of the scheduler that gains are stated over besides."""

_BAR = 10
"""Characters of the bar."""

WAITING = "waiting"
"""The phase of a run whose turn has not come."""

_COPIES = "copies"
"""What a machine's measurement calls the time that copies take, beside its units'."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run.

    Attributes:
        model: Its name.
        target: Its name.
        done: Trials measured or failed.
        total: Trials to make, None where only time limits them.
        best: Least latency in seconds, None where nothing fitted yet.
        best_trial: Number of the trial that has it.
        default: Latency of the published heuristic in seconds, None where it does not fit.
        bound_fraction: Lower bound over ``best``.
        rate: Trials measured per second.
        screened: Candidates that the cost model looked at.
        infeasible: Trials that did not fit, by the buffer that overflowed.
        elapsed: Seconds since the start.
        expected: Seconds of the whole run, None while unknown.
        phase: What comes before the first trial.
        ended: No trial follows.
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
        standing: The run.
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
        standings: The runs.
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


def pinned_by_you(settings: Mapping[str, Any]) -> str:
    """Return what people have fixed in a run, by its settings; empty for nothing."""
    pins = Pins(settings.get("fixed") or {}, settings.get("allowed") or {})
    kept = [f"{' and '.join(group)} in one sub-graph" for group in settings.get("keep") or ()]
    words = [*pins.words(), *kept, *(f"{name} cut" for name in settings.get("cut") or ())]
    return f"by you: {', '.join(words)}" if words else ""


def sharing(knobs: Knobs, best: Measurement, trials: Iterable[tuple[Knobs, Outcome]]) -> str:
    """Return how the best schedule of a run shares out the work; empty where clusters work alike.

    Args:
        knobs: Of the best trial.
        best: What it measured.
        trials: All of the run, for the best one whose clusters share out samples: with one sample,
            one cluster has it all.
    """
    if _COPIES in best.busy:
        return _by_units(best)
    if knobs.cluster_partitioning == AUTO:
        return ""
    apart = [
        outcome.latency
        for own, outcome in trials
        if own.cluster_partitioning == AUTO and isinstance(outcome, Measurement)
    ]
    line = f"split {_WHAT[str(knobs.cluster_partitioning)]}: {duration(best.latency)}"
    if not apart:
        return line
    alone = "one cluster alone" if best.batch == 1 else "splitting the batch"
    return f"{line}; {alone}: {duration(min(apart))}"


MixedSamples = TypedDict("MixedSamples", {
    "node": str, "op_type": str, "reason": str, "change": str, "clusters": dict[str, Natural],
    "clusters_at_work": Natural,
})  # fmt: skip
"""Why samples cannot be told apart, how to change that, and the clusters that it costs."""


def mixed_samples(graph: Graph, clusters: Mapping[str, int]) -> MixedSamples | None:
    """Return why samples of a model cannot be told apart; None where they can.

    Args:
        graph: The model.
        clusters: Of each target, by its name.
    """
    from autoturbo.graph.batch import trace_batch

    obstacle = trace_batch(graph).obstacle
    if obstacle is None:
        return None
    return {
        "node": obstacle.operator,
        "op_type": obstacle.kind,
        "reason": obstacle.reason,
        "change": obstacle.mend,
        "clusters": dict(clusters),
        "clusters_at_work": 1,
    }


def mixed_sentence(mixed: MixedSamples | None) -> str:
    """Return the result of :func:`mixed_samples` on one line; empty where there is none."""
    if mixed is None:
        return ""
    idle: dict[int, list[str]] = {}
    for target, clusters in mixed["clusters"].items():
        if clusters > 1:
            idle.setdefault(clusters, []).append(target)
    costs = [f"1 of {clusters} clusters works on {', '.join(t)}" for clusters, t in idle.items()]
    costs = costs or ["the batch is processed whole"]
    return (
        f"cannot be told apart: {mixed['node']} ({mixed['op_type']}) {mixed['reason']}; "
        f"{', '.join(costs)}; {mixed['change']}"
        f"{', or let clusters share out other work (knob cluster_partitioning)' if idle else ''}"
    )


def _by_units(best: Measurement) -> str:
    """Return the share of the time that each unit was busy, and the copied bytes."""
    busy = ", ".join(
        f"{name} {percent(seconds / best.latency)}"
        for name, seconds in best.busy.items()
        if name != _COPIES
    )
    if not best.busy[_COPIES]:
        return f"busy {busy}; nothing is copied"
    copied = f"{size(best.bytes['copied'])} copied in {duration(best.busy[_COPIES])}"
    return f"busy {busy}; {copied}"


def held(best: Measurement) -> str:
    """Return the most bytes of shared memory that each unit holds; empty on a target."""
    names = {n.removeprefix("held:"): b for n, b in best.bytes.items() if n.startswith("held:")}
    return ", ".join(f"{name} {size(number)}" for name, number in names.items())


# How values show themselves: as HTML in a notebook, as text at a prompt
#
# The HTML is a fragment without scripts, styles of its own or anything from elsewhere. It takes its
# colours from the page, so that it reads in dark themes; names from files are text, whatever they
# hold.

REFERENCE = "tvm"
"""The scheduler that speed-ups refer to."""


@dataclass(frozen=True, slots=True)
class View:
    """The parts of a value that are shown.

    Attributes:
        title: One line.
        facts: Names with what they are.
        headers: Of a table; empty for none.
        rows: Its cells, the first of each being a name, the others figures.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def html(self, picture: str = "") -> str:
        """Return the view as a fragment of HTML, above a picture of our own if there is one."""
        from markupsafe import Markup

        from autoturbo.report.filling import rendered

        return rendered("view.html", view=self, picture=Markup(picture))  # noqa: S704  our own SVG

    def text(self) -> str:
        """Return the view as lines for a terminal."""
        lines = [plain(self.title)]
        width = max((len(plain(name)) for name, _ in self.facts), default=0)
        lines += [f"  {plain(name):<{width}}  {plain(text)}" for name, text in self.facts]
        return "\n".join([*lines, *_columns(self.headers, self.rows)])


class Viewed:
    """A value that shows its :meth:`view`: as HTML in a notebook, as lines at a prompt."""

    __slots__ = ()

    def view(self) -> View:
        """Return the parts that are shown."""
        raise NotImplementedError

    def picture(self) -> str:
        """Return the picture beside the view in a notebook, as SVG; empty for none."""
        return ""

    def _repr_html_(self) -> str:
        return self.view().html(self.picture())

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        del cycle
        printer.text(self.view().text())


def target_view(target: Target) -> View:
    """Return a view of a target's figures."""
    rates = (f"{macs(target.matrix_macs_per_second(d))}/s in {d}" for d in target.dtypes)
    facts = (
        ("description", target.description),
        ("cores", f"{target.clusters} x {target.cores} at {count(target.clock)}Hz"),
        ("matrix", ", ".join(rates)),
        ("LB", f"{capacity(target.lb.capacity)} a core, {size(target.lb.bandwidth)}/s"),
        ("GB", f"{capacity(target.gb.capacity)} a cluster" if target.gb.capacity else "none"),
        ("DDR", f"{size(target.ddr.bandwidth)}/s"),
    )
    return View(f"target {target.name}", facts)


def tight_share(measured: Measurement) -> str:
    """Return how near a latency is to the tight bound; empty where it is as near to the other."""
    share, tight = percent(measured.bound_fraction), measured.tight_fraction
    told = share if tight is None else percent(tight)
    return "" if told == share else f"{told} of the tight bound"


def bound_shares(measured: Measurement) -> str:
    """Return how near a latency is: ``57 % of the bound, 71 % of the tight bound``."""
    share = f"{percent(measured.bound_fraction)} of the bound"
    return ", ".join(filter(None, (share, tight_share(measured))))


def measurement_view(measured: Measurement) -> View:
    """Return a view of a measurement's figures."""
    moved = measured.moved
    facts = [
        ("latency", f"{duration(measured.latency)}, {bound_shares(measured)}"),
        ("throughput", speed(measured.throughput)),
        ("DDR", traffic(measured)),
        ("matrix engines", f"{percent(measured.matrix_utilization)} in use"),
        (
            "most in LB, GB",
            f"{known_size(moved['peak_lb_bytes'])}, {known_size(moved['peak_gb_bytes'])}",
        ),
        ("kernels", f"{measured.kernels} of a cluster"),
    ]
    if elsewhere := vector_sentence(measured.bound.vector_macs):
        facts.append(("vector engines", elsewhere))
    if measured.energy is not None:
        facts.append(("energy", f"{measured.energy:.3g} J"))
    return View("measurement", tuple(facts))


def schedule_view(schedule: Schedule) -> View:
    """Return a view of a schedule's decisions."""
    target, share = schedule.context.chip, schedule.share
    scopes = [scope.name for scope in schedule.placement.scopes]
    kept = (f"{scopes.count(name)} in {name}" for name in ("LB", "GB", "DDR") if name in scopes)
    facts = [
        ("scheduler", schedule.scheduler),
        ("knobs", schedule.knobs.canonical()),
        ("sub-graphs", str(len(schedule.instances.subgraphs))),
        ("instances", f"{len(schedule.order)}, outputs {', '.join(kept)}"),
        ("clusters", f"{share.clusters} share {share.split}, {share.loops} passes"),
    ]
    if schedule.expected is not None:
        facts.append(("expected", duration(schedule.expected["latency_s"])))
    of = f"{schedule.model.name} @ {target.name}"
    return View(f"schedule of {of}, {schedule.context.dtype}", tuple(facts))


def compared(info: RunInfo, handed: HandedOut | None) -> dict[str, Outcome]:
    """Return what a run's best schedule is compared with, by name, then ``"best"`` itself.

    The published heuristic is ``"default"``; whatever has no figure is a failure that says why.

    Args:
        info: The run.
        handed: What it handed out, or would; None where it has no schedule.
    """
    outcomes: dict[str, Outcome] = {}
    if handed is not None:
        outcomes |= {n: m for n, m in handed.baselines.items() if n not in HEURISTICS}
    absent = {name: Failure("raised", reason) for name, reason in info.lacking.items()}
    outcomes |= {name: failure for name, failure in absent.items() if name != HEURISTIC}
    if handed is not None and handed.heuristic is not None:
        outcomes["default"] = handed.heuristic
    elif HEURISTIC in absent:
        outcomes["default"] = absent[HEURISTIC]
    return outcomes if handed is None else {**outcomes, "best": handed.measurement}


def gain_sentence(info: RunInfo) -> str:
    """Return how much faster than its bases a run's best schedule is; empty without a base."""
    from autoturbo.search.objectives import OF_KERNELS

    handed, gain = info.handed_out, info.gain()
    if reason := info.lacking.get(HEURISTIC):
        return f"not known: the heuristic was not measured in full: {reason}"
    if handed is None or handed.heuristic is None:
        return ""
    if gain is None:
        return f"not known, measurements vary: {handed.doubt}"
    race = handed.race
    interval = interval_sentence(handed)
    if race is not None and not race.demonstrated:
        text = f"none demonstrated: {interval}, over the heuristic"
    elif race is not None and race.objective not in OF_KERNELS:
        gained = f"{_raced_ratio(race.gain, race)} in {race.objective}"
        text = f"{gained} over the heuristic ({interval})"
    elif gain <= 1:
        text = "none: no trial is faster than the heuristic"
    else:
        base = info.gain(REFERENCE)
        text = (
            f"{_raced_ratio(gain, race)} over the heuristic{f' ({interval})' if interval else ''}"
            f"{'' if base is None else f', {ratio(base)} over {_REFERENCE}'}"
        )
    return text


def refuted_sentence(race: Race | None) -> str:
    """Return the trials that looked better than what a race handed out; empty for none."""
    if race is None or not race.refuted:
        return ""
    return f"trial{'s' if race.refuted[1:] else ''} {', '.join(map(str, race.refuted))}"


def interval_sentence(handed: HandedOut) -> str:
    """Return the interval of a race's gain: ``1.37x to 1.40x at 95 % confidence``.

    Of a gain that is much likelier to be smaller, as it would not be stated if it did not show, it
    also says how large it then is.
    """
    if (race := handed.race) is None:
        return ""
    low = _raced_ratio(race.low, race)
    high = "any" if race.high is None else _raced_ratio(race.high, race)
    text = f"{low} to {high} at {percent(race.confidence)} confidence"
    return "; ".join(filter(None, (text, _correction_sentence(handed, race))))


_WORTH_SAYING = 0.1
"""Share of a gain, as a logarithm, that has to be luck for it to be said."""

_SMALL = 1.1
"""Gain below which a percent matters."""


def _correction_sentence(handed: HandedOut, race: Race) -> str:
    """Return what a gain is likely to be, given that it is stated; empty where that is as much."""
    from autoturbo.search.selection.racing import corrected_gain

    gain = corrected_gain(handed)
    if gain is None or math.log(gain) > (1 - _WORTH_SAYING) * math.log(race.gain):
        return ""
    return f"{_raced_ratio(gain, race)} once allowed for that only gains that show are stated"


def _raced_ratio(value: float, race: Race | None) -> str:
    """Return a factor as text, with a digit more where the gain of a race is small."""
    small = race is not None and 1 / _SMALL < race.gain < _SMALL
    return f"{value:.3f}x" if small else ratio(value)


def failed_sentence(outcomes: Iterable[Outcome]) -> str:
    """Return how many trials failed for which reason, and what the first says; empty for none.

    Those that do not fit a memory are no failures of measuring.
    """
    outcomes = list(outcomes)
    failed = [o for o in outcomes if isinstance(o, Failure) and not o.infeasible]
    if not failed:
        return ""
    counts = Counter(failure.reason for failure in failed).most_common()
    reasons = ", ".join(f"{reason} {number}" for reason, number in counts)
    return f"{len(failed)} of {len(outcomes)} trials ({reasons}); the first: {failed[0].message}"


def unsure(info: RunInfo) -> frozenset[str]:
    """Return the names of outcomes whose gain is not stated, as :func:`compared` calls them."""
    handed = info.handed_out
    return frozenset({"best"} if handed is not None and handed.is_single else ())


def comparison_view(
    title: str, outcomes: Mapping[str, Outcome], unsure: Collection[str] = ()
) -> View:
    """Return a view of schedulers side by side; of those that are unsure no gain is stated."""
    from autoturbo.report.tables import comparison_notes, comparison_rows

    headers, rows = comparison_rows(outcomes, REFERENCE, unsure)
    notes = tuple(("note", note) for note in comparison_notes(outcomes))
    return View(title, notes, headers, rows)


def _columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of text: names at the left, figures at the right of their columns."""
    cells = [[plain(cell) for cell in row] for row in (headers, *rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
