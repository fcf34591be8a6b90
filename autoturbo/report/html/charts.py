"""Charts of the page: Vega-Lite specifications, their columns of data, and figures around them.

Vega is brought by vl-convert-python, which needs no network. Charts are written in Vega-Lite and
compiled here, so that a mistake shows now and not in a reader's browser. Colours are names of the
page's own style (``var(--ink)``), which SVG takes as they are: light, dark and paper then need no
script.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from autoturbo.errors import UsageError
from autoturbo.report.html.markup import Markup, element, text
from autoturbo.report.units import plain
from autoturbo.simulate.intervals import KernelInterval


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of a chart, column by column.

    Attributes:
        values: equally many per name; texts, numbers, or None.
        note: what was left out, a sentence; empty where nothing was.
    """

    values: Mapping[str, Sequence[Any]]
    note: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def as_json(self) -> dict[str, Any]:
        """Return a list per column for the page's script; of texts each once, with row numbers."""
        return {name: _packed(column) for name, column in self.values.items()}


def _packed(column: Sequence[Any]) -> Any:
    if any(isinstance(value, str) for value in column):
        texts = {text: number for number, text in enumerate(dict.fromkeys(column))}
        words = [None if text is None else plain(text) for text in texts]
        return {"of": words, "at": [texts[value] for value in column]}
    return [_short(value) for value in column]


def _short(value: Any) -> Any:
    """Return a number of six digits: more than a screen shows."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many positions of a list, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(step * (count - 1) / (most - 1)) for step in range(most)})


Spec = dict[str, Any]

_VERSION: Final = "6.4"
"""Of Vega-Lite: the newest in vl-convert 1.9."""

GROUPS: Final = 8
"""Colours of sub-graphs; further ones begin again."""

_FONT: Final = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
"""The page's: Vega measures texts before it draws them, and must know the font."""

_CONFIG: Final[Spec] = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": "var(--rule)"},
    "axis": {
        "labelColor": "var(--soft)", "titleColor": "var(--soft)", "tickColor": "var(--rule)",
        "domainColor": "var(--rule)", "gridColor": "var(--grid)", "labelFontSize": 11,
        "titleFontSize": 11, "titleFontWeight": "normal", "labelFont": _FONT,
        "titleFont": _FONT, "labelLimit": 210, "labelOverlap": "greedy",
    },
    "axisX": {"tickCount": {"expr": "max(2, width / 110)"}},
    "legend": {
        "labelColor": "var(--ink)", "titleColor": "var(--soft)", "labelFontSize": 11,
        "titleFontSize": 11, "titleFontWeight": "normal", "labelFont": _FONT,
        "titleFont": _FONT, "symbolStrokeWidth": 0, "orient": "top", "labelLimit": 260,
    },
    "text": {"fill": "var(--ink)", "font": _FONT, "fontSize": 11},
    "rule": {"stroke": "var(--soft)"},
    "aria": False,
}  # fmt: skip
"""``aria``: marks are not announced one by one; each figure has a sentence and a table instead."""


def library() -> ModuleType:
    """Return the package that brings Vega.

    Raises:
        UsageError: it is not installed, or too old.
    """
    _check_address_space()
    hint = "install it with: pip install 'autoturbo[report]'"
    try:
        import vl_convert
    except ImportError:
        message = "a report needs vl-convert-python, which is not installed"
        raise UsageError(message, hint=hint) from None
    if _VERSION not in vl_convert.get_vegalite_versions():
        message = f"this vl-convert-python lacks Vega-Lite {_VERSION}"
        raise UsageError(message, hint=hint)
    return vl_convert


_ADDRESSES_GIB: Final = 64
"""Address space that V8, in which vl-convert runs Vega, reserves: it aborts where it cannot."""


