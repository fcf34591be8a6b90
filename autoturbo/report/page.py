"""The report of a run: one HTML file with all that it needs, which may load nothing.

A reader's map::

    facts: all that is known of a run (measured again where the database keeps sums only)
        -> comparison, timeline, graph_view, search: what is shown, as plain values
        -> filling: templates/*.html, one a section, and charts/*.json with their data
        -> page: one file, with its style and scripts

Its content security policy names the two scripts by their hashes and forbids everything else, so
that not even a name that slipped through could run.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from autoturbo.config import TuneConfig, extent_flags
from autoturbo.database import BORROWS
from autoturbo.report.comparison import (
    LEVELS,
    parts_saved,
    reference,
    roofline_chart,
    saved,
    side_by_side,
    side_charts,
)
from autoturbo.report.facts import MOST_JUDGES, PART_COLOURS, PART_TITLES, Facts, Measured
from autoturbo.report.filling import as_script, rendered, script
from autoturbo.report.graph_view import graph_chart, graph_layout, subgraph_facts
from autoturbo.report.lines import mixed_samples, mixed_sentence
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
from autoturbo.report.timeline import MOST_CORES, memory_chart, occupancies, time_charts
from autoturbo.simulate.measurement import Failure
from autoturbo.simulate.shares import schedule_shares
from autoturbo.version import __version__, interpreter

LARGEST: Final = 5_000_000
"""Bytes that a report stays under."""

_NOTHING: Final = 1e-9
"""Share of the time that is a rounding error."""


def document(facts: Facts) -> str:
    """Return the report of a run as one HTML document.

    Raises:
        UsageError: the plotting library is not installed.
    """
    library, code = script(), rendered("page.js")
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        f" script-src '{_digest(library)}' '{_digest(code)}'"
    )
    shown = values(facts)
    scripts = {"library": library, "code": code, "figures": as_script(shown["charts"])}
    whole = {name: Markup(text) for name, text in scripts.items()}  # noqa: S704  our own code
    return rendered("report.html", policy=policy, **whole, **shown) + "\n"


def _digest(code: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"


def values(facts: Facts) -> dict[str, Any]:
    """Return what the templates show."""
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
    """Return what is shown of the tuned schedule and those beside it."""
    best, problem = facts.best, facts.best.schedule.problem
    rows = side_by_side(facts)
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
        "saved": saved,
        "parts_saved": parts_saved,
        "titles": PART_TITLES,
        "colours": PART_COLOURS,
        "critical": _critical(best),
        "mixed": _mixed(best),
        "measured": {name: row.measurement for name, row in rows.items()},
        "failures": {n: o.message for n, o in facts.others.items() if isinstance(o, Failure)},
        "times": _times(rows),
        "levels": LEVELS,
        "groups": groups,
        "detailed": bool(plan.layers),
        "peak": problem.target.matrix_macs_per_second(problem.dtype),
        "bandwidth": problem.target.ddr.bandwidth,
        "buffers": buffers,
        "most_cores": MOST_CORES,
    }


def _of_search(facts: Facts) -> dict[str, Any]:
    """Return what is shown of the search: its course, predictions, knobs and front."""
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


def _critical(best: Measured) -> list[tuple[str, float]]:
    """Return what the critical path is spent on most, in shares, as ``explain`` answers it."""
    shares = schedule_shares(best.schedule).shares.as_dict()
    total = sum(shares.values())
    ordered = sorted(shares, key=lambda name: -shares[name])[:3]
    return [(name, shares[name] / total) for name in ordered if shares[name] > 0]


def _mixed(best: Measured) -> str:
    """Return why samples cannot be told apart, and what that costs; empty where they can."""
    target = best.schedule.problem.target
    return mixed_sentence(mixed_samples(best.schedule.model, {target.name: target.clusters}))


def _times(rows: Mapping[str, Measured]) -> dict[str, dict[str, float]]:
    """Return the seconds of each schedule by parts that any of them has; 0 for next to none."""
    found: dict[str, dict[str, float]] = {}
    for part in PART_TITLES:
        shares = {name: row.use.exposed[part] for name, row in rows.items()}
        spent = {
            name: share * rows[name].measurement.latency if share > _NOTHING else 0.0
            for name, share in shares.items()
        }
        if any(spent.values()):
            found[part] = spent
    return found


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
    kept = (settings.get(name) for name in ("model_batch", "shapes", "dims", "values"))
    pair = ["--target", info.target, "--dtype", info.key.dtype, *extent_flags(*kept)]
    asked = TuneConfig.of_run(info).words(facts.best.schedule.problem.target)
    tune = ["autoturbo", "tune", info.model_file, *pair, *asked]
    replay = ["autoturbo", "replay", info.id, str(facts.number)]
    simulate = ["autoturbo", "simulate", info.model_file, *pair, "--schedule", "schedule.json"]
    verify = ["autoturbo", "verify", info.model_file, "--run", info.id]
    all_of_it = () if BORROWS in settings else (tune,)
    return [shlex.join(words) for words in (*all_of_it, replay, simulate, verify)]
