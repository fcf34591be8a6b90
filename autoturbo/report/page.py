"""The report of a run: one self-contained HTML file.

A reader's map::

    facts: all that is known of a run, and how its schedules use their time (simulated)
        -> timeline, graph_view, search: what is shown, as plain values
        -> filling: templates/*.html, one a section, and charts/*.json with their data
        -> page: one file, with its style and scripts

Its content security policy names the two scripts by their hashes and forbids everything else, so
that not even a name that slipped through could run.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from autoturbo.config import TuneConfig, extent_flags
from autoturbo.database import BORROWS, RunInfo
from autoturbo.hardware import known_error
from autoturbo.registry import HEURISTIC, SIMULATOR
from autoturbo.report.facts import (
    LEAST,
    MOST_JUDGES,
    PART_COLOURS,
    PART_TITLES,
    TITLES,
    WORKERS,
    Facts,
    Measured,
)
from autoturbo.report.filling import Chart, Columns, as_script, rendered, script
from autoturbo.report.graph_view import (
    SubGraphFacts,
    graph_chart,
    graph_layout,
    layer_scopes,
    scope_counts,
    subgraph_facts,
)
from autoturbo.report.lines import (
    failed_sentence,
    interval_sentence,
    mixed_samples,
    mixed_sentence,
    pinned_by_you,
    refuted_sentence,
    tight_share,
    unsure,
)
from autoturbo.report.search import (
    MOST_ASKED,
    convergence,
    convergence_chart,
    front,
    front_chart,
    importance_chart,
    knob_title,
    prediction_chart,
    ranked,
)
from autoturbo.report.timeline import (
    MOST_CORES,
    MOST_LISTED,
    end_of_all,
    engine_charts,
    kernel_rows,
    memory_chart,
    occupancies,
    time_charts,
)
from autoturbo.report.units import duration, figures_of, origin_of, range_sentence, ratio
from autoturbo.schedule.place.bind import Scope
from autoturbo.simulate.breakdown.shares import ScheduleShares, schedule_shares
from autoturbo.simulate.measurement import Failure
from autoturbo.simulate.unpublished import simulated_range
from autoturbo.version import __version__, interpreter

# Schedulers side by side: what the tuned schedule saves, and charts of time, speed and traffic.

LEVELS = {
    "ddr_read": "DDR read", "ddr_written": "DDR written", "gb_read": "GB read",
    "gb_written": "GB written", "core_to_core": "core to core", "lb": "LB",
}  # fmt: skip
"""Titles of the levels of a measurement's traffic."""


def side_by_side(facts: Facts) -> dict[str, Measured]:
    """Return every schedule that fits by the title that readers see, the tuned one last."""
    rows = {TITLES.get(n, n): m for n, m in facts.others.items() if isinstance(m, Measured)}
    if facts.default is not None:
        rows[TITLES["default"]] = facts.default
    return {**rows, TITLES["tuned"]: facts.best}


def how_known(info: RunInfo) -> str:
    """Return how the figures of a run are known: simulated, or measured by what."""
    return origin_of(_measurer(info))


def _measurer(info: RunInfo) -> str:
    """Return the name of what measured a run."""
    return str(info.settings.get("measurer", SIMULATOR))


def _range(facts: Facts) -> str:
    """Return the best schedule's range over what is not published of the target, in words."""
    latency = facts.best.measurement.latency
    found = simulated_range(facts.best.schedule, _measurer(facts.info), latency)
    return range_sentence(latency, found)


def reference(facts: Facts) -> tuple[str, Measured, float | None] | None:
    """Return what else the best is compared with: TVM's kernels, or the first other that fits.

    With it how many times as fast the best is; None where that is not known.
    """
    rows, gains = side_by_side(facts), gains_over(facts)
    name = next((name for name in rows if name != TITLES["tuned"]), None)
    return None if name is None else (name, rows[name], gains[name])


def gains_over(facts: Facts) -> dict[str, float | None]:
    """Return how many times as fast as each schedule the best one is; None where not known."""
    best, doubted = facts.best.measurement.latency, unsure(facts.info)
    ratios: dict[str, float | None] = {
        name: None if doubted else row.measurement.latency / best
        for name, row in side_by_side(facts).items()
    }
    return {**ratios, TITLES["default"]: facts.info.gain(), TITLES["tuned"]: 1.0}


def saved(name: str, other: Measured, best: Measured) -> str:
    """Return how much time is saved against another schedule, in words."""
    saved_s = other.measurement.latency - best.measurement.latency
    if saved_s <= 0:
        return f"{duration(-saved_s)} more than {name}"
    return f"Of {duration(other.measurement.latency)} ({name}), {duration(saved_s)} are saved"


