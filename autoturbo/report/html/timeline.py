"""A pass in time, engine by engine and core by core, in as many bars as a screen can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.report.html.charts import (
    LEFT_EDGE,
    Chart,
    Columns,
    Figures,
    Spec,
    by_group,
    time_axis,
    time_span,
    tips,
    with_group_colours,
    words,
    zoom_buttons,
)
from autoturbo.report.html.facts import Facts, Measured
from autoturbo.report.html.markup import Markup, paragraph, text
from autoturbo.report.html.memory import memory_figures, occupancy
from autoturbo.report.units import duration
from autoturbo.schedule.codegen.instructions import ENGINES, Column
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.intervals import KernelInterval
from autoturbo.verify.findings import instance_name

MOST_BARS = 4000
"""Bars of a timeline: an SVG of more is slow, and a screen has no room for them."""

MOST_CORES = 16
"""Cores of a cluster that have a lane each; of more, neighbours that work alike share one."""

MOST_KERNELS = 200
"""Kernels of a lane of cores that are drawn one by one."""

_FINEST = 4000
"""Gaps of less than one part in so many of a pass are closed: half a pixel of a wide screen."""

TITLES = {
    "dma_in": "DMA in",
    "transfer": "transfer",
    "matrix": "matrix",
    "vector": "vector",
    "dma_out": "DMA out",
}


class _Bars(NamedTuple):
    """Stretches of one engine in one kernel."""

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    layer: NDArray[np.int64]
    busy: NDArray[np.float64]


def lane_names(schedule: Schedule) -> list[str]:
    """Return the rows of the timeline, from above: kernels, then engines, of each cluster."""
    names = ["kernel", *(TITLES[name] for name in ENGINES)]
    return [lane for at in range(len(schedule.timelines)) for lane in _of(schedule, at, names)]


def _of(schedule: Schedule, cluster: int, names: Sequence[str]) -> list[str]:
    several = len(schedule.timelines) > 1
    return [f"{cluster}: {name}" if several else name for name in names]


def engine_bars(schedule: Schedule, kernels: Sequence[KernelInterval]) -> Columns:
    """Return bars in microseconds: ``lane``, ``begin``, ``end``, ``what``, ``busy``, ``group``.

    ``group`` is the sub-graph. Bars of one layer that nearly touch are drawn as one, as coarsely as
    :data:`MOST_BARS` asks for; the note says how coarsely.
    """
    span = max(kernel.end for kernel in kernels)
    gap = span / _FINEST
    while True:
        columns = _bars(schedule, kernels, gap)
        if len(columns["lane"]) <= MOST_BARS or gap > span:
            break
        gap *= 2
    instructions = sum(len(kernel.program.where) for kernel in kernels)
    bars = len(columns["lane"])
    note = (
        f"{instructions} instructions in {bars} bars: those of one layer that are less than"
        f" {duration(gap)} apart are drawn as one."
    )
    return Columns(columns, note)


def _bars(
    schedule: Schedule, kernels: Sequence[KernelInterval], gap: float
) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {
        name: [] for name in ("lane", "begin", "end", "what", "busy", "group")
    }
    titles = [TITLES[name] for name in ENGINES]
    for kernel in kernels:
        group = int(schedule.instances.subgraph[kernel.instance])
        layers = schedule.instances.subgraphs[group].layers
        names = _of(schedule, kernel.cluster, ["kernel", *titles])
        name = instance_name(schedule, kernel.instance)
        _add(found, names[0], kernel.begin, kernel.end, name, 1.0, group)
        for engine in range(len(ENGINES)):
            bars = _merged(kernel, engine, gap)
            for begin, end, layer, busy in zip(*(part.tolist() for part in bars), strict=True):
                what = schedule.problem.layers[layers[layer]].name
                _add(found, names[1 + engine], begin, end, what, busy / (end - begin), group)
    return found


def _add(
    found: dict[str, list[object]], lane: str, begin: float, end: float, *rest: object
) -> None:
    row = (lane, begin * 1e6, end * 1e6, *rest)
    for column, value in zip(found.values(), row, strict=True):
        column.append(value)


def _merged(kernel: KernelInterval, engine: int, gap: float) -> _Bars:
    """Return an engine's work; instructions of a layer less than ``gap`` seconds apart are one."""
    where = kernel.program.where
    own = np.flatnonzero(where[:, Column.ENGINE] == engine)
    own = own[kernel.freed[own] > kernel.issued[own]]
    if not len(own):
        nothing = np.zeros(0)
        return _Bars(nothing, nothing, np.zeros(0, np.int64), nothing)
    begin, end, layer = kernel.issued[own], kernel.freed[own], where[own, Column.LAYER]
    new = (np.diff(layer) != 0) | (begin[1:] - end[:-1] >= gap)
    first = np.concatenate(([0], np.flatnonzero(new) + 1))
    last = np.concatenate((first[1:], [len(own)])) - 1
    return _Bars(begin[first], end[last], layer[first], np.add.reduceat(end - begin, first))


