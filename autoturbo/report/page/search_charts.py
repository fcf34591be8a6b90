"""Charts of a search: its course, what its model predicted, its knobs, its front."""

from __future__ import annotations

from autoturbo.report.page.chart import Chart
from autoturbo.report.page.columns import Columns
from autoturbo.report.page.facts import Facts
from autoturbo.report.page.predictions import Predictions
from autoturbo.report.page.search import UNITS, Convergence, Front
from autoturbo.report.page.vega import Spec, colours, quantity, tips, words
from autoturbo.search.importance import Importance, KnobReport
from autoturbo.search.objectives import OF_KERNELS, Objective

SHOWN_KNOBS = 15
"""Knobs in the chart; all are in the table."""

_LEAST = 5e-4
"""Share of a knob that has no bar."""


def convergence_chart(facts: Facts, found: Convergence) -> Chart:
    """Trials in order, the best so far, and the bound."""
    objective = facts.objectives[0]
    title, factor = UNITS[objective.name]
    x = quantity("trial", "trial", scale={"nice": False}, axis={"grid": False, "tickMinStep": 1})
    y = quantity("value", title, scale={"zero": False, "padding": 6}, axis={"tickCount": 5})
    layers: list[Spec] = [
        {"data": {"name": "points"},
         "mark": {"type": "circle", "size": 14, "opacity": 0.55, "color": "var(--g3)"},
         "encoding": {"x": x, "y": {**y, "field": "at"},
                      "tooltip": tips(trial="trial", value=title)}},
        {"data": {"name": "best"},
         "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2,
                  "stroke": "var(--g0)"},
         "encoding": {"x": x, "y": y}},
    ]  # fmt: skip
    data = {"points": found.points, "best": found.best}
    limit = _limit(facts, objective)
    if limit is not None:
        layers.append(
            {"data": {"name": "bound"},
             "mark": {"type": "rule", "strokeDash": [5, 3], "stroke": "var(--bad)"},
             "encoding": {"y": y}}
        )  # fmt: skip
        data["bound"] = Columns({"value": [limit * factor]})
    return Chart({"height": 260, "layer": layers}, data)


def _limit(facts: Facts, objective: Objective) -> float | None:
    """What no schedule can beat, for latency and throughput."""
    if objective.name not in OF_KERNELS:
        return None
    measured = facts.best.measurement
    least = measured.bound.seconds
    return least if objective.name == "latency" else measured.batch / least


def prediction_chart(found: Predictions) -> Chart:
    """Predicted against measured, with the line where both are the same."""
    said, true = found.points.values["predicted"], found.points.values["measured"]
    low, high = min(*said, *true), max(*said, *true)
    wide = high > 3 * low
    limits = {"domain": [low * 0.97, high * 1.03], "nice": False, "zero": False}
    scale = {**limits, "type": "log"} if wide else limits
    x = quantity("predicted", "predicted latency in ms", scale=scale, axis={"tickCount": 5})
    y = quantity("measured", "measured latency in ms", scale=scale, axis={"tickCount": 5})
    spec = {
        "height": 300,
        "layer": [
            {"data": {"name": "same"},
             "mark": {"type": "line", "strokeDash": [4, 3], "stroke": "var(--soft)"},
             "encoding": {"x": x, "y": y}},
            {"data": {"name": "points"},
             "mark": {"type": "circle", "size": 20, "opacity": 0.6, "color": "var(--g0)"},
             "encoding": {"x": x, "y": y,
                          "tooltip": tips(trial="trial", predicted="predicted (ms)",
                                          measured="measured (ms)")}},
        ],
    }  # fmt: skip
    ends = [low * 0.97, high * 1.03]
    same = Columns({"predicted": ends, "measured": ends})
    return Chart(spec, {"points": found.points, "same": same})


def knob_title(knob: KnobReport) -> str:
    """A knob with the layer whose own it is."""
    if not knob.layers:
        return knob.knob
    more = f" +{len(knob.layers) - 1}" if len(knob.layers) > 1 else ""
    start = f", start {knob.start}" if knob.start else ""
    return f"{knob.knob} of {knob.layers[0]}{more}{start}"


def ranked(found: Importance) -> list[KnobReport]:
    """Knobs, those with the largest shares first."""
    return sorted(found.knobs, key=lambda knob: -(knob.share or 0.0))


def importance_chart(found: Importance) -> Chart:
    """Shares of what differs between trials, knob by knob."""
    own = [k for k in ranked(found)[:SHOWN_KNOBS] if (k.share or 0.0) > _LEAST]
    rows = Columns(
        {
            "knob": [knob_title(knob) for knob in own],
            "share": [knob.share for knob in own],
            "kind": ["at its border" if knob.border else "inside" for knob in own],
            "tried": [f"{knob.tried} of {knob.offered} values" for knob in own],
        }
    )
    spec = {
        "height": {"step": 20},
        "data": {"name": "rows"},
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "y": words("knob", None, axis={"ticks": False, "domain": False}),
            "x": quantity("share", "share of what differs between trials",
                          axis={"format": ".0%", "tickCount": 5}),
            "color": words("kind", None, scale=colours({"inside": "g0", "at its border": "g1"}),
                           legend={"title": "best value"}),
            "tooltip": tips(knob="knob", share="share (of 1)", tried="tried", kind="best value"),
        },
    }  # fmt: skip
    return Chart(spec, {"rows": rows})


def _scale(found: Front, side: str) -> Spec:
    """Logarithmic where values lie far apart."""
    values = [*found.points.values[side], *found.members.values[side]]
    wide = bool(values) and min(values) > 0 and max(values) > 3 * min(values)
    return {"type": "log", "nice": False, "padding": 8} if wide else {"zero": False, "padding": 8}


def front_chart(found: Front) -> Chart:
    """Trials by two objectives, and those that nothing beats."""
    titles = [UNITS[objective.name][0] for objective in found.objectives]
    x = quantity("x", titles[0], scale=_scale(found, "x"), axis={"tickCount": 5})
    y = quantity("y", titles[1], scale=_scale(found, "y"), axis={"tickCount": 5})
    tip = tips(trial="trial", x=titles[0], y=titles[1])
    spec = {
        "height": 280,
        "layer": [
            {"data": {"name": "points"},
             "mark": {"type": "circle", "size": 14, "opacity": 0.5, "color": "var(--g3)"},
             "encoding": {"x": x, "y": y, "tooltip": tip}},
            {"data": {"name": "front"},
             "mark": {"type": "line", "interpolate": "step-after", "stroke": "var(--g0)",
                      "point": {"filled": True, "fill": "var(--g0)", "size": 40}},
             "encoding": {"x": x, "y": y, "tooltip": tip}},
        ],
    }  # fmt: skip
    return Chart(spec, {"points": found.points, "front": found.members})
