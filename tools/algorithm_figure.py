"""Draw the figure of docs/explanation/algorithm.md: one pass of a schedule in time.

::

    python tools/algorithm_figure.py            # write it
    python tools/algorithm_figure.py --check    # say whether it is current

ResNet-50 with 64 images on ``stcp920`` by GraphTurbo's heuristics: a row per sub-graph, a box per
instance, coloured by where its output is kept; below, how full the buffers are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autoturbo
from autoturbo.report.trace import trace_events
from autoturbo.schedule.knobs import Knobs
from autoturbo.schedule.place.bind import Scope
from autoturbo.schedule.schedule import Schedule
from autoturbo.simulator.evaluator import Evaluator
from autoturbo.simulator.sequence import pass_intervals
from autoturbo.simulator.whole_pass import KernelInterval

FILE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "resnet50-pass.svg"

LEFT, WIDTH, ROW, GAP, CURVE = 120, 780, 34, 30, 64
"""Pixels: margin for names, time axis, a row of instances, between parts, a curve's height."""

COLOURS = {Scope.LB: "#2a7f62", Scope.GB: "#c98a1b", Scope.DDR: "#a63d40"}
"""Of the scopes: distinct in print and to most colour-blind readers; boxes are named as well."""

STYLE = (
    "text{font:12px sans-serif;fill:#222}"
    ".small{font-size:10px}.light{fill:#fff;font-size:10px}"
    ".axis{stroke:#888;stroke-width:1}.curve{fill:#7a9cc6;stroke:#3b5f8a;stroke-width:1}"
)


def drawing(schedule: Schedule) -> str:
    """Return the figure as SVG."""
    kernels = pass_intervals(schedule)
    end = max(kernel.end for kernel in kernels)
    rows = len(schedule.instances.subgraphs)
    curves = ROW * rows + 2 * GAP
    height = curves + 2 * (CURVE + GAP) + GAP
    events = trace_events(schedule, "kernels")
    parts = [
        *_names(schedule),
        *(part for kernel in kernels for part in _box(schedule, kernel, end)),
        *_legend(curves - GAP - 4),
        *_curve(events, "LB KiB", end, curves),
        *_curve(events, "GB KiB", end, curves + CURVE + GAP),
        *_axis(end, curves + 2 * (CURVE + GAP) - 10),
    ]
    size = f'width="{LEFT + WIDTH + 20}" height="{height}"'
    box = f'viewBox="0 0 {LEFT + WIDTH + 20} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} role="img">'
    title = "<title>One pass of ResNet-50 on a cluster of stcp920</title>"
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join((head, title, f"<style>{STYLE}</style>", back, *parts, "</svg>", ""))


def _x(seconds: float, end: float) -> float:
    return round(LEFT + WIDTH * seconds / end, 2)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{style}>{text}</text>'


def _names(schedule: Schedule) -> Iterator[str]:
    for row, subgraph in enumerate(schedule.instances.subgraphs):
        y = ROW * row + 18
        yield _text(8, y, f"sub-graph {row}")
        count = int((schedule.instances.subgraph == row).sum())
        yield _text(8, y + 12, f"{len(subgraph.layers)} layers, in {count}", "small")


def _box(schedule: Schedule, kernel: KernelInterval, end: float) -> Iterator[str]:
    row = int(schedule.instances.subgraph[kernel.instance])
    part = kernel.instance - int(schedule.instances.first[row])
    scope = _kept_in(schedule, kernel.instance)
    left, right = _x(kernel.begin, end), _x(kernel.end, end)
    y = ROW * row + 6
    shape = f'x="{left}" y="{y}" width="{round(right - left, 2)}" height="{ROW - 8}"'
    yield f'<rect {shape} fill="{COLOURS[scope]}" stroke="#fff"/>'
    yield _text(round(left + 3, 2), y + 16, f"{part} {scope.name}", "light")


def _kept_in(schedule: Schedule, instance: int) -> Scope:
    """Return where an instance's output ended up, spilling included: its longest-lived buffer."""
    graph, timeline = schedule.instances, schedule.timeline
    if not graph.consumers[instance]:
        return Scope.DDR  # nobody reads it: it leaves the model
    made = np.flatnonzero((timeline.kind == 0) & (timeline.owner == instance))
    last = made[timeline.buffers.death[made].argmax()]
    return Scope(int(timeline.buffers.scope[last]))


def _legend(y: float) -> Iterator[str]:
    for number, (scope, colour) in enumerate(COLOURS.items()):
        x = LEFT + 170 * number
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 18, y, f"output kept in {scope.name}")


def _curve(events: Sequence[dict[str, Any]], name: str, end: float, top: float) -> Iterator[str]:
    """Yield a counter of the timeline as an area of steps."""
    found = [e for e in events if e["ph"] == "C" and e["name"] == name]
    steps = [(e["ts"] / 1e6, float(next(iter(e["args"].values())))) for e in found]
    peak = max((value for _, value in steps), default=0.0) or 1.0
    bottom = top + CURVE
    path, last = f"M{LEFT},{bottom}", float(bottom)
    for seconds, value in steps:
        height = round(bottom - CURVE * value / peak, 2)
        path += f" L{_x(seconds, end)},{last} L{_x(seconds, end)},{height}"
        last = height
    yield f'<path d="{path} L{LEFT + WIDTH},{last} L{LEFT + WIDTH},{bottom} Z" class="curve"/>'
    label = {"LB KiB": "LB of a core", "GB KiB": "GB of a cluster"}[name]
    yield _text(8, top + 26, label)
    yield _text(8, top + 40, f"peak {peak:,.0f} KiB", "small")


def _axis(end: float, y: float) -> Iterator[str]:
    yield f'<path d="M{LEFT},{y} H{LEFT + WIDTH}" class="axis"/>'
    for tenth in range(0, 11, 2):
        seconds = end * tenth / 10
        yield _text(_x(seconds, end) - 8, y + 14, f"{seconds * 1e3:.2f}", "small")
    yield _text(8, y + 14, "milliseconds", "small")


def main() -> int:
    """Write or check; 1 where the file is not current."""
    model = autoturbo.load_model("resnet50", batch=64)
    schedule = Evaluator(model, autoturbo.load_target("stcp920"), "float16").schedule(Knobs())
    text = drawing(schedule)
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE.name}: not current; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