class CoreLanes(NamedTuple):
    """Cores of all clusters, those of a large cluster that work alike as one lane.

    Attributes:
        names: from above.
        columns: ``core`` (the lane), ``begin``, ``end``, ``what``, ``group``.
    """

    names: list[str]
    columns: Columns


def core_lanes(schedule: Schedule, kernels: Sequence[KernelInterval]) -> CoreLanes:
    """Return which cores have a part of which kernel.

    All cores of a cluster issue a kernel's program at the same time, each on its part.
    """
    several = len(schedule.timelines) > 1
    names: list[str] = []
    found: dict[str, list[object]] = {n: [] for n in ("core", "begin", "end", "what", "group")}
    for cluster in range(len(schedule.timelines)):
        own = [kernel for kernel in kernels if kernel.cluster == cluster]
        for first, last, chosen in _alike(schedule, own):
            core = f"core {first}" if first == last else f"cores {first}-{last}"
            names.append(f"{cluster}: {core}" if several else core)
            for row in _core_rows(schedule, [own[at] for at in chosen]):
                for column, value in zip(found.values(), (names[-1], *row), strict=True):
                    column.append(value)
    return CoreLanes(names, Columns(found))


def _alike(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return lanes of a cluster: first and last core, and the kernels that they have parts of."""
    count = schedule.problem.target.cores
    own: list[list[int]] = [[] for _ in range(count)]
    for number, kernel in enumerate(kernels):
        parts = int(np.prod(schedule.placement.bindings[kernel.instance], dtype=np.int64))
        named = schedule.placement.cores_of(kernel.instance, count)
        for core in named[: max(1, min(parts, count))]:
            own[core].append(number)
    lanes: list[tuple[int, int, tuple[int, ...]]] = []
    for core, numbers in enumerate(own):
        chosen = tuple(numbers)
        if count > MOST_CORES and lanes and lanes[-1][2] == chosen:
            lanes[-1] = (lanes[-1][0], core, chosen)
        else:
            lanes.append((core, core, chosen))
    return lanes


def _core_rows(
    schedule: Schedule, kernels: Sequence[KernelInterval]
) -> list[tuple[float, float, str, int]]:
    """Return bars of a lane; of many kernels those of a sub-graph in a row are one."""
    rows: list[tuple[float, float, str, int]] = []
    for kernel in kernels:
        group = int(schedule.instances.subgraph[kernel.instance])
        name = instance_name(schedule, kernel.instance)
        begin = kernel.body * 1e6
        if len(kernels) > MOST_KERNELS and rows and rows[-1][3] == group:
            begin, name = rows.pop()[0], f"kernels up to {name}"
        rows.append((begin, kernel.end * 1e6, name, group))
    return rows


def timeline_chart(best: Measured) -> Chart:
    """Return a chart of a pass, engine by engine."""
    rows = words("lane", None, axis=LEFT_EDGE, scale={"domain": lane_names(best.schedule)})
    shown = tips(what="layer", lane="engine", begin="from (us)", end="to (us)", busy="busy (share)")
    return _bar_chart(best, rows, shown, engine_bars(best.schedule, best.kernels), step=22)


def cores_chart(best: Measured) -> Chart:
    """Return a chart of which cores have parts of which kernels."""
    found = core_lanes(best.schedule, best.kernels)
    rows = words("core", None, axis=LEFT_EDGE, scale={"domain": found.names})
    shown = tips(what="kernel", core="core", begin="from (us)", end="to (us)")
    return _bar_chart(best, rows, shown, found.columns, step=12)


def _bar_chart(best: Measured, rows: Spec, shown: list[Spec], bars: Columns, step: int) -> Chart:
    """Return a chart of what happens when, in rows ``step`` pixels high."""
    spec = {
        "params": time_span(best.kernels),
        "height": {"step": step},
        "data": {"name": "bars"},
        "mark": {"type": "bar", "clip": True, "height": step * 3 // 4},
        "encoding": {
            "y": rows,
            "x": time_axis(),
            "x2": {"field": "end"},
            "color": by_group(),
            "tooltip": shown,
        },
    }
    return Chart(spec, {"bars": with_group_colours(bars)}, zooms=True)


def time_section(facts: Facts, figures: Figures) -> list[Markup]:
    """Return the section of the pass in time, and what lies in the buffers then."""
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
            held = occupancy(schedule, best.kernels, scope, cluster)
            found += memory_figures(best, held, figures, cluster)
    return found


def _core_caption(best: Measured) -> str:
    count = best.schedule.problem.target.cores
    alike = " Neighbours that work alike share a lane." if count > MOST_CORES else ""
    return f"Which of the {count} cores of a cluster have parts of each kernel.{alike}"