def parts_saved(other: Measured, best: Measured, named: int = 3) -> list[str]:
    """Return the time saved or added per part, the largest first; they add up to the difference."""
    saved_s = {
        part: other.use.exposed[part] * other.measurement.latency
        - best.use.exposed[part] * best.measurement.latency
        for part in PART_TITLES
    }
    least = LEAST * other.measurement.latency
    hidden = set(WORKERS) - {best.use.busiest}
    return [
        f"{duration(abs(saved_s[part]))} {'less' if saved_s[part] > 0 else 'more'} in "
        f"{PART_TITLES[part]}{' that nothing hid' if part in hidden else ''}"
        for part in sorted(saved_s, key=lambda part: -abs(saved_s[part]))[:named]
        if abs(saved_s[part]) > least
    ]


def side_charts(facts: Facts, rows: Mapping[str, Measured]) -> dict[str, Chart]:
    """Return charts of schedules side by side: their speed, their time and their traffic.

    Of a model whose inputs do not agree on a batch there is none of speed.
    """
    tuned, batch = TITLES["tuned"], facts.best.measurement.batch
    moved = (
        (title, name, row.measurement.bytes.get(level, 0) / 1e6)
        for level, title in LEVELS.items()
        if level != "lb"  # far larger: it is in the table
        for name, row in rows.items()
    )
    palette = itertools.cycle(("g1", "g3", "g2", "g4", "g5", "g6"))
    shades = dict(zip(rows, palette, strict=False)) | {tuned: "g0"}
    return {
        **({} if batch is None else {"speed": _speed_chart(facts, rows, batch)}),
        "time": _time_chart(rows),
        "kept": _kept_chart(rows),
        "traffic": Chart("traffic", {"rows": Columns.of("level who mb", moved)},
                         {"parts": list(rows), "colours": _named(shades.values())}),
    }  # fmt: skip


def _speed_chart(facts: Facts, rows: Mapping[str, Measured], batch: int) -> Chart:
    """Return a chart of samples per second, with what no schedule can pass."""
    tuned, least = TITLES["tuned"], facts.best.measurement.bound.seconds
    ends = _interval(facts)
    speeds = (
        (n, r.measurement.throughput, "tuned" if n == tuned else "other",
         *(ends if n == tuned and ends else (r.measurement.throughput,) * 2))
        for n, r in rows.items()
    )  # fmt: skip
    return Chart("speed", {
        "rows": Columns.of("who speed kind low high", speeds),
        "bound": Columns.of("speed", [(batch / least,)]),
    })  # fmt: skip


def _interval(facts: Facts) -> tuple[float, float] | None:
    """Return the interval of the tuned schedule's speed, by a race against the heuristic's."""
    race, base = facts.handed.race, facts.default and facts.default.measurement.throughput
    if race is None or race.high is None or not base or not race.demonstrated:
        return None
    return base * race.low, base * race.high


def _named(colours: Iterable[str]) -> list[str]:
    return [f"var(--{colour})" for colour in colours]


def _time_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of the parts of each schedule's time, in shares of its own time."""
    parts = next(iter(rows.values())).use.parts
    bars = []
    for name, row in rows.items():
        shares = [row.use.exposed[part] for part in parts]
        ends = itertools.pairwise(itertools.accumulate(shares, initial=0.0))
        for part, share, (begin, end) in zip(parts, shares, ends, strict=True):
            bars.append((name, part, begin, end, share, share * row.measurement.latency * 1e3))
    return _parts_chart(bars, {part: PART_COLOURS[part] for part in parts},
                        title="share of its own time", unit="time (ms)")  # fmt: skip


