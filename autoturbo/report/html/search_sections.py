"""Sections of the page about the search: its course, predictions, knobs and Pareto front."""

from __future__ import annotations

from autoturbo.report.html.charts import (
    Chart,
    Columns,
    Figures,
    Spec,
    colours,
    quantity,
    tips,
    words,
)
from autoturbo.report.html.facts import MOST_JUDGES, Facts
from autoturbo.report.html.markup import Markup, folded, paragraph, table, text
from autoturbo.report.html.search import (
    MOST_ASKED,
    UNITS,
    Convergence,
    Front,
    Predictions,
    convergence,
    front,
)
from autoturbo.report.units import count, percent
from autoturbo.search.importance import Importance, KnobReport
from autoturbo.search.objectives import OF_KERNELS, Objective

SHOWN_KNOBS = 15
"""Knobs in the chart; all are in the table."""

_LEAST = 5e-4
"""Share of a knob that has no bar."""


def convergence_chart(facts: Facts, found: Convergence) -> Chart:
    """Return a chart of trials in order, the best so far, and the bound."""
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
    """Return the bound in the objective's unit; None for others than latency and throughput."""
    if objective.name not in OF_KERNELS:
        return None
    measured = facts.best.measurement
    least = measured.bound.seconds
    return least if objective.name == "latency" else measured.batch / least


def prediction_chart(found: Predictions) -> Chart:
    """Return a chart of predicted against measured latency, with the line of equality."""
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
    """Return a knob with the layer whose own it is."""
    if not knob.layers:
        return knob.knob
    more = f" +{len(knob.layers) - 1}" if len(knob.layers) > 1 else ""
    start = f", start {knob.start}" if knob.start else ""
    return f"{knob.knob} of {knob.layers[0]}{more}{start}"


def ranked(found: Importance) -> list[KnobReport]:
    """Return knobs, those with the largest shares first."""
    return sorted(found.knobs, key=lambda knob: -(knob.share or 0.0))


def importance_chart(found: Importance) -> Chart:
    """Return a chart of each knob's share of what differs between trials."""
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


def _axis_scale(found: Front, side: str) -> Spec:
    """Return a scale of an axis, logarithmic where values lie far apart."""
    values = [*found.points.values[side], *found.members.values[side]]
    wide = bool(values) and min(values) > 0 and max(values) > 3 * min(values)
    return {"type": "log", "nice": False, "padding": 8} if wide else {"zero": False, "padding": 8}


def front_chart(found: Front) -> Chart:
    """Return a chart of trials by two objectives, and those that nothing beats."""
    titles = [UNITS[objective.name][0] for objective in found.objectives]
    x = quantity("x", titles[0], scale=_axis_scale(found, "x"), axis={"tickCount": 5})
    y = quantity("y", titles[1], scale=_axis_scale(found, "y"), axis={"tickCount": 5})
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


def course_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of how the search went."""
    found = convergence(facts.trials, facts.objectives[0])
    failed = ", ".join(f"{reason} {number}" for reason, number in found.failures.most_common())
    times = "once" if found.improvements == 1 else f"{found.improvements} times"
    caption = (
        f"{found.total} trials; a better one was found {times}, trial 0 included. The line is the"
        f" best so far. Failed: {failed or 'none'}."
    )
    if found.beyond:
        worse = f"{found.beyond} trials that are more than half worse than the first"
        caption += f" {worse} are drawn at the edge."
    if len(facts.objectives) == 1 and facts.objectives[0].name in ("latency", "throughput"):
        caption += " Dashed: the lower bound, which no schedule can beat."
    return [figures.add("convergence", convergence_chart(facts, found), caption)]


def prediction_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of what the cost model predicted before measurement."""
    found = facts.predictions
    if found is None:
        return [paragraph(text("The cost model cannot say anything of these trials."))]
    of = f"the first {MOST_ASKED} of " if len(facts.trials) > MOST_ASKED else ""
    trials = f"{found.count} measured trials ({of}{len(facts.trials)})"
    parts = [f"{trials}, each predicted before it was measured."]
    if found.spearman is None:
        parts.append("Too few for a rank correlation, or all alike.")
    else:
        parts.append(f"Rank correlation (Spearman) {found.spearman:.2f};")
        parts.append(f"{percent(found.pairwise or 0.0)} of pairs in their true order;")
        parts.append(f"mean error {percent(found.error or 0.0)} after the best common factor.")
    if facts.searched_by_model:
        parts.append("These are settings that the model itself chose, which lie close together;")
        parts.append("docs/cost-model.md has the figures of settings at random.")
    else:
        parts.append("The model did not guide this search: this is what it would have said.")
    return [figures.add("predicted", prediction_chart(found), " ".join(parts), square=True)]


def knob_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of which knobs mattered, and how much of each was tried."""
    found = facts.importance
    knobs = ranked(found)
    own = [k for k in knobs if k.layers]
    model = [k for k in knobs if not k.layers]
    coverage = [
        f"values tried of {name}: {sum(k.tried for k in some)} of {sum(k.offered for k in some)}"
        for name, some in (("the model's knobs", model), ("sub-graphs' own knobs", own))
        if some
    ]
    said = [paragraph(text(f"Coverage: {'; '.join(coverage)}."))]
    if found.obstacle:
        said.insert(0, paragraph(text(f"Importance: {found.obstacle}.")))
    else:
        explained = percent(max(found.explained or 0.0, 0.0))
        caption = (
            "Importance: what each choice adds to what trees predict for trials that they have not"
            f" seen; together they predict {explained} of what differs."
        )
        if found.measured > MOST_JUDGES:
            caption += f" Judged by {MOST_JUDGES} of {found.measured} trials, an even share."
        said.insert(0, figures.add("knobs", importance_chart(found), caption))
    borders = [f"{knob_title(k)}: {k.best} is the {k.border} offered" for k in knobs if k.border]
    if borders:
        said.append(paragraph(text(f"At their border: {'; '.join(borders)}.")))
    head = ("knob", "best", "border", "share", "tried")
    rows = [_knob_row(knob) for knob in knobs]
    return [*said, folded("All knobs", table(head, rows, words=3, label="all knobs"), long=True)]


def _knob_row(knob: KnobReport) -> tuple[str, ...]:
    share = "-" if knob.share is None else percent(round(max(knob.share, 0.0), 3))
    best = "-" if knob.best is None else str(knob.best)
    return knob_title(knob), best, knob.border or "", share, f"{knob.tried} of {knob.offered}"


def front_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of trials that nothing beats in two objectives."""
    found = front(facts.trials, facts.objectives)
    titles = [UNITS[objective.name][0] for objective in found.objectives]
    sought = "Both were sought." if found.sought else "Only the first was sought."
    members = len(found.members)
    caption = (
        f"{members} trial{'s' if members != 1 else ''} that none beats in both {titles[0]} and"
        f" {titles[1]}. {sought}"
    )
    return [
        figures.add("front", front_chart(found), caption, square=True),
        folded("The front as a table", _front_table(found, titles)),
    ]


def _front_table(found: Front, titles: list[str]) -> Markup:
    values = found.members.values
    rows = [
        (f"#{number}", _number(x), _number(y))
        for number, x, y in zip(values["trial"], values["x"], values["y"], strict=True)
    ]
    return table(("trial", *titles), rows, label="Pareto front")


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else count(value)  # noqa: PLR2004  of four digits
