"""The report of a run: one self-contained HTML file.

A reader's map::

    facts: all that is known of a run, and how its schedules use their time (simulated)
        -> timeline, graph_view, side_by_side, search: what is shown, as plain values
        -> filling: templates/*.html, one a section, and charts/*.json with their data
        -> page: one file, with its style and scripts

Its content security policy names the two scripts by their hashes and forbids everything else, so
that not even a name that slipped through could run.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from autoturbo.config import TuneConfig, extent_flags
from autoturbo.database import BORROWS
from autoturbo.hardware import known_error
from autoturbo.registry import HEURISTIC
from autoturbo.report.alike import alike, layer_lines, numbered
from autoturbo.report.facts import LIMIT_TITLES, MOST_JUDGES, Facts, Measured
from autoturbo.report.filling import as_script, rendered, script
from autoturbo.report.gains import (
    failed_sentence,
    interval_sentence,
    pinned_by_you,
    refuted_sentence,
    unsure,
)
from autoturbo.report.graph_view import (
    MOST_LAYERS,
    layer_scopes,
    layers_picture,
    scope_counts,
    subgraph_facts,
    subgraph_rows,
    subgraphs_picture,
)
from autoturbo.report.names import layer_labels, layer_title
from autoturbo.report.policy import policy
from autoturbo.report.schedule_charts import (
    LEVELS,
    LIMIT_COLOURS,
    gap_chart,
    roofline_chart,
    side_charts,
)
from autoturbo.report.search_course import (
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
from autoturbo.report.sharing import mixed_samples, mixed_sentence
from autoturbo.report.side_by_side import (
    changed,
    gains_over,
    gap_rows,
    how_known,
    latency_range,
    measurer_name,
    parts_saved,
    reference,
    saved,
    side_by_side,
)
from autoturbo.report.timeline import (
    MOST_CORES,
    MOST_LISTED,
    kernel_rows,
    memory_chart,
    occupancies,
    time_charts,
)
from autoturbo.report.units import figures_of
from autoturbo.report.views import tight_share
from autoturbo.schedule.knobs import AUTO
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.measurement import Failure
from autoturbo.version import __version__, interpreter

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
        "gap": gap_chart(facts),
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
            measurer_name(facts.info),
            known_error(facts.best.schedule.context.chip, best.measurement.kernel_seconds),
            facts.info.gain(),
        ),
        "range": latency_range(facts),
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
        label: Number, operator and shape of the layers.
        names: Names of the layers in the model file.
        scopes: Scopes in which their outputs are kept.
        limit: Limit that bounds most of their time; ``-`` where they take none.
        seconds: Seconds that they add to the latency.
        share: Share of the latency.
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
