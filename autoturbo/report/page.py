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

import itertools
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from autoturbo.config import TuneConfig, extent_flags
from autoturbo.database import BORROWS, RunInfo
from autoturbo.hardware import known_error
from autoturbo.registry import HEURISTIC, SIMULATOR
from autoturbo.report.alike import alike, layer_lines, numbered
from autoturbo.report.explanation import GAP_TITLES
from autoturbo.report.facts import LEAST, LIMIT_TITLES, MOST_JUDGES, TITLES, Facts, Measured
from autoturbo.report.filling import Chart, Columns, as_script, rendered, script
from autoturbo.report.graph_view import (
    MOST_LAYERS,
    SubGraphFacts,
    layer_scopes,
    layers_picture,
    scope_counts,
    subgraph_facts,
    subgraph_rows,
    subgraphs_picture,
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
from autoturbo.report.names import layer_labels, layer_title
from autoturbo.report.policy import policy
from autoturbo.report.search import (
    MOST_ASKED,
    convergence,
    convergence_chart,
    front,
    front_chart,
    importance_chart,
    owner_title,
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
from autoturbo.report.units import duration, figures_of, origin_of, range_sentence, ratio, traffic
from autoturbo.schedule.knobs import AUTO
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.breakdown.attribution import Limit
from autoturbo.simulator.measurement import Failure, Measurement
from autoturbo.simulator.unpublished import simulated_range
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


def reference(facts: Facts) -> tuple[str, Measured] | None:
    """Return what the best is compared with: the heuristic, or else the first other that fits."""
    if facts.default is not None:
        return TITLES["default"], facts.default
    others = [item for item in side_by_side(facts).items() if item[0] != TITLES["tuned"]]
    return others[0] if others else None


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
    base = f"the {name}" if name == HEURISTIC else name
    saved_s = other.measurement.latency - best.measurement.latency
    if not saved_s:
        return f"As long as {base}"
    if saved_s < 0:
        return f"{duration(-saved_s)} more than {base}"
    return f"{duration(saved_s)} less than {base}'s {duration(other.measurement.latency)}"


def parts_saved(other: Measured, best: Measured, named: int = 3) -> list[str]:
    """Return the time saved or added per limit, the largest first; all add up to the difference."""
    saved_s = {limit: other.seconds(limit) - best.seconds(limit) for limit in LIMIT_TITLES}
    least = LEAST * other.measurement.latency
    return [
        f"bound by {LIMIT_TITLES[limit]}: {duration(abs(saved_s[limit]))}"
        f" {'less' if saved_s[limit] > 0 else 'more'}"
        for limit in sorted(saved_s, key=lambda limit: -abs(saved_s[limit]))[:named]
        if abs(saved_s[limit]) > least
    ]


def changed(other: Measured, best: Measured) -> list[str]:
    """Return the figures of a schedule that differ from another's, in words."""
    then, now = other.measurement, best.measurement
    kept = [scope_counts(one.schedule) for one in (other, best)]
    pairs = {
        "DDR traffic": (traffic(then), traffic(now)),
        "sub-graphs": (len(other.schedule.instances.subgraphs),
                       len(best.schedule.instances.subgraphs)),
        "kernels of a cluster": (then.kernels, now.kernels),
        "layers' outputs kept on the chip": tuple(one["LB"] + one["GB"] for one in kept),
    }  # fmt: skip
    return [f"{what}: {a} to {b}" for what, (a, b) in pairs.items() if a != b]


def side_charts(facts: Facts, rows: Mapping[str, Measured]) -> dict[str, Chart]:
    """Return charts of schedules side by side: their speed, their time and their traffic.

    Of a model whose inputs do not agree on a batch there is none of speed.
    """
    tuned, batch = facts.best.measurement, facts.best.measurement.batch
    measured = {name: row.measurement for name, row in rows.items()}
    moved = (
        (title, name, row.measurement.bytes.get(level, 0) / 1e6)
        for level, title in LEVELS.items()
        if level != "lb"  # far larger: it is in the table
        for name, row in rows.items()
    )
    return {
        **({} if batch is None else {"speed": speed_chart(measured, tuned, _interval(facts))}),
        "time": time_chart(rows),
        "traffic": Chart("traffic", {"rows": Columns.of("level who mb", moved)},
                         {"parts": list(rows), "colours": _named(schedule_colours(rows).values())}),
    }  # fmt: skip


def speed_chart(
    rows: Mapping[str, Measurement], tuned: Measurement, ends: tuple[float, float] | None = None
) -> Chart:
    """Return a chart of samples per second, with what no schedule can pass.

    Args:
        rows: Schedules by title, of a model with a batch.
        tuned: The one that is looked at.
        ends: Its interval, where measurements vary.
    """
    speeds = (
        (name, row.throughput, "tuned" if row is tuned else "other",
         *(ends if row is tuned and ends else (row.throughput,) * 2))
        for name, row in rows.items()
    )  # fmt: skip
    fastest = (tuned.batch or 1) / tuned.bound.seconds
    return Chart("speed", {
        "rows": Columns.of("who speed kind low high", speeds),
        "bound": Columns.of("speed", [(fastest,)]),
    })  # fmt: skip


def _interval(facts: Facts) -> tuple[float, float] | None:
    """Return the interval of the tuned schedule's speed, by a race against the heuristic's."""
    race, base = facts.handed.race, facts.default and facts.default.measurement.throughput
    if race is None or race.high is None or not base or not race.demonstrated:
        return None
    return base * race.low, base * race.high


def _named(colours: Iterable[str]) -> list[str]:
    return [f"var(--{colour})" for colour in colours]


def time_chart(rows: Mapping[str, Measured]) -> Chart:
    """Return a chart of what bounds each schedule, in shares of its own time."""
    limits = [n for n in LIMIT_TITLES if any(row.share(n) > LEAST for row in rows.values())]
    bars = []
    for name, row in rows.items():
        shares = [row.share(limit) for limit in limits]
        ends = itertools.pairwise(itertools.accumulate(shares, initial=0.0))
        for limit, share, (begin, end) in zip(limits, shares, ends, strict=True):
            bars.append((name, limit.value, begin, end, share, 1e3 * row.seconds(limit)))
    data = {"rows": Columns.of("who part from to share ms", bars)}
    colours = _named(LIMIT_COLOURS[limit] for limit in limits)
    return Chart("time", data, {"parts": [limit.value for limit in limits], "colours": colours})


LIMIT_COLOURS: Final = {
    Limit.MATRIX: "g0", Limit.VECTOR: "g2", Limit.DDR: "g1", Limit.GB: "g4", Limit.TRANSFER: "g3",
    Limit.LB: "g7", Limit.LATENCY: "g5", Limit.LAUNCH: "g6",
}  # fmt: skip
"""Of what bounds the time."""


def gap_rows(facts: Facts) -> list[tuple[str, float, float]]:
    """Return what lies between the bound and the latency: cause, seconds, share; largest first."""
    causes = sorted(facts.gap.items(), key=lambda item: -item[1])
    latency = facts.best.found.latency
    return [(GAP_TITLES[name], share * latency, share) for name, share in causes if share > LEAST]


def _gap_chart(facts: Facts) -> Chart:
    """Return a chart of the time that each cause of the gap takes."""
    rows = ((title, 1e3 * seconds, share) for title, seconds, share in gap_rows(facts))
    return Chart("gap", {"rows": Columns.of("cause ms share", rows)})


def roofline_chart(
    best: Measured, rows: Mapping[str, Measured], groups: Sequence[SubGraphFacts]
) -> Chart:
    """Return a roofline: arithmetic against traffic of schedules and sub-graphs."""
    context = best.schedule.context
    kinds = {**schedule_colours(rows), _PARTS: "quiet"}
    points = [
        (name, name, macs / moved, macs / row.measurement.latency / 1e12, 1.0)
        for name, row in rows.items()
        if (macs := row.schedule.model.macs) and (moved := row.measurement.moved["ddr_bytes"])
    ]
    points += [
        (g.title, _PARTS, g.macs / g.ddr_bytes, g.rate / 1e12, g.share)
        for g in groups
        if g.macs and g.ddr_bytes and g.rate
    ]
    peak = context.chip.matrix_macs_per_second(context.dtype)
    bandwidth = context.chip.ddr.bandwidth
    knee = peak / bandwidth
    across = [knee, *(point[2] for point in points)]
    low, high = min(across) / _BEYOND, max(across) * _BEYOND
    lowest = min((point[3] for point in points), default=peak / 1e12) / _BEYOND
    highest = peak / 1e12 * _BEYOND
    roof = ((at, min(peak, bandwidth * at) / 1e12) for at in (low, knee, high))
    data = {
        "roof": Columns.of("intensity rate", roof),
        "points": Columns.of("name kind intensity rate share", points[::-1]),  # schedules on top
    }
    given = {
        "parts": list(kinds), "colours": _named(kinds.values()),
        "intensities": [low, high], "intensity_ticks": ticks(low, high),
        "rates": [lowest, highest], "rate_ticks": ticks(lowest, highest),
    }  # fmt: skip
    return Chart("roofline", data, given)


_PARTS: Final = "sub-graphs of the tuned schedule"

_BEYOND: Final = 1.5
"""How far beyond its points a roofline reaches."""

_FEW_DECADES: Final = 2.5
"""Decades up to which a logarithmic axis also has ticks at two and five."""


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis: powers of ten, and 2 and 5 where few are."""
    steps = (1, 2, 5) if math.log10(high / low) < _FEW_DECADES else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [number for number in numbers if low <= number <= high]


def schedule_colours(rows: Iterable[str]) -> dict[str, str]:
    """Return a colour for each of several schedules: the tuned one's is always the same."""
    palette = dict(zip(rows, itertools.cycle(("g1", "g3", "g2", "g4", "g5", "g6")), strict=False))
    return palette | {TITLES["tuned"]: "g0"}


LARGEST: Final = 5_000_000
"""Bytes that a report stays under."""

MOST_UNFOLDED: Final = 40
"""Boxes of a graph that is shown unfolded, and rows of a folded table that paper shows."""


def document(facts: Facts) -> str:
    """Return the report of a run as one HTML document.

    Raises:
        UsageError: The plotting library is not installed.
    """
    return drawn("report.html", values(facts))


def drawn(template: str, shown: Mapping[str, Any]) -> str:
    """Return a page with its charts and the two scripts that draw them, which alone may run."""
    library, code = script(), rendered("page.js")
    scripts = {"library": library, "code": code, "figures": as_script(shown["charts"])}
    whole = {name: Markup(text) for name, text in scripts.items()}  # noqa: S704  our own code
    return rendered(template, policy=policy(library, code), **whole, **shown) + "\n"


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


def values(facts: Facts) -> dict[str, Any]:
    """Return the values of the templates."""
    schedules, search = _of_schedules(facts), _of_search(facts)
    return {
        **schedules,
        **search,
        "facts": facts,
        "charts": {**schedules["charts"], **search["charts"]},
        "commands": commands(facts),
        "decisions": _decisions(facts.best.schedule),
        "version": __version__,
        "here": interpreter(),
    }


def _of_schedules(facts: Facts) -> dict[str, Any]:
    """Return the values of the tuned schedule and those beside it."""
    best, context = facts.best, facts.best.schedule.context
    rows = side_by_side(facts)
    groups, layers = subgraph_facts(best), len(context.layers)
    buffers = occupancies(best)
    charts = {
        **side_charts(facts, rows),
        "gap": _gap_chart(facts),
        **time_charts(best),
        **{name: memory_chart(best, held) for name, held in buffers.items() if held.is_used},
        "roofline": roofline_chart(best, rows, groups),
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
        "changed": changed,
        "limit_titles": LIMIT_TITLES,
        "limit_colours": LIMIT_COLOURS,
        "gap": gap_rows(facts),
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
        "layer_rows": _layer_rows(best),
        "group_rows": subgraph_rows(best.schedule, groups),
        "most_listed": MOST_LISTED,
        "most_unfolded": MOST_UNFOLDED,
        "mixed": _mixed(best),
        "schedules": rows,
        "measured": {name: row.measurement for name, row in rows.items()},
        "failures": {n: o.message for n, o in facts.others.items() if isinstance(o, Failure)},
        "levels": LEVELS,
        "groups": groups,
        "subgraphs": subgraphs_picture(best, groups),
        "layers": layers_picture(best, groups) if layers <= MOST_LAYERS else None,
        "peak": context.chip.matrix_macs_per_second(context.dtype),
        "bandwidth": context.chip.ddr.bandwidth,
        "buffers": buffers,
        "most_cores": MOST_CORES,
    }


def _of_search(facts: Facts) -> dict[str, Any]:
    """Return the values of the search: its course, predictions, knobs and front."""
    base = None if facts.default is None else facts.default.measurement
    labels = layer_labels(facts.best.schedule)
    course = convergence(facts.trials, facts.objectives[0], base)
    charts = {"convergence": convergence_chart(course)}
    pareto = None
    if len(facts.objectives) > 1:
        pareto = front(facts.trials, (facts.objectives[0], facts.objectives[1]))
        charts["front"] = front_chart(pareto)
    if facts.predictions is not None:
        charts["predicted"] = prediction_chart(facts.predictions)
    if not facts.importance.obstacle:
        charts["knobs"] = importance_chart(facts.importance, labels)
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
        "knobs": [(owner_title(knob, labels), knob) for knob in knobs],
        "coverage": {name: some for name, some in coverage.items() if some},
    }


def _layer_rows(best: Measured) -> list[LayerRow]:
    """Return the layers of a schedule, equal ones together, those that take longest first."""
    schedule, scopes = best.schedule, layer_scopes(best.schedule)
    layers, latency = schedule.context.layers, best.found.latency
    return [
        LayerRow(
            line.label, [layers[member].name for member in line.members],
            ", ".join(sorted({scopes.get(member, Scope.LB).name for member in line.members})),
            line.shares.limit.value if line.seconds else "-",
            line.seconds / latency * best.measurement.latency, line.seconds / latency,
        )
        for line in layer_lines(schedule, best.found)
    ]  # fmt: skip


class LayerRow(NamedTuple):
    """A row of the table of layers.

    Attributes:
        label: The layers by number, operator and shape.
        names: In the model file.
        scopes: Where their outputs are kept.
        limit: What bounds most of their time; ``-`` where they take none.
        seconds: That they add to the latency.
        share: Of it.
    """

    label: str
    names: Sequence[str]
    scopes: str
    limit: str
    seconds: float
    share: float


def _mixed(best: Measured) -> str:
    """Return why samples cannot be told apart, and the cost of it; empty where they can."""
    target = best.schedule.context.chip
    return mixed_sentence(mixed_samples(best.schedule.model, {target.name: target.clusters}))


def _decisions(schedule: Schedule) -> list[tuple[str, str, object]]:
    """Return the knobs that are not as published: their names, whose they are, their values.

    Sub-graphs that a knob sets alike are one row.
    """
    knobs = schedule.knobs.as_dict()
    places = {layer.name: layer.index for layer in schedule.context.layers}
    own = [
        (name, value, places[owner["layer"]])
        for owner in knobs.pop("overrides", ())
        for name, value in owner.items()
        if name != "layer" and value != AUTO
    ]
    groups = alike(own, lambda row: (row[0], str(row[1]), layer_title(schedule, row[2])))
    return [
        *((name, "", value) for name, value in knobs.items() if value != AUTO),
        *((group[0][0], numbered(schedule, [layer for *_, layer in group]), group[0][1])
          for group in groups),
    ]  # fmt: skip


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