def _kept_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of where each schedule keeps the outputs of layers."""
    bars = []
    for name, row in rows.items():
        counts = scope_counts(row.schedule)
        total = max(1, sum(counts.values()))
        at = 0
        for scope, count in counts.items():
            bars.append((name, scope, at / total, (at + count) / total, count / total, count))
            at += count
    colours = {"LB": "lb", "GB": "gb", "DDR": "ddr"}
    return _parts_chart(bars, colours, title="share of the layers' outputs", unit="layers")


def _parts_chart(
    bars: Iterable[Sequence[object]], colours: Mapping[str, str], *, title: str, unit: str
) -> Chart:
    """Return a chart of what each schedule is made of, in shares of itself."""
    data = {"rows": Columns.of("who part from to share amount", bars)}
    given = {"parts": list(colours), "colours": _named(colours.values())}
    return Chart("time", data, {**given, "title": title, "unit": unit})


def roofline_chart(
    facts: Facts, rows: Mapping[str, Measured], groups: Sequence[SubGraphFacts]
) -> Chart:
    """Return a roofline: arithmetic against traffic of schedules and sub-graphs."""
    context, clusters = facts.best.schedule.context, len(facts.best.schedule.timelines)
    points = [
        (name, "schedule", macs / moved, macs / row.measurement.latency / 1e12, 0.1)
        for name, row in rows.items()
        if (macs := row.schedule.model.macs) and (moved := row.measurement.moved["ddr_bytes"])
    ]
    points += [
        (g.title, "sub-graph", g.macs / g.ddr_bytes, g.macs * clusters / g.seconds / 1e12, g.share)
        for g in groups
        if g.macs and g.ddr_bytes and g.seconds
    ]
    peak = context.chip.matrix_macs_per_second(context.dtype)
    bandwidth = context.chip.ddr.bandwidth
    knee = peak / bandwidth
    across = [knee, *(point[2] for point in points)]
    low, high = min(across) / 3, max(across) * 3
    roof = ((at, min(peak, bandwidth * at) / 1e12) for at in (low, knee, high))
    data = {
        "roof": Columns.of("intensity rate", roof),
        "points": Columns.of("name kind intensity rate share", points),
    }
    lowest = min((point[3] for point in points), default=peak / 1e12) / 2
    given = {"intensities": [low, high], "rates": [lowest, peak / 1e12 * 1.6]}
    return Chart("roofline", data, given)


_NOTHING_ELSE: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""What pages may do, but for the scripts that some name."""

LARGEST: Final = 5_000_000
"""Bytes that a report stays under."""

MOST_UNFOLDED: Final = 60
"""Layers of a graph that is shown unfolded, and rows of a folded table that paper shows."""

MOST_RUNS: Final = 50
"""Runs that an index lists; older ones are folded away."""

_NOTHING: Final = 1e-9
"""Share of the time that is a rounding error."""


def document(facts: Facts) -> str:
    """Return the report of a run as one HTML document.

    Raises:
        UsageError: The plotting library is not installed.
    """
    return drawn("report.html", values(facts))


def drawn(template: str, shown: Mapping[str, Any]) -> str:
    """Return a page with its charts and the two scripts that draw them, which alone may run."""
    library, code = script(), rendered("page.js")
    policy = f"{_NOTHING_ELSE}; script-src '{_digest(library)}' '{_digest(code)}'"
    scripts = {"library": library, "code": code, "figures": as_script(shown["charts"])}
    whole = {name: Markup(text) for name, text in scripts.items()}  # noqa: S704  our own code
    return rendered(template, policy=policy, **whole, **shown) + "\n"


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """One of two schedules that are laid side by side.

    Attributes:
        name: with its model, batch, target and type.
        model: its name.
        measured: the schedule, built and measured again.
        how: how its figures are known: ``"simulated"``, or ``"measured by"`` what.
    """

    name: str
    model: str
    measured: Measured
    how: str

    @property
    def kernels(self) -> list[tuple[str, int, float, float]]:
        """Return its kernels as they begin: name, cluster, first and last second."""
        return kernel_rows(self.measured.schedule, self.measured.kernels)

    @property
    def end(self) -> float:
        """Return when its last pass ends, in seconds."""
        return end_of_all(self.measured) / 1e6


def difference(
    first: Compared,
    second: Compared,
    unlike: Sequence[str],
    figures: Iterable[Sequence[str]],
    knobs: Mapping[str, Sequence[Any]],
) -> str:
    """Return two schedules side by side, on one axis of time, as one HTML document.

    Args:
        first: A.
        second: B.
        unlike: what makes the comparison doubtful: ``"model"``, ``"batch"``, ...
        figures: title, A's, B's, and the second over the first.
        knobs: that differ, by name.

    Raises:
        UsageError: the plotting library is not installed.
    """
    sides = {"A": first, "B": second}
    end = max(end_of_all(side.measured) for side in sides.values())
    charts = {
        name.replace("timeline", f"timeline-{letter}"): chart
        for letter, side in sides.items()
        for name, chart in engine_charts(side.measured, end, whole=True).items()
    }
    shown = {
        "sides": sides, "models": [side.model for side in sides.values()], "charts": charts,
        "answer": _faster(sides), "unlike": unlike, "figures_of_both": list(figures),
        "knobs": knobs,
    }  # fmt: skip
    return drawn("diff.html", shown)


