"""Sections of the page about the tuned schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoturbo.report.page.comparison_charts import (
    LEVELS,
    roofline_chart,
    side_by_side,
    speed_chart,
    time_chart,
    traffic_chart,
)
from autoturbo.report.page.facts import Facts, Measured
from autoturbo.report.page.figures import Figures, zoom_buttons
from autoturbo.report.page.graph_chart import graph_chart
from autoturbo.report.page.layout import layout
from autoturbo.report.page.markup import Markup, folded, paragraph, table, text
from autoturbo.report.page.memory import Occupancy, occupancy
from autoturbo.report.page.schedule_charts import cores_chart, memory_chart, timeline_chart
from autoturbo.report.page.subgraphs import SubGraphFacts, layer_scopes, subgraph_facts
from autoturbo.report.page.summary import PART_TITLES
from autoturbo.report.page.timeline import MOST_CORES
from autoturbo.report.units import capacity, count, duration, joules, percent, ratio, size
from autoturbo.schedule.bind import Scope
from autoturbo.simulate.measurement import Failure

_NOTHING = 1e-9
"""Share of the time that is a rounding error."""

_MOST_ROWS = 400
"""Rows of a table of sub-graphs."""


def side_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Schedulers side by side, and where the time of each goes."""
    rows = side_by_side(facts)
    failed = [(n, o.message) for n, o in facts.others.items() if isinstance(o, Failure)]
    return [
        table(
            ("schedule", "latency", "samples/s", "speed-up", "DDR", "energy", "kernels",
             "matrix", "of bound"),
            [_figures(name, row, facts.best) for name, row in rows.items()],
            label="schedulers side by side",
        ),
        paragraph(
            text("Speed-up: the tuned schedule over each. matrix: multiply-accumulates over what"
                 " the matrix engines can do in that time."), class_="soft",
        ),
        *(paragraph(text(f"{name} does not fit: {message}")) for name, message in failed),
        figures.add("speed", speed_chart(facts), "Samples per second of each scheduler."),
        figures.add("time", time_chart(rows), _time_caption(facts)),
        folded("The time as a table", _time_table(rows)),
    ]  # fmt: skip


def _figures(name: str, row: Measured, best: Measured) -> tuple[str, ...]:
    own = row.measurement
    return (
        name,
        duration(own.latency),
        count(own.throughput),
        ratio(own.latency / best.measurement.latency),
        size(own.ddr_bytes),
        "-" if own.energy is None else joules(own.energy),
        str(own.kernels),
        percent(own.matrix_utilization),
        percent(own.bound_fraction),
    )


def _time_caption(facts: Facts) -> str:
    first = PART_TITLES[facts.best.use.order[0]]
    return (
        f"Where the time of each schedule goes: all work of {first}, and of every other engine"
        " what it does while those before it stand idle, so that the parts add up."
    )


def _time_table(rows: Mapping[str, Measured]) -> Markup:
    parts = [p for p in PART_TITLES if any(row.use.exposed[p] > _NOTHING for row in rows.values())]
    body = [(name, *(_part(r, p) for p in parts)) for name, r in rows.items()]
    return table(("schedule", *parts), body, label="time of each schedule by part")


def _part(row: Measured, part: str) -> str:
    share = row.use.exposed[part]
    return duration(share * row.measurement.latency) if share > _NOTHING else "-"


def time_section(facts: Facts, figures: Figures) -> list[Markup]:
    """The pass in time, and what lies in the buffers then."""
    best = facts.best
    schedule, share = best.schedule, best.schedule.share
    alike = (
        f"All {share.copies} clusters work alike: it is one of them. " if share.copies > 1 else ""
    )
    passes = f"{share.loops} such passes make the batch. " if share.loops > 1 else ""
    first = "The first pass" if share.loops > 1 else "The one pass"
    about = (
        f"{first}, {share.batches} samples. {alike}{passes}"
        "The cores of a cluster issue a kernel's program together, each on its part: one core's"
        " engines stand for all. Colours are sub-graphs, and begin again after eight."
    )
    found = [
        paragraph(text(about)),
        zoom_buttons(),
        figures.add("timeline", timeline_chart(best), "Engines over time."),
        figures.add("cores", cores_chart(best), _core_caption(best)),
    ]
    for cluster in range(len(schedule.timelines)):
        for scope in (Scope.LB, Scope.GB):
            found += _memory(best, occupancy(schedule, best.kernels, scope, cluster), figures,
                             cluster)  # fmt: skip
    return found