def _check_address_space() -> None:
    """Refuse to start V8 under a limit of address space that it does not survive.

    Raises:
        UsageError: there is such a limit.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most != resource.RLIM_INFINITY and most < _ADDRESSES_GIB * 2**30:
        message = f"charts reserve {_ADDRESSES_GIB} GiB of address space, {most // 2**20} MiB are"
        hint = "'ulimit -v unlimited' allows it; to limit memory itself, use a container"
        raise UsageError(f"{message} allowed here", hint=hint)


@functools.cache
def script() -> str:
    """Return Vega and what shows it in a page, as one script."""
    text: str = library().javascript_bundle(vl_version=_VERSION)
    return text


def compiled(spec: Mapping[str, Any]) -> Spec:
    """Return the Vega specification of a Vega-Lite chart of the page.

    Raises:
        ValueError: it is none.
    """
    whole = {"config": _CONFIG, "width": "container", **spec}
    found = library().vegalite_to_vega(json.dumps(whole), vl_version=_VERSION)
    known: Spec = found if isinstance(found, dict) else json.loads(found)
    return known


def quantity(field: str, title: str | None, **more: Any) -> Spec:
    """Return a channel of numbers."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def words(field: str, title: str | None, **more: Any) -> Spec:
    """Return a channel of texts in the order of the data."""
    return {"field": field, "type": "nominal", "title": title, "sort": None, **more}


_TEXTS: Final = frozenset(
    (
        "what", "of", "who", "lane", "core", "name", "title", "cut", "scope", "bound", "part",
        "level", "knob", "kind", "tried", "group",
    )
)  # fmt: skip
"""Columns of words; all others are numbers."""


def tips(**fields: str) -> list[Spec]:
    """Return what pointing at a mark shows: titles by field; numbers with four digits."""
    return [
        {"field": field, "title": title, "type": "nominal"}
        if field in _TEXTS
        else {"field": field, "title": title, "type": "quantitative", "format": ",.4~g"}
        for field, title in fields.items()
    ]


def colours(names: Mapping[str, str]) -> Spec:
    """Return a scale of names with the style's colours."""
    return {"domain": list(names), "range": [f"var(--{colour})" for colour in names.values()]}


def by_group(field: str = "group") -> Spec:
    """Return the colour channel of a sub-graph's number."""
    places = list(range(GROUPS))
    return {
        "field": field, "type": "ordinal", "legend": None,
        "scale": {"domain": places, "range": [f"var(--g{at})" for at in places]},
    }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A chart of the page.

    Attributes:
        spec: in Vega-Lite; its data are named.
        data: by name.
        zooms: shows time from ``t0`` to ``t1`` microseconds, which the page's buttons change.
    """

    spec: Spec
    data: Mapping[str, Columns]
    zooms: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return tuple(dict.fromkeys(c.note for c in self.data.values() if c.note))


def with_group_colours(columns: Columns) -> Columns:
    """Return columns with sub-graphs numbered by their colours."""
    group = [number % GROUPS for number in columns.values["group"]]
    return Columns({**columns.values, "group": group}, columns.note)


def time_axis() -> Spec:
    """Return the channel of microseconds into a pass, from ``t0`` to ``t1``."""
    limits = {
        "domainMin": {"expr": "t0"},
        "domainMax": {"expr": "t1"},
        "nice": False,
        "zero": False,
    }
    return quantity("begin", "microseconds into the pass", scale=limits, axis={"grid": False})


def time_span(kernels: Sequence[KernelInterval]) -> list[Spec]:
    """Return the parameters ``t0`` and ``t1``: a whole pass, in microseconds."""
    end = max(kernel.end for kernel in kernels) * 1e6
    return [{"name": "t0", "value": 0}, {"name": "t1", "value": end}]


LEFT_EDGE = {"minExtent": 84, "maxExtent": 84}
"""Pixels left of the axis: figures of one time stand exactly below each other."""


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
        """Add a chart to the page and return its figure.

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
        """Return all charts as JSON that may stand in a script element."""
        dumped = json.dumps(self.charts, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return (
            dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
        )


def _how(chart: Chart, caption: str) -> str:
    keys = " Plus and minus zoom, arrow keys move, 0 shows all." if chart.zooms else ""
    return f"{caption}{keys}"


def zoom_buttons() -> Markup:
    """Return the buttons that zoom all figures that show time."""
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
