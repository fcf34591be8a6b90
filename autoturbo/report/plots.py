"""Charts of the report, one by one: in a notebook, or as a file.

A plot is drawn as SVG without a browser. Colours are those of the report on paper, for a notebook
shows a picture without the report's style.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeVar

from autoturbo.errors import Location, UsageError, did_you_mean
from autoturbo.files import atomic_write
from autoturbo.registry import HEURISTIC, HEURISTICS
from autoturbo.report.facts import TITLES, Measured
from autoturbo.report.filling import Chart, library
from autoturbo.report.graph_view import subgraph_facts
from autoturbo.report.schedule_charts import roofline_chart, speed_chart, time_chart
from autoturbo.report.search_course import convergence, convergence_chart
from autoturbo.report.timeline import time_charts
from autoturbo.schedule.schedule import Schedule
from autoturbo.search.objectives import Objective
from autoturbo.search.progress import Trial
from autoturbo.simulator.measurement import Measurement

T = TypeVar("T")

WIDTH: Final = 720
"""Pixels of a plot, without its axis labels."""

_PADDING: Final = {"left": 18, "right": 8, "top": 6, "bottom": 6}
"""Pixels around a plot; at the left for labels that are wider in a reader's font than in ours."""

_NAMES: Final = {**TITLES, **dict.fromkeys(HEURISTICS, HEURISTIC)}
"""Titles of schedulers as readers see them."""

_VARIABLE: Final = re.compile(r"--(\w+): (#\w+)")
_USE: Final = re.compile(r"var\(--(\w+)\)")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plot:
    """A chart of the report, which a notebook shows as a picture.

    Attributes:
        kind: What it shows, as it was asked for.
        of: The run, or the model and the target.
        chart: The chart.
    """

    kind: str
    of: str
    chart: Chart

    def svg(self, width: int = WIDTH) -> str:
        """Return the picture as SVG.

        Args:
            width: Pixels, without the labels of the axis.

        Raises:
            UsageError: The plotting library is not installed.
        """
        look = {"background": "var(--paper)", "padding": _PADDING}
        spec = {**self.chart.filled(width), **look}
        drawn: str = _with_legend(library().vega_to_svg(spec), self.chart.legend)
        paper = _paper()
        return _USE.sub(lambda use: paper.get(use[1], "#000000"), drawn)

    def save(self, path: str | Path, width: int = WIDTH) -> None:
        """Write the picture to a file, whole or not at all.

        Args:
            path: The file, whose name ends in ``.svg`` or ``.png``.
            width: Width in pixels, as for :meth:`svg`.

        Raises:
            UsageError: It has another ending, or the plotting library is not installed.
        """
        file = Path(path)
        if file.suffix not in (".svg", ".png"):
            message = f"a plot is no {file.suffix or 'file without an ending'}"
            raise UsageError(message, Location(file), "let the name end in .svg or .png")
        drawn = self.svg(width)
        picture = drawn.encode()
        if file.suffix == ".png":
            picture = library().svg_to_png(drawn, scale=2)
        atomic_write(file, picture)

    def __repr__(self) -> str:
        return f"<Plot: {self.kind} of {self.of}>"

    def _repr_svg_(self) -> str:
        return self.svg()


@functools.cache
def _paper() -> dict[str, str]:
    """Return the colours of the report on paper, by name."""
    place = resources.files("autoturbo.report") / "templates" / "page.css"
    style = place.read_text(encoding="utf-8")
    return dict(_VARIABLE.findall(style.partition("}")[0]))


