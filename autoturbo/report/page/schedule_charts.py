"""Charts of one pass in time: engines, cores, buffers."""

from __future__ import annotations

import math

from autoturbo.report.page.chart import Chart
from autoturbo.report.page.columns import Columns
from autoturbo.report.page.facts import Measured
from autoturbo.report.page.memory import Occupancy
from autoturbo.report.page.timeline import cores, lanes, timeline
from autoturbo.report.page.vega import GROUPS, Spec, by_group, quantity, tips, words


def _grouped(columns: Columns) -> Columns:
    """With numbers of sub-graphs that there are colours for."""
    group = [number % GROUPS for number in columns.values["group"]]
    return Columns({**columns.values, "group": group}, columns.note)


def _time_axis(title: str | None = "microseconds into the pass") -> Spec:
    limits = {
        "domainMin": {"expr": "t0"},
        "domainMax": {"expr": "t1"},
        "nice": False,
        "zero": False,
    }
    return quantity("begin", title, scale=limits, axis={"grid": False})


def _span(best: Measured) -> list[Spec]:
    end = max(kernel.end for kernel in best.kernels) * 1e6
    return [{"name": "t0", "value": 0}, {"name": "t1", "value": end}]


_EDGE = {"minExtent": 84, "maxExtent": 84}
"""Room at the left: figures of one time stand exactly below each other."""


def timeline_chart(best: Measured) -> Chart:
    """A pass, engine by engine."""
    rows = words("lane", None, axis=_EDGE, scale={"domain": lanes(best.schedule)})
    shown = tips(what="layer", lane="engine", begin="from (us)", end="to (us)", busy="busy (share)")
    return _bars(best, rows, shown, timeline(best.schedule, best.kernels), step=22)


def cores_chart(best: Measured) -> Chart:
    """Which cores have parts of which kernels."""
    found = cores(best.schedule, best.kernels)
    rows = words("core", None, axis=_EDGE, scale={"domain": found.names})
    shown = tips(what="kernel", core="core", begin="from (us)", end="to (us)")
    return _bars(best, rows, shown, found.columns, step=12)


def _bars(best: Measured, rows: Spec, shown: list[Spec], bars: Columns, step: int) -> Chart:
    """What happens when, in rows ``step`` pixels high."""
    spec = {
        "params": _span(best),
        "height": {"step": step},
        "data": {"name": "bars"},
        "mark": {"type": "bar", "clip": True, "height": step * 3 // 4},
        "encoding": {
            "y": rows,
            "x": _time_axis(),
            "x2": {"field": "end"},
            "color": by_group(),
            "tooltip": shown,
        },
    }
    return Chart(spec, {"bars": _grouped(bars)}, zooms=True)


_CROWDED = 0.4
"""A buffer that is never fuller than this is drawn up to its peak over this."""

_SIZE = "datum.value < 1024 ? datum.value + ' KiB' : format(datum.value / 1024, '.4~g') + ' MiB'"


def _ticks(top: float) -> list[float]:
    """About eight sizes, powers of two apart, in KiB."""
    step = 2.0 ** math.ceil(math.log2(top / 8))
    return [step * at for at in range(int(top / step) + 1)]


def memory_chart(best: Measured, found: Occupancy) -> Chart:
    """A buffer over a pass: boxes by address, a line of how much is in use."""
    top = found.capacity / 1024
    if found.peak < _CROWDED * found.capacity:
        top = found.peak / 1024 / _CROWDED
    ticks = {"values": _ticks(top), "labelExpr": _SIZE}
    scale = {"domain": [0, top], "nice": False}
    address = quantity("low", None, scale=scale, axis={**_EDGE, "grid": False, **ticks})
    spec = {
        "params": _span(best),
        "height": 220,
        "layer": [
            {
                "data": {"name": "boxes"},
                "mark": {"type": "rect", "clip": True, "stroke": "var(--paper)",
                         "strokeWidth": 0.5},
                "encoding": {
                    "x": _time_axis(), "x2": {"field": "end"}, "y": address,
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
                    "x": {**_time_axis(), "field": "at"},
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
    data = {"boxes": _grouped(found.boxes), "used": found.used, "zone": zone}
    return Chart(spec, data, zooms=True)
