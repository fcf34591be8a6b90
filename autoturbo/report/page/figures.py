"""Figures of the page: a chart, what it shows in words, and what it leaves out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from autoturbo.report.page.chart import Chart
from autoturbo.report.page.markup import Markup, element, text
from autoturbo.report.page.vega import compiled

_ZOOM = (
    ("in", "+", "zoom in"),
    ("out", "\N{MINUS SIGN}", "zoom out"),
    ("left", "\N{LEFTWARDS ARROW}", "earlier"),
    ("right", "\N{RIGHTWARDS ARROW}", "later"),
    ("all", "all", "the whole pass"),
)


@dataclass(eq=False)
class Figures:
    """The charts of a page, in its order; the page's script draws them.

    Attributes:
        charts: specification and data by the id of the element that they are drawn in.
    """

    charts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(
        self, name: str, chart: Chart, caption: str, *, tall: bool = False, square: bool = False
    ) -> Markup:
        """A figure.

        Args:
            name: its id.
            chart: what is drawn.
            caption: what it shows, for everyone.
            tall: it scrolls by itself on a screen.
            square: it is no wider than its axes of one kind want.
        """
        self.charts[name] = {
            "spec": compiled(chart.spec),
            "data": {key: columns.as_json() for key, columns in chart.data.items()},
            "zooms": chart.zooms,
        }
        notes = "".join(element("span", text(f" {note}"), class_="note") for note in chart.notes)
        shown = element("div", id=f"chart-{name}", class_="chart", role="img", aria_label=caption)
        frame = {"class_": "frame tall" if tall else "frame"}
        if tall or chart.zooms:
            frame |= {"tabindex": "0", "role": "group", "aria_label": _how(chart, caption)}
        below = element("figcaption", text(caption), notes)
        kind = "square" if square else None
        return element("figure", element("div", shown, **frame), below, class_=kind)

    def json(self) -> str:
        """All of them, fit to stand in a script element."""
        dumped = json.dumps(self.charts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return (
            dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )


def _how(chart: Chart, caption: str) -> str:
    keys = " Plus and minus zoom, arrow keys move, 0 shows all." if chart.zooms else ""
    return f"{caption}{keys}"


def zoom_buttons() -> Markup:
    """Buttons for all figures that show time."""
    buttons = [
        element("button", text(sign), type="button", data_zoom=name, aria_label=title, title=title)
        for name, sign, title in _ZOOM
    ]
    hint = element(
        "span",
        text("or drag over a stretch; in a figure: + - arrows 0"),
        class_="note screen",
    )
    return element("p", *buttons, text(" "), hint, class_="zoom screen", role="group",
                   aria_label="the stretch of time shown")  # fmt: skip