def _with_legend(drawn: str, legend: Sequence[tuple[str, str]]) -> str:
    """Return a picture with what its colours stand for below it, where the report's page says it.

    Args:
        drawn: SVG as Vega draws it.
        legend: Names and colours.
    """
    if not legend:
        return drawn
    size = _SIZE.match(drawn)
    assert size is not None, drawn[:200]  # noqa: S101  Vega begins every picture like this
    width, height = int(size[1]), int(size[2])
    across, line, marks = float(_GAP), 1, list[str]()
    for name, colour in legend:
        needs = _SQUARE + len(name) * _LETTER + _GAP
        if across + needs > width and across > _GAP:
            across, line = float(_GAP), line + 1
        top = height + line * _LINE - _SQUARE
        marks.append(
            f'<rect x="{across}" y="{top}" width="{_SQUARE}" height="{_SQUARE}" fill="{colour}"/>'
            f'<text x="{across + _SQUARE + 4}" y="{top + _SQUARE - 1}" fill="var(--ink)"'
            f' font-family="sans-serif" font-size="11">{escape(name)}</text>'
        )
        across += needs
    whole = height + line * _LINE + _GAP
    resized = drawn.replace(size[0], size[0].replace(f'height="{height}"', f'height="{whole}"'), 1)
    resized = resized.replace(f"0 0 {width} {height}", f"0 0 {width} {whole}", 1)
    paper = f'<rect y="{height}" width="{width}" height="{whole - height}" fill="var(--paper)"/>'
    return resized.replace("</svg>", f"{paper}{''.join(marks)}</svg>")


_SIZE: Final = re.compile(r'<svg[^>]*? width="(\d+)" height="(\d+)"')

_LINE, _SQUARE, _GAP, _LETTER = 18, 10, 14, 6.2
"""Pixels: of a line of a legend, of a square, between entries, of a letter in the mean."""


def schedule_plot(kind: str, of: str, schedules: Mapping[str, Measured]) -> Plot:
    """Return a plot of where the time of schedules goes.

    Args:
        kind: ``"timeline"``, ``"breakdown"`` or ``"roofline"``.
        of: What the last of them schedules.
        schedules: Schedules by the names of schedulers, the one in question last.

    Raises:
        UsageError: There is no such plot.
    """
    titled, best = _titled(schedules), list(schedules.values())[-1]
    if kind == "timeline":
        return Plot(kind, of, time_charts(best)["timeline"])
    if kind == "breakdown":
        return Plot(kind, of, time_chart(titled))
    return Plot(kind, of, roofline_chart(best, titled, subgraph_facts(best)))


SCHEDULE_PLOTS: Final = ("timeline", "breakdown", "roofline")
"""Plots of a schedule alone."""

RUN_PLOTS: Final = ("convergence", *SCHEDULE_PLOTS, "speed")
"""Plots of a run."""

HOST_PLOTS: Final = ("convergence", "speed")
"""Plots of a run on this computer."""


def check_kind(kind: str, kinds: Sequence[str]) -> None:
    """Check that there is a plot of a kind.

    Raises:
        UsageError: There is none.
    """
    if kind not in kinds:
        hint = did_you_mean(kind, kinds) or f"one of {', '.join(kinds)}"
        raise UsageError(f"there is no plot {kind!r} of this", hint=hint)


def convergence_plot(
    of: str, trials: Sequence[Trial], objective: Objective, heuristic: Measurement | None
) -> Plot:
    """Return a plot of the trials of a run in order, and of the best so far.

    Args:
        of: The run.
        trials: Trials of the run by number.
        objective: The objective that was sought.
        heuristic: What the heuristic measures; None where it does not fit.
    """
    found = convergence(trials, objective, heuristic)
    return Plot("convergence", of, convergence_chart(found))


def speed_plot(of: str, measured: Mapping[str, Measurement]) -> Plot:
    """Return a plot of the samples per second of schedules.

    Args:
        of: The run.
        measured: Measurements by the names of schedulers, the tuned one last.

    Raises:
        UsageError: The model's inputs do not agree on a batch.
    """
    best = list(measured.values())[-1]
    if best.batch is None:
        raise UsageError("the model's inputs do not agree on a batch: it has no samples per second")
    return Plot("speed", of, speed_chart(_titled(measured), best))


def _titled(schedules: Mapping[str, T]) -> dict[str, T]:
    """Return schedules by the titles that readers see."""
    return {_NAMES.get(name, name): one for name, one in schedules.items()}


def measured_of(schedule: Any, measurement: Measurement) -> Measured:
    """Return the facts of a schedule on a target.

    Raises:
        UsageError: It is one of a machine of several units.
    """
    if not isinstance(schedule, Schedule):
        hint = "plot a schedule of one of its units"
        raise UsageError("a machine's schedule has no such plot", hint=hint)
    return Measured.of(schedule, measurement)