def _core_caption(best: Measured) -> str:
    count = best.schedule.problem.target.cores
    alike = " Neighbours that work alike share a lane." if count > MOST_CORES else ""
    return f"Which of the {count} cores of a cluster have parts of each kernel.{alike}"


def _memory(best: Measured, held: Occupancy, figures: Figures, cluster: int) -> list[Markup]:
    if not held.capacity:
        return []
    several = len(best.schedule.timelines) > 1
    name = f"{held.scope.name.lower()}{cluster if several else ''}"
    where = f"Cluster {cluster}: " if several else ""
    if not held.peak:
        return [paragraph(text(f"{where}{held.sentence}"))]
    caption = f"{where}{held.sentence} Boxes are tensors at their addresses, the line is their sum."
    rows = [(f.name, f.instance, capacity(f.size), percent(f.size / held.peak))
            for f in held.fillers]  # fmt: skip
    more = [paragraph(text(f"and {held.more} more"))] if held.more else []
    filled = table(("tensor", "of", "size", "of what is in use"), rows, words=2,
                   label=f"what fills {held.scope.name}")  # fmt: skip
    return [
        figures.add(name, memory_chart(best, held), caption),
        folded(f"What fills {held.scope.name} at its fullest", filled, *more),
    ]


def graph_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Sub-graphs, splits, scopes."""
    best = facts.best
    groups = subgraph_facts(best.schedule, best.kernels)
    plan = layout(best.schedule)
    chart = graph_chart(best, plan, groups, layer_scopes(best.schedule))
    caption = (
        f"{len(best.schedule.problem.layers)} layers in {len(groups)} sub-graphs. A sub-graph is"
        " one kernel for each of its parts; layers are coloured by where their output is kept, the"
        " farthest place of any part."
    )
    if not plan.layers:
        caption += " There are too many layers to draw them one by one."
    rows = [_row(group) for group in groups[:_MOST_ROWS]]
    head = ("sub-graph", "cut into parts", "output in", "layers", "parts", "time", "share",
            "GMAC", "DDR", "bound by")  # fmt: skip
    shown = table(head, rows, words=3, label="sub-graphs")
    left = len(groups) - len(rows)
    more = [paragraph(text(f"{left} more sub-graphs are left out."))] if left else []
    return [
        figures.add("graph", chart, caption, tall=True),
        folded("Sub-graphs as a table", shown, *more),
        folded("Layers of each sub-graph", _layers(best, groups[:_MOST_ROWS])),
    ]


def _row(group: SubGraphFacts) -> tuple[str, ...]:
    return (
        f"{group.index}: {group.name}",
        group.cut,
        group.scope.name,
        str(len(group.layers)),
        str(group.parts),
        duration(group.seconds),
        percent(group.share),
        f"{group.macs / 1e9:.3g}",
        size(group.ddr_bytes),
        f"{group.bound} {percent(group.bound_share)}",
    )


def _layers(best: Measured, groups: Sequence[SubGraphFacts]) -> Markup:
    names = best.schedule.problem.layers
    rows = [
        (f"{g.index}: {g.name}", " \N{RIGHTWARDS ARROW} ".join(names[x].name for x in g.layers))
        for g in groups
    ]
    return table(("sub-graph", "layers"), rows, words=2, label="layers of each sub-graph")


def roof_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Roofline and traffic."""
    groups = subgraph_facts(facts.best.schedule, facts.best.kernels)
    target, dtype = facts.best.schedule.problem.target, facts.best.schedule.problem.dtype
    caption = (
        f"Roofline of the chip: {count(target.matrix_macs_per_second(dtype))}MAC/s of the matrix"
        f" engines, {size(target.ddr.bandwidth)}/s of DDR. Circles are the tuned schedule's"
        " sub-graphs, as large as their share of the time."
    )
    silent = [g for g in groups if not (g.macs and g.ddr_bytes)]
    if silent:
        caption += f" {len(silent)} without multiply-accumulates or without DDR are not in it."
    rows = side_by_side(facts)
    body = [
        (title, *(size(row.measurement.bytes.get(level, 0)) for row in rows.values()))
        for level, title in LEVELS.items()
    ]
    return [
        figures.add("roofline", roofline_chart(facts, groups), caption),
        figures.add("traffic", traffic_chart(facts), "Bytes moved per level, for the whole batch."),
        table(("level", *rows), body, label="bytes moved per level"),
    ]