def _faster(sides: Mapping[str, Compared]) -> str:
    """Return which of two schedules is how many times as fast, in a sentence."""
    seconds = {letter: side.measured.measurement.latency for letter, side in sides.items()}
    slow, fast = sorted(sides, key=lambda letter: -seconds[letter])
    took = " and ".join(f"{letter} takes {duration(seconds[letter])}" for letter in sides)
    known = " and ".join(dict.fromkeys(side.how for side in sides.values()))
    if seconds[slow] == seconds[fast]:
        return f"{took}: neither is faster ({known})."
    return (
        f"{took}: {fast} is {ratio(seconds[slow] / seconds[fast])} as fast as {slow} and saves"
        f" {duration(seconds[slow] - seconds[fast])} ({known})."
    )


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the index of reports.

    Attributes:
        info: The run.
        state: What has become of it.
        report: Its report, relative to the index; None where there is none.
    """

    info: RunInfo
    state: str
    report: str | None = None


def index(runs: Sequence[ListedRun], database: str, *, refresh_s: int | None = None) -> str:
    """Return a page of all runs: the fastest of every model on every target, then each.

    Args:
        runs: The oldest first.
        database: Name of what they are in.
        refresh_s: Seconds after which the page is loaded again; None for a file.
    """
    matrix: dict[str, dict[str, ListedRun]] = {}
    for run in runs:
        info = run.info
        if info.best_latency is None:
            continue
        cells = matrix.setdefault(f"{info.model}, batch {info.batch}, {info.key.dtype}", {})
        before = cells.get(info.target)
        if before is None or info.best_latency < (before.info.best_latency or math.inf):
            cells[info.target] = run
    targets = list(dict.fromkeys(target for cells in matrix.values() for target in cells))
    known = dict.fromkeys(how_known(run.info) for run in runs if run.info.best_latency)
    shown = {
        "matrix": matrix, "targets": targets, "database": database, "refresh_s": refresh_s,
        "known": known, "most_runs": MOST_RUNS,
    }  # fmt: skip
    return rendered("index.html", policy=_NOTHING_ELSE, runs=runs, **shown) + "\n"


def _digest(code: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"


def values(facts: Facts) -> dict[str, Any]:
    """Return the values of the templates."""
    schedules, search = _of_schedules(facts), _of_search(facts)
    return {
        **schedules,
        **search,
        "facts": facts,
        "charts": {**schedules["charts"], **search["charts"]},
        "commands": commands(facts),
        "decisions": _decisions(facts.best.schedule.knobs.as_dict()),
        "version": __version__,
        "here": interpreter(),
    }


def _of_schedules(facts: Facts) -> dict[str, Any]:
    """Return the values of the tuned schedule and those beside it."""
    best, context = facts.best, facts.best.schedule.context
    rows = side_by_side(facts)
    shares = schedule_shares(best.schedule)
    groups = subgraph_facts(best.schedule, best.kernels)
    plan = graph_layout(best.schedule)
    buffers = occupancies(best)
    charts = {
        **side_charts(facts, rows),
        **time_charts(best),
        **{name: memory_chart(best, held) for name, held in buffers.items() if held.peak},
        "graph": graph_chart(best, plan, groups),
        "roofline": roofline_chart(facts, rows, groups),
    }
    return {
        "charts": charts,
        "base": reference(facts),
        "gains": gains_over(facts),
        "gain": None if facts.default is None else facts.info.gain(),
        "interval": interval_sentence(facts.handed),
        "doubt": facts.info.lacking.get(HEURISTIC) or (unsure(facts.info) and facts.handed.doubt),
        "refuted": refuted_sentence(facts.handed.race),
        "failed": failed_sentence(trial.outcome for trial in facts.trials),
        "pinned": pinned_by_you(facts.info.settings),
        "saved": saved,
        "parts_saved": parts_saved,
        "titles": PART_TITLES,
        "colours": PART_COLOURS,
        "how": how_known(facts.info),
        "provenance": figures_of(
            _measurer(facts.info),
            known_error(facts.best.schedule.context.chip, best.measurement.kernel_seconds),
            facts.info.gain(),
        ),
        "range": _range(facts),
        "tight": tight_share(facts.best.measurement),
        "kept": scope_counts(best.schedule),
        "parts": sum(group.parts for group in groups),
        "kernel_rows": kernel_rows(best.schedule, best.kernels),
        "layer_rows": _layer_rows(best, shares),
        "most_listed": MOST_LISTED,
        "most_unfolded": MOST_UNFOLDED,
        "critical": _critical(shares),
        "mixed": _mixed(best),
        "measured": {name: row.measurement for name, row in rows.items()},
        "failures": {n: o.message for n, o in facts.others.items() if isinstance(o, Failure)},
        "times": _times(rows),
        "levels": LEVELS,
        "groups": groups,
        "detailed": bool(plan.layers),
        "peak": context.chip.matrix_macs_per_second(context.dtype),
        "bandwidth": context.chip.ddr.bandwidth,
        "buffers": buffers,
        "most_cores": MOST_CORES,
    }


def _of_search(facts: Facts) -> dict[str, Any]:
    """Return the values of the search: its course, predictions, knobs and front."""
    course = convergence(facts.trials, facts.objectives[0])
    pareto = front(facts.trials, facts.objectives)
    charts = {
        "convergence": convergence_chart(course, facts.objectives[0], facts.best.measurement),
        "front": front_chart(pareto),
    }
    if facts.predictions is not None:
        charts["predicted"] = prediction_chart(facts.predictions)
    if not facts.importance.obstacle:
        charts["knobs"] = importance_chart(facts.importance)
    knobs = ranked(facts.importance)
    coverage = {
        "the model's knobs": [knob for knob in knobs if not knob.layers],
        "sub-graphs' own knobs": [knob for knob in knobs if knob.layers],
    }
    return {
        "charts": charts,
        "course": course,
        "pareto": pareto,
        "most_asked": MOST_ASKED,
        "most_judges": MOST_JUDGES,
        "knobs": [(knob_title(knob), knob) for knob in knobs],
        "coverage": {name: some for name, some in coverage.items() if some},
    }


def _layer_rows(best: Measured, shares: ScheduleShares) -> list[tuple[str, int, str, str, float]]:
    """Return of each layer: its name, its sub-graph, its output, its limit, its seconds."""
    layers, scopes = best.schedule.context.layers, layer_scopes(best.schedule)
    return [
        (layers[own.layer].name, own.subgraph, scopes.get(own.layer, Scope.LB).name,
         own.shares.limit.value if own.seconds else "-", own.seconds)
        for own in shares.layers[:MOST_LISTED]
    ]  # fmt: skip


def _critical(attributed: ScheduleShares) -> list[tuple[str, float]]:
    """Return the parts of the critical path, in shares, as ``explain`` answers it."""
    shares = attributed.shares.as_dict()
    total = sum(shares.values())
    ordered = sorted(shares, key=lambda name: -shares[name])[:3]
    return [(name, shares[name] / total) for name in ordered if shares[name] > 0]


def _mixed(best: Measured) -> str:
    """Return why samples cannot be told apart, and the cost of it; empty where they can."""
    target = best.schedule.context.chip
    return mixed_sentence(mixed_samples(best.schedule.model, {target.name: target.clusters}))


def _times(rows: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    """Return the seconds of each schedule by parts that any of them has; 0 for next to none."""
    seconds: dict[str, dict[str, float]] = {}
    for part in PART_TITLES:
        shares = {name: row.use.exposed[part] for name, row in rows.items()}
        spent = {
            name: share * rows[name].measurement.latency if share > _NOTHING else 0.0
            for name, share in shares.items()
        }
        if any(spent.values()):
            seconds[part] = spent
    return seconds


def _decisions(knobs: Mapping[str, Any]) -> list[tuple[str, str, object]]:
    """Return the knobs that are not as published: their names, whose they are, their values."""
    owners = [("", knobs), *((own["layer"], own) for own in knobs.get("overrides", ()))]
    return [
        (name, layer, value)
        for layer, own in owners
        for name, value in own.items()
        if name not in ("layer", "overrides") and value != "auto"
    ]


def commands(facts: Facts) -> list[str]:
    """Return command lines that repeat the run, its fastest trial, and verify its schedule.

    What a sweep measured of neighbours' settings no single command repeats.
    """
    info, settings = facts.info, facts.info.settings
    names = ("model_batch", "batch_dim", "shapes", "dims", "values")
    kept = (settings.get(name) for name in names)
    pair = ["--target", info.target, "--dtype", info.key.dtype, *extent_flags(*kept)]
    asked = TuneConfig.of_run(info).words(facts.best.schedule.context.chip)
    tune = ["autoturbo", "tune", info.model_file, *pair, *asked]
    replay = ["autoturbo", "replay", info.id, str(facts.handed.trial)]
    simulate = ["autoturbo", "simulate", info.model_file, *pair, "--schedule", "schedule.json"]
    verify = ["autoturbo", "verify", info.model_file, "--run", info.id]
    all_of_it = () if BORROWS in settings else (tune,)
    return [shlex.join(words) for words in (*all_of_it, replay, simulate, verify)]
