"""Local and global buffers over a pass: which tensor lies where, and for how long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoturbo.report.html.charts import (
    LEFT_EDGE,
    Chart,
    Columns,
    Figures,
    by_group,
    evenly,
    quantity,
    time_axis,
    time_span,
    tips,
    with_group_colours,
)
from autoturbo.report.html.facts import Measured
from autoturbo.report.html.markup import Markup, folded, paragraph, table, text
from autoturbo.report.trace import step_times
from autoturbo.report.units import capacity, duration, percent
from autoturbo.schedule.memory.allocate import Zones
from autoturbo.schedule.memory.timeline import KINDS
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulate.intervals import KernelInterval
from autoturbo.verify.findings import instance_name, tensor_name

MOST_BOXES = 2000
"""Buffers that are drawn, those with most bytes times seconds first."""

MOST_STEPS = 2000
"""Points of the line that says how much is in use."""

_LISTED = 6
"""Tensors named that fill a buffer where it is fullest."""


@dataclass(frozen=True, slots=True)
class Filler:
    """A tensor that lies in a buffer where that is fullest.

    Attributes:
        name: of the tensor, or what else lies there (weights, room for tiles).
        instance: that makes it or that it is brought in for.
        size: bytes.
    """

    name: str
    instance: str
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Occupancy:
    """A buffer over one pass of one cluster; for LB, of its busiest core.

    Attributes:
        scope: LB or GB.
        capacity: bytes that there are.
        zone: bytes that tensors may have: the rest is for tiles on their way.
        boxes: ``begin``, ``end`` (microseconds), ``low``, ``high`` (KiB), ``what``, ``of``,
            ``group`` (the sub-graph).
        used: ``at`` (microseconds), ``KiB``.
        peak: most bytes in use.
        peak_at: seconds.
        fillers: what lies there then, the largest first.
        more: how many more do.
    """

    scope: Scope
    capacity: int
    zone: int
    boxes: Columns
    used: Columns
    peak: int
    peak_at: float
    fillers: tuple[Filler, ...]
    more: int

    @property
    def sentence(self) -> str:
        """How full it gets."""
        where = "LB of the busiest core" if self.scope is Scope.LB else "GB of a cluster"
        if not self.peak:
            return f"{where}: no tensor is kept there."
        share = percent(self.peak / self.capacity)
        return (
            f"{where}: fullest {duration(self.peak_at)} into the pass with {capacity(self.peak)}"
            f" of {capacity(self.capacity)} ({share}); tensors may have {capacity(self.zone)},"
            " the rest is for tiles on their way."
        )


class _Held(NamedTuple):
    """Buffers of one scope: numbers, steps of their life, sizes."""

    number: NDArray[np.int64]
    birth: NDArray[np.int64]
    death: NDArray[np.int64]
    size: NDArray[np.int64]


def occupancy(
    schedule: Schedule, kernels: Sequence[KernelInterval], scope: Scope, cluster: int = 0
) -> Occupancy:
    """Return what lies in LB or GB of a cluster over a pass."""
    timeline, target = schedule.timelines[cluster], schedule.problem.target
    own = [kernel for kernel in kernels if kernel.cluster == cluster]
    begins = np.asarray(step_times(timeline.rows, own))
    edges = np.append(begins, own[-1].end)
    buffers = timeline.buffers
    sizes = buffers.core_bytes if scope is Scope.LB else buffers.cluster_bytes
    index = np.flatnonzero((buffers.scope == scope) & (sizes > 0) & (buffers.address >= 0))
    death = np.minimum(buffers.death[index], len(begins) - 1)
    held = _Held(index, buffers.birth[index], death, sizes[index])
    used = _used(held, len(begins))
    at = int(used.argmax()) if len(used) else 0
    there = np.flatnonzero((held.birth <= at) & (held.death >= at))
    there = there[np.argsort(-held.size[there], kind="stable")]
    fillers = [
        Filler(*_names(schedule, cluster, int(held.number[i])), int(held.size[i])) for i in there
    ]
    zones = Zones.of(target)
    room, zone = (
        (target.lb.capacity, zones.lb) if scope is Scope.LB else (target.gb.capacity, zones.gb)
    )
    return Occupancy(
        scope, room, zone, _boxes(schedule, cluster, held, edges), _line(used, edges),
        int(used.max(initial=0)), float(edges[at]), tuple(fillers[:_LISTED]),
        max(0, len(fillers) - _LISTED),
    )  # fmt: skip


def _used(held: _Held, steps: int) -> NDArray[np.int64]:
    """Return the bytes in use, step by step."""
    change = np.zeros(steps + 1, np.int64)
    np.add.at(change, held.birth, held.size)
    np.subtract.at(change, held.death + 1, held.size)
    return change.cumsum()[:steps]


def _line(used: NDArray[np.int64], edges: NDArray[np.float64]) -> Columns:
    """Return the use as a line of steps: each value holds until the next."""
    new = (
        np.flatnonzero(np.append(True, np.diff(used) != 0)) if len(used) else np.zeros(0, np.int64)
    )
    chosen = new[evenly(len(new), MOST_STEPS)]
    at = [*(edges[chosen] * 1e6).tolist(), float(edges[-1] * 1e6)]
    kib = [*(used[chosen] / 1024).tolist(), float(used[-1] / 1024) if len(used) else 0.0]
    left = f"{len(chosen)} of {len(new)} changes are drawn." if len(chosen) < len(new) else ""
    return Columns({"at": at, "KiB": kib}, left)


def _boxes(schedule: Schedule, cluster: int, held: _Held, edges: NDArray[np.float64]) -> Columns:
    """Return buffers as boxes of time and address."""
    begin, end = edges[held.birth], edges[held.death + 1]
    weight = (end - begin) * held.size
    order = np.sort(np.argsort(-weight, kind="stable")[:MOST_BOXES])
    address = schedule.timelines[cluster].buffers.address
    names = [_names(schedule, cluster, int(i)) for i in held.number[order]]
    owners = schedule.timelines[cluster].owner[held.number[order]]
    note = ""
    if len(order) < len(held.number):
        share = percent(float(weight[order].sum() / weight.sum()))
        note = (
            f"{len(order)} of {len(held.number)} buffers are drawn, those with the most bytes times"
            f" time: {share} of all."
        )
    columns = {
        "begin": (begin[order] * 1e6).tolist(),
        "end": (end[order] * 1e6).tolist(),
        "low": (address[held.number[order]] / 1024).tolist(),
        "high": ((address[held.number[order]] + held.size[order]) / 1024).tolist(),
        "what": [what for what, _ in names],
        "of": [instance for _, instance in names],
        "group": schedule.instances.subgraph[owners].tolist(),
    }
    return Columns(columns, note)


def _names(schedule: Schedule, cluster: int, buffer: int) -> tuple[str, str]:
    """Return what a buffer holds, and for which instance."""
    timeline = schedule.timelines[cluster]
    kind, tensor = KINDS[int(timeline.kind[buffer])], int(timeline.tensor[buffer])
    instance = instance_name(schedule, int(timeline.owner[buffer]))
    what = tensor_name(schedule, tensor) if tensor >= 0 else kind
    return (what if kind in ("tensor", what) else f"{what} ({kind})"), instance


_CROWDED = 0.4
"""A buffer that is never fuller than this is drawn up to its peak over this."""


_SIZE = "datum.value < 1024 ? datum.value + ' KiB' : format(datum.value / 1024, '.4~g') + ' MiB'"


def _ticks(top: float) -> list[float]:
    """Return about eight sizes in KiB, a power of two apart."""
    step = 2.0 ** math.ceil(math.log2(top / 8))
    return [step * at for at in range(int(top / step) + 1)]


def memory_chart(best: Measured, found: Occupancy) -> Chart:
    """Return a chart of a buffer over a pass: boxes by address, a line of how much is in use."""
    top = found.capacity / 1024
    if found.peak < _CROWDED * found.capacity:
        top = found.peak / 1024 / _CROWDED
    ticks = {"values": _ticks(top), "labelExpr": _SIZE}
    scale = {"domain": [0, top], "nice": False}
    address = quantity("low", None, scale=scale, axis={**LEFT_EDGE, "grid": False, **ticks})
    spec = {
        "params": time_span(best.kernels),
        "height": 220,
        "layer": [
            {
                "data": {"name": "boxes"},
                "mark": {"type": "rect", "clip": True, "stroke": "var(--paper)",
                         "strokeWidth": 0.5},
                "encoding": {
                    "x": time_axis(), "x2": {"field": "end"}, "y": address,
                    "y2": {"field": "high"}, "color": by_group(),
                    "tooltip": tips(what="tensor", of="of", low="from (KiB)", high="to (KiB)",
                                    begin="from (us)", end="to (us)"),
                },
            },
            {
                "data": {"name": "used"},
                "mark": {"type": "line", "interpolate": "step-after", "clip": True,
                         "stroke": "var(--ink)", "strokeWidth": 1.5},
                "encoding": {
                    "x": {**time_axis(), "field": "at"},
                    "y": {**address, "field": "KiB"},
                },
            },
            {
                "data": {"name": "zone"},
                "mark": {"type": "rule", "strokeDash": [4, 3], "stroke": "var(--soft)"},
                "encoding": {"y": {**address, "field": "KiB"}},
            },
        ],
    }  # fmt: skip
    zone = Columns({"KiB": [found.zone / 1024] if found.zone / 1024 <= top else []})
    data = {"boxes": with_group_colours(found.boxes), "used": found.used, "zone": zone}
    return Chart(spec, data, zooms=True)


def memory_figures(best: Measured, held: Occupancy, figures: Figures, cluster: int) -> list[Markup]:
    """Return the figure and table of what a buffer holds over a pass."""
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
